"""Asking a hub over HTTP, for commands: by its URL, or by the data directory that it runs in."""

import contextlib
import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from veen.core import layout
from veen.core.error_envelope import ErrorEnvelope
from veen.core.errors import ProtocolError
from veen.core.wire import W, Wire

DEFAULT_TIMEOUT_MS: Final = 10_000

USAGE, NETWORK, MALFORMED, REFUSED = 1, 2, 3, 4


class CommandError(Exception):
    """A command can not do what was asked; the text says what to do next."""

    def __init__(self, message: str, exit_code: int, code: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        #: The hub's error code, if it was the hub that refused.
        self.code = code


def directory_of(text: str) -> Path:
    """Return the path that an argument names: a path or a file:// URI."""
    if text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    return Path(text)


@dataclass(frozen=True, slots=True)
class HubClient:
    """One hub, as commands talk to it."""

    url: str
    timeout_sec: float = DEFAULT_TIMEOUT_MS / 1000
    #: The socket in its data directory, in place of the URL.
    admin: Path | None = None

    @classmethod
    def of(cls, hub: str, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> "HubClient":
        """Find a hub by URL or data directory."""
        timeout = timeout_ms / 1000
        if hub.startswith(("http://", "https://")):
            try:
                urlsplit(hub).port  # noqa: B018 - read for the check
            except ValueError as error:
                raise CommandError(f"{hub} is not a URL: {error}", USAGE) from None
            return cls(hub.rstrip("/"), timeout)
        if "://" in hub and not hub.startswith("file://"):
            raise CommandError(f"{hub} is neither an http(s) URL nor a data directory", USAGE)
        place = directory_of(hub)
        # Through its own socket, if we may: its certificate is for others.
        door = place / layout.ADMIN_SOCKET
        return cls(_running_url(place), timeout, door if os.access(door, os.W_OK) else None)

    @classmethod
    def operator(cls, data_dir: Path) -> "HubClient | None":
        """Return the hub that runs in a directory, through its operator's socket; None if none runs."""
        path = data_dir / layout.ADMIN_SOCKET
        client = cls("http://localhost", admin=path)
        try:
            client._connect().close()
        except (OSError, CommandError):
            return None
        return client

    def get(self, path: str) -> dict[str, Any]:
        """Return a description in JSON."""
        return self._json(self.raw("GET", path))

    def text(self, path: str) -> str:
        """Return a text."""
        try:
            return self.raw("GET", path).decode()
        except UnicodeDecodeError:
            raise self.malformed() from None

    def order(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send an operator's order in JSON."""
        return self._json(self.raw("POST", path, json.dumps(body).encode(), "application/json"))

    def post(self, path: str, body: Wire, answer: type[W]) -> W:
        """Send a request in CBOR, and read the answer."""
        data = self.raw("POST", path, body.encode(), "application/cbor")
        try:
            return answer.decode(data)
        except ProtocolError as error:
            raise CommandError(
                f"{self.url} answered something else than was asked: {error}", MALFORMED
            ) from None

    def raw(self, method: str, path: str, body: bytes | None = None, content_type: str = "") -> bytes:
        """Send a request; a refusal of the hub is raised with its code."""
        try:
            connection = self._connect()
            try:
                headers = {"content-type": content_type} if content_type else {}
                connection.request(method, urlsplit(self.url).path + path, body, headers)
                response = connection.getresponse()
                data = response.read()
            finally:
                connection.close()
        except TimeoutError:
            raise CommandError(f"{self.url} did not answer in {self.timeout_sec:g} s", NETWORK) from None
        except (OSError, http.client.HTTPException) as error:
            if self.admin is not None and isinstance(error, ConnectionRefusedError):
                place = self.admin.parent.parent
                raise _not_running(place) from None  # it was killed, and left its files
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise CommandError(f"{self.url} can not be reached: {why}", NETWORK) from None
        if response.status >= 400 and not path.startswith(("/healthz", "/readyz")):
            raise self._refusal(response.status, response.headers.get("content-type", ""), data)
        return data

    def _refusal(self, status: int, content_type: str, data: bytes) -> CommandError:
        try:
            if content_type.startswith("application/json"):
                envelope = ErrorEnvelope.from_json(json.loads(data))
            else:
                envelope = ErrorEnvelope.decode(data)
        except (ProtocolError, ValueError):
            return CommandError(f"{self.url} answered with status {status} and no error of a hub", MALFORMED)
        return CommandError(f"{envelope.code}: {envelope.message}", REFUSED, envelope.code)

    def _json(self, data: bytes) -> dict[str, Any]:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self.malformed()
        return value

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Take an answer apart: what is missing or of another type is the fault of whoever sent it."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self.malformed() from None

    def malformed(self) -> CommandError:
        """Return the error for an answer that no hub gives."""
        return CommandError(f"{self.url} answered something else than a hub does", MALFORMED)

    def _connect(self) -> http.client.HTTPConnection:
        if self.admin is not None:
            made = _UnixConnection(self.admin, self.timeout_sec)
            made.connect()
            return made
        parts = urlsplit(self.url)
        if not parts.hostname:
            raise CommandError(f"{self.url} has no host", USAGE)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self.timeout_sec, context=context
            )
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.timeout_sec)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP through a socket in the file system."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect through a descriptor: names of sockets are short, paths of directories need not be."""
        fd = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{fd}/{self._path.name}")
        except OSError:
            self.sock.close()
            raise
        finally:
            os.close(fd)


def _running_url(data_dir: Path) -> str:
    if not data_dir.is_dir():
        raise CommandError(
            f"there is no directory {data_dir}; give the URL or the data directory of a hub", USAGE
        )
    try:
        urls = json.loads((data_dir / layout.HUB_RUNNING).read_text(encoding="ascii"))["urls"]
    except (OSError, ValueError, KeyError, TypeError):
        raise _not_running(data_dir) from None
    # Served on all addresses means on this machine's own too.
    return str(urls[0]).replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _not_running(data_dir: Path) -> CommandError:
    return CommandError(
        f"no hub runs in {data_dir}; start it with: veen hub start --data-dir {data_dir}", NETWORK
    )
