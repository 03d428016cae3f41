"""The writer: what batches see, what commits promise, and what a failing disk leaves."""

from dataclasses import replace

import pytest

from tests import builders
from tests.expect import refused
from tests.storage.checks import check_receipts, chunk_ranges, contents, not_found, reading, writing
from tests.storage.stores import (
    AUTHORIZE,
    CONTROL,
    HUB,
    TINY,
    A,
    B,
    C,
    after,
    make,
    message,
    new_store,
    stream,
)
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, Registry, StreamEpoch
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.new_entry import NewEntry
from veen.core.types import NodeHash
from veen.storage.directory import open_store
from veen.storage.errors import WriterStoppedError
from veen.storage.fs import RealFilesystem
from veen.storage.journal import journal
from veen.storage.journal.journal import Binding
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

CLIENT = builders.verify_key()


# --- batches ------------------------------------------------------------------------------------------------


def test_a_batch_sees_itself_and_nobody_else_does(fs: RealFilesystem) -> None:
    store = new_store(fs)
    batch = store.writer.batch()
    for client_seq in (1, 2, 3):
        record = NewEntry.of_msg(message(A, "client", client_seq))
        receipt = batch.append(record, store.signer(record))
        assert receipt.stream_seq == client_seq
        assert batch.head(A).seq == client_seq
        assert batch.client(A, CLIENT).client_seq == client_seq
    assert store.writer.reader.head(A) is None
    assert store.writer.reader.client(A, CLIENT) == (0, 0)
    store.writer.commit(batch)
    assert store.writer.reader.last_seq(A) == 3
    assert store.writer.reader.client(A, CLIENT).client_seq == 3
    store.writer.close()


def test_a_batch_that_is_not_committed_leaves_nothing(fs: RealFilesystem) -> None:
    store = new_store(fs)
    before = contents(fs)
    given_up = store.writer.batch()
    record = NewEntry.of_msg(message(A, "client", 1))
    given_up.append(record, store.signer(record))
    assert contents(fs) == before
    assert store.append(A)[0].stream_seq == 1
    with pytest.raises(AssertionError):
        store.writer.commit(given_up)
    store.writer.close()


def test_an_empty_batch_costs_nothing(fs: RealFilesystem) -> None:
    store = new_store(fs)
    before = contents(fs)
    store.writer.commit(store.writer.batch())
    assert contents(fs) == before
    store.writer.close()


def test_a_batch_may_hold_all_logs(fs: RealFilesystem) -> None:
    store = new_store(fs)
    token = builders.cap_token()
    batch = store.writer.batch()
    for record in (
        NewEntry.of_token(AUTHORIZE, token),
        NewEntry.of_msg(message(A, "client", 1, 5, token.auth_ref)),
        NewEntry.of_control(CONTROL, b"control"),
        NewEntry.of_msg(message(B, "client", 1)),
    ):
        store.receipts.append(batch.append(record, store.signer(record)))
    assert batch.auth(token.auth_ref) == AuthRecord(1_000, 1)
    store.writer.commit(batch)
    check_receipts(store.writer.reader, store.receipts)
    store.writer.close()
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)
        assert reader.entry(AUTHORIZE, 1).msg_bytes == token.encode()
        assert reader.entry(CONTROL, 1).msg_bytes == b"control"
    for domain, names in ((Domain.DATA, 2), (Domain.AUTHORIZE, 1), (Domain.CONTROL, 1)):
        assert len([name for name in fs.names(domain) if name.endswith("open.log")]) == names


def test_a_record_in_a_log_that_it_does_not_belong_to_is_refused(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for record in (
        NewEntry.of_msg(message(AUTHORIZE, "client", 1)),
        NewEntry.of_msg(message(CONTROL, "client", 1)),
        NewEntry.of_token(A, builders.cap_token()),
        NewEntry.of_control(A, b"control"),
    ):
        with refused(Detail.VALUE, field="label", code=Code.FORBIDDEN):
            store.record(record)
    assert list(store.writer.reader.labels()) == []
    store.writer.close()


def test_a_receipt_that_does_not_fit_is_refused(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    record = NewEntry.of_msg(message(A, "client", 2))

    def sign(**changed: object) -> None:
        batch = store.writer.batch()
        batch.append(record, lambda seq, root: replace(store.signer(record)(seq, root), **changed))  # type: ignore[arg-type]

    with refused(Detail.VALUE, field="stream_seq"):
        sign(stream_seq=3)
    with refused(Detail.VALUE, field="stream_seq"):
        sign(label=B)
    with refused(Detail.LEAF_HASH, field="leaf_hash"):
        sign(leaf_hash=builders.leaf(1))
    with refused(Detail.PROOF_ROOT, field="mmr_root"):
        sign(mmr_root=NodeHash(builders.digest("root")))
    store.append(A)
    store.writer.close()


def test_what_is_too_long_is_not_taken(fs: RealFilesystem) -> None:
    store = new_store(fs)
    long = message(A, "client", 1, 3_000)
    for record in (NewEntry.of_msg(long), NewEntry.of_control(CONTROL, bytes(2_001))):
        with refused(Detail.FIELD_SIZE):
            store.record(record)
    store.record(NewEntry.of_control(CONTROL, bytes(2_000)))
    assert store.append(A)[0].stream_seq == 1
    store.writer.close()


def test_what_could_not_be_read_back_is_not_taken(fs: RealFilesystem) -> None:
    """A token may be longer than any message, if the limits say so; an entry may not."""
    make(fs, Limits(max_cap_bytes=3_000_000, max_cap_stream_ids=100_000))
    with writing(fs, 1 << 24) as store:
        try:
            store.authorize(builders.cap_token(streams=[f"stream {number}" for number in range(40_000)]))
        except ProtocolError as error:
            assert error.detail == Detail.FIELD_SIZE  # noqa: PT017
    with writing(fs) as again:
        check_receipts(again.writer.reader, store.receipts)
        again.writer.close()


# --- time ---------------------------------------------------------------------------------------------------


def test_time_never_goes_back_in_a_directory(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.clock = 2_000
    store.append(A)
    store.clock = 1_999
    for label in (A, B):
        with refused(Detail.VALUE, field="hub_ts"):
            store.append(label)
    store.writer.flush()
    for label in (A, B):
        with refused(Detail.VALUE, field="hub_ts"):
            store.append(label)
    store.writer.close()
    with writing(fs, clock=1_999) as store:
        assert store.writer.floor_ts == 2_000
        for label in (A, B):
            with refused(Detail.VALUE, field="hub_ts"):
                store.append(label)
        store.clock = 2_000
        assert [item.stream_seq for item in store.append(A, B)] == [2, 1]


def test_time_never_goes_back_within_a_batch(fs: RealFilesystem) -> None:
    store = new_store(fs)
    batch = store.writer.batch()
    first, second = (NewEntry.of_msg(message(label, "client", 1)) for label in (A, B))
    store.clock = 2_000
    batch.append(first, store.signer(first))
    store.clock = 1_999
    with refused(Detail.VALUE, field="hub_ts"):
        batch.append(second, store.signer(second))
    store.writer.commit(batch)
    assert (store.writer.reader.last_seq(A), store.writer.reader.last_seq(B)) == (1, 0)
    store.writer.close()


# --- tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("used_first", [False, True])
def test_a_token_is_known_from_its_first_use_or_its_logging_on(
    fs: RealFilesystem, *, used_first: bool, flushed: bool
) -> None:
    store = new_store(fs)
    token = builders.cap_token()
    logged = NewEntry.of_token(AUTHORIZE, token)
    first, second = (NewEntry.of_msg(message(label, "client", 1, 5, token.auth_ref)) for label in (A, B))
    for record in (first, logged, second) if used_first else (logged, first, second):
        store.record(record)
        store.tick()
        if flushed:
            store.writer.flush()
    # Before the token was there, its rate could not be counted.
    known = AuthRecord(1_000, 1, after(token, 1_002) if used_first else after(token, 1_001, 1_002))
    assert store.writer.reader.auth(token.auth_ref) == known
    assert store.writer.batch().auth(token.auth_ref) == known
    store.writer.abandon()
    with writing(fs, clock=5_000) as again:
        assert again.writer.reader.auth(token.auth_ref) == known
        again.writer.close()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        assert reader.auth(token.auth_ref) == known


# --- limits that change -------------------------------------------------------------------------------------


def test_other_limits_hold_from_their_time_on(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(6):
        store.append(A)
    store.writer.close()
    record = open_store(fs)
    wider = replace(TINY, max_checkpoint_interval=3)
    more = replace(record, registries=(*record.registries, Registry.of(wider, effective_from=5_000)))
    (fs.root / paths.STORE).write_bytes(more.encode())
    with writing(fs, clock=4_999) as later:
        with refused(Detail.VALUE, field="hub_ts"):  # an entry of the old time would obey the old limits
            later.append(A)
        later.clock = 5_000
        for _ in range(5):
            later.append(A)
        later.writer.close()
    assert chunk_ranges(fs, A) == [(1, 4), (5, 7), (8, 10), (11, None)]


# --- moving into chunks -------------------------------------------------------------------------------------


def test_after_a_clean_stop_the_journal_is_empty(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(5):
        store.append(A, B)
    store.writer.flush()
    store.append(C)
    store.writer.close()
    assert journal.segments(fs) == []
    with reading(fs) as reader:
        check_receipts(reader, store.receipts)
        assert [reader.manifest(label).journal_entries for label in (A, B, C)] == [0, 0, 0]
    with writing(fs) as again:
        assert again.writer.recovered.segments == 0
        again.writer.close()


def test_a_full_segment_is_moved_by_the_next_commit(fs: RealFilesystem) -> None:
    store = new_store(fs, segment_bytes=2_000)
    entry_bytes = 0
    for _ in range(12):
        store.append(A)
        entry_bytes = max(entry_bytes, len(store.writer.reader.entry(A, 1).encode()))
        left = store.writer.reader.manifest(A).journal_entries
        assert left * entry_bytes <= 2_000 + entry_bytes
    assert store.writer.reader.manifest(A).chunks
    assert 0 < store.writer.journal_bytes < 2_000 + entry_bytes
    check_receipts(store.writer.reader, store.receipts)
    store.writer.close()


def test_a_flush_without_anything_to_move_does_nothing(fs: RealFilesystem) -> None:
    store = new_store(fs)
    before = contents(fs)
    store.writer.flush()
    assert contents(fs) == before
    store.writer.close()


def test_derived_files_hold_every_receipt_and_checkpoint_of_messages(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(5):
        store.append(A, B)
        store.writer.flush()
    store.authorize(builders.cap_token())
    asked = store.writer.checkpoint(A, 2)
    store.writer.close()
    messages = [item for item in store.receipts if item.label in (A, B)]
    assert fs.read(paths.RECEIPTS) == b"".join(item.encode() for item in messages)
    ends = [fs.read(paths.checkpoint(Domain.DATA, label, 4)) for label in (A, B)]
    assert fs.read(paths.CHECKPOINTS) == b"".join((*ends, asked.encode()))


def test_labels_beyond_those_kept_in_memory_are_looked_up(
    fs: RealFilesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veen.storage.write.writer._KEPT_HEADS", 2)
    store = new_store(fs)
    many = [builders.some_label(f"label {number}") for number in range(6)]
    for _ in range(3):
        store.append(*many)
        store.writer.flush()
    check_receipts(store.writer.reader, store.receipts)
    assert [store.writer.reader.last_seq(label) for label in many] == [3] * 6
    store.writer.close()


# --- checkpoints --------------------------------------------------------------------------------------------


def test_a_checkpoint_is_made_once_and_ends_no_chunk(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(6):
        store.append(A)
    made = {upto: store.writer.checkpoint(A, upto) for upto in (2, 6, 4, 5)}
    for upto, checkpoint in made.items():
        checkpoint.verify_signature(HUB.public_key)
        checkpoint.verify_prefix(store.writer.reader.peaks(A, upto))
    store.writer.flush()
    made[1] = store.writer.checkpoint(A, 1)  # of an entry that is in chunks already
    for upto, checkpoint in made.items():
        assert store.writer.checkpoint(A, upto) == checkpoint
    store.writer.close()
    assert chunk_ranges(fs, A) == [(1, 4), (5, None)]
    for upto, checkpoint in made.items():
        assert fs.read(paths.checkpoint(Domain.DATA, A, upto)) == checkpoint.encode()
    with reading(fs) as reader:
        assert reader.checkpoints(A, 1, 6) == [made[upto] for upto in (1, 2, 4, 5, 6)]


def test_a_checkpoint_that_was_asked_for_is_durable_before_it_is_given_away(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(A)
    made = store.writer.checkpoint(A, 1)
    store.writer.abandon()
    with writing(fs) as again:
        assert again.writer.reader.checkpoint(A, 1) == made
        again.writer.close()
    assert fs.read(paths.checkpoint(Domain.DATA, A, 1)) == made.encode()


@pytest.mark.parametrize("upto", [0, 3])
def test_there_is_no_checkpoint_of_entries_that_do_not_exist(fs: RealFilesystem, upto: int) -> None:
    store = new_store(fs)
    store.append(A)
    store.append(A)
    with not_found("upto_seq"):
        store.writer.checkpoint(A, upto)
    with not_found("upto_seq"):
        store.writer.checkpoint(B, 1)
    store.writer.close()


def test_checkpoints_say_what_is_known_of_the_stream(fs: RealFilesystem) -> None:
    store = new_store(fs)
    label = labels.label(labels.routing_key(store.writer.store.hub_id), stream(), 3)
    binding = Binding(stream(), 3, label)
    store.record(NewEntry.of_msg(message(label, "client", 1)), [binding])
    for _ in range(3):
        store.append(label)
    asked = store.writer.checkpoint(label, 1)
    store.writer.flush()
    sealed = store.writer.reader.checkpoint(label, 4)
    assert sealed is not None
    for checkpoint in (asked, sealed):
        assert checkpoint.epoch == 3
        checkpoint.verify_labels(labels.routing_key(store.writer.store.hub_id), stream())
    store.writer.close()


# --- bindings -----------------------------------------------------------------------------------------------


def test_bindings_survive_flush_and_stop(fs: RealFilesystem) -> None:
    store = new_store(fs)
    batch = store.writer.batch()
    batch.bind(Binding(stream("x"), 1, A))  # before any entry
    store.writer.commit(batch)
    store.record(NewEntry.of_msg(message(B, "client", 1)), [Binding(stream("x"), 2, B)])

    def check(reader: Reader) -> None:
        assert reader.binding(A) == StreamEpoch(stream("x"), 1)
        assert reader.label_of(StreamEpoch(stream("x"), 2)) == B
        assert reader.label_of(StreamEpoch(stream("x"), 3)) is None
        assert reader.labels_of(stream("x")) == [A, B]
        assert reader.labels_of(stream("y")) == []
        assert reader.binding(C) is None
        assert list(reader.labels()) == [B]  # a label without entries is none yet
        assert reader.head(A) is None

    check(store.writer.reader)
    store.writer.flush()
    check(store.writer.reader)
    store.append(A)
    assert store.writer.reader.binding(A) == StreamEpoch(stream("x"), 1)
    store.writer.close()
    with writing(fs) as again:
        assert again.writer.reader.binding(A) == StreamEpoch(stream("x"), 1)
        assert again.append(A)[0].stream_seq == 2


# --- the end ------------------------------------------------------------------------------------------------


def test_a_writer_that_was_closed_takes_nothing(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.writer.close()
    with pytest.raises(WriterStoppedError, match="closed"):
        store.writer.batch()
    store.writer.close()  # again: no harm
    store.writer.abandon()
    with writing(fs) as other:
        store.writer.close()  # nor to whoever has the directory now
        with pytest.raises(BlockingIOError):
            RealFilesystem(fs.root).lock(paths.LOCK, b"a thief")
        other.append(A)


def test_the_largest_tokens_that_the_limits_allow_are_kept(fs: RealFilesystem) -> None:
    limits = Limits(
        max_msg_bytes=50_000, max_chunk_bytes=60_000, max_cap_stream_ids=1_000, max_cap_bytes=50_000
    )
    make(fs, limits)
    token = builders.cap_token(streams=[f"stream {number}" for number in range(900)])
    with writing(fs) as store:
        store.authorize(token)
    with writing(fs) as store:
        assert store.writer.reader.entry(AUTHORIZE, 1).msg_bytes == token.encode()
        store.writer.close()
