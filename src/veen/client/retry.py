"""The retry policy: which failures are retried, and how often. Requests are idempotent (C-63, CLNT-015)."""

from dataclasses import dataclass
from typing import Final

from veen.client.effects import Effect, Query, Sleep, T
from veen.client.errors import NetworkError, RejectedError
from veen.core.encoding.wire_object import W, Wire
from veen.core.errors import Code
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.types import RandomBytes
from veen.stdx.backoff import backoff_sec

# Transient rejections: the hub is busy or stopping, or the rate limit of the token is reached.
_PASSING: Final = frozenset({Code.UNAVAILABLE, Code.RATE})


def is_passing(envelope: ErrorEnvelope) -> bool:
    """Return whether a rejected request may succeed later."""
    return envelope.code in _PASSING


@dataclass(frozen=True, slots=True)
class Retry:
    """The retry policy: exponential backoff with jitter.

    Attributes:
        attempts: Maximum number of attempts.
        base_sec: Upper bound of the first pause; it doubles with each failure.
        cap_sec: Upper bound of every pause.
        patience_sec: If the hub asks for a longer pause, its rejection is final.
    """

    attempts: int = 5
    base_sec: float = 0.2
    cap_sec: float = 10.0
    patience_sec: int = 60

    def gives_up(self, failures: int, envelope: ErrorEnvelope) -> bool:
        """Return whether a rejection is final."""
        if not is_passing(envelope) or (envelope.retry_after or 0) > self.patience_sec:
            return True
        return failures >= self.attempts

    def pause(self, failures: int, retry_after: int | None, random: RandomBytes) -> Sleep:
        """Return the pause after a number of failures, at least as long as the hub requested."""
        longest = backoff_sec(failures, first_sec=self.base_sec, cap_sec=self.cap_sec)
        share = (1 + random(1)[0]) / 256
        return Sleep(max(longest * share, float(retry_after or 0)))


async def with_retry(request: Effect[T], retry: Retry, random: RandomBytes) -> T:
    """Send a request until there is a response, a final rejection, or no attempt left."""
    for failures in range(1, retry.attempts + 1):
        try:
            return await request
        except NetworkError:
            if failures == retry.attempts:
                raise
            pause = retry.pause(failures, None, random)
        except RejectedError as error:
            if retry.gives_up(failures, error.envelope):
                raise
            pause = retry.pause(failures, error.envelope.retry_after, random)
        await pause
    raise AssertionError("the last attempt returns or raises")


@dataclass(slots=True)
class Asker:
    """Sends requests with retries; ``random`` is for the jitter."""

    random: RandomBytes
    retry: Retry

    async def ask(self, request: Wire, answer: type[W], *, wait_sec: int = 0) -> W:
        """Send a request, with retries."""
        return await with_retry(Query(request, answer, wait_sec), self.retry, self.random)
