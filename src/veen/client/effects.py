"""Operations as coroutines: what a client does, independent of how it waits (ADR 0009).

An operation awaits effects: a request to the hub, a pause, blocking work. It awaits nothing of asyncio. A
driver receives each effect, performs it, and sends the outcome or throws the error into the operation:
``run`` blocks, and ``AsyncClient.run`` awaits. An operation that is closed early cleans up without awaiting.
"""

import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from veen.core.api.data_plane import SubmitResponse
from veen.core.encoding.wire_object import Wire
from veen.core.objects.error_envelope import ErrorEnvelope

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
W = TypeVar("W", bound=Wire)


class Effect(Generic[T_co]):
    """What an operation asks of its driver. Awaiting it returns the outcome."""

    __slots__ = ()

    def __await__(self) -> Generator["Effect[Any]", Any, T_co]:
        """Yield itself to the driver, and return what the driver sends."""
        outcome: T_co = yield self
        return outcome


@dataclass(frozen=True, slots=True)
class Query(Effect[W]):
    """Send a request of the API, and return the decoded response."""

    request: Wire
    answer: type[W]
    # Long poll: how long the hub may wait for new entries before it responds.
    wait_sec: int = 0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submit(Effect[list[SubmitResponse | ErrorEnvelope]]):
    """Submit messages in one request; the response has a receipt or an error for each."""

    bodies: tuple[bytes, ...]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Describe(Effect[dict[str, Any]]):
    """Request a JSON description of the hub."""

    path: str


@dataclass(frozen=True, slots=True)
class PutAttachment(Effect[None]):
    """Upload a sealed attachment."""

    coid: bytes
    sealed: bytes


@dataclass(frozen=True, slots=True)
class GetAttachment(Effect[bytes]):
    """Fetch a sealed attachment."""

    coid: bytes


Request = Query[Any] | Submit | Describe | PutAttachment | GetAttachment


@dataclass(frozen=True, slots=True)
class Sleep(Effect[None]):
    """Pause."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Blocking(Effect[T]):
    """Do blocking work: files, locks, long computations."""

    work: Callable[[], T]


AnyEffect = Request | Sleep | Blocking[Any]
Operation = Coroutine[Any, Any, T]


class Hub(Protocol):
    """A source of responses: a hub over the network, or its files."""

    # URL or directory, for messages.
    name: str

    def answer(self, request: Request) -> Any:  # noqa: ANN401 - by the request
        """Return the response, or raise NetworkError, InvalidResponseError or RejectedError."""

    def close(self) -> None:
        """Close connections and files."""


def run(operation: Operation[T], hub: Hub, sleep: Callable[[float], None] = time.sleep) -> T:
    """Run an operation to completion, blocking."""
    try:
        return _drive(operation, hub, sleep)
    finally:
        operation.close()  # else the traceback of a KeyboardInterrupt would keep the lock alive


def _drive(operation: Operation[T], hub: Hub, sleep: Callable[[float], None]) -> T:
    outcome: Any = None
    failure: Exception | None = None
    while True:
        try:
            effect = operation.throw(failure) if failure is not None else operation.send(outcome)
        except StopIteration as done:
            value: T = done.value
            return value
        outcome = failure = None
        try:
            outcome = run_effect(effect, hub, sleep)
        except Exception as error:  # noqa: BLE001 - the operation decides
            failure = error


def run_effect(effect: AnyEffect, hub: Hub, sleep: Callable[[float], None]) -> Any:  # noqa: ANN401 - by the effect
    """Perform an effect."""
    match effect:
        case Sleep(seconds):
            return sleep(seconds)
        case Blocking(work):
            return work()
    return hub.answer(effect)
