"""The index: positions and cursors in LMDB, derived from the log and never trusted beyond it.

    table        key                        value
    meta         name                       see ``Meta``
    labels       label                      LabelState
    numbers      number u32                 label
    clients      number u32, client_id      last client_seq and prev_ack
                 2^32 - 1, client_id        when the client was first seen, in any label
    positions    number u32, first seq u64  a block of entries: chunk start, offset, lengths
    leaves       first 6 bytes of leaf      number u32, seq (several, if prefixes are equal)
    times        number u32, hub_ts u64     first seq of that second
    chunks       number u32, start u64      ChunkRow
    checkpoints  number u32, upto u64       root, chunk start
    auths        auth_ref                   AuthRecord
    streams      stream_id, epoch u64       label
    stale        label                      empty: its checkpoint index file is out of date
    unpacked     label, start u64           empty: the chunk is sealed and not compressed yet

Labels are numbered in the order of their arrival, for short keys. Integers are big-endian, so that keys sort
numerically: a range is one seek and a scan.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

import lmdb

from veen.core.data_dir import paths
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.types import AuthRef, Label, LeafHash, StreamId, VerifyKey
from veen.storage.errors import StaleIndexError, StoreBusyError, StoreFullError
from veen.storage.fs import Filesystem
from veen.storage.index.label_state import LabelRef, LabelState, checked, decode_binding, protect
from veen.storage.index.rows import (
    Block,
    CheckpointRow,
    ChunkRow,
    Span,
    decode_auth,
    decode_cursor,
    encode_auth,
    encode_cursor,
    place,
    placed,
)

if TYPE_CHECKING:
    from lmdb import _Database

# Incremented for new tables or rows too: an index without them would return wrong answers.
FORMAT: Final = 3

_TABLES: Final = (
    "meta",
    "labels",
    "numbers",
    "clients",
    "positions",
    "leaves",
    "times",
    "chunks",
    "checkpoints",
    "auths",
    "streams",
    "stale",
    "unpacked",
)
# Errors that damaged pages can cause; the last one is from keys with a wrong length.
_CORRUPT: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.BadTxnError, struct.error)
_META_KEY: Final = b"meta"
# The number in keys of rows that are about a client in all labels.
_ANY_LABEL: Final = 2**32 - 1
_META: Final = struct.Struct(">IBQQQQI")
_NUMBER: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_LEAF_PREFIX: Final = 6
# Leaves per transaction. They are random, so each of them changes a page, and pages freed by one transaction
# cannot be reused by the next: this bounds how many are wasted.
_LEAVES_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """State of the whole directory."""

    # Whether the last writer flushed everything before it closed.
    clean: bool = True
    # The first journal segment that is not flushed yet.
    journal: int = 1
    last_ts: int = 0
    # Lengths of the derived files.
    receipts_bytes: int = 0
    checkpoints_bytes: int = 0
    labels: int = 0


def client_key(number: int, client_id: VerifyKey) -> bytes:
    """Return the key of a client in a label."""
    return _NUMBER.pack(number) + client_id


def leaf_rows(leaves: Iterable[tuple[LeafHash, int, int]]) -> list[tuple[bytes, bytes]]:
    """Return the rows of leaves (leaf, number, seq), in key order."""
    return sorted(
        (leaf[:_LEAF_PREFIX], _NUMBER.pack(number) + seq.to_bytes((seq.bit_length() + 7) // 8))
        for leaf, number, seq in leaves
    )


class Snapshot:
    """A snapshot of the index. Every method is one seek, or one seek and a scan of what it returns."""

    def __init__(self, txn: lmdb.Transaction, tables: "Mapping[str, _Database]") -> None:
        self.txn = txn
        self._tables = tables

    def _get(self, table: str, key: bytes) -> bytes | None:
        value = self.txn.get(key, db=self._tables[table])
        return None if value is None else bytes(value)

    def _last_at(self, table: str, number: int, key: int) -> tuple[int, bytes] | None:
        """Return the last row of a label at or before ``key``."""
        with self.txn.cursor(db=self._tables[table]) as cursor:
            positioned = cursor.set_range(place(number, key))
            if positioned and cursor.key() == place(number, key):
                return key, bytes(cursor.value())
            if not (cursor.prev() if positioned else cursor.last()):
                return None
            owner, at = placed(cursor.key())
            return (at, bytes(cursor.value())) if owner == number else None

    def _rows(self, table: str, number: int, start: int) -> Iterator[tuple[int, bytes]]:
        """Return the rows of a label, from ``start`` on."""
        with self.txn.cursor(db=self._tables[table]) as cursor:
            positioned = cursor.set_range(place(number, start))
            while positioned:
                owner, at = placed(cursor.key())
                if owner != number:
                    return
                yield at, bytes(cursor.value())
                positioned = cursor.next()

    def meta(self) -> Meta:
        """Return the row about the whole directory."""
        stored = self._get("meta", _META_KEY)
        if stored is None:
            raise StaleIndexError(paths.INDEX, None, "the index is empty")
        version, *values = _META.unpack(checked(_META_KEY, stored))
        if version != FORMAT:
            raise StaleIndexError(paths.INDEX, None, f"the index has format {version}, not {FORMAT}")
        clean, journal, last_ts, receipts, checkpoints, labels = values
        return Meta(
            clean=bool(clean),
            journal=journal,
            last_ts=last_ts,
            receipts_bytes=receipts,
            checkpoints_bytes=checkpoints,
            labels=labels,
        )

    def label(self, label: Label) -> LabelState | None:
        """Return the state of a label."""
        stored = self._get("labels", label)
        return None if stored is None else LabelState.decode(label, stored)

    def binding(self, label: Label) -> StreamEpoch | None:
        """Return the stream and epoch of a label."""
        stored = self._get("labels", label)
        return None if stored is None else decode_binding(label, stored)

    def ref(self, label: Label) -> LabelRef | None:
        """Return what is needed to find an entry of a label."""
        stored = self._get("labels", label)
        return None if stored is None else LabelRef.decode(label, stored)

    def label_count(self) -> int:
        """Return how many labels there are."""
        return int(self.txn.stat(self._tables["labels"])["entries"])

    def refs(self) -> Iterator[LabelRef]:
        """Return what is needed to find entries, for all labels in byte order."""
        with self.txn.cursor(db=self._tables["labels"]) as cursor:
            for key, stored in cursor:
                yield LabelRef.decode(Label(bytes(key)), bytes(stored))

    def labels(self) -> Iterator[LabelState]:
        """Return all labels, in byte order."""
        with self.txn.cursor(db=self._tables["labels"]) as cursor:
            for key, stored in cursor:
                yield LabelState.decode(Label(bytes(key)), bytes(stored))

    def client(self, number: int, client_id: VerifyKey) -> ClientCursor | None:
        """Return the cursor of a client in a label."""
        key = client_key(number, client_id)
        stored = self._get("clients", key)
        return None if stored is None else decode_cursor(key, stored)

    def clients(self, number: int) -> Iterator[tuple[VerifyKey, ClientCursor]]:
        """Return all clients of a label."""
        prefix = _NUMBER.pack(number)
        with self.txn.cursor(db=self._tables["clients"]) as cursor:
            positioned = cursor.set_range(prefix)
            while positioned and bytes(cursor.key()).startswith(prefix):
                key = bytes(cursor.key())
                yield VerifyKey(key[len(prefix) :]), decode_cursor(key, bytes(cursor.value()))
                positioned = cursor.next()

    def client_since(self, client_id: VerifyKey) -> int | None:
        """Return when a client was first seen."""
        key = client_key(_ANY_LABEL, client_id)
        stored = self._get("clients", key)
        return None if stored is None else int(_U64.unpack(checked(key, stored))[0])

    def auth(self, auth_ref: AuthRef) -> AuthRecord | None:
        """Return the record of a token."""
        stored = self._get("auths", auth_ref)
        return None if stored is None else decode_auth(auth_ref, stored)

    def stream(self, binding: StreamEpoch) -> Label | None:
        """Return the label of a stream in an epoch, if it has been used."""
        stored = self._get("streams", binding.stream_id + _U64.pack(binding.epoch))
        return None if stored is None else Label(stored)

    def labels_of(self, stream_id: StreamId) -> Iterator[tuple[StreamEpoch, Label]]:
        """Return the labels of a stream that have been used, in the order of epochs."""
        with self.txn.cursor(db=self._tables["streams"]) as cursor:
            positioned = cursor.set_range(stream_id)
            while positioned and bytes(cursor.key()).startswith(stream_id):
                epoch = _U64.unpack(bytes(cursor.key())[len(stream_id) :])[0]
                yield StreamEpoch(stream_id, epoch), Label(bytes(cursor.value()))
                positioned = cursor.next()

    def block(self, number: int, seq: int) -> Block | None:
        """Return the block of an entry."""
        row = self._last_at("positions", number, seq)
        return None if row is None else Block.decode(place(number, row[0]), row[1])

    def position(self, number: int, seq: int) -> Span | None:
        """Return the location of an entry."""
        block = self.block(number, seq)
        return None if block is None else block.find(seq)

    def leaves(self, leaf_hash: LeafHash) -> list[tuple[Label, int]]:
        """Return the positions of leaves with the same prefix; the caller compares the rest."""
        with self.txn.cursor(db=self._tables["leaves"]) as cursor:
            if not cursor.set_key(leaf_hash[:_LEAF_PREFIX]):
                return []
            rows = [bytes(value) for value in cursor.iternext_dup()]
        positions = [(self._get("numbers", value[: _NUMBER.size]), value[_NUMBER.size :]) for value in rows]
        # The first leaf of a label is written before the label: skip a row whose label is not committed yet.
        return [(Label(label), int.from_bytes(seq)) for label, seq in positions if label is not None]

    def label_numbered(self, number: int) -> Label:
        stored = self._get("numbers", _NUMBER.pack(number))
        if stored is None:
            raise StaleIndexError(paths.INDEX, None, f"label number {number} is missing")
        return Label(stored)

    def seq_at(self, number: int, hub_ts: int) -> int | None:
        """Return the first entry at or after a time."""
        for at, value in self._rows("times", number, hub_ts):
            return int(_U64.unpack(checked(place(number, at), value))[0])
        return None

    def chunk_at(self, number: int, seq: int) -> ChunkRow | None:
        """Return the chunk of an entry, or the last chunk before it."""
        row = self._last_at("chunks", number, seq)
        return None if row is None else ChunkRow.decode(number, *row)

    def chunks(self, number: int, start: int = 0) -> Iterator[ChunkRow]:
        """Return the chunks of a label that begin at or after ``start``."""
        for at, value in self._rows("chunks", number, start):
            yield ChunkRow.decode(number, at, value)

    def checkpoint_at(self, number: int, seq: int) -> CheckpointRow | None:
        """Return the last checkpoint at or before an entry."""
        row = self._last_at("checkpoints", number, seq)
        return None if row is None else CheckpointRow.decode(number, *row)

    def checkpoints(self, number: int, start: int = 0) -> Iterator[CheckpointRow]:
        """Return the checkpoints of a label, from ``start`` on."""
        for at, value in self._rows("checkpoints", number, start):
            yield CheckpointRow.decode(number, at, value)

    def stale(self) -> list[Label]:
        """Return the labels whose checkpoint index file is out of date."""
        with self.txn.cursor(db=self._tables["stale"]) as cursor:
            return [Label(bytes(key)) for key in cursor.iternext(values=False)]

    def first_unpacked(self) -> tuple[Label, int] | None:
        """Return the first sealed chunk that is not compressed yet."""
        with self.txn.cursor(db=self._tables["unpacked"]) as cursor:
            if not cursor.first():
                return None
            key = bytes(cursor.key())
            return Label(key[:32]), _U64.unpack(key[32:])[0]


class Changes(Snapshot):
    """A write transaction: atomic."""

    def _put(self, table: str, key: bytes, value: bytes) -> None:
        self.txn.put(key, value, db=self._tables[table])

    def put_meta(self, meta: Meta) -> None:
        """Write the row about the whole directory."""
        self._put("meta", _META_KEY, protect(_META_KEY, _META.pack(FORMAT, *astuple(meta))))

    def put_label(self, state: LabelState) -> None:
        """Write the state of a label."""
        self._put("labels", state.label, state.encode())
        self._put("numbers", _NUMBER.pack(state.number), state.label)
        if state.binding is not None:
            self.put_stream(state.binding, state.label)

    def put_stream(self, binding: StreamEpoch, label: Label) -> None:
        """Write the label of a stream in an epoch."""
        self._put("streams", binding.stream_id + _U64.pack(binding.epoch), label)

    def put_client(self, number: int, client_id: VerifyKey, cursor: ClientCursor) -> None:
        """Write the cursor of a client."""
        key = client_key(number, client_id)
        self._put("clients", key, encode_cursor(key, cursor))

    def put_client_since(self, client_id: VerifyKey, hub_ts: int) -> None:
        """Write when a client was first seen, unless an earlier time is stored."""
        known = self.client_since(client_id)
        if known is None or hub_ts < known:
            key = client_key(_ANY_LABEL, client_id)
            self._put("clients", key, protect(key, _U64.pack(hub_ts)))

    def put_auth(self, auth_ref: AuthRef, record: AuthRecord) -> None:
        """Merge into the record of a token."""
        known = self.auth(auth_ref)
        merged = known.merged(record) if known else record
        self._put("auths", auth_ref, encode_auth(auth_ref, merged))

    def put_blocks(self, number: int, blocks: list[Block]) -> None:
        """Write blocks of entries."""
        keys = [place(number, block.first_seq) for block in blocks]
        self._put_many(
            "positions", [(key, block.encode(key)) for key, block in zip(keys, blocks, strict=True)]
        )

    def put_leaves(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write the rows that ``leaf_rows`` returned."""
        self._put_many("leaves", rows)

    def _put_many(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        with self.txn.cursor(db=self._tables[table]) as cursor:
            cursor.putmulti(rows)

    def put_time(self, number: int, hub_ts: int, seq: int) -> None:
        """Write the first entry of a second."""
        key = place(number, hub_ts)
        self._put("times", key, protect(key, _U64.pack(seq)))

    def put_chunk(self, number: int, row: ChunkRow) -> None:
        """Write a chunk of the manifest."""
        key = place(number, row.start_seq)
        self._put("chunks", key, row.encode(key))

    def put_checkpoint(self, number: int, row: CheckpointRow) -> None:
        """Write the row of a checkpoint."""
        key = place(number, row.upto_seq)
        self._put("checkpoints", key, row.encode(key))

    def put_stale(self, label: Label) -> None:
        """Mark the checkpoint index file of a label as out of date."""
        self._put("stale", label, b"")

    def clear_stale(self, label: Label) -> None:
        """Mark the checkpoint index file of a label as up to date."""
        self.txn.delete(label, db=self._tables["stale"])

    def put_unpacked(self, label: Label, start_seq: int) -> None:
        """Mark a sealed chunk as not compressed yet."""
        self._put("unpacked", label + _U64.pack(start_seq), b"")

    def clear_unpacked(self, label: Label, start_seq: int) -> None:
        """Clear the mark of a chunk that was compressed or pruned."""
        self.txn.delete(label + _U64.pack(start_seq), db=self._tables["unpacked"])


class Index:
    """The open index of a data directory."""

    def __init__(self, fs: Filesystem, env: lmdb.Environment, *, readonly: bool) -> None:
        self._fs = fs
        self._env = env
        if readonly:
            self._tables = {name: env.open_db(name.encode(), create=False) for name in _TABLES}
            return
        # In one transaction, because a new index would otherwise be synced once per table.
        with env.begin(write=True) as txn:
            self._tables = {
                name: env.open_db(name.encode(), txn=txn, dupsort=name == "leaves") for name in _TABLES
            }

    @classmethod
    def open(cls, fs: Filesystem, *, readonly: bool = False) -> "Index":
        """Open the index of a directory that has one."""
        try:
            return cls(fs, fs.open_index(paths.INDEX, readonly=readonly), readonly=readonly)
        except lmdb.Error as error:
            if "already open" in str(error):
                raise StoreBusyError(
                    "this process has opened the directory already: use that reader"
                ) from error
            if isinstance(error, lmdb.DiskError):
                raise StoreFullError("no space left to open the index; free some space") from error
            raise StaleIndexError(paths.INDEX, None, f"the index cannot be opened ({error})") from error

    @classmethod
    def create(cls, fs: Filesystem) -> "Index":
        """Create an index without its ``meta`` row: until that is written, it cannot be opened."""
        fs.make_dir(paths.INDEX)
        index = cls(fs, fs.open_index(paths.INDEX, readonly=False, create=True), readonly=False)
        fs.sync_dir(paths.INDEX)
        return index

    @contextmanager
    def view(self) -> Iterator[Snapshot]:
        """Open a snapshot; later commits are not visible in it."""
        try:
            with self._env.begin(buffers=False) as txn:
                yield Snapshot(txn, self._tables)
        except _CORRUPT as error:
            raise StaleIndexError(paths.INDEX, None, f"the index is damaged ({error})") from error

    @contextmanager
    def change(self) -> Iterator[Changes]:
        """Open a write transaction; committed durably when the block ends without an exception."""
        txn = self._env.begin(write=True)
        try:
            yield Changes(txn, self._tables)
        except BaseException as error:
            txn.abort()
            if isinstance(error, _CORRUPT):
                raise StaleIndexError(paths.INDEX, None, f"the index is damaged ({error})") from error
            raise
        self._fs.commit(txn)

    def add_leaves(self, leaves: Iterable[tuple[LeafHash, int, int]]) -> None:
        """Write the positions of leaves, before the transaction that commits their labels. Idempotent."""
        rows = leaf_rows(leaves)
        for start in range(0, len(rows), _LEAVES_AT_ONCE):
            with self.change() as changes:
                changes.put_leaves(rows[start : start + _LEAVES_AT_ONCE])

    def close(self) -> None:
        self._env.close()
