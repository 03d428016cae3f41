"""Drivers on an event loop: for asyncio, and for threads whose blocking work needs the loop."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from veen.client.effects import AnyEffect, Blocking, Operation, Sleep
from veen.client.errors import ClientError
from veen.client.session import AsyncDriver, Session
from veen.client.transport.async_http import AsyncHttpHub, ThreadedHub

T = TypeVar("T")


async def run_on_loop(operation: Operation[T], hub: AsyncHttpHub | ThreadedHub) -> T:
    """Run an operation to completion on a loop; the counterpart of ``effects.run``."""
    try:
        return await _drive(operation, hub)
    finally:
        operation.close()


async def _drive(operation: Operation[T], hub: AsyncHttpHub | ThreadedHub) -> T:
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
            outcome = await run_effect(effect, hub)
        except Exception as error:  # noqa: BLE001 - the operation decides
            failure = error


async def run_effect(effect: AnyEffect, hub: AsyncHttpHub | ThreadedHub) -> Any:  # noqa: ANN401 - by the effect
    """Perform an effect."""
    match effect:
        case Sleep(seconds):
            return await asyncio.sleep(seconds)
        case Blocking(work):
            return await finish_in_thread(work)
    return await hub.answer(effect)


class LoopDriver:
    """Runs operations from a thread on the loop of an AsyncClient: a ``Driver`` for blocking work."""

    def __init__(self, client: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop
        self._stopped = False

    @property
    def session(self) -> Session:
        """The session of the client."""
        return self._client.session

    def stop(self) -> None:
        """Fail the next operation: the caller no longer waits for the result."""
        self._stopped = True

    def run(self, operation: Operation[T]) -> T:
        """Run an operation on the loop, and wait for it in this thread.

        Raises:
            ClientError: The driver was stopped, or this is the thread of the loop, which would deadlock.
        """
        if self._stopped or _is_on_loop():
            operation.close()
            raise ClientError("a fold that is finished or was cancelled cannot ask the hub")
        return asyncio.run_coroutine_threadsafe(self._client.run(operation), self._loop).result()


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def finish_in_thread(work: Callable[[], T], stop: Callable[[], None] = lambda: None) -> T:
    """Do work in a thread. A cancelled caller waits for it to end: the work runs under the caller's lock."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop()
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        future.exception()  # marks it as retrieved
        raise
