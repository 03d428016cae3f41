"""Answers that were lost, and refusals after them: no refusal says that a message was not taken before."""

from collections.abc import Iterator

import pytest

from tests.client.conftest import Opens
from tests.client.proxy import Answer, LostError, Passing, Proxy
from tests.hub.hub_process import HubProcess
from veen.client.errors import NetworkError, RejectedError
from veen.client.models import Draft
from veen.core.encoding import cbor
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.error_envelope import ErrorEnvelope

BUSY, NO = Code.UNAVAILABLE, Code.AUTH


def _refusal(code: Code) -> Answer:
    envelope = ErrorEnvelope.of(ProtocolError(Detail.VALUE, "no", code=code))
    return Answer(503 if code is BUSY else 403, "application/cbor", envelope.encode())


@pytest.fixture
def between(hub: HubProcess) -> Iterator[Proxy]:
    with Proxy(hub.url) as made:
        yield made


def _lose_the_first_and_refuse_the_rest(between: Proxy, code: Code) -> None:
    lost = False

    def after(passing: Passing, answer: Answer) -> Answer:
        nonlocal lost
        if passing.path != "/v1/submit":
            return answer
        if not lost:
            lost = True
            raise LostError
        return _refusal(code)

    between.after = after


def test_taken_and_then_refused_is_taken(opens: Opens, between: Proxy, stream: str) -> None:
    opens("bob").send(stream, "before")
    alice = opens("alice", between.url)
    _lose_the_first_and_refuse_the_rest(between, NO)
    assert alice.send(stream, "once").position == 2
    assert [message.position for message in alice.read(stream)] == [1, 2]


def test_taken_and_then_busy_is_kept(opens: Opens, between: Proxy, stream: str) -> None:
    alice = opens("alice", between.url)
    _lose_the_first_and_refuse_the_rest(between, BUSY)
    with pytest.raises(NetworkError, match="which is stored"):
        alice.send(stream, "once")
    between.after = lambda passing, answer: _refusal(BUSY) if passing.path == "/v1/submit" else answer
    with pytest.raises(NetworkError):
        alice.send(stream, "not yet")
    between.after = lambda _, answer: answer
    alice.send(stream, "later")
    assert [message.body for message in alice.read(stream)] == ["once", "later"]


def test_taken_and_then_sent_to_a_name_that_the_hub_does_not_have_is_kept(
    opens: Opens, between: Proxy, stream: str
) -> None:
    """A hub that was started without the name answers nothing under it (C-196): that decides nothing."""
    alice = opens("alice", between.url)
    lost = False

    def after(passing: Passing, answer: Answer) -> Answer:
        nonlocal lost
        if passing.path == "/v1/submit" and not lost:
            lost = True
            raise LostError
        return _refusal(Code.FORBIDDEN) if lost else answer

    between.after = after
    for body in ("once", "not yet"):
        with pytest.raises(NetworkError, match=r"E\.FORBIDDEN"):
            alice.send(stream, body)
    between.after = lambda _, answer: answer
    alice.send(stream, "later")
    assert [message.body for message in alice.read(stream)] == ["once", "later"]


def test_what_was_taken_of_many_before_the_rest_is_refused_as_a_whole(
    opens: Opens, between: Proxy, stream: str
) -> None:
    alice = opens("alice", between.url)
    asked = 0

    def after(passing: Passing, answer: Answer) -> Answer:
        nonlocal asked
        if passing.path != "/v1/submit":
            return answer
        asked += 1
        if asked > 1:
            return _refusal(NO)
        first = answer.body[: cbor.item_end(answer.body, 0)]
        busy = _refusal(BUSY).body
        return Answer(200, answer.content_type, first + busy * 3)

    between.after = after
    with pytest.raises(RejectedError):
        alice.send_many(stream, [Draft(number) for number in range(4)])
    kept = next(iter(alice.session.home.load().labels.values()))
    assert kept.prev_ack == 1, "the first one was taken, and that is known"
