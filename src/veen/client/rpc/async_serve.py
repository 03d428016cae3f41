"""Answering calls over a stream with the client for asyncio."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, overload

from veen.client.models import SendOptions
from veen.client.rpc.serve import (
    Call,
    CollectedEvents,
    Handled,
    LoggedEvents,
    Method,
    Responder,
    ServerEvents,
    name_of,
)
from veen.client.session import AsyncDriver
from veen.core.encoding.cbor import Value
from veen.core.objects.capability import CapToken

if TYPE_CHECKING:
    from concurrent.futures import Future

AnyMethod = Callable[[Call], Value | Coroutine[Any, Any, Value]]


class AsyncRpcServer:
    """Answers the calls on a stream, with the client for asyncio; see ``RpcServer``.

    Example:
        server = AsyncRpcServer(client, "math")

        @server.method
        async def add(call):
            return call.args["a"] + call.args["b"]

        await server.run()

    Methods may be coroutine functions, which run on the loop; others run in a thread.
    """

    def __init__(self, client: AsyncDriver, stream: str, *, token: CapToken | None = None) -> None:
        self._client = client
        self._responder = Responder(client.session, stream, SendOptions(token=token))
        self._loop: asyncio.AbstractEventLoop | None = None
        # The coroutine of a method that runs on the loop, which a thread waits for.
        self._running: Future[Value] | None = None
        self._is_cancelled = False

    @overload
    def method(self, fn: AnyMethod, *, name: str | None = None, repeatable: bool = False) -> AnyMethod: ...
    @overload
    def method(
        self, *, name: str | None = None, repeatable: bool = False
    ) -> Callable[[AnyMethod], AnyMethod]: ...
    def method(
        self, fn: AnyMethod | None = None, *, name: str | None = None, repeatable: bool = False
    ) -> AnyMethod | Callable[[AnyMethod], AnyMethod]:
        """Answer calls of a name with the decorated function; see ``RpcServer.method``.

        Example:
            @server.method
            async def add(call):
                return call.args["a"] + call.args["b"]

        Raises:
            ValueError: The function has no name, and none was passed.
        """

        def added(function: AnyMethod) -> AnyMethod:
            self._responder.add(name or name_of(function), self._blocking(function), repeatable=repeatable)
            return function

        return added if fn is None else added(fn)

    def _blocking(self, function: AnyMethod) -> Method:
        """Return a method for a thread, which waits there for a coroutine on the loop."""

        def method(call: Call) -> Value:
            result = function(call)
            if not isinstance(result, Coroutine):
                return result
            assert self._loop is not None
            self._running = asyncio.run_coroutine_threadsafe(result, self._loop)
            if self._is_cancelled:
                self._running.cancel()
            return self._running.result()

        return method

    async def run(self) -> None:
        """Answer calls until cancelled. Network errors are logged and retried.

        A coroutine function that runs when the server is cancelled is cancelled too; its caller is told that
        the call was interrupted when the server runs again.

        Example:
            await server.run()

        Raises:
            ClientStateError: Another process of this client answers calls on the stream.
            RejectedError: The hub rejected a reply.
        """
        await self._serve(LoggedEvents())

    async def run_pending(self) -> list[Handled]:
        """Answer the calls that are there, and return what was done for each.

        Example:
            for handled in await server.run_pending():
                print(handled.method, handled.reply)

        Raises:
            ClientStateError: Another process of this client answers calls on the stream.
            NetworkError: The hub cannot be reached.
        """
        collected = CollectedEvents()
        await self._serve(collected, follow=False)
        return collected.done

    async def _serve(self, events: ServerEvents, *, follow: bool = True) -> None:
        self._loop, self._is_cancelled = asyncio.get_running_loop(), False
        serving = asyncio.ensure_future(self._client.run(self._responder.serve(events, follow=follow)))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            serving.cancel()  # which waits for the thread, and the thread for the coroutine
            self._is_cancelled = True
            if self._running is not None:
                self._running.cancel()
            while not serving.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([serving])
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Close the journal of calls; ``run`` and ``run_pending`` do it at their end.

        Example:
            server.close()
        """
        self._responder.close()
