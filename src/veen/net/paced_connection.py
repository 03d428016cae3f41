"""Answers over TLS, a piece at a time, so that what a client does not read is known and can be counted.

uvloop encrypts whatever it is given at once, and says of a connection with TLS that nothing is left to send.
Here the next piece is given to it when the one before is on its way.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from veen.net.http_connection import Connection

_PIECE_BYTES: Final = 64 << 10


class _Paced(asyncio.Transport):
    """A transport before another one.

    ``on_left`` hears when something cannot be sent yet, ``on_sent`` when all of it was.
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
        #: Whether the other transport wants no more for now.
        self._full = False
        self._told = False
        self._closing = False

    def begin(self) -> None:
        """Hear of the first byte that does not go out; of what TLS has sent by itself, maybe at once."""
        self._inner.set_write_buffer_limits(high=1)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, as far as that can be done now."""
        self._left.append(memoryview(data))
        self._size += len(data)
        self._send()
        if self._size and not self._told:
            self._told = True
            self._on_left()

    def hold(self) -> None:
        """Give the other transport no more."""
        self._full = True

    def go_on(self) -> None:
        """Give it more."""
        self._full = False
        self._send()
        if not self._size and self._told:
            self._told = False
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
        """Return how many bytes were not sent."""
        return self._size

    def close(self) -> None:
        """Close when all is sent."""
        self._closing = True
        self._send()

    def forget(self) -> None:
        """Send nothing any more."""
        self._left.clear()
        self._size = 0

    def abort(self) -> None:
        """Close now."""
        self.forget()
        self._inner.abort()

    def is_closing(self) -> bool:
        """Tell whether it is closed, or is going to be."""
        return self._closing or self._inner.is_closing()

    def can_write_eof(self) -> bool:
        """TLS has no half that could be closed."""
        return False

    def pause_reading(self) -> None:
        """Take no more from the client."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Take more."""
        self._inner.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - of the protocol
        """Return what is known of the connection."""
        return self._inner.get_extra_info(name, default)


class PacedConnection(Connection):
    """A connection with TLS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        inner = cast("asyncio.Transport", transport)  # uvloop's have no common base
        self._paced = _Paced(inner, super().pause_writing, super().resume_writing)
        self._paced.begin()
        super().connection_made(self._paced)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; what was not sent is dropped."""
        self._paced.forget()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Something is on its way that did not go out at once."""
        self._paced.hold()

    def resume_writing(self) -> None:
        """It has gone out."""
        self._paced.go_on()
