"""A service that is killed at every step: no query that was taken is lost, and nothing is recorded twice."""

import json
import multiprocessing
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.hub.hub_process import TIMEOUT, HubProcess
from tests.query_service.plain_service import make_service, open_sender
from tests.query_service.service_process import APP, make_place, recorded, until
from veen.client.effects import Request, Submit
from veen.query_service.grants import PolicyFile
from veen.query_service.server import STORE
from veen.query_service.store import Kind, Store

QUERY_ID = "the-one"
#: What is recorded of every query.
KINDS = (Kind.REQUEST, Kind.RESULT, Kind.AUDIT)
#: Beside the store: a byte for each change of it that is durable.
CHANGES = "changes"
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.query_service.plain_service", "tests.query_service.service_process"])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingStore(Store):
    """Kills its process before the change number ``at`` is durable, and counts those that are; 0: never."""

    def __init__(self, path: Path, at: int) -> None:
        super().__init__(path)
        self._changes = path.with_name(CHANGES)
        self._left = at

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with super()._writing() as db:
            yield db
            self._left -= 1
            if self._left == 0:
                die()
        with self._changes.open("ab") as file:
            file.write(b".")


def live(place: Path, hub: str, commit: int, answer: int, *, submit: bool) -> None:
    """Be a service that is killed before a change of its store, or before it hears an answer of the hub."""
    sender = open_sender(place, hub)
    within = sender._client.hub
    plain = within.answer
    left = [answer]

    def answering(request: Request) -> Any:
        found = plain(request)
        if isinstance(request, Submit):
            left[0] -= 1
            if left[0] == 0:
                die()
        return found

    within.answer = answering  # type: ignore[method-assign] # the network, as it may be
    service = make_service(place, sender, store=DyingStore(place / "state" / STORE, commit))
    service.start()
    if submit:
        principal = PolicyFile(place / "policy.toml").now().principals[0]
        body = json.dumps({"query_id": QUERY_ID, "scope": [APP]})
        service.submit(principal, body.encode())
    signal.pause()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return new_place(tmp_path / "service")


def new_place(path: Path) -> Path:
    make_place(path)
    (path / "state").mkdir()
    return path


def start(place: Path, hub: str, *, commit: int = 0, answer: int = 0, submit: bool = False) -> BaseProcess:
    process = PROCESSES.Process(
        target=live, args=(place, hub, commit, answer), kwargs={"submit": submit}, daemon=True
    )
    process.start()
    return process


def settled(place: Path) -> tuple[str, int]:
    """Return the state of the query, and how much is to be recorded yet."""
    store = Store(place / "state" / STORE)
    try:
        query = store.find_query(QUERY_ID)
        return "" if query is None else query.state.value, int(store.next_record() is not None)
    finally:
        store.close()


def runs(place: Path) -> int:
    """Return how often the query was begun."""
    store = Store(place / "state" / STORE)
    try:
        query = store.find_query(QUERY_ID)
        return 0 if query is None else query.attempts
    finally:
        store.close()


def kinds(place: Path, hub: str) -> Counter[Kind]:
    found: Counter[Kind] = Counter()
    for kind in KINDS:
        found[kind] = sum(QUERY_ID.encode() in message.raw_body() for message in recorded(place, hub, kind))
    return found


def go_on(place: Path, hub: str, *, submit: bool = False) -> None:
    """Start the service again, and let it finish."""
    process = start(place, hub, submit=submit)
    try:
        until(lambda: settled(place) == ("COMPLETED", 0), "the end of the query")
    finally:
        process.kill()
        process.join(TIMEOUT)


def test_killed_before_a_change_is_durable(hub: HubProcess, tmp_path: Path) -> None:
    """Before each of those that a service makes that nobody kills; the first is made before any query."""
    dry = new_place(tmp_path / "dry")
    go_on(dry, hub.url, submit=True)
    changes = (dry / "state" / CHANGES).stat().st_size
    assert changes > 2 * len(KINDS), "each record is tried, and recorded"
    for commit in range(2, changes + 1):
        place = new_place(tmp_path / str(commit))
        process = start(place, hub.url, commit=commit, submit=True)
        process.join(TIMEOUT)
        assert process.exitcode == -signal.SIGKILL, commit
        if commit == 2:
            assert settled(place) == ("", 0), "it was not taken, and nobody was told that it was"
            continue
        go_on(place, hub.url)
        assert kinds(place, hub.url) == dict.fromkeys(KINDS, 1), commit


@pytest.mark.parametrize("answer", [1, 2, 3])
def test_killed_before_the_answer_of_the_hub_is_heard(hub: HubProcess, place: Path, answer: int) -> None:
    process = start(place, hub.url, answer=answer, submit=True)
    process.join(TIMEOUT)
    assert process.exitcode == -signal.SIGKILL
    go_on(place, hub.url)
    assert kinds(place, hub.url) == dict.fromkeys(KINDS, 1)


def test_a_query_that_three_services_died_of_fails(hub: HubProcess, place: Path) -> None:
    (place / "hold").touch()
    for nth in range(3):
        process = start(place, hub.url, submit=nth == 0)
        until(lambda: runs(place) == nth + 1, "the run")  # noqa: B023 - called at once
        process.kill()
        process.join(TIMEOUT)
    process = start(place, hub.url)
    until(lambda: settled(place) == ("FAILED", 0), "the end of the query")
    process.kill()
    process.join(TIMEOUT)
    assert kinds(place, hub.url) == {Kind.REQUEST: 1, Kind.RESULT: 0, Kind.AUDIT: 1}
