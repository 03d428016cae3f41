"""One flipped bit in a byte of a directory: found, in the right file, or harmless for a stated reason."""

import bz2
import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from tests import builders
from tests.storage import handmade, handmade_fork
from tests.storage.handmade import Disk, Hub, Tree
from veen.core.data_dir import paths as layout
from veen.core.data_dir.chunk_artifacts import ChunkSummary
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import StoreRecord, Tombstone
from veen.core.errors import ProtocolError
from veen.core.objects.finding import Level
from veen.core.types import Label
from veen.storage.fsck import Report, check

pytestmark = pytest.mark.sweep

IDENTITY = {"hub-identity.cbor", "hub-identity.sig"}
ARCHIVED = {"archive/hub-identity.cbor", "archive/hub-identity.sig"}


@cache
def history() -> tuple[Hub, Label]:
    """Return a hub with one chunk and a half, both reserved logs, and checkpoints that were asked for."""
    hub = Hub(later_keys={1_004: "second key"})
    label = hub.label("stream")
    hub.authorize(builders.cap_token())
    hub.control(b"a record")
    for number in range(6):
        hub.send(label, f"client {number % 2}")
        if number == 1:
            hub.ask(label)
    hub.ask(label)
    return hub, label


@dataclass(frozen=True)
class Case:
    """A directory, which of its files to damage, and what is allowed to happen then."""

    tree: Tree
    paths: list[str]
    #: Whether this damage may pass unseen, and must then be seen in the notes (path, content before, after).
    harmless: Callable[[str, bytes, bytes], bool]
    #: Files that are named instead, because nothing tells which of several is the wrong one.
    also: Callable[[str], set[str]]
    #: How much of it may be harmless at most.
    unseen: float
    #: Nodes of pruned entries: nothing can rebuild them.
    lasting_nodes: int = 0
    #: The level that finds all of this; signatures are half of the time.
    level: Level = Level.FULL


def only_itself(_path: str) -> set[str]:
    return set()


def in_a_committed_record(before: bytes, after: bytes) -> bool:
    """Tell whether only a record changed that says nothing but that the one before it is durable."""
    for start, kind, end in handmade.records(before):
        if before[:start] == after[:start] and before[end:] == after[end:]:
            return kind == handmade.COMMITTED
    return False


def settled() -> Case:
    """Everything is in chunks."""
    hub, label = history()
    tree = handmade.directory(hub, index=True)
    chunks = handmade.split(hub, hub.entries(label))

    def harmless(path: str, _before: bytes, after: bytes) -> bool:
        if path != layout.STORE:
            return False
        # store.cbor has no checksum. A limit that is not about chunks, or that would not have ended any of
        # them elsewhere, and lengths of epochs say nothing about this log.
        with contextlib.suppress(ProtocolError):
            store = StoreRecord.decode(after)
            other = replace(hub, registries=store.registries)
            same = [item.entries for item in chunks] == [
                item.entries for item in handmade.split(other, hub.entries(label))
            ]
            return store.hub_id == hub.store.hub_id and same
        return False

    def also(path: str) -> set[str]:
        # Other limits put the end of a chunk elsewhere.
        return (
            IDENTITY
            if path in IDENTITY
            else {item.path() for item in chunks}
            if path == layout.STORE
            else set()
        )

    return Case(tree, sorted(tree.keys() - {layout.LOCK}), harmless, also, unseen=0.01)


def journal() -> Case:
    """Entries are in two segments of the journal only."""
    hub, _ = history()
    tree = handmade.directory(hub, flushed=6, segment_events=3)

    def harmless(_path: str, before: bytes, after: bytes) -> bool:
        return in_a_committed_record(before, after)

    segments = [path for path in sorted(tree) if path.endswith(".wal")]
    return Case(tree, segments, harmless, only_itself, unseen=0.1, level=Level.HASHES)


def moved() -> Case:
    """The journal still holds entries that are in chunks already: a flush writes those files once more."""
    hub, label = history()
    tree = handmade.directory(hub, flushed=9, journal_from=5, segment_events=3)
    before = handmade.directory(hub, flushed=5)
    sealed = layout.chunk(Domain.DATA, label, 1, 4)

    def harmless(path: str, old: bytes, new: bytes) -> bool:
        if path.endswith(".wal"):
            return in_a_committed_record(old, new)
        if path == sealed:  # got its name when it was durable; it differs from the journal
            return False
        # Behind what was there before the flush, or all new.
        length = len(before.get(path, b""))
        return path.startswith(("log/", "receipts", "checkpoints")) and old[:length] == new[:length]

    paths = [path for path in sorted(tree) if before.get(path) != tree[path] and path != layout.LOCK]
    return Case(tree, paths, harmless, only_itself, unseen=0.5, level=Level.ROOTS)


def pruned() -> Case:
    """The first chunk is pruned."""
    hub, label = history()
    tree = handmade.prune(hub, handmade.directory(hub), label)
    stone = layout.tombstone(Domain.DATA, label, 1, 4)
    summary = layout.summary(Domain.DATA, label, 1, 4)

    def harmless(path: str, before: bytes, after: bytes) -> bool:
        with contextlib.suppress(ProtocolError):
            if path == stone:  # times that fit as well as the right ones; the entries are gone
                old, new = Tombstone.decode(before), Tombstone.decode(after)
                return replace(new, first_ts=old.first_ts, last_ts=old.last_ts) == old
            if path == summary:  # a hash over hashes that are gone
                one, other = ChunkSummary.decode(before), ChunkSummary.decode(after)
                return replace(other, entry_hashes_root=one.entry_hashes_root) == one
        return False

    def also(path: str) -> set[str]:
        # A client or a time that does not fit the next entry; the size of the chunk stands in two files.
        return (
            {stone, summary, layout.open_chunk(Domain.DATA, label, 5)} if path in (stone, summary) else set()
        )

    paths = [path for path in sorted(tree) if label.hex() in path or path.endswith("cborseq")]
    return Case(tree, paths, harmless, also, unseen=0.02, lasting_nodes=7 * 32)


def compressed() -> Case:
    """The first chunk is compressed."""
    hub, label = history()
    path = layout.chunk(Domain.DATA, label, 1, 4)
    tree = handmade.compress(handmade.directory(hub), path)

    def harmless(_path: str, before: bytes, after: bytes) -> bool:
        # bzip2 has a few bits that do not matter: the block size of a shorter file, padding at the end.
        with contextlib.suppress(OSError, ValueError):
            return bz2.decompress(before) == bz2.decompress(after)
        return False

    return Case(tree, [path + ".bz2"], harmless, only_itself, unseen=0.01, level=Level.HASHES)


def forked() -> Case:
    """The whole log is a copy of another hub's."""
    hub, label = history()
    child = Hub(name="child", clock=3_000)
    child.send(child.label("its own"))
    tree = handmade_fork.fork(hub, child)

    def harmless(path: str, _before: bytes, after: bytes) -> bool:
        # As for store.cbor itself; this one is for the parent's reserved logs, of one entry each.
        with contextlib.suppress(ProtocolError):
            return path == "archive/store.cbor" and StoreRecord.decode(after).hub_id == hub.store.hub_id
        return False

    def also(path: str) -> set[str]:
        return ARCHIVED if path in ARCHIVED else IDENTITY if path in IDENTITY else set()

    archive = [path for path in sorted(tree) if path.startswith("archive/")]
    own = [layout.FORK, *sorted(IDENTITY), layout.open_chunk(Domain.DATA, label, 5)]
    return Case(tree, own + archive, harmless, also, unseen=0.04)


CASES = [settled, journal, moved, pruned, compressed, forked]


def flips(content: bytes, start: int, stride: int) -> Iterator[tuple[int, bytes]]:
    for at in range(start, len(content), stride):
        yield at, content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]


def complaint(case: Case, path: str, at: int, after: bytes, report: Report) -> str | None:
    """Say what is wrong with the checker's answer to a damaged file."""
    if case.harmless(path, case.tree[path], after):
        return (
            None
            if report.ok or report.findings[0].where.file in case.also(path) | {path}
            else "blames another file"
        )
    if report.ok:
        return "not found"
    first = report.findings[0]
    if first.where.file not in case.also(path) | {path}:
        return f"blames {first}"
    derived = path in (layout.RECEIPTS, layout.CHECKPOINTS) or "checkpoint-index" in path
    derived = derived or ("/nodes-" in path and at >= case.lasting_nodes)
    return (
        None
        if (report.integrity == "ok") == derived
        else "a derived file is taken for the log, or the log for one"
    )


#: Every byte in long runs (make faults), in four parts; in others every 13th.
PARTS = [(start, 4) for start in range(4)] if os.environ.get("VEEN_FLIP_STEP") == "1" else [(0, 13)]


@pytest.mark.parametrize(("start", "stride"), PARTS)
@pytest.mark.parametrize("make", CASES)
def test_a_flipped_bit_is_found_in_its_file(make: Callable[[], Case], start: int, stride: int) -> None:
    case = make()
    assert check(Disk(case.tree)).ok
    complaints = []
    unseen = 0
    for path in case.paths:
        for at, after in flips(case.tree[path], start, stride):
            report = check(Disk(case.tree | {path: after}), case.level)
            unseen += report.ok
            mistake = complaint(case, path, at, after, report)
            if mistake is not None:
                complaints.append(f"{path} at {at}: {mistake}")
    assert complaints == []
    total = sum(len(case.tree[path]) for path in case.paths) // stride
    assert unseen <= 5 + total * case.unseen


def test_what_a_flush_writes_once_more_is_noted() -> None:
    case = moved()
    chunk = next(path for path in case.paths if path.endswith("open.log"))
    report = check(Disk(case.tree | {chunk: case.tree[chunk][:-1] + b"x"}))
    assert report.ok
    assert report.notes[0].startswith(f"{chunk} at byte ")
    assert all("interrupted flush, will be redone at start" in note for note in report.notes)
