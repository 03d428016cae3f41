"""Blocking work for a loop: in a thread, from which operations are run on the loop."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from veen.client.effects import Operation
from veen.client.errors import ClientError
from veen.client.session import AsyncDriver, Session

T = TypeVar("T")


class LoopDriver:
    """Runs operations from a thread on the loop of an AsyncClient: a ``Driver`` for work that blocks."""

    def __init__(self, client: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop
        self._stopped = False

    @property
    def session(self) -> Session:
        """Whose keys, and which hub."""
        return self._client.session

    def stop(self) -> None:
        """Fail the next operation: the caller no longer waits for the result."""
        self._stopped = True

    def run(self, operation: Operation[T]) -> T:
        """Run an operation, and wait for it in this thread.

        Raises:
            ClientError: The thread is that of the loop, which would wait for itself.
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
    """Have work done in a thread. A caller that is cancelled waits for its end: the lock is held for it."""
    done = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        stop()
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        done.exception()  # marks it as retrieved
        raise
