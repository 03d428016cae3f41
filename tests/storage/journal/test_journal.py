"""The journal: its bytes are the documented ones; a torn end is dropped, damage is not."""

import errno
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.storage.checks import Faulty
from veen.core.data_dir import paths
from veen.storage.errors import DamagedStoreError, StoreFullError
from veen.storage.fs import RealFilesystem
from veen.storage.journal import journal
from veen.storage.journal.journal import Binding, Kind, Segment

NONCE = bytes(range(16))
BATCH, COMMITTED, END, CHECKPOINT = 1, 2, 3, 4
HEADER_BYTES = 40
HEAD_BYTES = 32


# --- the format, written down a second time -----------------------------------------------------------------


def header(
    number: int = 1, magic: bytes = b"VEENJRN1", nonce: bytes = NONCE, zero: bytes = bytes(4)
) -> bytes:
    head = magic + number.to_bytes(8, "big") + nonce + zero
    return head + zlib.crc32(head).to_bytes(4, "big")


def record(
    position: int, kind: int, payload: bytes = b"", bindings: int = 0, zero: bytes = bytes(3)
) -> bytes:
    head = NONCE[:8] + bytes([kind]) + zero + struct.pack(">IQI", len(payload), position, bindings)
    return head + zlib.crc32(NONCE + head + payload).to_bytes(4, "big") + payload


def segment(*parts: tuple[int, bytes], number: int = 1) -> bytes:
    data = header(number)
    for kind, payload in parts:
        data += record(len(data), kind, payload)
    return data


def committed(*payloads: bytes) -> bytes:
    return segment(*(part for payload in payloads for part in ((BATCH, payload), (COMMITTED, b""))))


def payloads(data: bytes, number: int = 1) -> list[bytes]:
    return [item.payload for item in journal.parse(data, number).records]


@pytest.fixture
def state(fs: RealFilesystem) -> RealFilesystem:
    fs.make_dir("")
    fs.make_dir(paths.STATE_DIR)
    return fs


@pytest.fixture
def faulty(tmp_path: Path) -> Faulty:
    made = Faulty(tmp_path / "faulty")
    made.make_dir("")
    made.make_dir(paths.STATE_DIR)
    return made


def create(fs: RealFilesystem, number: int = 1) -> Segment:
    return Segment.create(fs, number, lambda length: NONCE[:length])


def put(fs: RealFilesystem, number: int, data: bytes) -> None:
    (fs.root / paths.journal(number)).write_bytes(data)


def read_all(fs: RealFilesystem) -> list[journal.ReadSegment]:
    return list(journal.read_all(fs, journal.segments(fs)))


# --- writing ------------------------------------------------------------------------------------------------


def test_a_segment_has_the_documented_bytes(state: RealFilesystem) -> None:
    checkpoint = builders.checkpoint()
    binding = Binding(builders.stream(), 7, builders.some_label())
    made = create(state, 3)
    made.append([b"one", b"two"], [binding])
    made.append_checkpoint(checkpoint)
    made.end()
    bound = binding.stream_id + (7).to_bytes(8, "big") + binding.label
    data = header(3)
    for kind, payload, bindings in (
        (BATCH, bound + b"onetwo", 1),
        (COMMITTED, b"", 0),
        (CHECKPOINT, checkpoint.encode(), 0),
        (COMMITTED, b"", 0),
        (END, b"", 0),
    ):
        data += record(len(data), kind, payload, bindings)
    assert state.read(paths.journal(3)) == data
    assert journal.segments(state) == [3]


def test_what_was_written_is_read_back(state: RealFilesystem) -> None:
    bindings = [Binding(builders.stream(name), 2**64 - 1, builders.some_label(name)) for name in "xy"]
    made = create(state)
    made.append([b"one", b"two"], bindings)
    made.append([], bindings[:1])
    made.append([b"three"], [])
    made.append_checkpoint(builders.checkpoint())
    made.close()
    read = journal.parse(state.read(paths.journal(1)), 1)
    assert [item.kind for item in read.records] == [Kind.BATCH] * 3 + [Kind.CHECKPOINT]
    assert [list(item.read_bindings()) for item in read.records[:3]] == [bindings, bindings[:1], []]
    assert [item.payload[item.entries_at() :] for item in read.records[:3]] == [b"onetwo", b"", b"three"]
    assert read.records[3].payload == builders.checkpoint().encode()
    assert (read.ended, read.torn_bytes, read.is_empty) == (False, 0, False)


def test_an_ended_segment_says_so(state: RealFilesystem) -> None:
    made = create(state)
    made.append([b"x"], [])
    made.end()
    assert journal.parse(state.read(paths.journal(1)), 1).ended


def test_a_discarded_segment_is_gone(state: RealFilesystem) -> None:
    create(state).discard(state)
    assert journal.segments(state) == []


def test_other_files_are_no_segments(state: RealFilesystem) -> None:
    for name in ("lock", "journal-1.wal", f"{paths.journal(1)[6:]}.tmp"):
        (state.root / paths.STATE_DIR / name).write_bytes(b"")
    assert journal.segments(state) == []


# --- reading ------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=5), st.data())
def test_a_segment_cut_anywhere_gives_the_batches_before_the_cut(
    batches: list[bytes], data: st.DataObject
) -> None:
    whole = committed(*batches)
    cut = data.draw(st.integers(min_value=0, max_value=len(whole)))
    read = journal.parse(whole[:cut], 1)
    kept = [item.payload for item in read.records]
    ends = []
    at = HEADER_BYTES
    for batch in batches:
        at += HEAD_BYTES + len(batch)
        ends.append(at)
        at += HEAD_BYTES
    assert kept == batches[: sum(end <= cut for end in ends)]
    boundaries = {HEADER_BYTES, *ends, *(end + HEAD_BYTES for end in ends)}
    last = max((boundary for boundary in boundaries if boundary <= cut), default=0)
    assert read.torn_bytes == cut - last


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), st.data())
def test_a_flipped_bit_in_an_acknowledged_batch_is_damage(batches: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(committed(*batches))
    nth = data.draw(st.integers(0, len(batches) - 1))
    start = HEADER_BYTES + sum(2 * HEAD_BYTES + len(batch) for batch in batches[:nth])
    end = start + HEAD_BYTES + len(batches[nth])
    bit = data.draw(st.integers(start * 8, end * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedStoreError) as caught:
        journal.parse(bytes(whole), 1)
    assert (caught.value.path, caught.value.offset) == (paths.journal(1), start)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), st.data())
def test_a_flipped_bit_in_a_committed_record_loses_nothing(batches: list[bytes], data: st.DataObject) -> None:
    """It is not synced, so a power failure can leave it torn in front of what was synced later."""
    whole = bytearray(committed(*batches))
    nth = data.draw(st.integers(0, len(batches) - 1))
    end = HEADER_BYTES + sum(2 * HEAD_BYTES + len(batch) for batch in batches[: nth + 1])
    bit = data.draw(st.integers((end - HEAD_BYTES) * 8, end * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    read = journal.parse(bytes(whole), 1)
    assert [item.payload for item in read.records] == batches
    assert read.torn_bytes == (HEAD_BYTES if nth == len(batches) - 1 else 0)


@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_batch_that_nobody_confirmed_is_dropped_if_it_does_not_check_out(
    batch: bytes, data: st.DataObject
) -> None:
    whole = bytearray(committed(b"before"))
    start = len(whole)
    whole += record(start, BATCH, batch)
    bit = data.draw(st.integers(min_value=start * 8, max_value=len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    read = journal.parse(bytes(whole), 1)
    assert [item.payload for item in read.records] == [b"before"]
    assert read.torn_bytes == len(whole) - start


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=3), st.binary(max_size=200))
def test_garbage_behind_the_last_record_is_dropped(batches: list[bytes], garbage: bytes) -> None:
    whole = committed(*batches)
    read = journal.parse(whole + garbage, 1)
    assert [item.payload for item in read.records] == batches
    assert read.torn_bytes == len(garbage)


def test_a_batch_is_not_taken_for_damaged_because_an_entry_holds_a_record() -> None:
    """Whoever could see a journal could send its records as a message: they are valid at no other place."""
    earlier = committed(b"first")
    inner = earlier[HEADER_BYTES:]
    torn = bytearray(earlier + record(len(earlier), BATCH, b"...." + inner + b"...."))
    torn[len(earlier) + HEAD_BYTES] ^= 1
    read = journal.parse(bytes(torn), 1)
    assert [item.payload for item in read.records] == [b"first"]
    assert read.torn_bytes == len(torn) - len(earlier)


def test_damage_is_found_however_far_the_next_valid_record_is() -> None:
    whole = bytearray(committed(b"a", b"b" * 5_000, b"c"))
    second = HEADER_BYTES + 2 * HEAD_BYTES + 1
    whole[second : second + HEAD_BYTES + 4_000] = bytes(HEAD_BYTES + 4_000)
    with pytest.raises(DamagedStoreError) as caught:
        journal.parse(bytes(whole), 1)
    assert (caught.value.path, caught.value.offset) == (paths.journal(1), second)


@pytest.mark.parametrize("kind", [0, 5, 255])
def test_a_record_of_unknown_kind_is_no_record(kind: int) -> None:
    data = header() + record(HEADER_BYTES, kind, b"x")
    read = journal.parse(data, 1)
    assert (read.records, read.torn_bytes) == ([], HEAD_BYTES + 1)


def test_reserved_bytes_of_a_record_are_zero() -> None:
    data = header() + record(HEADER_BYTES, BATCH, b"x", zero=b"\0\0\1")
    assert journal.parse(data, 1).is_empty


def test_a_record_of_another_place_is_no_record() -> None:
    data = header() + record(HEADER_BYTES + 1, BATCH, b"x")
    assert journal.parse(data, 1).is_empty


def test_nothing_stands_behind_the_end() -> None:
    ended = segment((BATCH, b"x"), (END, b""))
    with pytest.raises(DamagedStoreError, match="follows the last one") as caught:
        journal.parse(ended + record(len(ended), BATCH, b"y"), 1)
    assert caught.value.offset == len(ended)


@pytest.mark.parametrize("length", [0, 1, 39])
def test_a_segment_that_was_being_created_is_empty(length: int) -> None:
    read = journal.parse(header()[:length], 1)
    assert (read.is_empty, read.torn_bytes) == (True, length)


@pytest.mark.parametrize(
    "bad",
    [
        header(number=2),
        header(magic=b"VEENJRN2"),
        header(zero=b"\0\0\0\1"),
        header()[:-1] + b"\0",
        bytes(HEADER_BYTES),
    ],
)
def test_a_damaged_header_in_front_of_records_is_refused(bad: bytes) -> None:
    with pytest.raises(DamagedStoreError, match="header") as caught:
        journal.parse(bad + record(HEADER_BYTES, BATCH, b"x"), 1)
    assert (caught.value.path, caught.value.offset) == (paths.journal(1), 0)
    assert journal.parse(bad, 1).torn_bytes == HEADER_BYTES  # with nothing behind it, it was being written


# --- several segments ---------------------------------------------------------------------------------------


def chain(*ended: Sequence[bytes], last: Sequence[bytes]) -> list[bytes]:
    """Return segments: all but the last one closed."""
    made = [
        segment(*((BATCH, item) for item in parts), (END, b""), number=number)
        for number, parts in enumerate(ended, start=1)
    ]
    return [*made, segment(*((BATCH, item) for item in last), number=len(ended) + 1)]


def test_segments_are_read_in_order(state: RealFilesystem) -> None:
    for number, data in enumerate(chain([b"a"], [b"b", b"c"], last=[b"d"]), start=1):
        put(state, number, data)
    assert [[item.payload for item in read.records] for read in read_all(state)] == [
        [b"a"],
        [b"b", b"c"],
        [b"d"],
    ]


@pytest.mark.parametrize("missing", [2, 3])
def test_a_missing_segment_is_named(state: RealFilesystem, missing: int) -> None:
    for number, data in enumerate(chain([b"a"], [b"b"], last=[b"c"]), start=1):
        if number != missing:
            put(state, number, data)
    with pytest.raises(DamagedStoreError, match="missing") as caught:
        read_all(state)
    assert caught.value.path == paths.journal(missing)


def test_a_segment_that_lost_its_end_is_named(state: RealFilesystem) -> None:
    first, second = chain([b"a"], last=[b"b"])
    put(state, 1, first[:-HEAD_BYTES])
    put(state, 2, second)
    with pytest.raises(DamagedStoreError, match="lost its end") as caught:
        read_all(state)
    assert caught.value.path == paths.journal(1)


def test_a_new_segment_may_exist_before_the_old_one_has_ended(state: RealFilesystem) -> None:
    put(state, 1, committed(b"a"))
    put(state, 2, header(2))
    assert [read.is_empty for read in read_all(state)] == [False, True]


# --- a disk that fails --------------------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_leaves_nothing_behind(faulty: Faulty) -> None:
    made = create(faulty)
    made.append([b"first"], [])
    before = faulty.read(paths.journal(1))
    faulty.fail("append", "journal", errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(StoreFullError, match="free some space"):
            made.append([b"x" * 1_000], [])
        assert faulty.read(paths.journal(1)) == before
    faulty.heal()
    made.append([b"second"], [])
    made.close()
    assert faulty.read(paths.journal(1)) == committed(b"first", b"second")


def test_a_batch_is_durable_even_if_there_is_no_space_to_say_so(faulty: Faulty) -> None:
    made = create(faulty)
    calls: list[str] = []

    def second_append(call: str, _path: str) -> int | None:
        calls.append(call)
        return errno.ENOSPC if call == "append" and calls.count("append") == 2 else None

    faulty.fault = second_append
    made.append([b"first"], [])
    made.append([b"second"], [])
    made.close()
    assert payloads(faulty.read(paths.journal(1))) == [b"first", b"second"]
    assert journal.parse(faulty.read(paths.journal(1)), 1).torn_bytes == 0


@pytest.mark.parametrize(
    ("call", "code"), [("append", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)]
)
def test_other_errors_are_not_hidden(faulty: Faulty, call: str, code: int) -> None:
    made = create(faulty)
    faulty.fail(call, "journal", code)
    with pytest.raises(OSError, match=r"Errno") as caught:
        made.append([b"x"], [])
    assert caught.value.errno == code
    made.close()


def test_a_full_disk_leaves_no_half_a_segment(faulty: Faulty) -> None:
    def after_writing(call: str, path: str) -> int | None:
        if call != "write_all":
            return None
        (faulty.root / path).write_bytes(b"VEEN")
        return errno.ENOSPC

    faulty.fault = after_writing
    with pytest.raises(StoreFullError):
        create(faulty)
    assert journal.segments(faulty) == []
    faulty.heal()
    create(faulty).close()
    assert faulty.read(paths.journal(1)) == header()


def test_a_disk_without_room_for_another_name_is_full_too(faulty: Faulty) -> None:
    faulty.fail("write_all", "journal", errno.ENOSPC)
    with pytest.raises(StoreFullError):
        create(faulty)


def test_a_segment_that_can_not_be_created_is_an_error_of_the_disk(faulty: Faulty) -> None:
    faulty.fail("write_all", "journal", errno.EIO)
    with pytest.raises(OSError, match="Errno 5"):
        create(faulty)
