"""Operations as steps: what a client does, apart from how it waits (ADR 0009).

An operation is a generator. It yields what it wants done, and is sent the outcome or thrown the error; a
driver that blocks and one that awaits give it the same life.
"""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from veen.core.encoding.wire_object import Wire

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """Have the hub answer a request of the API."""

    request: Wire
    answer: type[Wire]
    #: How long the hub may hold its answer back, for requests that wait for news.
    wait_sec: int = 0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submit:
    """Have the hub take messages, in one request; answered by a receipt or an error for each."""

    bodies: tuple[bytes, ...]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Describe:
    """Have the hub describe itself: answered by a JSON object."""

    path: str


@dataclass(frozen=True, slots=True)
class PutAttachment:
    """Have the hub keep a sealed attachment."""

    coid: bytes
    sealed: bytes


@dataclass(frozen=True, slots=True)
class GetAttachment:
    """Fetch a sealed attachment."""

    coid: bytes


Request = Query | Submit | Describe | PutAttachment | GetAttachment


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait, before trying again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Blocking:
    """Do something that blocks: files, locks, long computations."""

    work: Callable[[], Any]


Effect = Request | Sleep | Blocking
Operation = Generator[Effect, Any, T]


class Hub(Protocol):
    """Whatever answers requests: over the network, or from files."""

    #: What people call it: a URL or a directory.
    name: str

    def answer(self, request: Request) -> Any:  # noqa: ANN401 - by the request
        """Answer, or raise NetworkError, InvalidResponseError or RejectedError."""

    def close(self) -> None:
        """Let go of connections and files."""


def blocking(work: Callable[[], T]) -> Operation[T]:
    """Do something that blocks, with the type of its result known."""
    done: T = yield Blocking(work)
    return done


def run(steps: Operation[T], hub: Hub, sleep: Callable[[float], None] = time.sleep) -> T:
    """Drive an operation to its end, blocking."""
    try:
        return _drive(steps, hub, sleep)
    finally:
        steps.close()  # interrupted, it would keep the lock for as long as somebody looks at the traceback


def _drive(steps: Operation[T], hub: Hub, sleep: Callable[[float], None]) -> T:
    send: Callable[[], Effect] = lambda: next(steps)  # noqa: E731 - the first turn has nothing to send
    while True:
        try:
            effect = send()
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            outcome = run_effect(effect, hub, sleep)
        except Exception as error:  # noqa: BLE001 - the operation decides
            send = _thrower(steps, error)
        else:
            send = _sender(steps, outcome)


def run_effect(effect: Effect, hub: Hub, sleep: Callable[[float], None]) -> Any:  # noqa: ANN401 - by the effect
    """Do what an operation asks for."""
    match effect:
        case Sleep(seconds):
            return sleep(seconds)
        case Blocking(work):
            return work()
    return hub.answer(effect)


def _sender(steps: Operation[Any], outcome: object) -> Callable[[], Effect]:
    return lambda: steps.send(outcome)


def _thrower(steps: Operation[Any], error: Exception) -> Callable[[], Effect]:
    return lambda: steps.throw(error)
