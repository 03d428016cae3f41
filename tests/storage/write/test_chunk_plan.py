"""Where chunks end and what follows from it, against a plain reading of the rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import digest, verify_key
from tests.storage.stores import A, signed_receipt
from veen.core.data_dir.chunk_artifacts import ChunkSummary
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import Registry, StoreRecord
from veen.core.limits import Limits
from veen.core.merkle.mmr import Peaks, complete_nodes
from veen.core.objects.entry import Entry, entry_hash
from veen.core.objects.new_entry import NewEntry
from veen.core.types import HubId, LeafHash
from veen.storage.directory import limits_by_time
from veen.storage.index.label_state import Head, LabelState
from veen.storage.journal.tail import Staged, stage
from veen.storage.write.chunk_plan import Growth, grow

#: Sizes and times of entries: the content's bytes, and seconds since the one before.
Shape = tuple[int, int]
shapes = st.lists(st.tuples(st.integers(0, 400), st.sampled_from([0, 0, 1, 5])), max_size=24)


def limits(max_chunk_bytes: int = 1_000, interval: int = 4) -> Limits:
    return Limits(max_msg_bytes=500, max_chunk_bytes=max_chunk_bytes, max_checkpoint_interval=interval)


chosen_limits = st.builds(limits, st.integers(770, 2_000), st.integers(1, 7))


@cache
def _staged(made: tuple[Shape, ...]) -> Staged:
    before = _staged(made[:-1]) if len(made) > 1 else None
    head = before.head if before else Head.empty()
    seq, (size, pause) = len(made), made[-1]
    content = digest(f"entry {seq} of {size}") + bytes(size)
    record = NewEntry(A, content, LeafHash(digest(f"leaf {seq} {size}")), verify_key(), seq)
    hub_ts = max(head.hub_ts, 1_000) + pause
    return stage(record, head, lambda at, root: signed_receipt(A, at, record.leaf_hash, root, hub_ts))


def log(made: Sequence[Shape]) -> list[Staged]:
    """Return a log of entries of these sizes and times."""
    return [_staged(tuple(made[: nth + 1])) for nth in range(len(made))]


def new_label() -> LabelState:
    return LabelState.new(A, Domain.DATA, 7)


@dataclass
class Expected:
    """The chunks that the rule makes of a log, as lists of entries; the last one is open."""

    sealed: list[list[Staged]]
    open: list[Staged]


def expected(entries: Sequence[Staged], max_chunk_bytes: int, interval: int) -> Expected:
    made = Expected([], [])
    for staged in entries:
        size = sum(len(item.frame) for item in made.open) + len(staged.frame)
        if made.open and size > max_chunk_bytes:  # before an entry that would make it too long
            made.sealed.append(made.open)
            made.open = []
        made.open.append(staged)
        if len(made.open) >= interval:  # after the entry that makes it full
            made.sealed.append(made.open)
            made.open = []
    return made


def files(*growths: Growth) -> dict[int, bytes]:
    """Return the content of chunk files by first entry, as written portion by portion."""
    found: dict[int, bytes] = {}
    for growth in growths:
        for item in growth.slices:
            before = found.get(item.chunk_start, b"")
            assert len(before) == item.offset
            found[item.chunk_start] = before + b"".join(item.frames)
    return found


# --- boundaries ---------------------------------------------------------------------------------------------


@given(shapes, chosen_limits)
def test_chunks_end_where_the_rule_says(made: list[Shape], bounds: Limits) -> None:
    entries = log(made)
    growth = grow(new_label(), entries, lambda _: bounds)
    want = expected(entries, bounds.max_chunk_bytes, bounds.max_checkpoint_interval)
    chunks = [*want.sealed, *([want.open] if want.open else [])]
    assert files(growth) == {chunk[0].head.seq: b"".join(item.frame for item in chunk) for chunk in chunks}
    assert [(seal.summary.start_seq, seal.summary.end_seq) for seal in growth.seals] == [
        (chunk[0].head.seq, chunk[-1].head.seq) for chunk in want.sealed
    ]
    assert growth.state.chunk_entries == len(want.open)


@given(shapes, chosen_limits, st.lists(st.integers(0, 24), max_size=6))
def test_portions_make_no_difference(made: list[Shape], bounds: Limits, cuts: list[int]) -> None:
    entries = log(made)
    whole = grow(new_label(), entries, lambda _: bounds)
    marks = sorted({0, len(entries), *(cut for cut in cuts if cut < len(entries))})
    parts = []
    state = new_label()
    for start, end in pairwise(marks):
        parts.append(grow(state, entries[start:end], lambda _: bounds))
        state = parts[-1].state
    assert state == whole.state
    assert files(*parts) == files(whole)
    assert [seal for part in parts for seal in part.seals] == whole.seals
    assert b"".join(node for part in parts for node in part.nodes) == b"".join(whole.nodes)
    assert [leaf for part in parts for leaf in part.leaves] == whole.leaves
    assert {row.start_seq: row for part in parts for row in part.chunks} == {
        row.start_seq: row for row in whole.chunks
    }


def test_a_chunk_that_is_full_by_count_is_sealed_at_once() -> None:
    growth = grow(new_label(), log([(0, 0)] * 4), lambda _: limits(5_000, 4))
    assert [seal.summary.end_seq for seal in growth.seals] == [4]
    assert (growth.state.chunk_start, growth.state.chunk_entries, growth.state.chunk_bytes) == (5, 0, 0)


def test_a_chunk_that_is_full_by_bytes_waits_for_the_next_entry() -> None:
    entries = log([(200, 0)] * 3)
    exactly = sum(len(item.frame) for item in entries[:2])
    bounds = limits(max_chunk_bytes=exactly, interval=100)
    first = grow(new_label(), entries[:2], lambda _: bounds)
    assert (first.seals, first.state.chunk_bytes) == ([], exactly)
    second = grow(first.state, entries[2:], lambda _: bounds)
    assert [(item.chunk_start, len(item.frames)) for item in second.slices] == [(1, 0), (3, 1)]
    assert [seal.summary.total_bytes for seal in second.seals] == [exactly]
    tighter = limits(max_chunk_bytes=exactly - 1, interval=100)
    assert [seal.summary.end_seq for seal in grow(new_label(), entries[:2], lambda _: tighter).seals] == [1]


def test_no_entries_change_nothing() -> None:
    state = grow(new_label(), log([(5, 0)] * 3), lambda _: limits()).state
    growth = grow(state, (), lambda _: limits())
    assert (growth.state, growth.slices, growth.nodes) == (state, [], [])


# --- limits that change -------------------------------------------------------------------------------------


def test_limits_are_those_of_the_time_of_the_entry_that_is_added() -> None:
    store = StoreRecord(
        hub_id=HubId(digest("hub")),
        registries=(
            Registry.of(limits(5_000, 2)),
            Registry.of(limits(5_000, 3), effective_from=1_010),
            Registry.of(limits(5_000, 1), effective_from=1_020),
        ),
        epoch_secs=(0,),
    )
    # hub_ts 1000 x3, 1005, 1010 x3, 1020 x2: the chunk of the fourth goes on under the next limits.
    entries = log([(0, 0), (0, 0), (0, 0), (0, 5), (0, 5), (0, 0), (0, 0), (0, 10), (0, 0)])
    growth = grow(new_label(), entries, limits_by_time(store))
    ends = [seal.summary.end_seq for seal in growth.seals]
    assert ends == [2, 4, 7, 8, 9]


def test_a_lower_limit_seals_a_chunk_that_is_beyond_it_with_the_next_entry() -> None:
    first = grow(new_label(), log([(0, 0)] * 5), lambda _: limits(5_000, 100))
    again = grow(first.state, log([(0, 0)] * 6)[5:], lambda _: limits(5_000, 3))
    assert [(seal.summary.start_seq, seal.summary.end_seq) for seal in again.seals] == [(1, 6)]
    shorter = grow(first.state, log([(0, 0)] * 6)[5:], lambda _: limits(770, 100))
    assert [(seal.summary.start_seq, seal.summary.end_seq) for seal in shorter.seals] == [(1, 5)]
    assert shorter.state.chunk_start == 6


# --- what follows -------------------------------------------------------------------------------------------


@given(shapes, chosen_limits)
def test_summaries_and_peaks_are_those_of_the_entries(made: list[Shape], bounds: Limits) -> None:
    entries = log(made)
    growth = grow(new_label(), entries, lambda _: bounds)
    peaks = Peaks.empty()
    after = [peaks := peaks.append(item.record.leaf_hash) for item in entries]
    for seal in growth.seals:
        start, end = seal.summary.start_seq, seal.summary.end_seq
        held = entries[start - 1 : end]
        hashes = Peaks.empty()
        for item in held:
            hashes = hashes.append(entry_hash(item.record.content, item.receipt.encode()))
        assert seal.peaks == after[end - 1]
        assert seal.summary == ChunkSummary(
            label=A,
            start_seq=start,
            end_seq=end,
            mmr_root_end=held[-1].receipt.mmr_root,
            entry_count=len(held),
            total_bytes=sum(len(item.frame) for item in held),
            entry_hashes_root=hashes.root,
        )
    assert growth.nodes == complete_nodes(item.record.leaf_hash for item in entries)
    assert growth.state.head == (entries[-1].head if entries else Head.empty())


@given(shapes, chosen_limits)
def test_rows_lead_to_the_entries(made: list[Shape], bounds: Limits) -> None:
    entries = log(made)
    growth = grow(new_label(), entries, lambda _: bounds)
    stored = files(growth)
    for staged in entries:
        seq = staged.head.seq
        (span,) = [found for block in growth.blocks if (found := block.find(seq)) is not None]
        (row,) = [row for row in growth.chunks if row.start_seq == span.chunk_start]
        assert row.start_seq <= seq
        assert row.first_ts <= staged.head.hub_ts <= row.last_ts
        data = stored[row.start_seq]
        assert data[span.offset : span.offset + span.length] == staged.frame
        assert len(data) == row.total_bytes
        assert Entry.decode(data, span.offset)[0].receipt == staged.receipt
    assert growth.leaves == [(item.record.leaf_hash, 7, item.head.seq) for item in entries]
    assert [row.end_seq for row in growth.chunks if row.end_seq] == [
        seal.summary.end_seq for seal in growth.seals
    ]


def test_a_block_holds_a_bounded_number_of_entries() -> None:
    entries = log([(0, 0)] * 300)
    growth = grow(new_label(), entries, lambda _: limits(1_000_000, 1_000))
    assert [(block.first_seq, len(block.lengths)) for block in growth.blocks] == [
        (1, 128),
        (129, 128),
        (257, 44),
    ]
