"""Attachments, stored for clients by the hash of their ciphertext; a hub cannot read them (C-10)."""

from contextlib import suppress
from threading import Lock
from typing import Final

from veen.core.crypto.hash import sha256
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.errors import Code, Detail, ProtocolError, not_found
from veen.core.limits import AEAD_TAG_BYTES, Limits
from veen.core.types import Coid
from veen.storage.atomic_file import TMP, read_file, replace_file
from veen.storage.errors import StoreFullError
from veen.storage.fs import Filesystem

_ROOT: Final = "attachments"


class Attachments:
    """Content-addressed files in 256 directories. Thread-safe."""

    def __init__(self, fs: Filesystem, limits: Limits, max_bytes: int) -> None:
        self._fs = fs
        # Maximum size of an attachment: ciphertext, so with a tag.
        self.max_item_bytes = limits.max_attachment_bytes + AEAD_TAG_BYTES
        self._max_bytes = max_bytes
        self._lock = Lock()
        fs.make_dir(_ROOT)
        self._made: set[str] = set()
        self._bytes = sum(self._size(f"{byte:02x}") for byte in range(256))

    def _size(self, directory: str) -> int:
        path = f"{_ROOT}/{directory}"
        return sum(self._fs.size(f"{path}/{name}") or 0 for name in self._fs.names(path))

    def put(self, coid: Coid, data: bytes) -> bool:
        """Store an attachment durably; False if it was stored already."""
        if len(data) > self.max_item_bytes:
            raise ProtocolError(
                Detail.FIELD_SIZE,
                f"attachment of {len(data)} bytes exceeds the limit of {self.max_item_bytes}",
                code=Code.LIMIT,
                actual=len(data),
                max_allowed=self.max_item_bytes,
            )
        if sha256(data) != coid:
            raise ProtocolError(
                Detail.VALUE,
                "the bytes do not match the name",
                code=Code.BAD_REQUEST,
                field="coid",
            )
        with self._lock:
            stored = self._read(coid)
            if stored == data:
                return False
            added = len(data) - len(stored or b"")  # damaged content is replaced
            if self._bytes + added > self._max_bytes:
                raise StoreFullError("no space for more attachments; the operator must raise the limit")
            self._write(coid, data)
            self._bytes += added
        return True

    def get(self, coid: Coid) -> bytes:
        """Return an attachment; if it is damaged on disk, it counts as not found."""
        return read_attachment(self._fs, coid)

    def _read(self, coid: Coid) -> bytes | None:
        return read_file(self._fs, _path(coid))

    def _write(self, coid: Coid, data: bytes) -> None:
        path = _path(coid)
        directory = path.rpartition("/")[0]
        try:
            if directory not in self._made:
                self._fs.make_dir(directory)
                self._made.add(directory)
            replace_file(self._fs, path, data)
        except OSError as error:
            for leftover in (path + TMP, path):  # it would occupy the full disk, or look durable
                with suppress(OSError):
                    self._fs.unlink(leftover)
            raise StoreFullError(f"the attachment could not be stored: {error.strerror}") from error


def _path(coid: Coid) -> str:
    name = coid.hex()
    return f"{_ROOT}/{name[:2]}/{name}"


def read_attachment(fs: Filesystem, coid: Coid) -> bytes:
    """Return an attachment of a data directory."""
    data = read_file(fs, _path(coid))
    if data is None:
        raise not_found("coid", "there is no such attachment")
    if sha256(data) != coid:
        raise not_found("coid", "the attachment was damaged on disk; send it again")
    return data


def copy_attachments(source: Filesystem, target: Filesystem) -> None:
    """Copy all attachments; damaged ones are copied as they are, and reported when they are read."""
    for byte in range(256):
        directory = f"{_ROOT}/{byte:02x}"
        names = [name for name in source.names(directory) if not name.endswith(".tmp")]
        if names:
            target.make_dir(_ROOT)
            target.make_dir(directory)
        for name in names:
            replace_file(target, f"{directory}/{name}", source.read(f"{directory}/{name}"))


def coid_of(text: str) -> Coid:
    """Parse the name of an attachment."""
    try:
        return Coid(parse_hex32(text, lower=True))
    except ValueError:
        raise ProtocolError(
            Detail.VALUE,
            "the name of an attachment must be 64 lowercase hex digits",
            code=Code.BAD_REQUEST,
            field="coid",
        ) from None
