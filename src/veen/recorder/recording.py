"""Recording: events out of Python values."""

import datetime as dt
import reprlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from veen.core.cbor import MAX_DEPTH, Value
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.hashing import U64_MAX

_SHORT: Final = 1000


def plain_payload(value: object, most: int, field: str = "payload") -> Value:
    """Return a value as an event can hold it: fractions, negative numbers and objects become text.

    One that has more bytes than that when it is encoded is refused (SDR-007), as soon as this is certain: a
    value that is found in many places, or in itself, can be unfolded for ever.
    """
    return _Copy(most, field).plain(value, MAX_DEPTH)


def too_large(field: str, size: int, most: int) -> ProtocolError:
    """Return the refusal of a payload, or of metadata, that has at least so many bytes (SDR-007)."""
    return ProtocolError(
        Detail.FIELD_SIZE,
        f"a {field} of {size} bytes or more; at most {most}",
        code=Code.SIZE,
        field=field,
        actual=size,
        limit=most,
    )


class _Copy:
    """A copy that is being made, and how many bytes of it are left."""

    def __init__(self, most: int, field: str) -> None:
        self._most = self._left = most
        self._field = field

    def plain(self, value: object, depth: int) -> Value:
        self._spend(1)
        left = self._left
        try:
            return self._taken_apart(value, depth)
        except ProtocolError:
            raise
        except Exception:  # noqa: BLE001 - as below; also what another thread changes meanwhile
            self._left = left
            return f"<{type(value).__name__}>"

    def _spend(self, size: int) -> None:
        """Count bytes that the encoding has at least."""
        self._left -= size
        if self._left < 0:
            raise too_large(self._field, self._most - self._left, self._most)

    def _taken_apart(self, value: object, depth: int) -> Value:
        match value:
            case None | bool():
                return value
            case str():
                return self._text(value)
            case int() if 0 <= value <= U64_MAX:
                return int(value)
            case bytes() | bytearray() | memoryview():
                self._spend(memoryview(value).nbytes)
                return bytes(value)
            case dt.datetime() | dt.date() | dt.time():
                return value.isoformat()
            case Mapping() | list() | tuple() | AbstractSet() if depth == 0:
                return self._text(_SHORTENED.repr(value)[:_SHORT])
            case Mapping():
                return {self._text(key): self.plain(item, depth - 1) for key, item in value.items()}
            case list() | tuple():
                return [self.plain(item, depth - 1) for item in value]
            case AbstractSet():
                return sorted((self.plain(item, depth - 1) for item in value), key=str)
        return self._text(value)

    def _text(self, value: object) -> str:
        text = _text(value)
        self._spend(len(text))
        return text


class _Shortened(reprlib.Repr):
    """What is nested too deeply, in short: a few levels of it, and nothing that writes itself out."""

    def repr_instance(self, x: object, level: int) -> str:  # noqa: ARG002 - of the base class
        return f"<{type(x).__name__}>"


_SHORTENED: Final = _Shortened()
_SHORTENED.maxlevel = 3


def _text(value: object) -> str:
    try:
        return _clean(str(value))
    except Exception:  # noqa: BLE001 - what an object says of itself is no reason not to record
        return f"<{type(value).__name__}>"


def _clean(text: str) -> str:
    """Return text that UTF-8 can hold: halves of surrogate pairs are written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
