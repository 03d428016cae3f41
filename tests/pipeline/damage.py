"""Damage to a data directory, as a disk, a clumsy hand or a dishonest hub does it."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import builders
from tests.pipeline.log_builder import Hub
from veen.core.merkle.mmr import Peaks
from veen.core.objects.entry import Entry
from veen.core.objects.receipt import Receipt
from veen.core.types import Label, NodeHash


@dataclass(frozen=True)
class Damage:
    """What was done, and what a verification must name: any of these entries, of this label."""

    label: Label
    seqs: range
    #: A word of the reason, if it is certain.
    reason: str = ""


def chunks(hub: Hub, label: Label) -> list[Path]:
    """Return the sealed chunks of a label, in order."""
    return sorted((hub.root / "log").glob(f"chunk-{label.hex()}-*[0-9].log"))


def _range(chunk: Path) -> range:
    first, last = chunk.stem.split("-")[2:4]
    return range(int(first), int(last) + 1)


def entries_of(chunk: Path) -> list[Entry]:
    """Return the entries of a chunk."""
    data, at, found = chunk.read_bytes(), 0, []
    while at < len(data):
        entry, at = Entry.decode(data, at)
        found.append(entry)
    return found


def _write(chunk: Path, entries: list[Entry]) -> None:
    chunk.write_bytes(b"".join(entry.encode() for entry in entries))


def flipped_bit(hub: Hub, label: Label, chance: random.Random) -> Damage:
    """Flip a bit of a chunk, anywhere."""
    chunk = chance.choice(chunks(hub, label))
    data = bytearray(chunk.read_bytes())
    place = chance.randrange(len(data))
    data[place] ^= 1 << chance.randrange(8)
    at, seq = 0, _range(chunk).start - 1
    for entry in entries_of(chunk):
        seq += 1
        at += entry.entry_len
        if place < at:
            break
    chunk.write_bytes(data)
    return Damage(label, range(seq, seq + 1))


def truncated(hub: Hub, label: Label, chance: random.Random) -> Damage:
    """Cut the end of a chunk off."""
    chunk = chance.choice(chunks(hub, label))
    data = chunk.read_bytes()
    chunk.write_bytes(data[: chance.randrange(len(data))])
    return Damage(label, _range(chunk))


def swapped_entries(hub: Hub, label: Label, chance: random.Random) -> Damage:
    """Exchange two neighbours."""
    chunk = chance.choice(chunks(hub, label))
    entries = entries_of(chunk)
    nth = chance.randrange(len(entries) - 1)
    entries[nth], entries[nth + 1] = entries[nth + 1], entries[nth]
    _write(chunk, entries)
    return Damage(label, _range(chunk)[nth : nth + 1])


def swapped_chunks(hub: Hub, label: Label, chance: random.Random) -> Damage:
    """Exchange the content of two chunks."""
    one, other = chance.sample(chunks(hub, label), 2)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    earlier = min(one, other)
    return Damage(label, _range(earlier)[:1])


def removed_chunk(hub: Hub, label: Label, chance: random.Random) -> Damage:
    """Remove a chunk from the middle."""
    chunk = chance.choice(chunks(hub, label)[1:-1] or chunks(hub, label))
    chunk.unlink()
    return Damage(label, _range(chunk)[:1], "missing")


def forged_root(hub: Hub, label: Label, chance: random.Random) -> Damage:
    """Have the hub sign a receipt with a root that is not the log's."""
    chunk = chance.choice(chunks(hub, label))
    entries = entries_of(chunk)
    nth = chance.randrange(len(entries))
    entries[nth] = _resigned(hub, entries[nth], NodeHash(builders.digest("another root")))
    _write(chunk, entries)
    return Damage(label, _range(chunk)[nth : nth + 1], "root")


def _resigned(hub: Hub, entry: Entry, root: NodeHash) -> Entry:
    old = entry.receipt
    key = hub.home.ring.active(old.hub_ts)
    receipt = Receipt.sign(
        key,
        label=old.label,
        stream_seq=old.stream_seq,
        leaf_hash=old.leaf_hash,
        mmr_root=root,
        hub_ts=old.hub_ts,
    )
    return Entry(entry.msg_bytes, receipt)


def forged_signature(hub: Hub, label: Label, chance: random.Random) -> Damage:
    """Have somebody else sign a receipt."""
    chunk = chance.choice(chunks(hub, label))
    entries = entries_of(chunk)
    nth = chance.randrange(len(entries))
    old = entries[nth].receipt
    receipt = Receipt.sign(
        builders.signing_key("a stranger"),
        label=old.label,
        stream_seq=old.stream_seq,
        leaf_hash=old.leaf_hash,
        mmr_root=old.mmr_root,
        hub_ts=old.hub_ts,
    )
    entries[nth] = Entry(entries[nth].msg_bytes, receipt)
    _write(chunk, entries)
    return Damage(label, _range(chunk)[nth : nth + 1], "signature")


def resigned_fork(hub: Hub, label: Label, chance: random.Random) -> Damage:
    """Have the hub write its history anew from some entry on: one message less, everything signed again."""
    files = chunks(hub, label)
    all_entries = [entry for chunk in files for entry in entries_of(chunk)]
    nth = chance.randrange(len(all_entries) - 1)
    order = [*range(nth), *range(nth + 1, len(all_entries)), nth]  # the one that is moved comes last
    peaks, made = Peaks.empty(), list[Entry]()
    for seq, old in enumerate((all_entries[at] for at in order), 1):
        peaks = peaks.append(old.receipt.leaf_hash)
        now = all_entries[seq - 1].receipt
        receipt = Receipt.sign(
            hub.home.ring.active(now.hub_ts),
            label=label,
            stream_seq=seq,
            leaf_hash=old.receipt.leaf_hash,
            mmr_root=peaks.root,
            hub_ts=now.hub_ts,
        )
        made.append(Entry(old.msg_bytes, receipt))
    for chunk in files:
        span = _range(chunk)
        _write(chunk, made[span.start - 1 : span.stop - 1])
    return Damage(label, range(nth + 1, len(all_entries) + 1))


Do = Callable[[Hub, Label, random.Random], Damage]
ALL: tuple[Do, ...] = (
    flipped_bit,
    truncated,
    swapped_entries,
    swapped_chunks,
    removed_chunk,
    forged_root,
    forged_signature,
    resigned_fork,
)
