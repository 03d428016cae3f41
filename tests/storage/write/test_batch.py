"""A batch sees the log as it will be; a token is found wherever it is."""

import weakref
from collections.abc import Iterator

import pytest

from tests import builders
from tests.storage.checks import check_receipts, reading, writing
from tests.storage.stores import AUTHORIZE, A, B, Store, message, new_store, stream
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.objects.capability import CapToken
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, LeafHash
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import RealFilesystem
from veen.storage.journal.journal import Binding
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader
from veen.storage.write.batch import Batch

TOKEN = builders.cap_token(rate=builders.rate())
OTHER = builders.cap_token(ttl=7)
CLIENT = builders.verify_key()
NOTHING = AuthRef(builders.digest("nothing"))


@pytest.fixture
def store(fs: RealFilesystem) -> Iterator[Store]:
    made = new_store(fs)
    yield made
    made.writer.abandon()


def place(store: Store, batch: Batch, record: NewEntry) -> None:
    batch.append(record, store.signer(record))


# --- batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [False, True])
def test_a_batch_answers_for_the_log_behind_it(store: Store, *, flushed: bool) -> None:
    sent = NewEntry.of_msg(message(A, "client", 1, 5, TOKEN.auth_ref))
    store.authorize(TOKEN)
    store.record(sent, [Binding(stream(), 3, A)])
    if flushed:
        store.writer.flush()
    batch = store.writer.batch()
    assert batch.is_empty
    assert (batch.last_seq(A), batch.last_seq(B)) == (1, 0)
    assert (batch.client(A, CLIENT), batch.client(B, CLIENT)) == (ClientCursor(1, 0), ClientCursor())
    assert batch.client_since(CLIENT) == 1_000
    assert batch.auth(TOKEN.auth_ref) == store.writer.reader.auth(TOKEN.auth_ref)
    assert batch.token(TOKEN.auth_ref) == TOKEN
    assert (batch.binding(A), batch.binding(B)) == (StreamEpoch(stream(), 3), None)
    assert batch.find(sent.leaf_hash) == (A, 1)


def test_a_batch_answers_for_itself(store: Store) -> None:
    batch = store.writer.batch()
    assert (batch.token(TOKEN.auth_ref), batch.auth(TOKEN.auth_ref)) == (None, None)
    place(store, batch, NewEntry.of_token(AUTHORIZE, OTHER))
    place(store, batch, NewEntry.of_token(AUTHORIZE, TOKEN))
    sent = NewEntry.of_msg(message(A, "client", 1, 5, TOKEN.auth_ref))
    place(store, batch, sent)
    batch.bind(Binding(stream(), 3, A))
    assert not batch.is_empty
    assert batch.last_seq(A) == 1
    assert batch.client(A, CLIENT) == ClientCursor(1, 0)
    assert batch.client_since(CLIENT) == 1_000
    assert batch.auth(TOKEN.auth_ref) == AuthRecord(1_000, 2)
    assert (batch.token(TOKEN.auth_ref), batch.token(OTHER.auth_ref)) == (TOKEN, OTHER)
    assert batch.binding(A) == StreamEpoch(stream(), 3)
    assert batch.find(sent.leaf_hash) == (A, 1)
    assert batch.find(LeafHash(TOKEN.auth_ref)) == (AUTHORIZE, 2)
    assert batch.find(LeafHash(NOTHING)) is None


def test_a_batch_that_is_not_committed_leaves_nothing(store: Store) -> None:
    batch = store.writer.batch()
    place(store, batch, NewEntry.of_token(AUTHORIZE, TOKEN))
    place(store, batch, NewEntry.of_msg(message(A, "client", 1, 5, TOKEN.auth_ref)))
    assert batch.token(TOKEN.auth_ref) == TOKEN
    reader = store.writer.reader
    assert (reader.token(TOKEN.auth_ref), reader.auth(TOKEN.auth_ref)) == (None, None)
    assert (reader.client_since(CLIENT), reader.last_seq(A)) == (None, 0)
    assert store.writer.batch().token(TOKEN.auth_ref) is None


def test_a_token_that_was_only_used_is_unknown_to_a_batch(store: Store) -> None:
    batch = store.writer.batch()
    place(store, batch, NewEntry.of_msg(message(A, "client", 1, 5, TOKEN.auth_ref)))
    assert batch.auth(TOKEN.auth_ref) == AuthRecord(1_000, 0)
    assert batch.token(TOKEN.auth_ref) is None


# --- a batch behind a batch ---------------------------------------------------------------------------------


def test_a_batch_answers_for_the_batch_before_it(store: Store) -> None:
    """While that one waits for the disk, when it is through, and when it is in chunk files."""
    sent = NewEntry.of_msg(message(A, "client", 1, 5, TOKEN.auth_ref))
    first = store.writer.batch()
    place(store, first, NewEntry.of_token(AUTHORIZE, TOKEN))
    place(store, first, sent)
    first.bind(Binding(stream(), 3, A))
    second = store.writer.batch(first)

    def check() -> None:
        assert (second.last_seq(A), second.last_seq(B)) == (1, 0)
        assert second.client(A, CLIENT) == ClientCursor(1, 0)
        assert second.client_since(CLIENT) == 1_000
        assert second.auth(TOKEN.auth_ref) == AuthRecord(1_000, 1)
        assert second.token(TOKEN.auth_ref) == TOKEN
        assert second.binding(A) == StreamEpoch(stream(), 3)
        assert second.find(sent.leaf_hash) == (A, 1)
        assert second.floor_ts == 1_000

    check()
    store.writer.commit(first)
    check()
    store.writer.flush()
    check()


def test_batches_behind_each_other_are_one_log(store: Store) -> None:
    before, receipts = None, []
    for nth in range(1, 9):
        batch = store.writer.batch(before)
        for label in (A, B) if nth % 3 else (A,):
            record = NewEntry.of_msg(message(label, "client", batch.client(label, CLIENT).client_seq + 1))
            receipts.append(batch.append(record, store.signer(record)))
        if before is not None:
            store.writer.commit(before)
        if nth == 5:
            store.writer.flush()
        before = batch
    assert before is not None
    store.writer.commit(before)
    assert (store.writer.reader.last_seq(A), store.writer.reader.last_seq(B)) == (8, 6)
    check_receipts(store.writer.reader, receipts)


def test_a_batch_is_committed_behind_the_one_before_it_or_not_at_all(store: Store) -> None:
    first = store.writer.batch()
    place(store, first, NewEntry.of_msg(message(A, "client", 1)))
    second = store.writer.batch(first)
    place(store, second, NewEntry.of_msg(message(A, "client", 2)))
    with pytest.raises(AssertionError):
        store.writer.commit(second)
    assert store.writer.reader.last_seq(A) == 0
    store.writer.commit(first)
    store.writer.commit(second)
    with pytest.raises(AssertionError):
        store.writer.commit(second)
    assert store.writer.reader.last_seq(A) == 2


def test_a_batch_keeps_no_batch_alive_that_is_committed(store: Store) -> None:
    """Under load there is always a next one: a chain of them would grow for ever."""
    first = store.writer.batch()
    place(store, first, NewEntry.of_msg(message(A, "client", 1)))
    second = store.writer.batch(first)
    store.writer.commit(first)
    store.writer.commit(second)
    gone = weakref.ref(first)
    del first
    assert gone() is None


# --- tokens -------------------------------------------------------------------------------------------------


def check_tokens(reader: Reader, tokens: list[CapToken]) -> None:
    for _ in range(2):  # from the log, and as kept
        assert [reader.token(token.auth_ref) for token in tokens] == tokens
        assert reader.token(NOTHING) is None


def test_a_token_is_found_wherever_it_is(fs: RealFilesystem, store: Store) -> None:
    tokens = [builders.cap_token(ttl=ttl) for ttl in range(1, 11)]
    for nth, token in enumerate(tokens):
        store.authorize(token)
        if nth == 6:  # sealed chunks, the open one, and the journal behind them
            store.writer.flush()
    check_tokens(store.writer.reader, tokens)
    store.writer.abandon()
    with reading(fs) as reader:
        check_tokens(reader, tokens)
    repair(fs, owner="a test")
    with writing(fs) as again:
        check_tokens(again.writer.reader, tokens)


def test_few_tokens_are_kept_and_all_are_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veen.storage.read.reader._KEPT_TOKENS", 2)
    tokens = [builders.cap_token(ttl=ttl) for ttl in range(1, 6)]
    for token in tokens:
        store.authorize(token)
    writer = store.writer
    check_tokens(Reader(writer.fs, writer._index, writer.store, lambda: writer._tails), tokens)


def test_a_token_that_was_only_used_is_not_there(store: Store) -> None:
    store.record(NewEntry.of_msg(message(A, "client", 1, 5, TOKEN.auth_ref)))
    assert store.writer.reader.token(TOKEN.auth_ref) is None
    store.authorize(TOKEN)
    assert store.writer.reader.token(TOKEN.auth_ref) == TOKEN


def test_a_damaged_token_is_refused_and_others_are_not(fs: RealFilesystem, store: Store) -> None:
    store.authorize(TOKEN)
    store.authorize(OTHER)
    store.writer.close()
    (name,) = (name for name in fs.names(Domain.AUTHORIZE) if name.endswith(".log"))
    path = fs.root / Domain.AUTHORIZE / name
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with reading(fs) as reader:
        with pytest.raises(DamagedStoreError, match=name):
            reader.token(TOKEN.auth_ref)
        assert reader.token(OTHER.auth_ref) == OTHER
