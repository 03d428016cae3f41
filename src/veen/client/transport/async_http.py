"""A hub over HTTP for asyncio, and an adapter for blocking hubs."""

import asyncio
import ssl
from typing import Any

import httpx

from veen.client.effects import Hub, Request
from veen.client.errors import ClientStateError, InvalidResponseError, NetworkError
from veen.client.hub_address import HubAddress
from veen.client.transport.http import MAX_ANSWER_BYTES, HttpRequest, Reply, from_reply, to_message
from veen.client.transport.resolve import DEFAULT_TIMEOUT_SEC, open_hub


class AsyncHttpHub:
    """A hub at a URL, for asyncio."""

    def __init__(self, url: str, timeout_sec: float = DEFAULT_TIMEOUT_SEC) -> None:
        self.name = url
        self._timeout = timeout_sec
        # The timeout is that of the whole exchange, in ``answer``. Certificates are verified as by HttpHub.
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=None,  # noqa: S113 - see above
            trust_env=False,
            verify=ssl.create_default_context(),
        )

    async def answer(self, request: Request) -> Any:  # noqa: ANN401 - by the request
        """Send a request, and return the response."""
        message = to_message(request)
        if self._http.is_closed:
            raise ClientStateError("the client is closed")
        try:
            async with asyncio.timeout(self._timeout + message.wait_sec):
                return from_reply(request, await self._exchange(message), self.name)
        except (TimeoutError, httpx.TimeoutException):
            raise NetworkError(f"{self.name} did not answer in {self._timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NetworkError(
                f"{self.name} cannot be reached: {str(error) or type(error).__name__}"
            ) from None

    async def _exchange(self, message: HttpRequest) -> Reply:
        exchange = self._http.stream(
            message.method, message.path, content=message.body, headers=message.all_headers()
        )
        async with exchange as response:
            parts: list[bytes] = []
            size = 0
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    raise InvalidResponseError(
                        f"{self.name} responded with more than {MAX_ANSWER_BYTES} bytes"
                    )
            return Reply(response.status_code, response.headers.get("content-type", ""), b"".join(parts))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class ThreadedHub:
    """A blocking hub used from threads: files, or a hub at a Unix socket."""

    def __init__(self, hub: Hub) -> None:
        self.name = hub.name
        self._hub = hub

    async def answer(self, request: Request) -> Any:  # noqa: ANN401 - by the request
        """Send a request, and return the response."""
        return await asyncio.to_thread(self._hub.answer, request)

    async def close(self) -> None:
        """Close connections and files."""
        self._hub.close()


async def open_async_hub(
    address: HubAddress, timeout_sec: float = DEFAULT_TIMEOUT_SEC
) -> AsyncHttpHub | ThreadedHub:
    """Open a hub for asyncio; the counterpart of ``open_hub``."""
    if address.path is None:
        return AsyncHttpHub(address.url, timeout_sec)
    return ThreadedHub(await asyncio.to_thread(open_hub, address, timeout_sec))
