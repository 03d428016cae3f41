"""Requests to a hub over HTTP: by its URL, or by the data directory that it runs in."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veen.cli.errors import CommandError, FailedError, MalformedError, UnreachableError, UsageError
from veen.cli.settings import DEFAULT_TIMEOUT_MS, find_hub
from veen.client.errors import InvalidResponseError, NetworkError
from veen.client.hub_address import HubAddress, check_hub_address
from veen.client.transport.data_directory import find_running
from veen.client.transport.http import CBOR, HttpHub, HttpRequest, Reply, read_json, refusal
from veen.core.data_dir import paths
from veen.core.encoding.wire_object import W, Wire
from veen.core.errors import ProtocolError


def directory_of(text: str) -> Path:
    """Return the directory that an argument names: a path or a file:// URI."""
    return HubAddress.parse(text).path or Path(text)


def read_address(text: str) -> HubAddress:
    """Read the address of a hub."""
    try:
        return check_hub_address(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


@dataclass(frozen=True, slots=True)
class HubClient:
    """A client of the JSON and CBOR endpoints of one hub."""

    url: str
    timeout_sec: float = DEFAULT_TIMEOUT_MS / 1000
    # The socket in its data directory, used instead of the URL.
    admin: Path | None = None

    @classmethod
    def of(cls, hub: str, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> "HubClient":
        """Find a hub by URL or data directory."""
        timeout = timeout_ms / 1000
        address = read_address(find_hub(hub))
        if address.path is None:
            return cls(address.url, timeout)
        if not address.path.is_dir():
            raise UsageError(
                f"there is no directory {address.path}; give the URL or the data directory of a hub"
            )
        running = find_running(address.path)
        if running is None:
            raise _not_running(address.path)
        # Through its own socket, if permitted: the certificate is for remote clients.
        return cls(running.url, timeout, running.door)

    @classmethod
    def operator(cls, data_dir: Path) -> "HubClient | None":
        """Return the hub that runs in a directory, through the operator's socket; None if none is running."""
        path = data_dir / paths.ADMIN_SOCKET
        client = cls("http://localhost", admin=path)
        try:
            connection = HttpHub(client.url, client.timeout_sec, path).connect()
            connection.connect()
            connection.close()
        except OSError:
            return None
        return client

    def get(self, path: str) -> dict[str, Any]:
        """Send a GET request; return the JSON response."""
        return self._json(self.raw("GET", path))

    def text(self, path: str) -> str:
        """Send a GET request; return the text response."""
        try:
            return self.raw("GET", path).decode()
        except UnicodeDecodeError:
            raise self.malformed() from None

    def order(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send an operator's request in JSON."""
        return self._json(self.raw("POST", path, json.dumps(body).encode(), "application/json"))

    def post(self, path: str, body: Wire, answer: type[W]) -> W:
        """Send a request in CBOR; return the decoded response."""
        data = self.raw("POST", path, body.encode(), CBOR)
        try:
            return answer.decode(data)
        except ProtocolError as error:
            raise MalformedError(f"{self.url} sent an unexpected response: {error}") from None

    def raw(self, method: str, path: str, body: bytes | None = None, content_type: str = "") -> bytes:
        """Send a request; raise an error with the code of the hub if it rejects it."""
        hub = HttpHub(self.url, self.timeout_sec, self.admin)
        try:
            reply = hub.exchange(HttpRequest(method, path, body, content_type))
        except NetworkError as error:
            if self.admin is not None and isinstance(error.__context__, ConnectionRefusedError):
                raise _not_running(self.admin.parent.parent) from None  # it was killed, and its files remain
            raise UnreachableError(str(error)) from None
        finally:
            hub.close()
        is_unwell = reply.status == 503 and path in {"/healthz", "/readyz"}  # the response describes it
        if reply.status >= 400 and not is_unwell:
            raise self._refusal(reply)
        return reply.body

    def _refusal(self, reply: Reply) -> CommandError:
        try:
            error = refusal(reply, self.url)
        except InvalidResponseError as bad:
            return MalformedError(str(bad))
        return FailedError(str(error), error.code)

    def _json(self, data: bytes) -> dict[str, Any]:
        try:
            return read_json(data, self.url)
        except InvalidResponseError:
            raise self.malformed() from None

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read fields of a response; a missing field or a wrong type is a malformed response."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise self.malformed() from None

    def malformed(self) -> CommandError:
        """Return the error for a response that does not have the format of the protocol."""
        return MalformedError(f"{self.url} did not respond like a hub; check the address")


def _not_running(data_dir: Path) -> CommandError:
    return UnreachableError(
        f"no hub is running in {data_dir}; start it with: veen hub start --data-dir {data_dir}"
    )
