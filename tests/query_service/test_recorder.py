"""What the hub does not take is given up if it is too long, and else waits; rows without an answer go."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests import builders
from tests.hub.hub_process import TIMEOUT
from tests.query_service.plain_service import make_service
from tests.query_service.service_process import APP, make_place, until
from veen.client.errors import NetworkError, RejectedError
from veen.core.errors import Code
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.types import VerifyKey
from veen.query_service.recorder import AUDIT, REQUESTS, RESULTS, Event, Pauses, Recorder, Sender
from veen.query_service.server import STORE
from veen.query_service.settings import RESULTS_DIR
from veen.query_service.store import MOST_ATTEMPTS, Kind, Query, RecordedAt, State, Store

if TYPE_CHECKING:
    from veen.client.client import Client

NOW = 1_800_000_000


class Hub(Sender):
    """A hub that refuses some events."""

    def __init__(self, refuses: Callable[[Event], Code | None] = lambda _: None) -> None:
        super().__init__(cast("Client", None))
        self._refuses = refuses
        self.sent: list[Event] = []

    @property
    def signer(self) -> VerifyKey:
        return builders.verify_key("service")

    def send(self, event: Event) -> RecordedAt:
        code = self._refuses(event)
        if code is not None:
            raise RejectedError(ErrorEnvelope(code=code.value, message="no"))
        self.sent.append(event)
        return RecordedAt(event.stream, 0, len(self.sent), "aa" * 32, b"receipt")

    def find(self, event: Event, after: tuple[int, int]) -> RecordedAt | None:  # noqa: ARG002 - of a hub
        return None

    def close(self) -> None:
        pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / STORE)
    yield made
    made.close()


def received(store: Store, name: str) -> str:
    """Have a query whose request is to be recorded."""
    asked = f'{{"scope":["{APP}"]}}'
    query = Query(f"r-{name}", f"q-{name}", "alice", "bb" * 32, asked, State.RECEIVED, NOW)
    store.receive(query, max_waiting=10)
    return query.result_id


def running(store: Store, hub: Hub, name: str) -> str:
    """Bring a query so far that it runs."""
    result_id = received(store, name)
    assert record_all(store, hub)
    assert store.begin(NOW) is not None
    return result_id


def make_recorder(store: Store, hub: Hub, **more: Any) -> Recorder:
    return Recorder(store, hub, lambda: NOW, on_step=lambda _: None, on_fatal=lambda _: None, **more)


def record_all(store: Store, hub: Hub) -> bool:
    return make_recorder(store, hub)._record_all()


def state(store: Store, result_id: str) -> State:
    found = store.find(result_id)
    assert found is not None
    return found.state


@pytest.mark.parametrize(
    ("code", "states"),
    [(Code.SIZE, [State.FAILED, State.COMPLETED]), (Code.CAP, [State.COMMITTING, State.COMMITTING])],
)
def test_what_is_too_long_fails_alone_and_what_is_refused_otherwise_waits(
    store: Store, code: Code, states: list[State]
) -> None:
    hub = Hub(lambda event: code if '"long"' in str(event.body.get("payload")) else None)
    ids = [running(store, hub, name) for name in ("long", "short")]
    for result_id in ids:
        store.answer(result_id, f'{{"rows_hash":"{"cc" * 32}","{result_id[2:]}":1}}', NOW)
    assert record_all(store, hub) is (code is Code.SIZE)
    assert [state(store, result_id) for result_id in ids] == states
    assert [event.stream for event in hub.sent].count(RESULTS) == states.count(State.COMPLETED)
    if code is Code.SIZE:
        record_all(store, hub)
        assert store.next_record() is None
        assert store.place(ids[0], Kind.AUDIT) is not None
        failed = store.find(ids[0])
        assert failed is not None
        assert (failed.error_code, failed.digest) == ("execution_failed", None)


def test_rows_of_queries_without_an_answer_are_removed_at_the_next_start(tmp_path: Path) -> None:
    place, hub = tmp_path / "service", Hub()
    make_place(place)
    results = place / "state" / RESULTS_DIR
    results.mkdir(parents=True)
    store = Store(place / "state" / STORE)
    given_up, done = (running(store, hub, name) for name in ("given-up", "done"))
    store.answer(done, "{}", NOW)
    for _ in range(1, MOST_ATTEMPTS):
        assert store.recover(NOW) == 1
        assert store.begin(NOW) is not None
    for name in (given_up, done, "of-nobody-here"):
        (results / name).mkdir()
        (results / name / "rows").write_bytes(b"secret")
    (place / "hold").touch()
    service = make_service(place, hub, store=store)
    service.start()
    service.stop()
    assert sorted(path.name for path in results.iterdir()) == ["of-nobody-here", done]


def test_a_stream_that_is_refused_keeps_no_other_waiting(store: Store) -> None:
    hub = Hub(lambda event: Code.CAP if event.stream == AUDIT else None)
    failed = running(store, hub, "failed")
    store.fail(failed, "execution_failed", "why", NOW)
    recorder = make_recorder(store, hub, pauses=Pauses(first_sec=3600, refused_sec=3600))
    recorder.start()
    try:
        until(lambda: not recorder.is_working, "the refusal of the audit record")
        later = received(store, "later")
        recorder.wake()
        until(lambda: state(store, later) is State.PENDING, "the request that came later")
        assert not recorder.is_working
    finally:
        recorder.stop()
    assert not recorder._thread.is_alive()


def test_a_stream_that_is_refused_is_tried_again_and_in_order(store: Store) -> None:
    refused = [True]
    now = [0.0]
    hub = Hub(lambda event: Code.CAP if refused[0] and event.stream == REQUESTS else None)
    ids = [received(store, name) for name in ("first", "second")]
    recorder = make_recorder(store, hub, monotonic=lambda: now[0])
    assert not recorder._record_all()
    refused[0] = False
    assert not recorder._record_all(), "it is left alone for a while"
    assert not hub.sent
    now[0] += 0.5
    assert recorder._record_all()
    assert recorder.is_working
    assert [event.body["metadata"]["result_id"] for event in hub.sent] == ids


@pytest.mark.parametrize(
    ("error", "pauses"),
    [
        (NetworkError("away"), [0.5, 1, 2, 2, 2]),
        (RejectedError(ErrorEnvelope(code=Code.CAP.value, message="no")), [0.5, 1, 2, 4, 8]),
    ],
)
def test_a_hub_that_is_away_is_tried_again_soon(error: Exception, pauses: list[float]) -> None:
    assert [Pauses().after(failures, error) for failures in range(1, 6)] == pauses
    assert Pauses().after(10_000, error) in (2.0, 30.0)


class HangingHub(Hub):
    """A hub that takes an event and does not answer before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = threading.Event(), threading.Event()

    def send(self, event: Event) -> RecordedAt:
        self.asked.set()
        self.answers.wait()
        return super().send(event)


def test_a_hub_that_hangs_is_no_hub_that_works_and_is_not_waited_for_at_the_end(store: Store) -> None:
    hub = HangingHub()
    now = [0.0]
    result_id = received(store, "one")
    faults: list[Exception] = []
    recorder = Recorder(
        store,
        hub,
        lambda: NOW,
        on_step=lambda _: None,
        on_fatal=faults.append,
        monotonic=lambda: now[0],
    )
    recorder.start()
    assert hub.asked.wait(TIMEOUT)
    working = []
    for now[0] in (0.0, 60.0):
        working.append(recorder.is_working)
    assert working == [True, False], "an answer takes its time, but not any time"
    recorder.stop(patience_sec=0.0)
    assert recorder._thread.is_alive(), "it is left to the end of the process"
    tried = store.next_record()
    assert tried is not None
    assert (tried.query.result_id, tried.tried) == (result_id, True), "the next start looks for it"
    store.close()
    hub.answers.set()
    recorder._thread.join(TIMEOUT)
    assert not recorder._thread.is_alive()
    assert not faults
