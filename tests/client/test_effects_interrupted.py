"""Operations interrupted at each of their effects: the lock is free, nothing is lost or sent twice."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.client.conftest import Opens
from tests.client.interruption import WAYS, interrupted
from tests.client.participants import Awaiting, Blocking, Person
from tests.client.proxy import LostError, Passing, Proxy
from tests.hub.hub_process import HubProcess
from veen.client.effects import Submit
from veen.client.errors import NetworkError
from veen.core.objects import labels
from veen.core.objects.capability import CapToken

pytestmark = [pytest.mark.slow, pytest.mark.sweep]


@pytest.fixture(params=WAYS, ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def kind(way: tuple[str, str]) -> str:
    return way[0]


@pytest.fixture
def when(way: tuple[str, str]) -> str:
    return way[1]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub that accepts tokens of every issuer."""
    config = "trust_all_issuers = true\n"
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", config=config) as made:
        yield made


def check_is_free(person: Person) -> None:
    """Check that no lock is held, and that no state is left over from an operation."""
    assert person.session.locked_state is None
    lock = person.session.home.holding()
    assert lock.acquire()
    lock.close()


def outbox(person: Person) -> list[Any]:
    """Return what waits to be sent, whatever its label."""
    home = person.session.home
    return [msg for label in home.load().labels for msg in home.outbox(label)]


def test_a_send_loses_nothing_and_sends_nothing_twice(opens: Opens, stream: str, when: str) -> None:
    alice = opens("alice")
    alice.send(stream, "first")
    stored: set[int] = set()
    for turn in count():
        with interrupted(turn, when) as found:
            alice.send(stream, {"turn": turn})
        check_is_free(alice)
        if outbox(alice) or found.effect is None or (isinstance(found.effect, Submit) and when == "after"):
            stored.add(turn)
        alice.send(stream, {"after": turn})
        assert not outbox(alice)
        if found.effect is None:
            break
    assert turn > 5
    bodies: list[Any] = [message.body for message in alice.read(stream)][1:]
    turns = [body["turn"] for body in bodies if "turn" in body]
    assert len(turns) == len(set(turns)), "nothing was sent twice"
    assert stored <= set(turns), "what was stored was delivered"
    assert [body["after"] for body in bodies if "after" in body] == list(range(turn + 1))


def test_the_first_use_of_a_hub(opens: Opens, stream: str, when: str) -> None:
    for turn in count():
        alice = opens(f"alice {turn}")
        with interrupted(turn, when) as found:
            alice.send(stream, turn)
        check_is_free(alice)
        alice.send(stream, "after")
        bodies = [message.body for message in alice.read(stream) if message.is_open]
        assert bodies in ([turn, "after"], ["after"])
        if found.effect is None:
            assert bodies == [turn, "after"]
            break


def test_a_flush(opens: Opens, hub: HubProcess, stream: str, when: str) -> None:
    def lost(passing: Passing) -> None:
        if passing.path == "/v1/submit":
            raise LostError

    with Proxy(hub.url) as between:
        alice = opens("alice", between.url)
        alice.send(stream, "first")
        for turn in count():
            between.before = lost
            with pytest.raises(NetworkError):
                alice.send(stream, turn)
            between.before = lambda _: None
            assert outbox(alice)
            with interrupted(turn, when) as found:
                assert alice.flush(stream) == 1
            check_is_free(alice)
            alice.flush(stream)
            assert not outbox(alice)
            if found.effect is None:
                break
        assert [message.body for message in alice.read(stream)] == ["first", *range(turn + 1)]


def _handle(person: Person, stream: str, handled: set[Any]) -> None:
    """Read on where the last reading stopped, and note each message as a program would."""
    if isinstance(person, Blocking):
        for message in person.client.read(stream, resume=True):
            handled.add(message.body)
        return
    assert isinstance(person, Awaiting)
    client = person.client

    async def read() -> None:
        async for message in client.read(stream, resume=True):
            handled.add(message.body)

    person.runner.run(read())


def test_a_reader_that_resumes_misses_nothing(opens: Opens, stream: str, when: str) -> None:
    alice = opens("alice")
    handled: set[Any] = set()
    for turn in count():
        alice.send(stream, turn)
        with interrupted(turn, when) as found:
            _handle(alice, stream, handled)
        check_is_free(alice)
        _handle(alice, stream, handled)
        assert handled == set(range(turn + 1))
        if found.effect is None:
            break
    assert turn > 3


def _authorize(person: Person, stream: str) -> object:
    session = person.session
    token = CapToken.mint(
        session.secrets.identity, session.client_id, stream_ids=[labels.stream_id(stream)], ttl=3600
    )
    return person.authorize(token).auth_ref


_OTHERS: dict[str, Callable[[Person, str], object]] = {
    "resync": lambda person, stream: [item.last_mmr_root for item in person.resync(stream)],
    "verify_state": lambda person, stream: person.verify_state(stream),
    "attachment": lambda person, stream: person.attachment(person.read(stream)[0], 0),
    "authorize": _authorize,
}


@pytest.mark.parametrize("name", sorted(_OTHERS))
def test_what_changes_no_log(opens: Opens, stream: str, name: str, when: str) -> None:
    alice = opens("alice")
    alice.send(stream, "first", attachments=[b"content"])
    expected = _OTHERS[name](alice, stream)
    for turn in count():
        with interrupted(turn, when) as found:
            assert _OTHERS[name](alice, stream) == expected
        check_is_free(alice)
        if found.effect is None:
            break
    assert _OTHERS[name](alice, stream) == expected
    alice.send(stream, "after")
    assert len(alice.read(stream)) == 2
