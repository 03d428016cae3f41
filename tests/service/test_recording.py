"""What the hub does not take is given up if it is too long, and else waits; rows without an answer go."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tests import builders
from tests.service.plain import make_log, make_service
from tests.service.world import APP, make_place
from veen.client.errors import RefusedError
from veen.core.error_envelope import ErrorEnvelope
from veen.core.errors import Code
from veen.core.types import VerifyKey
from veen.service.events import RESULTS, Event
from veen.service.querying import RESULTS_DIR
from veen.service.recording import Recorder, Sender
from veen.service.server import STORE
from veen.service.store import MOST_ATTEMPTS, Kind, Place, Query, State, Store

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

    def send(self, event: Event) -> Place:
        code = self._refuses(event)
        if code is not None:
            raise RefusedError(ErrorEnvelope(code=code.value, message="no"))
        self.sent.append(event)
        return Place(event.stream, 0, len(self.sent), "aa" * 32, b"receipt")

    def find(self, event: Event, after: tuple[int, int]) -> Place | None:  # noqa: ARG002 - of a hub
        return None

    def close(self) -> None:
        pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / STORE)
    yield made
    made.close()


def running(store: Store, hub: Hub, name: str) -> str:
    """Bring a query so far that it runs."""
    asked = f'{{"scope":["{APP}"]}}'
    query = Query(f"r-{name}", f"q-{name}", "alice", "bb" * 32, asked, State.RECEIVED, NOW)
    store.receive(query, most_waiting=10)
    assert record_all(store, hub)
    assert store.begin(NOW) is not None
    return query.result_id


def record_all(store: Store, hub: Hub) -> bool:
    recorder = Recorder(store, hub, make_log(), lambda: NOW, on_step=lambda _: None, on_fatal=lambda _: None)
    return recorder._record_all()


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
    service = make_service(place, hub, make_log(), store=store)
    service.start()
    service.stop()
    assert sorted(path.name for path in results.iterdir()) == ["of-nobody-here", done]
