"""Answering calls over a stream with the client for asyncio."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, overload

from veen.client.models import SendOptions
from veen.client.rpc.serve import Call, CollectedEvents, Handled, LoggedEvents, Method, Responder, name_of
from veen.client.session import AsyncDriver
from veen.core.encoding.cbor import Value
from veen.core.objects.capability import CapToken

AnyMethod = Callable[[Call], Value | Coroutine[Any, Any, Value]]


class AsyncRpcServer:
    """Answers the calls on a stream, with the client for asyncio; see ``RpcServer``.

    Methods may be coroutine functions, which run on the loop; others run in a thread.
    """

    def __init__(self, client: AsyncDriver, stream: str, *, token: CapToken | None = None) -> None:
        self._client = client
        self._responder = Responder(client.session, stream, SendOptions(token=token))
        self._loop: asyncio.AbstractEventLoop | None = None

    @overload
    def method(self, fn: AnyMethod, *, name: str | None = None, repeatable: bool = False) -> AnyMethod: ...
    @overload
    def method(
        self, *, name: str | None = None, repeatable: bool = False
    ) -> Callable[[AnyMethod], AnyMethod]: ...
    def method(
        self, fn: AnyMethod | None = None, *, name: str | None = None, repeatable: bool = False
    ) -> AnyMethod | Callable[[AnyMethod], AnyMethod]:
        """Answer calls of a name with the decorated function; see ``RpcServer.method``."""

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
            return asyncio.run_coroutine_threadsafe(result, self._loop).result()

        return method

    async def run(self) -> None:
        """Answer calls until cancelled. Network errors are logged and retried.

        Raises:
            ClientStateError: Another process of this client answers calls on the stream.
            RejectedError: The hub rejected a reply.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await self._client.run(self._responder.serve(LoggedEvents()))
        finally:
            self.close()

    async def run_pending(self) -> list[Handled]:
        """Answer the calls that are there, and return what was done for each.

        Raises:
            ClientStateError: Another process of this client answers calls on the stream.
            NetworkError: The hub cannot be reached.
        """
        self._loop = asyncio.get_running_loop()
        collected = CollectedEvents()
        try:
            await self._client.run(self._responder.serve(collected, follow=False))
        finally:
            self.close()
        return collected.done

    def close(self) -> None:
        """Close the journal of calls."""
        self._responder.close()
