"""What is left of the rates of tokens: the same, however the log is read back (C-52)."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.storage.checks import reading, writing
from tests.storage.stores import HUB_ID, TINY, A, B, C, Store, message, new_store
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import NO_COMPRESSION, AuthRecord, Registry, StoreRecord
from veen.core.errors import ProtocolError
from veen.core.limits import Limits
from veen.core.objects.capability import Bucket, CapToken, Rate, effective_rate
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, HubId, Label
from veen.storage import clone, fork
from veen.storage.directory import change_registry
from veen.storage.errors import DamagedStoreError, StaleIndexError
from veen.storage.fs import RealFilesystem
from veen.storage.journal.rate_buckets import Buckets, Uses
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

RATE = Rate(per_sec=2, burst=9)
TOKEN = builders.cap_token(rate=RATE)
REF = TOKEN.auth_ref
#: Lower than the token's own rate.
SLOW = Limits(
    max_msg_bytes=2_000,
    max_chunk_bytes=5_000,
    max_checkpoint_interval=4,
    max_cap_rate_per_sec=1,
    max_cap_rate_burst=4,
)


def store_record(*regimes: tuple[int, Limits]) -> StoreRecord:
    """Return the record of a directory whose limits were these, from these times on."""
    registries = tuple(Registry.of(limits, effective_from=start) for start, limits in regimes)
    return StoreRecord(hub_id=HUB_ID, registries=registries, epoch_secs=(0,))


def accepted(
    times: list[int], store: StoreRecord, token: CapToken = TOKEN
) -> tuple[list[int], Bucket | None]:
    """Return which of the messages at these times a hub takes, and what it has left then."""
    left: Bucket | None = None
    taken = []
    for hub_ts in sorted(times):
        rate = effective_rate(token, store.registry_at(hub_ts).limits)
        try:
            left = (left or Bucket.full(rate, hub_ts)).take(rate, hub_ts)
        except ProtocolError:
            continue
        taken.append(hub_ts)
    return taken, left


# --- folding ------------------------------------------------------------------------------------------------

times = st.lists(st.integers(100, 130), max_size=60)
stores = st.integers(100, 130).map(lambda change: store_record((0, TINY), (change, SLOW)))


@given(times, stores, st.randoms(), st.sampled_from([2, 8, 4096]))
def test_a_repair_sees_messages_in_any_order(
    wanted: list[int], store: StoreRecord, random: Random, merge_at: int
) -> None:
    taken, left = accepted(wanted, store)
    random.shuffle(taken)
    uses = Uses()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("veen.storage.journal.rate_buckets._FIRST_MERGE", merge_at)
        for nth, hub_ts in enumerate(taken):
            uses.used(REF, hub_ts)
            if nth == len(taken) // 2:
                uses.authorized(REF, TOKEN, 100)
    assert uses.buckets(store) == ({} if left is None else {REF: left})


@given(times, stores, st.integers(0, 60))
def test_a_start_goes_on_from_what_was_stored(wanted: list[int], store: StoreRecord, moved: int) -> None:
    taken, left = accepted(wanted, store)
    stored = accepted(taken[:moved], store)[1]
    buckets = Buckets(store, {REF: TOKEN}.get, {REF: stored}.get)
    found = stored
    for hub_ts in taken[moved:]:
        found = buckets.after(REF, hub_ts)
    assert found == left


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(100, 120)), max_size=60))
def test_tokens_are_counted_apart(wanted: list[tuple[int, int]]) -> None:
    tokens = [builders.cap_token(rate=RATE, ttl=ttl) for ttl in (1, 2, 3)]
    store = store_record((0, TINY))
    uses = Uses()
    expected = {}
    for number, token in enumerate(tokens):
        uses.authorized(token.auth_ref, token, 0)
        taken, left = accepted([at for owner, at in wanted if owner == number], store, token)
        for hub_ts in taken:
            uses.used(token.auth_ref, hub_ts)
        if left is not None:
            expected[token.auth_ref] = left
    assert uses.buckets(store) == expected


def test_a_token_that_the_log_does_not_have_has_no_bucket() -> None:
    store = store_record((0, TINY))
    uses = Uses()
    uses.used(REF, 100)
    assert uses.buckets(store) == {}
    buckets = Buckets(store, lambda _: None, lambda _: Bucket(1, 1))
    assert buckets.after(REF, 100) is None
    buckets.learn(REF, TOKEN)
    assert buckets.after(REF, 101) == Bucket(8, 101)


def test_what_was_sent_before_a_token_was_there_is_not_counted() -> None:
    uses = Uses()
    for hub_ts in (98, 99, 100, 100, 101):
        uses.used(REF, hub_ts)
    uses.authorized(REF, TOKEN, 100)
    uses.authorized(REF, TOKEN, 101)  # once more: the first time counts
    assert uses.buckets(store_record((0, TINY))) == {REF: Bucket(8, 101)}


def test_messages_of_many_labels_take_the_room_of_their_seconds() -> None:
    uses = Uses()
    uses.authorized(REF, TOKEN, 0)
    seconds = range(100, 3_100)
    for _ in range(20):  # labels, one after the other
        for hub_ts in seconds:
            uses.used(REF, hub_ts)
    assert len(uses._uses[REF]) <= 4 * len(seconds) + 2
    assert uses.buckets(store_record((0, TINY))) == {REF: Bucket(0, 3_099)}


def test_more_than_the_rate_allows_leaves_nothing() -> None:
    buckets = Buckets(store_record((0, TINY)), lambda _: TOKEN, lambda _: None)
    assert buckets.after(REF, 100, count=50) == Bucket(0, 100)


# --- directories --------------------------------------------------------------------------------------------


def use(store: Store, *labels_: Label, token: CapToken = TOKEN) -> None:
    """Commit a message with the token to each label, all within a second."""
    for label in labels_:
        seq = store.writer.reader.client(label, builders.verify_key()).client_seq + 1
        store.record(NewEntry.of_msg(message(label, "client", seq, 5, token.auth_ref)))


def spread(store: Store, token: CapToken = TOKEN) -> Bucket:
    """Use a token in many labels, some of it in chunks and some in the journal; return what is left of it."""
    store.authorize(token)
    left = Bucket.full(RATE, store.clock)
    for number, labels_ in enumerate(((A, B, A), (C,), (B, A, C, A), (A, B), (C, B, B))):
        store.tick(number % 3)
        use(store, *labels_, token=token)
        for _ in labels_:
            left = left.take(RATE, store.clock)
        if number == 2:
            store.writer.flush()
    return left


def as_written(fs: RealFilesystem) -> None:
    """Do nothing."""
    assert fs.size(paths.STORE)


def started(fs: RealFilesystem) -> None:
    """Start and stop."""
    with writing(fs, clock=5_000) as store:
        store.writer.close()


def repaired(fs: RealFilesystem) -> None:
    """Make the index anew."""
    shutil.rmtree(fs.root / paths.INDEX)
    repair(fs, owner="a test")


def ended(store: Store, *, crash: bool) -> None:
    """End a writer, by a crash or a clean stop."""
    if crash:
        store.writer.abandon()
    else:
        store.writer.close()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("step", [as_written, started, repaired])
def test_a_rate_is_what_it_was(
    fs: RealFilesystem, step: Callable[[RealFilesystem], None], *, crash: bool
) -> None:
    store = new_store(fs)
    expected = AuthRecord(1_000, 1, spread(store))
    assert store.writer.reader.auth(REF) == expected
    ended(store, crash=crash)
    step(fs)
    with reading(fs) as reader:
        assert reader.auth(REF) == expected
    with writing(fs, clock=5_000) as again:
        assert again.writer.reader.auth(REF) == expected
        assert again.writer.batch().auth(REF) == expected


@pytest.mark.parametrize("crash", [False, True])
def test_a_clone_has_the_same_rates(fs: RealFilesystem, target: RealFilesystem, *, crash: bool) -> None:
    store = new_store(fs)
    expected = AuthRecord(1_000, 1, spread(store))
    ended(store, crash=crash)
    with reading(fs) as source:
        clone(source, target)
    with reading(target) as reader:
        assert reader.auth(REF) == expected
    repair(target, owner="a test")
    with writing(target, clock=5_000) as other:
        assert other.writer.reader.auth(REF) == expected


def test_segments_that_are_read_one_by_one_continue_each_other(fs: RealFilesystem) -> None:
    store = new_store(fs, segment_bytes=4_000)
    left = spread(store)
    store.writer.abandon()
    with reading(fs) as reader:
        assert reader.auth(REF) == AuthRecord(1_000, 1, left)
    with writing(fs, 4_000) as again:
        assert again.writer.recovered.segments
        assert again.writer.reader.auth(REF) == AuthRecord(1_000, 1, left)


def test_a_rate_follows_the_limits_of_its_time(fs: RealFilesystem) -> None:
    store = new_store(fs)
    left = spread(store)
    store.writer.close()
    change_registry(fs, SLOW, NO_COMPRESSION, owner="a test")
    with writing(fs, clock=store.clock + 1) as later:
        use(later, A, B)
        slow = effective_rate(TOKEN, SLOW)
        for _ in range(2):
            left = left.take(slow, later.clock)
        assert later.writer.reader.auth(REF) == AuthRecord(1_000, 1, left)
    for step in (as_written, started, repaired):
        step(fs)
        with reading(fs) as reader:
            assert reader.auth(REF) == AuthRecord(1_000, 1, left)


def test_what_a_fork_has_copied_was_counted_by_another_hub(
    fs: RealFilesystem, target: RealFilesystem
) -> None:
    store = new_store(fs)
    spread(store)
    store.writer.close()
    with reading(fs) as source:
        fork(source, target, HubId(builders.digest("another hub")))
    for step in (as_written, repaired):
        step(target)
        with reading(target) as reader:
            record = reader.auth(REF)
            assert record is not None
            assert (record.authorize_seq, record.bucket, reader.token(REF)) == (0, None, None)


def test_what_was_pruned_is_not_counted_after_a_repair(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.authorize(TOKEN)
    use(store, A, A, A, A)
    store.tick()
    use(store, A)
    store.writer.flush()
    live = Bucket(5 + 2 - 1, 1_001)
    store.writer.prune(A, 4)
    assert store.writer.reader.auth(REF) == AuthRecord(1_000, 1, live)
    store.writer.close()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        assert reader.auth(REF) == AuthRecord(1_000, 1, Bucket(8, 1_001))


def test_an_index_from_before_rates_is_made_anew(fs: RealFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("veen.storage.index.index.FORMAT", 2)
        store = new_store(fs)
        left = spread(store)
        store.writer.close()
    with pytest.raises(StaleIndexError, match=r"format 2.*veen repair"):
        Reader.open(fs)
    repair(fs, owner="a test")
    with reading(fs) as reader:
        assert reader.auth(REF) == AuthRecord(1_000, 1, left)


# --- damage -------------------------------------------------------------------------------------------------


def authorize_chunk(fs: RealFilesystem) -> Path:
    """Return the one file of the authorize log."""
    (name,) = (name for name in fs.names(Domain.AUTHORIZE) if name.endswith(".log"))
    return fs.root / Domain.AUTHORIZE / name


def test_a_damaged_token_keeps_nobody_from_other_things(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.authorize(TOKEN)
    store.authorize(builders.cap_token(ttl=9))  # the last one is looked at whenever a hub starts
    use(store, A, A)
    store.writer.flush()
    use(store, A, A, B)
    store.writer.abandon()
    path = authorize_chunk(fs)
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with reading(fs) as reader:
        assert reader.entry(A, 4).receipt == store.receipts[5]
        assert reader.last_seq(A) == 4
        with pytest.raises(DamagedStoreError, match=path.name):
            reader.token(REF)
    with writing(fs, clock=5_000) as again:
        again.append(A)
        assert again.writer.reader.last_seq(A) == 5
        with pytest.raises(DamagedStoreError, match=path.name):
            again.writer.batch().token(REF)
    with pytest.raises(DamagedStoreError, match=path.name):
        repair(fs, owner="a test")


def test_a_missing_file_of_tokens_is_named(fs: RealFilesystem) -> None:
    store = new_store(fs)
    spread(store)
    store.writer.abandon()
    path = authorize_chunk(fs)
    path.unlink()
    for attempt in (Reader.open, writing_once):
        with pytest.raises(DamagedStoreError, match=path.name):
            attempt(fs)


def writing_once(fs: RealFilesystem) -> None:
    """Start a writer."""
    with writing(fs):
        pass


def test_an_unknown_token_is_none(fs: RealFilesystem) -> None:
    store = new_store(fs)
    assert store.writer.reader.auth(AuthRef(builders.digest("unknown"))) is None
    use(store, A)
    record = store.writer.reader.auth(REF)
    assert record == AuthRecord(1_000, 0)
    store.writer.close()
