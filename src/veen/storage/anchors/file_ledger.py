"""The file ledger: an append-only CBOR sequence of entries, each with the hash of the one before.

A head file beside it records how much of it was acknowledged. Everything up to there must be as it was
written, or the ledger is rejected as damaged. Bytes after it are from an interrupted write that was never
acknowledged, and are truncated.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from veen.core.crypto.hash import ZERO_32
from veen.core.encoding import cbor
from veen.core.errors import CborError, Fault, ProtocolError
from veen.core.objects.anchor import FILE, MAX_ENTRY_BYTES, AnchorRef, LedgerEntry, LedgerHead
from veen.core.types import NodeHash
from veen.storage.anchors.backend import Verdict
from veen.storage.atomic_file import read_file, replace_file
from veen.storage.errors import AnchorError, DamagedStoreError, StoreBusyError
from veen.storage.fs import FileLock, Filesystem, Write

_EMPTY: Final = LedgerHead(count=0, size=0, last_hash=ZERO_32)
_BLOCK_BYTES: Final = 1 << 20


class FileLedger:
    """A ledger in a directory; the first ``publish`` locks it until ``close``. One thread at a time.

    Reading needs no lock, and sees all entries acknowledged before.
    """

    name = FILE

    def __init__(self, fs: Filesystem, path: str, owner: str = "another process") -> None:
        self._fs = fs
        self._path = path
        # Sorts before the ledger, so that a copy of the directory never has a head ahead of its ledger.
        self._head_path = str(PurePosixPath(path).with_suffix(".ack"))
        self._lock_path = path + ".lock"
        self._owner = owner
        self._held: FileLock | None = None
        # The acknowledged end of the ledger; None until it was read, and after a disk error.
        self._head: LedgerHead | None = None

    def close(self) -> None:
        """Release the lock."""
        lock, self._held, self._head = self._held, None, None
        if lock is not None:
            lock.release()

    # --- publishing -----------------------------------------------------------------------------------------

    def publish(self, root: NodeHash, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Append an entry; it is durable when this returns."""
        try:
            head = self._open()
            entry = LedgerEntry(
                index=head.count, prev_hash=head.last_hash, mmr_root=root, epoch=epoch, ts=ts, nonce=nonce
            )
            self._head = None  # unknown until both files are written
            self._head = self._append(head, entry)
        except OSError as error:
            raise AnchorError(f"the ledger {self._path} cannot be written: {error}") from error
        ref = AnchorRef(
            backend=FILE, epoch=epoch, ts=ts, nonce=nonce, index=entry.index, entry_hash=entry.entry_hash
        )
        return ref.encode()

    def _append(self, head: LedgerHead, entry: LedgerEntry) -> LedgerHead:
        data = entry.encode()
        self._fs.write_all([Write(self._path, head.size, data)])
        grown = LedgerHead(count=head.count + 1, size=head.size + len(data), last_hash=entry.entry_hash)
        # Also syncs the directory, so the name of the ledger is durable too.
        replace_file(self._fs, self._head_path, grown.encode())
        return grown

    def _open(self) -> LedgerHead:
        if self._held is None:
            try:
                self._held = self._fs.lock(self._lock_path, self._owner.encode())
            except BlockingIOError:
                holder = self._fs.read(self._lock_path).decode(errors="replace").strip()
                raise StoreBusyError(
                    f"the ledger {self._path} is in use by {holder or 'another process'}"
                ) from None
        return self._recover() if self._head is None else self._head

    def _recover(self) -> LedgerHead:
        """Check all acknowledged entries, and truncate what was not acknowledged."""
        head = self._read_head()
        if head is None:
            if self._fs.size(self._path):
                raise DamagedStoreError(
                    self._head_path,
                    None,
                    "it is missing, so it is not known which entries of the ledger were acknowledged",
                    "restore it, or move the ledger away and start a new one",
                )
            head = _EMPTY
            replace_file(self._fs, self._head_path, head.encode())
        for _ in self._entries(head):
            pass
        size = self._fs.size(self._path)
        if size is None:
            # Make its name durable first, or a power failure could leave a head without a ledger.
            self._fs.write_all([Write(self._path, 0, b"")])
            self._fs.sync_dir(self._path.rpartition("/")[0])
        elif size > head.size + MAX_ENTRY_BYTES:
            raise self._damaged(
                head.size, "there are more bytes after the acknowledged entries than one write can leave"
            )
        elif size > head.size:
            self._fs.truncate(self._path, head.size)
        return head

    # --- reading --------------------------------------------------------------------------------------------

    def verify(self, root: NodeHash, anchor_ref: bytes) -> Verdict:
        """Read the ledger from its start, and return whether the entry exists and is for this root."""
        try:
            ref = AnchorRef.decode(anchor_ref)
        except ProtocolError as error:
            return Verdict(ok=False, reason=f"this is not an anchor_ref: {error}")
        if ref.backend != FILE:
            return Verdict(ok=False, reason=f"the anchor is not in a ledger, but of {ref.backend}")
        try:
            named = [entry for entry in self._entries(self._read_head()) if entry.index == ref.index]
        except DamagedStoreError as error:
            return Verdict(ok=False, reason=str(error))
        except OSError as error:
            return Verdict(ok=False, reason=f"the ledger {self._path} cannot be read: {error.strerror}")
        if not named:
            return Verdict(ok=False, reason=f"the ledger has no entry {ref.index}")
        (entry,) = named
        if entry.entry_hash != ref.entry_hash:
            return Verdict(ok=False, reason=f"entry {ref.index} of the ledger is a different one")
        if (entry.epoch, entry.ts, entry.nonce) != (ref.epoch, ref.ts, ref.nonce):
            return Verdict(ok=False, reason=f"entry {ref.index} of the ledger has another epoch, ts or nonce")
        if entry.mmr_root != root:
            return Verdict(ok=False, reason=f"entry {ref.index} of the ledger is for another root")
        return Verdict(ok=True, reason=f"entry {ref.index} of the ledger, ts {entry.ts}")

    def _read_head(self) -> LedgerHead | None:
        stored = read_file(self._fs, self._head_path)
        if stored is None:
            return None
        try:
            return LedgerHead.decode(stored)
        except ProtocolError as error:
            raise DamagedStoreError(self._head_path, 0, str(error), "restore it from a copy") from error

    def _entries(self, head: LedgerHead | None) -> Iterator[LedgerEntry]:
        """Return all acknowledged entries; of a ledger without a head, all entries."""
        count, last, at = 0, ZERO_32, 0
        data, pos = b"", 0
        while head is None or count < head.count:
            if len(data) - pos < MAX_ENTRY_BYTES:
                data, pos = data[pos:] + self._read(at + len(data) - pos), 0
            if head is None and pos == len(data):
                return
            entry = self._next(data[pos : pos + MAX_ENTRY_BYTES], at, count, last)
            yield entry
            size = len(entry.encode())
            count, last, at, pos = count + 1, entry.entry_hash, at + size, pos + size
        if (at, last) != (head.size, head.last_hash):
            raise self._damaged(at, f"entry {count - 1} is not the one that was acknowledged")

    def _read(self, at: int) -> bytes:
        try:
            return self._fs.read(self._path, at, _BLOCK_BYTES)
        except FileNotFoundError:
            raise self._damaged(at, "the ledger is missing") from None

    def _next(self, data: bytes, at: int, count: int, last: bytes) -> LedgerEntry:
        """Decode one entry; reject it if it does not continue the ledger."""
        try:
            entry = LedgerEntry.decode(data[: cbor.item_end(data, 0)])
        except ProtocolError as error:
            cut = isinstance(error, CborError) and error.fault is Fault.TRUNCATED
            raise self._damaged(at, "the ledger ends within an entry" if cut else str(error)) from error
        if (entry.index, entry.prev_hash) != (count, last):
            raise self._damaged(at, f"entry {entry.index} does not continue the {count} before it")
        return entry

    def _damaged(self, at: int, reason: str) -> DamagedStoreError:
        return DamagedStoreError(self._path, at, reason, "restore the ledger from a copy, or start a new one")
