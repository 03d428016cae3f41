"""The tables refuse what must not happen, whoever writes to them; and a policy is changed without a break."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.query_service.service_process import read_policy
from veen.query.policy import may_read
from veen.query_service.errors import DuplicateQueryError, PolicyError, QueueFullError, StoreError
from veen.query_service.grants import grant
from veen.query_service.store import (
    MOST_ATTEMPTS,
    Kind,
    Query,
    RecordedAt,
    State,
    Store,
)

NOW = 1_800_000_000
PLACE = RecordedAt("record/query/requests", 0, 1, "aa" * 32, b"receipt")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "db")
    yield made
    made.close()


def received(store: Store, name: str = "one") -> str:
    query = Query(f"r-{name}", f"q-{name}", "alice", "bb" * 32, "{}", State.RECEIVED, NOW)
    store.receive(query, max_waiting=10)
    return query.result_id


def record(store: Store) -> Query:
    waiting = store.next_record()
    assert waiting is not None
    return store.recorded(waiting, PLACE, NOW)


def at(store: Store, state: State) -> str:
    """Bring a query to a state."""
    result_id = received(store)
    if state is not State.RECEIVED:
        record(store)
    if state in (State.RUNNING, State.COMMITTING, State.COMPLETED, State.FAILED):
        assert store.begin(NOW) is not None
    if state is State.FAILED:
        store.fail(result_id, "execution_failed", "why", NOW)
    if state in (State.COMMITTING, State.COMPLETED):
        store.answer(result_id, "{}", NOW)
    if state is State.COMPLETED:
        record(store)
    found = store.find(result_id)
    assert found is not None
    assert found.state is state
    return result_id


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("after", list(State))
def test_only_the_steps_of_a_query_can_be_taken(tmp_path: Path, state: State, after: State) -> None:
    allowed = {
        State.RECEIVED: {State.PENDING, State.FAILED},
        State.PENDING: {State.RUNNING, State.FAILED},
        State.RUNNING: {State.PENDING, State.COMMITTING, State.FAILED},
        State.COMMITTING: {State.COMPLETED, State.FAILED},
        State.COMPLETED: set(),
        State.FAILED: set(),
    }
    store = Store(tmp_path / "db")
    result_id = at(store, state)
    store.close()
    digest = "{}" if after in (State.COMMITTING, State.COMPLETED) else None
    code = "execution_failed" if after is State.FAILED else None
    with sqlite3.connect(tmp_path / "db") as db:
        change = "UPDATE queries SET state = ?, digest = ?, error_code = ? WHERE result_id = ?"
        if after in allowed[state]:
            db.execute(change, (after, digest, code, result_id))
        else:
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(change, (after, digest, code, result_id))
    db.close()


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED])
def test_what_is_final_stays_and_nothing_is_forgotten(store: Store, state: State) -> None:
    result_id = at(store, state)
    before = store.find(result_id)
    assert store.cancel(result_id, NOW + 5) == before
    with pytest.raises(sqlite3.IntegrityError):
        store.fail(result_id, "cancelled", "no", NOW)
    with pytest.raises(sqlite3.IntegrityError, match="final"):
        store._db.execute("UPDATE queries SET message = 'another'")
    with pytest.raises(sqlite3.IntegrityError, match="kept"):
        store._db.execute("DELETE FROM queries")
    assert store.find(result_id) == before


def test_ids_are_used_once_and_the_queue_has_an_end(store: Store) -> None:
    received(store)
    with pytest.raises(DuplicateQueryError):
        received(store)
    for nth in range(9):
        received(store, str(nth))
    with pytest.raises(QueueFullError):
        received(store, "more")


def test_a_query_that_was_cancelled_has_no_answer(store: Store) -> None:
    result_id = at(store, State.RUNNING)
    assert store.cancel(result_id, NOW).state is State.RUNNING
    after = store.answer(result_id, "{}", NOW)
    assert (after.state, after.error_code, after.digest) == (State.FAILED, "cancelled", None)
    waiting = store.next_record()
    assert waiting is not None
    assert waiting.kind is Kind.AUDIT


def test_one_that_is_cancelled_before_it_is_recorded_does_not_run(store: Store) -> None:
    result_id = received(store)
    store.cancel(result_id, NOW)
    assert record(store).state is State.FAILED
    assert store.begin(NOW) is None


def test_what_the_service_has_died_of_runs_alone(store: Store) -> None:
    ids = [received(store, name) for name in ("one", "two", "three")]
    for _ in ids:
        record(store)

    def begun() -> list[str]:
        found = []
        while (query := store.begin(NOW)) is not None:
            found.append(query.result_id)
        return found

    def attempts() -> list[int]:
        return [query.attempts for query in map(store.find, ids) if query is not None]

    assert begun() == ids
    assert store.recover(NOW) == 3
    for nth in (2, 3):  # the first one is what it dies of
        assert begun() == ids[:1], "and the others are not to blame"
        assert store.recover(NOW) == int(nth < MOST_ATTEMPTS)
        assert attempts() == [nth, 1, 1]
    for result_id in ids[1:]:
        assert begun() == [result_id]
        store.answer(result_id, "{}", NOW)
    assert store.count(State.COMMITTING) == 2


def test_one_that_has_to_run_alone_waits_for_those_that_run(store: Store) -> None:
    first, second = received(store, "one"), received(store, "two")
    record(store)
    assert store.begin(NOW) is not None
    assert store.recover(NOW) == 1
    store._db.execute("UPDATE queries SET received_at = ? WHERE result_id = ?", (NOW + 1, first))
    record(store)
    running = store.begin(NOW)
    assert running is not None
    assert running.result_id == second
    assert store.begin(NOW) is None
    store.answer(second, "{}", NOW)
    alone = store.begin(NOW)
    assert alone is not None
    assert alone.result_id == first


def test_a_disk_that_is_full_is_told_and_the_store_goes_on_when_it_is_not(store: Store) -> None:
    store._db.execute("PRAGMA max_page_count=1")  # the least that SQLite takes: what it has already
    with pytest.raises(sqlite3.OperationalError, match="full"):
        received(store, "x" * 20_000)
    store._db.execute("PRAGMA max_page_count=1000")
    assert received(store, "later") == "r-later"


def test_a_store_of_another_version_or_that_is_none_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "db").close()
    with sqlite3.connect(tmp_path / "db") as db:
        db.execute("PRAGMA user_version=9")
    db.close()
    with pytest.raises(StoreError, match="another version"):
        Store(tmp_path / "db")
    (tmp_path / "none").write_bytes(os.urandom(5000))
    with pytest.raises(StoreError, match="cannot be used"):
        Store(tmp_path / "none")


# --- policies -----------------------------------------------------------------------------------------------


def test_a_grant_is_known_by_its_token_alone(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    first = grant(policy, "alice", ["record/app/*"], identity=bytes(range(32)))
    second = grant(policy, "éve with space", ["*"], auditor=True)
    found = read_policy(policy)
    alice, eve = found.by_token(first), found.by_token(second)
    assert alice is not None
    assert eve is not None
    assert (alice.name, alice.identity, alice.auditor) == ("alice", bytes(range(32)), False)
    assert (eve.name, eve.auditor) == ("éve with space", True)
    assert may_read(alice, "record/app/x")
    assert not may_read(alice, "record/application")
    assert first not in policy.read_text()
    assert stat.S_IMODE(policy.stat().st_mode) == 0o600


def test_a_grant_that_can_not_be_changes_nothing(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    grant(policy, "alice", ["a"])
    before = policy.read_bytes()
    for name, scopes, what in (
        ("alice", ["a"], "already"),
        ("bob", [], "scopes"),
        ("bob", ["a*"], "a\\*"),
        ('b"ob', ["a"], "quotes"),
        ("bob", ["a\nb"], "plain"),
    ):
        with pytest.raises(PolicyError, match=what):
            grant(policy, name, scopes)
    assert policy.read_bytes() == before
    policy.write_text("principals = 3")
    with pytest.raises(PolicyError):
        grant(policy, "bob", ["a"])
    assert policy.read_text() == "principals = 3"


def test_grants_at_once_are_all_kept(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    with ThreadPoolExecutor(8) as threads:
        tokens = list(threads.map(lambda nth: grant(policy, f"p{nth}", ["a"]), range(8)))
    found = read_policy(policy)
    assert all(found.by_token(token) is not None for token in tokens)
