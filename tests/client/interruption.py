"""An interrupt at any effect of an operation: Ctrl-C for the blocking client, a cancelled task on asyncio."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from veen.client import effects, loop_driver
from veen.client.effects import AnyEffect, Hub
from veen.client.transport.async_http import AsyncHttpHub, ThreadedHub

# The driver, and when the effect is interrupted: it was not begun, is being performed, or was performed with
# an outcome that nobody receives.
WAYS = (
    ("blocking", "before"),
    ("blocking", "after"),
    ("asyncio", "before"),
    ("asyncio", "during"),
    ("asyncio", "after"),
)


class Interruption:
    """Whether the effect was reached, and which one it was."""

    def __init__(self) -> None:
        self.effect: AnyEffect | None = None


@contextmanager
def interrupted(at: int, when: str) -> Iterator[Interruption]:
    """Interrupt one effect of what is run inside, by its number from 0; there may be fewer."""
    found, seen = Interruption(), 0

    def is_reached(effect: AnyEffect) -> bool:
        nonlocal seen
        seen += 1
        found.effect = effect if seen == at + 1 else found.effect
        return seen == at + 1

    with pytest.MonkeyPatch.context() as patch, _swallowed(found):
        patch.setattr(effects, "run_effect", _blocking(is_reached, when))
        patch.setattr(loop_driver, "run_effect", _awaiting(is_reached, when))
        yield found


@contextmanager
def _swallowed(found: Interruption) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        assert found.effect is not None


def _blocking(is_reached: Callable[[AnyEffect], bool], when: str) -> Callable[..., Any]:
    perform = effects.run_effect

    def interrupting(effect: AnyEffect, hub: Hub, sleep: Callable[[float], None]) -> Any:
        if not is_reached(effect):
            return perform(effect, hub, sleep)
        if when != "before":
            perform(effect, hub, sleep)
        raise KeyboardInterrupt

    return interrupting


def _awaiting(is_reached: Callable[[AnyEffect], bool], when: str) -> Callable[..., Any]:
    perform = loop_driver.run_effect

    async def interrupting(effect: AnyEffect, hub: AsyncHttpHub | ThreadedHub) -> Any:
        if not is_reached(effect):
            return await perform(effect, hub)
        task = asyncio.current_task()
        assert task is not None
        if when == "after":
            await perform(effect, hub)
        task.cancel()
        if when != "during":
            await asyncio.sleep(0)
        return await perform(effect, hub)

    return interrupting
