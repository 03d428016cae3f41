"""The RPC server for asyncio."""

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
    """Answers the calls on a stream, with a client for asyncio; see ``RpcServer``.

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
        # The future of a coroutine method on the loop, for which a thread waits.
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
        """Register the decorated function as a method; see ``RpcServer.method``.

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
        """Return a blocking method, which waits for a coroutine function to end on the loop."""

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

        If the server is cancelled while a coroutine function runs, the function is cancelled too; when the
        server runs again, the caller gets the error that the call was interrupted.

        Example:
            await server.run()

        Raises:
            ClientStateError: Another process of this client answers calls on the stream.
            RejectedError: The hub rejected a reply.
        """
        await self._serve(LoggedEvents())

    async def run_pending(self) -> list[Handled]:
        """Answer the pending calls, and return how each was handled.

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
            serving.cancel()  # it waits for the thread, which waits for the coroutine
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
        """Close the journal of calls, as ``run`` and ``run_pending`` do at their end.

        Example:
            server.close()
        """
        self._responder.close()
