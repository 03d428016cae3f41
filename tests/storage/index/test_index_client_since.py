"""When clients were first seen: in any label, and for ever."""

import shutil

import pytest

from tests import builders
from tests.storage.checks import reading, writing
from tests.storage.stores import A, B, C, Store, message, new_store
from veen.core.data_dir import paths
from veen.core.objects.new_entry import NewEntry
from veen.storage import clone
from veen.storage.fs import RealFilesystem
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader

FIRST, LATER, UNSEEN = (builders.verify_key(name) for name in ("first", "later", "unseen"))


def ages(reader: Reader) -> list[int | None]:
    return [reader.client_since(client) for client in (FIRST, LATER, UNSEEN)]


def filled(fs: RealFilesystem) -> Store:
    """Return a store whose clients come back in other labels, in chunks and in the journal."""
    store = new_store(fs)
    store.append(C, client="first")
    store.tick(10)
    store.append(A, B, client="first")
    store.append(B, client="later")
    store.writer.flush()
    store.tick(10)
    store.append(A, C, client="later")
    store.append(B, client="first")
    return store


def test_a_client_is_as_old_as_its_first_message_anywhere(fs: RealFilesystem) -> None:
    store = filled(fs)
    assert ages(store.writer.reader) == [1_000, 1_010, None]
    store.writer.flush()
    assert ages(store.writer.reader) == [1_000, 1_010, None]
    store.writer.close()
    with reading(fs) as reader:
        assert ages(reader) == [1_000, 1_010, None]


@pytest.mark.parametrize("flushed", [False, True])
def test_ages_survive_crash_repair_and_clone(
    fs: RealFilesystem, target: RealFilesystem, *, flushed: bool
) -> None:
    store = filled(fs)
    if flushed:
        store.writer.flush()
    store.writer.abandon()
    with reading(fs) as reader:
        assert ages(reader) == [1_000, 1_010, None]
        clone(reader, target)
    for place in (fs, target):
        shutil.rmtree(place.root / paths.INDEX)
        repair(place, owner="a test")
        with writing(place, clock=5_000) as again:
            assert ages(again.writer.reader) == [1_000, 1_010, None]
            again.append(A, B, C, client="first")
            again.append(A, client="unseen")
            again.writer.close()
        with reading(place) as reader:
            assert ages(reader) == [1_000, 1_010, 5_000]


def test_a_batch_knows_clients_that_it_brings(fs: RealFilesystem) -> None:
    store = filled(fs)
    batch = store.writer.batch()
    assert batch.client_since(UNSEEN) is None
    record = NewEntry.of_msg(message(A, "unseen", 1))
    batch.append(record, store.signer(record))
    record = NewEntry.of_msg(message(C, "later", 2))
    batch.append(record, store.signer(record))
    assert [batch.client_since(client) for client in (FIRST, LATER, UNSEEN)] == [1_000, 1_010, 1_020]
    assert ages(store.writer.reader) == [1_000, 1_010, None]
    store.writer.commit(batch)
    assert ages(store.writer.reader) == [1_000, 1_010, 1_020]
    store.writer.close()


# --- pruned directories -------------------------------------------------------------------------------------


def test_pruning_keeps_ages_and_a_repair_makes_nobody_younger(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for client in ("first", "first", "later", "first"):  # one chunk
        store.append(A, client=client)
        store.tick()
    for client in ("later", "first", "unseen", "later"):
        store.append(A, client=client)
        store.tick()
    store.append(A, client="first")
    store.writer.flush()
    store.writer.prune(A, 8)
    assert ages(store.writer.reader) == [1_000, 1_002, 1_006]
    store.writer.close()
    with reading(fs) as reader:
        assert ages(reader) == [1_000, 1_002, 1_006]
    for _ in range(2):  # what is lost is lost once
        repair(fs, owner="a test")
        with reading(fs) as reader:
            # A tombstone has the time of its first entry, not of each client's.
            assert ages(reader) == [1_000, 1_000, 1_004]


def test_an_older_message_in_another_label_still_counts(fs: RealFilesystem) -> None:
    store = new_store(fs)
    store.append(B, client="later")
    store.tick(100)
    for _ in range(5):
        store.append(A, client="later")
    store.writer.flush()
    store.writer.prune(A, 4)
    store.writer.close()
    repair(fs, owner="a test")
    with reading(fs) as reader:
        assert ages(reader) == [None, 1_000, None]
