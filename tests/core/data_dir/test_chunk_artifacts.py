"""Files beside the chunks: summaries, peak snapshots and the checkpoint index."""

from dataclasses import replace

import cbor2
import pytest

from tests import rawcbor as raw
from tests.builders import checkpoint_index, chunk_summary, indexed_checkpoint, peaks
from tests.expect import faulty, refused
from veen.core.data_dir.chunk_artifacts import CheckpointIndex, ChunkRange, ChunkSummary, PeakSnapshot
from veen.core.encoding.cbor import MAX_ITEMS
from veen.core.errors import Detail, Fault
from veen.core.merkle.mmr import Peaks

# --- summaries ----------------------------------------------------------------------------------------------


def test_a_summary_is_an_array_of_seven() -> None:
    made = chunk_summary(start_seq=5, end_seq=9)
    assert cbor2.loads(made.encode()) == [
        made.label,
        5,
        9,
        made.mmr_root_end,
        5,
        4_096,
        made.entry_hashes_root,
    ]


@pytest.mark.parametrize(("start", "end"), [(0, 3), (4, 3), (0, 0)])
def test_a_range_without_entries_is_refused(start: int, end: int) -> None:
    with refused(Detail.VALUE, field="start_seq"):
        chunk_summary(start_seq=start, end_seq=end, entry_count=1)
    with refused(Detail.VALUE, field="start_seq"):
        ChunkRange(start_seq=start, end_seq=end)
    data = raw.array([raw.uint(start), raw.uint(end)])
    with refused(Detail.VALUE, field="start_seq"):
        ChunkRange.decode(data)


def test_a_count_that_does_not_fit_the_range_is_refused() -> None:
    for wrong in (0, 2, 4):
        with refused(Detail.VALUE, field="entry_count"):
            chunk_summary(start_seq=1, end_seq=3, entry_count=wrong)
    with refused(Detail.VALUE, field="entry_count"):
        ChunkSummary.decode(raw.with_element(chunk_summary().encode(), 4, raw.uint(9)))
    assert chunk_summary(start_seq=2**64 - 1, end_seq=2**64 - 1).entry_count == 1


# --- peaks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 7, 100])
def test_a_peak_snapshot_is_the_array_of_peaks_by_increasing_height(size: int) -> None:
    made = peaks(size)
    data = PeakSnapshot(made.hashes).encode()
    assert cbor2.loads(data) == list(made.hashes)
    assert PeakSnapshot.decode(data).at(size) == made


def test_a_snapshot_of_another_size_is_refused() -> None:
    data = PeakSnapshot(peaks(7).hashes).encode()
    for size in (0, 1, 6, 8, 2**64, -1):
        with refused(Detail.PROOF_PEAKS):
            PeakSnapshot.decode(data).at(size)


def test_a_malformed_snapshot_is_refused() -> None:
    data = PeakSnapshot(peaks(7).hashes).encode()
    with faulty(Fault.TRAILING):
        PeakSnapshot.decode(data + b"\x00").at(7)
    with faulty(Fault.TRUNCATED):
        PeakSnapshot.decode(data[:-1]).at(7)
    with faulty(Fault.TYPE):
        PeakSnapshot.decode(b"\xa0").at(0)
    with faulty(Fault.NULL):
        PeakSnapshot.decode(raw.array([raw.NULL])).at(1)
    with refused(Detail.FIELD_SIZE):
        PeakSnapshot.decode(raw.array([raw.bstr(bytes(31))])).at(1)


# --- the checkpoint index -----------------------------------------------------------------------------------


def test_the_index_is_a_map_from_upto_seq_in_ascending_order() -> None:
    made = checkpoint_index([900, 3, 40])
    data = made.encode()
    content = cbor2.loads(data)
    assert list(content) == [3, 40, 900]
    item = made.checkpoints[40]
    assert content[40] == [item.mmr_root, [1, 40], item.peaks_ref]
    assert CheckpointIndex.decode(data) == made
    assert CheckpointIndex.decode(data).encode() == data
    assert CheckpointIndex({}).encode() == b"\xa0"
    assert CheckpointIndex.decode(b"\xa0") == CheckpointIndex({})


def index_of(*pairs: tuple[int, bytes]) -> bytes:
    return raw.mapping([(raw.uint(key), value) for key, value in pairs])


def test_keys_must_ascend_without_repetition() -> None:
    one = indexed_checkpoint().encode()
    with faulty(Fault.DUPLICATE_KEY):
        CheckpointIndex.decode(index_of((3, one), (3, one)))
    with faulty(Fault.KEY_ORDER):
        CheckpointIndex.decode(index_of((5, one), (3, one)))
    with faulty(Fault.NON_MINIMAL):
        CheckpointIndex.decode(raw.mapping([(raw.uint(3, width=1), one)]))
    with faulty(Fault.TYPE):
        CheckpointIndex.decode(raw.mapping([(raw.tstr("3"), one)]))


def test_there_is_no_checkpoint_at_0() -> None:
    with refused(Detail.VALUE, field="upto_seq"):
        CheckpointIndex({0: indexed_checkpoint()})
    with refused(Detail.VALUE, field="upto_seq"):
        CheckpointIndex.decode(index_of((0, indexed_checkpoint().encode())))


def test_a_malformed_index_is_refused() -> None:
    data = checkpoint_index().encode()
    for length in range(len(data)):
        with faulty(Fault.TRUNCATED):
            CheckpointIndex.decode(data[:length])
    with faulty(Fault.TRAILING):
        CheckpointIndex.decode(data + b"\x00")
    short = raw.with_element(indexed_checkpoint().encode(), 0, raw.bstr(bytes(31)))
    with refused(Detail.FIELD_SIZE, field="mmr_root"):
        CheckpointIndex.decode(index_of((3, indexed_checkpoint().encode()), (4, short)))
    empty = raw.with_element(indexed_checkpoint().encode(), 1, raw.array([raw.uint(2), raw.uint(1)]))
    with refused(Detail.VALUE, field="chunk_range.start_seq"):
        CheckpointIndex.decode(index_of((3, empty)))


def test_an_index_may_have_more_entries_than_a_message_may_have_items() -> None:
    item = indexed_checkpoint()
    large = CheckpointIndex(dict.fromkeys(range(1, MAX_ITEMS + 2), item))
    assert len(CheckpointIndex.decode(large.encode()).checkpoints) == MAX_ITEMS + 1


def test_peaks_of_the_wrong_number_are_no_peaks() -> None:
    with refused(Detail.PROOF_PEAKS):
        replace(peaks(7), size=6)
    assert isinstance(peaks(7), Peaks)
