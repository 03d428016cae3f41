"""The checks of a part of a log: shared by the data source, ``verify`` and ``ingest``.

Faults are reported per entry. Checks that depend on the entries before (peaks, times, clients) start from the
stated values, and return the values at the end, so that a caller with all parts can compare them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

import numpy as np

from veen.core.crypto import ed25519
from veen.core.crypto.hash import tag_prefix
from veen.core.errors import Detail, ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects.finding import Level
from veen.core.types import NodeHash, VerifyKey
from veen.pipeline.log.entry_columns import Bytes, Entries, rows
from veen.pipeline.log.hub_keys import HubKeys, verify_receipt

_ENTRY_TAG: Final = b"veen/entry"
_LEAF_TAG: Final = tag_prefix("veen/leaf")
# A signature is over the object without the signature: an array shorter by one (C-05).
_MSG_TAG: Final = tag_prefix("veen/sig") + b"\x89"
_RECEIPT_TAG: Final = tag_prefix("veen/sig") + b"\x86"
_SIG_FIELD: Final = 66


class EntryFault(NamedTuple):
    """What is wrong with an entry: ``detail`` is a stable name, ``text`` is for display."""

    seq: int
    detail: str
    text: str


class Client(NamedTuple):
    """The first and last message of a client in a part; those in between were checked."""

    first_seq: int
    first_ack: int
    first_at: int
    last_seq: int
    last_ack: int


@dataclass(slots=True)
class Checked:
    """The result of checking a part."""

    # The first fault of each entry.
    faults: list[EntryFault]
    # Where a client_seq was skipped or repeated: the entries are genuine, but one is missing.
    gaps: list[EntryFault] = field(default_factory=list)
    # After the last entry; None if none were stated before the first.
    peaks: Peaks | None = None
    first_ts: int = 0
    last_ts: int = 0
    # The stated roots after the ``wanted`` entries.
    roots: dict[int, NodeHash] = field(default_factory=dict)
    clients: dict[VerifyKey, Client] = field(default_factory=dict)


def check(
    entries: Entries,
    level: Level,
    *,
    keys: HubKeys | None = None,
    peaks: Peaks | None = None,
    wanted: Iterable[int] = (),
) -> Checked:
    """Check a part; return the stated roots of the ``wanted`` entries.

    Without ``peaks`` roots are not compared, without ``keys`` the hub's signatures are not checked.
    """
    checked = Checked([])
    if not len(entries):
        checked.peaks = peaks
        return checked
    faults: list[EntryFault] = []
    if level >= Level.FRAMES:
        faults += _check_frames(entries)
    if level >= Level.HASHES:
        faults += _check_hashes(entries)
    if level >= Level.ROOTS:
        faults += _check_times(entries)
        if peaks is not None:
            checked.peaks, wrong = _check_roots(entries, peaks)
            faults += wrong
    if level >= Level.FULL:
        faults += _check_signatures(entries, keys)
        checked.clients, checked.gaps = follow_clients(entries)
    checked.faults = _firsts(faults)
    checked.first_ts, checked.last_ts = int(entries.hub_ts[0]), int(entries.hub_ts[-1])
    first = int(entries.stream_seq[0])
    checked.roots = {seq: NodeHash(entries.mmr_root[seq - first].tobytes()) for seq in wanted}
    return checked


def _firsts(faults: list[EntryFault]) -> list[EntryFault]:
    """Return the first fault of each entry, ordered by entry; ``faults`` are in the order of the checks."""
    first_faults: dict[int, EntryFault] = {}
    for fault in faults:
        first_faults.setdefault(fault.seq, fault)
    return [first_faults[seq] for seq in sorted(first_faults)]


def _differing(entries: Entries, computed: Sequence[bytes], stated: Bytes) -> Iterator[int]:
    """Yield the positions of entries whose computed hash differs from the stated one."""
    if b"".join(computed) == stated.tobytes():
        return
    for nth, (one, other) in enumerate(zip(computed, rows(stated), strict=True)):
        if one != other:
            yield int(entries.stream_seq[nth])


def _check_frames(entries: Entries) -> list[EntryFault]:
    data = entries.frames.data
    spans = zip(entries.msg_start.tolist(), entries.receipt_end.tolist(), strict=True)
    computed = [sha256(_ENTRY_TAG + data[start:end]).digest() for start, end in spans]
    text = "entry_hash does not match the stored bytes"
    return [
        EntryFault(seq, Detail.ENTRY_HASH.value, text)
        for seq in _differing(entries, computed, entries.entry_hash)
    ]


def _check_hashes(entries: Entries) -> list[EntryFault]:
    data = entries.frames.data
    spans = zip(entries.ct_start.tolist(), entries.ct_end.tolist(), strict=True)
    hashes = [sha256(data[start:end]).digest() for start, end in spans]
    faults = [
        EntryFault(seq, Detail.CT_HASH.value, "ct_hash is not the hash of the ciphertext")
        for seq in _differing(entries, hashes, entries.ct_hash)
    ]
    faults += [
        EntryFault(seq, Detail.LEAF_HASH.value, "leaf_hash is not the one of the message")
        for seq in _differing(entries, _leaves(entries), entries.leaf_hash)
    ]
    return faults


def _leaves(entries: Entries) -> list[bytes]:
    """Return the leaf of each message (invariant I2)."""
    count = len(entries)
    fixed = np.frombuffer(_LEAF_TAG + entries.label, dtype=np.uint8)
    parts = (
        np.broadcast_to(fixed, (count, len(fixed))),
        entries.profile_id,
        entries.ct_hash,
        entries.client_id,
        entries.client_seq.astype(">u8").view(np.uint8).reshape(count, 8),
    )
    return [sha256(row).digest() for row in rows(np.concatenate(parts, axis=1))]


def _check_times(entries: Entries) -> list[EntryFault]:
    back = np.flatnonzero(np.diff(entries.hub_ts) < 0) + 1
    return [
        EntryFault(
            int(entries.stream_seq[nth]),
            Detail.VALUE.value,
            f"hub_ts goes back from {entries.hub_ts[nth - 1]} to {entries.hub_ts[nth]}",
        )
        for nth in back
    ]


def _check_roots(entries: Entries, peaks: Peaks) -> tuple[Peaks, list[EntryFault]]:
    after, roots = peaks.extend(entries.leaves())
    text = "mmr_root is not the root over all entries up to here"
    faults = [
        EntryFault(seq, Detail.PROOF_ROOT.value, text) for seq in _differing(entries, roots, entries.mmr_root)
    ]
    return after, faults


def _check_signatures(entries: Entries, keys: HubKeys | None) -> list[EntryFault]:
    """Check the hub's signature of each receipt, and the client's of each message."""
    data, faults = entries.frames.data, list[EntryFault]()
    times, seqs = entries.hub_ts.tolist(), entries.stream_seq.tolist()
    starts, middles, ends = (
        entries.msg_start.tolist(),
        entries.msg_end.tolist(),
        entries.receipt_end.tolist(),
    )
    clients, sigs, hub_sigs = rows(entries.client_id), rows(entries.sig), rows(entries.hub_sig)
    active = [] if keys is None else keys.active(entries.label, min(times), max(times))
    for nth, seq in enumerate(seqs):
        start, middle, end = starts[nth], middles[nth], ends[nth]
        try:
            if keys is not None:
                digest = sha256(_RECEIPT_TAG + data[middle + 1 : end - _SIG_FIELD]).digest()
                verify_receipt(active, times[nth], digest, hub_sigs[nth])
            digest = sha256(_MSG_TAG + data[start + 1 : middle - _SIG_FIELD]).digest()
            ed25519.verify(VerifyKey(clients[nth]), digest, sigs[nth])
        except ProtocolError as error:
            faults.append(EntryFault(seq, error.detail.value, error.message))
    return faults


def follow_clients(entries: Entries) -> tuple[dict[VerifyKey, Client], list[EntryFault]]:
    """Check that client_seq increases by one for each client in a part, and prev_ack never decreases."""
    numbers: dict[bytes, int] = {}
    codes = np.array([numbers.setdefault(one, len(numbers)) for one in rows(entries.client_id)])
    order = np.argsort(codes, kind="stable")  # by client, then by position
    codes, seqs, acks, ats = (
        column[order] for column in (codes, entries.client_seq, entries.prev_ack, entries.stream_seq)
    )
    same_client = codes[1:] == codes[:-1]
    continues = (seqs[1:] == seqs[:-1] + 1) & (acks[1:] >= acks[:-1]) & (acks[1:] < ats[1:])
    faults = []
    for nth in np.flatnonzero(same_client & ~continues).tolist():
        fault = follows(
            int(seqs[nth]), int(acks[nth]), int(seqs[nth + 1]), int(acks[nth + 1]), int(ats[nth + 1])
        )
        assert fault is not None
        faults.append(fault)
    starts = np.flatnonzero(np.concatenate(([True], ~same_client)))
    ends = np.append(starts[1:], len(codes)) - 1
    columns = (seqs[starts], acks[starts], ats[starts], seqs[ends], acks[ends])
    # Clients are numbered by first appearance, and so are their runs.
    runs = zip(numbers, zip(*(column.tolist() for column in columns), strict=True), strict=True)
    return {VerifyKey(one): Client(*places) for one, places in runs}, sorted(faults)


def follows(last_seq: int, last_ack: int, seq: int, ack: int, at: int) -> EntryFault | None:
    """Return what is wrong with a client's next message at entry ``at``; None if it follows."""
    if seq != last_seq + 1:
        detail = Detail.DUPLICATE if seq <= last_seq else Detail.CLIENT_SEQ
        return EntryFault(at, detail.value, f"client_seq {seq} where {last_seq + 1} should be")
    if not last_ack <= ack < at:
        text = f"prev_ack {ack} is not between {last_ack} and {at - 1}"
        return EntryFault(at, Detail.PREV_ACK.value, text)
    return None
