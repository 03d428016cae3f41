"""The journal of an RPC server, by which each call is executed at most once (RPC0-005)."""

from typing import TYPE_CHECKING, Final

from veen.client.errors import ClientStateError, DamagedClientFileError
from veen.client.home.lmdb_file import open_environment, settle
from veen.client.keys.row_vault import Vault
from veen.client.session import Session
from veen.core.objects import labels
from veen.core.types import LeafHash
from veen.stdx.file_lock import FileLock

if TYPE_CHECKING:
    import lmdb

RPC_DIR: Final = "rpc"
# Reserved in the address space, not on disk.
_MAP_BYTES: Final = 1 << 34


class Journal:
    """Records begun and answered calls in a file of the client directory."""

    def __init__(self, session: Session, stream: str) -> None:
        self._stream = stream
        stream_id = labels.stream_id(stream)
        directory = session.home.root / RPC_DIR
        self._path = directory / f"{stream_id.hex()}.lmdb"
        self._lock = FileLock(directory / f"{stream_id.hex()}.lock")
        self._vault = Vault(session.secrets, b"rpc" + stream_id, session.random)
        self._rows: lmdb.Environment | None = None

    def open(self) -> None:
        """Lock and open the file; ``close`` releases the lock even if this fails halfway.

        Raises:
            ClientStateError: Another server has it open, or it is damaged or cannot be used.
        """
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        if not self._lock.acquire():
            raise ClientStateError(f"another process of this client already answers calls on {self._stream}")
        try:
            self._rows = open_environment(self._path, _MAP_BYTES)
        except DamagedClientFileError as error:
            raise ClientStateError(
                f"{error}; it records which calls were executed. To start without it, move it away: calls "
                "that it recorded may then be executed again"
            ) from None

    def reply(self, key: bytes) -> tuple[bool, bytes | None]:
        """Return whether a call was begun, and its reply if it was answered."""
        reply = self._get(b"call" + key)
        return reply is not None, reply or None

    def begin(self, key: bytes) -> None:
        """Record that a method is about to run."""
        self._put(b"call" + key, b"")

    def finish(self, key: bytes, reply: bytes) -> None:
        """Record the reply to a call."""
        self._put(b"call" + key, reply)

    def is_answered(self, msg_id: LeafHash) -> bool:
        """Return whether a reply to this request was sent."""
        return self._get(b"sent" + msg_id) is not None

    def note_answered(self, msg_id: LeafHash) -> None:
        """Record that a reply to this request was sent."""
        self._put(b"sent" + msg_id, b"")

    def _get(self, name: bytes) -> bytes | None:
        row = self._vault.name(name)
        assert self._rows is not None
        with self._rows.begin() as txn:
            sealed = txn.get(row)
        return None if sealed is None else self._vault.open(row, sealed)

    def _put(self, name: bytes, value: bytes) -> None:
        row = self._vault.name(name)
        assert self._rows is not None
        with self._rows.begin(write=True) as txn:  # synced by the commit
            txn.put(row, self._vault.seal(row, value))
        settle(self._rows, self._path)

    def close(self) -> None:
        """Close the file."""
        if self._rows is not None:
            self._rows.close()
        self._lock.close()
