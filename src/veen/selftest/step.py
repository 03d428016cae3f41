"""A step: a function with a name and the kind of hub that it needs; and the checks that steps make."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from veen.client.errors import RejectedError
from veen.core.errors import Code, Detail, VeenError
from veen.selftest.errors import StepFailedError

if TYPE_CHECKING:
    from veen.selftest.context import Context

# Everything that a step waits for is faster.
PATIENCE_SEC: Final = 20.0
_LOOK_AGAIN_SEC: Final = 0.02


class Needs(StrEnum):
    """The kind of hub that a step needs."""

    NONE = "none"
    # Accepts messages from any client.
    OPEN = "open"
    # Requires a token of the issuer of the run.
    GUARDED = "guarded"
    # Its labels change every hour.
    ROTATING = "rotating"
    # The step only reads, so any hub will do.
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Step:
    """One check. ``run`` returns a summary of what it has checked, or raises."""

    name: str
    about: str
    needs: Needs
    # Why it cannot run at an existing hub; empty: it can.
    own: str
    run: "Callable[[Context], str]"


def step(needs: Needs = Needs.OPEN, *, own: str = "") -> "Callable[[Callable[[Context], str]], Step]":
    """Turn a function into a step, with its name and the first line of its docstring."""

    def make(function: "Callable[[Context], str]") -> Step:
        assert function.__doc__
        about = function.__doc__.splitlines()[0].rstrip(".")
        return Step(function.__name__.replace("_", "-"), about, needs, own, function)

    return make


def check(truth: object, otherwise: str) -> None:
    """Fail with a message unless something is true."""
    if not truth:
        raise StepFailedError(otherwise)


def equal(actual: object, expected: object, what: str) -> None:
    """Fail unless two values are equal."""
    if actual != expected:
        raise StepFailedError(f"{what}: {_short(actual)} instead of {_short(expected)}")


def _short(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def refused(action: Callable[[], object], code: Code, detail: Detail | None = None) -> RejectedError:
    """Fail unless the hub rejects a request for this reason."""
    expected = code if detail is None else f"{code} {detail}"
    try:
        action()
    except RejectedError as error:
        actual = error.code if detail is None else f"{error.code} {error.detail}"
        equal(actual, expected, "the hub rejected the request for another reason")
        return error
    raise StepFailedError(f"the hub accepted a request that it must reject with {expected}")


def rejected(action: Callable[[], object], what: str) -> VeenError:
    """Fail unless our own checks reject something."""
    try:
        action()
    except StepFailedError:
        raise
    except VeenError as error:
        return error
    raise StepFailedError(f"{what} was accepted")


def poll(question: Callable[[], object], what: str, seconds: float = PATIENCE_SEC) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not question():
        if time.monotonic() > end:
            raise StepFailedError(f"{what}: not within {seconds:g} s")
        time.sleep(_LOOK_AGAIN_SEC)
