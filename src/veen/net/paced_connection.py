"""Responses over TLS, piece by piece, so that the bytes that a client has not read are known and counted.

uvloop encrypts all data at once, and reports for TLS that no bytes are left to send. Here it gets the next
piece when the one before was sent.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from veen.net.http_connection import Connection

_PIECE_BYTES: Final = 64 << 10


class _Paced(asyncio.Transport):
    """A transport in front of another one.

    ``on_left`` is called when bytes cannot be sent yet, ``on_sent`` when all of them were.
    """

    def __init__(
        self, inner: asyncio.Transport, on_left: Callable[[], None], on_sent: Callable[[], None]
    ) -> None:
        super().__init__()
        self._inner = inner
        self._on_left = on_left
        self._on_sent = on_sent
        self._left: deque[memoryview] = deque()
        self._size = 0
        # Whether the other transport accepts no more for now.
        self._full = False
        self._stalled = False
        self._closing = False

    def begin(self) -> None:
        """Be notified of the first byte that is not sent; if TLS has sent some itself, perhaps at once."""
        self._inner.set_write_buffer_limits(high=1)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send as much as possible now."""
        self._left.append(memoryview(data))
        self._size += len(data)
        self._send()
        if self._size and not self._stalled:
            self._stalled = True
            self._on_left()

    def hold(self) -> None:
        """Pass no more to the other transport."""
        self._full = True

    def go_on(self) -> None:
        """Pass on more."""
        self._full = False
        self._send()
        if not self._size and self._stalled:
            self._stalled = False
            self._on_sent()

    def _send(self) -> None:
        while self._left and not self._full:
            first = self._left.popleft()
            piece, rest = first[:_PIECE_BYTES], first[_PIECE_BYTES:]
            if rest:
                self._left.appendleft(rest)
            self._size -= len(piece)
            self._inner.write(piece)
        if self._closing and not self._left:
            self._inner.close()

    def get_write_buffer_size(self) -> int:
        return self._size

    def close(self) -> None:
        """Close when everything is sent."""
        self._closing = True
        self._send()

    def forget(self) -> None:
        """Drop what was not sent."""
        self._left.clear()
        self._size = 0

    def abort(self) -> None:
        self.forget()
        self._inner.abort()

    def is_closing(self) -> bool:
        return self._closing or self._inner.is_closing()

    def can_write_eof(self) -> bool:
        """TLS connections cannot be half-closed."""
        return False

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - of the protocol
        return self._inner.get_extra_info(name, default)


class PacedConnection(Connection):
    """A connection with TLS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        inner = cast("asyncio.Transport", transport)  # uvloop's transports have no common base
        self._paced = _Paced(inner, super().pause_writing, super().resume_writing)
        self._paced.begin()
        super().connection_made(self._paced)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what was not sent."""
        self._paced.forget()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The inner transport could not send everything at once."""
        self._paced.hold()

    def resume_writing(self) -> None:
        """The inner transport has sent everything."""
        self._paced.go_on()
