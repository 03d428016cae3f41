"""The journal: what is a torn write and what is damage, record by record."""

import os
from collections.abc import Sequence

import pytest

from tests import builders
from tests.storage import handmade
from tests.storage.fsck.fsck_logs import a_log, first
from tests.storage.handmade import BATCH, CHECKPOINT, COMMITTED, END, Admitted, Disk, Hub, Segment, Tree
from veen.core.data_dir import paths
from veen.core.objects.finding import Level
from veen.core.types import Label, NodeHash
from veen.storage.fsck import Report, check

#: Every size in long runs (make faults); in others one of some, and those of whole records.
STEP = 1 if os.environ.get("VEEN_FLIP_STEP") == "1" else 7
N7, N8 = paths.journal(7), paths.journal(8)


def tree_of(hub: Hub, *segments: Segment) -> Tree:
    """Return a directory with nothing in chunks and these segments."""
    return handmade.directory(hub, flushed=0, journal_from=len(hub.events)) | {
        segment.path: segment.data for segment in segments
    }


def ok(tree: Tree, level: Level = Level.FULL) -> Report:
    report = check(Disk(tree), level)
    assert [str(finding) for finding in report.findings] == []
    return report


def entries(hub: Hub) -> Sequence[Admitted]:
    return [item for item in hub.events if isinstance(item, Admitted)]


def head(report: Report) -> int:
    return sum(item.head_seq for item in report.labels)


# --- the last segment ---------------------------------------------------------------------------------------


def test_a_torn_write_at_the_end_counts_for_nothing() -> None:
    """Cut anywhere, a journal holds the batches that are whole."""
    hub, _ = a_log(6)
    segment = Segment(7).events(hub, hub.events, 2)
    batches = segment.offsets[1::2]
    for size in {*range(0, len(segment.data), STEP), *segment.offsets}:
        cut = segment.data[:size]
        report = ok(tree_of(hub) | {N7: cut}, Level.ROOTS)
        assert head(report) == 2 * sum(offset <= size for offset in batches)
        at_a_boundary = size in segment.offsets
        assert len(report.notes) == (0 if at_a_boundary else 1)
        for garbage in (bytes(50), b"\xff" * 50) if size >= 40 else ():
            assert head(ok(tree_of(hub) | {N7: cut + garbage}, Level.ROOTS)) == head(report)


@pytest.mark.parametrize("kind", [BATCH, CHECKPOINT])
def test_a_record_that_was_not_committed_may_be_torn(kind: int) -> None:
    hub, label = a_log(4)
    checkpoint = hub.checkpoint(label, 2)
    segment = Segment(7).batch(entries(hub)[:2]).record(COMMITTED)
    if kind == BATCH:
        segment.batch(entries(hub)[2:])
    else:
        segment.record(CHECKPOINT, checkpoint.encode())
    start = segment.offsets[-1]
    for at in range(start, len(segment.data), 5):
        torn = segment.data[:at] + bytes([segment.data[at] ^ 4]) + segment.data[at + 1 :]
        report = ok(tree_of(hub) | {N7: torn})
        assert head(report) == 2
        assert report.notes[0].startswith(f"{N7} at byte {start}: ")
    whole = ok(tree_of(hub, segment))
    assert head(whole) == (4 if kind == BATCH else 2)
    assert whole.notes == ()


@pytest.mark.parametrize("kind", [BATCH, CHECKPOINT])
def test_a_committed_record_may_not(kind: int) -> None:
    hub, label = a_log(4)
    segment = Segment(7).batch(entries(hub)[:2]).record(COMMITTED)
    if kind == BATCH:
        segment.batch(entries(hub)[2:])
    else:
        segment.record(CHECKPOINT, hub.checkpoint(label, 2).encode())
    start = segment.offsets[-1]
    end = len(segment.data)
    segment.record(COMMITTED)
    for at in range(start, end, 5):
        data = segment.data[:at] + bytes([segment.data[at] ^ 4]) + segment.data[at + 1 :]
        assert first(tree_of(hub) | {N7: data}) == (N7, start, "JOURNAL_RECORD")


def test_a_hole_in_the_middle_is_damage() -> None:
    hub, _ = a_log(6)
    segment = Segment(7).events(hub, hub.events, 2)
    start, end = segment.offsets[2], segment.offsets[4]
    data = segment.data[:start] + bytes(end - start) + segment.data[end:]
    assert first(tree_of(hub) | {N7: data}) == (N7, start, "JOURNAL_RECORD")


def test_a_record_of_another_place_or_segment_is_not_valid() -> None:
    """What a disk returns of an older file proves nothing about this one."""
    hub, _ = a_log(4)
    segment, other = (Segment(number).events(hub, hub.events[:2], 2) for number in (7, 8))
    for stale in (segment.data[40:], other.data[40:]):
        report = ok(tree_of(hub) | {N7: segment.data + b"torn" + stale})
        assert head(report) == 2
        assert len(report.notes) == 1


# --- several segments ---------------------------------------------------------------------------------------


def two_segments(*, ended: bool = True) -> tuple[Hub, Segment, Segment]:
    hub, _ = a_log(4)
    one, two = Segment(7).events(hub, hub.events[:2], 2), Segment(8).events(hub, hub.events[2:], 2)
    if ended:
        one.record(END)
    return hub, one, two


def test_an_end_record_is_needed_in_front_of_records() -> None:
    hub, one, two = two_segments(ended=False)
    assert first(tree_of(hub, one, two)) == (N7, len(one.data), "JOURNAL_RECORD")
    assert head(ok(tree_of(hub, one, Segment(8)))) == 2


def test_a_torn_write_in_front_of_records_is_damage() -> None:
    hub, one, two = two_segments()
    for size in range(1, len(one.data)):
        assert first(tree_of(hub, one, two) | {N7: one.data[:size]}, Level.FRAMES)[::2] in (
            (N7, "JOURNAL_RECORD"),
            (N7, "JOURNAL_HEADER"),
        )
    damaged = one.data[:-1] + b"?"
    assert first(tree_of(hub, one, two) | {N7: damaged}) == (N7, one.offsets[-1], "JOURNAL_RECORD")
    report = ok(tree_of(hub, Segment(8)) | {N7: damaged})
    assert head(report) == 2


def test_a_segment_that_was_being_created() -> None:
    hub, one, two = two_segments()
    for size in range(41):
        report = ok(tree_of(hub, one) | {N8: two.data[:size]})
        assert head(report) == 2
        assert len(report.notes) == (0 if size == 40 else 1)


def test_numbers_have_no_gap() -> None:
    hub, one, two = two_segments()
    tree = tree_of(hub, one, two)
    assert first({path: tree[path] for path in tree if path != N8}) == (N8, None, "MISSING")
    assert first({path: tree[path] for path in tree if path != N7})[::2] == (N8, "GAP")
    three = Segment(9)
    two.record(END)
    tree = tree_of(hub, one, two, three)
    assert first({path: tree[path] for path in tree if path != N8}) == (N8, None, "MISSING")


def test_a_header_of_another_segment() -> None:
    hub, one, two = two_segments()
    assert first(tree_of(hub, one) | {N8: one.data}) == (N8, 0, "JOURNAL_HEADER")
    assert first(tree_of(hub, one) | {N8: b"?" * 40 + two.data[40:]}) == (N8, 0, "JOURNAL_HEADER")


def test_an_old_segment_may_stay_when_a_newer_one_is_gone() -> None:
    hub, one, _ = two_segments(ended=False)
    assert ok(handmade.directory(hub) | {N7: one.data}).journal_entries == 0


# --- records that check out, but can not be -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "payload", "bindings"),
    [
        (COMMITTED, b"x", 0),
        (END, b"x", 0),
        (COMMITTED, b"", 1),
        (5, b"", 0),
        (0, b"", 0),
        (BATCH, b"x" * 71, 1),
    ],
)
def test_records_that_do_not_exist(kind: int, payload: bytes, bindings: int) -> None:
    hub, _ = a_log(2)
    segment = Segment(7).events(hub, hub.events, 2)
    at = len(segment.data)
    segment.record(kind, payload, bindings)
    assert first(tree_of(hub, segment)) == (N7, at, "JOURNAL_RECORD")


def test_bytes_behind_the_end() -> None:
    hub, one, two = two_segments()
    size = len(one.data)
    assert first(tree_of(hub, one, two) | {N7: one.data + b"\x00"}) == (N7, size, "JOURNAL_RECORD")


def test_a_batch_with_half_an_entry() -> None:
    hub, _ = a_log(2)
    frame = entries(hub)[0].frame
    for payload in (frame[:50], frame[:-1], frame + frame[:10]):
        assert first(tree_of(hub, Segment(7).record(BATCH, payload)))[::2] == (N7, "ENTRY_LENGTH")


def test_entries_out_of_order() -> None:
    hub, _ = a_log(4)
    one, two, three, four = entries(hub)
    for order in ([two, one], [one, three], [one, one]):
        assert first(tree_of(hub, Segment(7).batch(order)), Level.FRAMES)[2] == "ORDER"
    assert head(ok(tree_of(hub, Segment(7).batch([one]).batch([two, three]).batch([four])))) == 4


def test_bindings_name_the_label_of_their_stream() -> None:
    hub, label = a_log(2)
    good = (builders.stream("stream"), 0, label)
    ok(tree_of(hub, Segment(7).batch(entries(hub), [good, good])))
    for bad in ((builders.stream("stream"), 1, label), (builders.stream("s"), 0, label)):
        segment = Segment(7).batch(entries(hub), [good, bad])
        assert first(tree_of(hub, segment)) == (N7, 40 + 32 + 72, "BINDING")


def test_a_journal_entry_that_differs_from_the_chunk() -> None:
    hub, label = a_log(6)
    other, _ = a_log(5)
    other.send(label, "client 1", size=9)
    tree = handmade.directory(hub) | handmade.journal_files(other, other.events[4:], 9, 2, 7)
    path = paths.open_chunk(paths.Domain.DATA, label, 5)
    assert first(tree) == (path, len(hub.entries(label)[4].frame), "CONFLICT")


def test_a_wrong_entry_in_the_journal() -> None:
    hub, label = a_log(2)
    item = hub.entries(label)[1]
    broken = Admitted(item.domain, label, item.frame[:-1] + b"?", item.receipt)
    segment = Segment(7).batch([entries(hub)[0], broken])
    offset = 40 + 32 + len(entries(hub)[0].frame)
    assert first(tree_of(hub, segment)) == (N7, offset, "ENTRY_HASH")


# --- checkpoints that were asked for ------------------------------------------------------------------------


def with_checkpoint(hub: Hub, label: Label, upto: int, root: NodeHash | None = None) -> Tree:
    segment = Segment(7).events(hub, hub.events, 2)
    segment.record(CHECKPOINT, hub.checkpoint(label, upto, root=root).encode()).record(COMMITTED)
    return tree_of(hub, segment)


def test_a_checkpoint_without_files_yet() -> None:
    hub, label = a_log(6)
    for upto in range(1, 7):
        assert ok(with_checkpoint(hub, label, upto)).notes == ()


def test_a_checkpoint_of_entries_in_chunks() -> None:
    hub, label = a_log(6)
    hub.ask(label, 3)
    assert ok(handmade.directory(hub, flushed=6)).notes == ()
    assert ok(handmade.directory(hub, journal_from=6)).notes == ()
    pruned = handmade.prune(hub, handmade.directory(hub, flushed=6), label)
    assert ok(pruned).notes == ()


def test_a_wrong_checkpoint() -> None:
    hub, label = a_log(6)
    root = NodeHash(builders.digest("another root"))
    path, offset, reason = first(with_checkpoint(hub, label, 3, root))
    assert (path, reason) == (N7, "CHECKPOINT_ROOT")
    assert offset is not None
    assert offset > 40


def test_a_checkpoint_of_entries_that_are_not_there() -> None:
    hub, label = a_log(6)
    tree = with_checkpoint(hub, label, 7, NodeHash(builders.digest("another root")))
    assert first(tree)[::2] == (N7, "GAP")


def test_a_checkpoint_of_a_label_that_is_not_there() -> None:
    hub, _ = a_log(6)
    tree = with_checkpoint(hub, builders.some_label(), 1, NodeHash(builders.digest("another root")))
    assert first(tree)[::2] == (N7, "GAP")


def test_a_checkpoint_that_is_none() -> None:
    hub, _ = a_log(2)
    segment = Segment(7).record(CHECKPOINT, b"\x80").record(COMMITTED)
    assert first(tree_of(hub, segment)) == (N7, 40 + 32, "CBOR_INVALID")
