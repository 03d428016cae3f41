"""The index: positions and cursors in LMDB, made from the log and never trusted beyond it.

    table        key                        value
    meta         name                       see ``Meta``
    labels       label                      LabelState
    numbers      number u32                 label
    clients      number u32, client_id      last client_seq and prev_ack
                 2^32 - 1, client_id        when the client was first seen, in any label
    positions    number u32, first seq u64  a block of entries: chunk start, offset, length of each
    leaves       first 6 bytes of leaf      number u32, seq (several, if the prefixes agree)
    times        number u32, hub_ts u64     first seq of that second
    chunks       number u32, start u64      ChunkRow
    checkpoints  number u32, upto u64       root, chunk start
    auths        auth_ref                   AuthRecord
    streams      stream_id, epoch u64       label
    stale        label                      nothing: its checkpoint index file is out of date
    unpacked     label, start u64           nothing: the chunk is sealed and waits to be compressed

Numbers are given to labels in the order in which they arrive, to keep keys short. Integers are
big-endian, so that keys sort as numbers do: a range is one seek and a walk.
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

# Raised when rows are added, too: an index that lacks them would answer as if there was nothing to know.
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
# What a tree with damaged pages ends in; the last is of keys that have another length than ours.
_CORRUPT: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.BadTxnError, struct.error)
_META_KEY: Final = b"meta"
# Stands in the place of a label's number where a row is about a client in all labels.
_ANY_LABEL: Final = 2**32 - 1
_META: Final = struct.Struct(">IBQQQQI")
_NUMBER: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_LEAF_PREFIX: Final = 6
# Leaves of one transaction. They are random, so each touches a page; pages of one transaction cannot be
# used again in the next, and so many are lost to the file.
_LEAVES_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What is true of the directory as a whole."""

    # Whether the last writer moved everything into chunks before it went.
    clean: bool = True
    # The first journal segment that is not in chunks yet.
    journal: int = 1
    last_ts: int = 0
    # Length of the derived files.
    receipts_bytes: int = 0
    checkpoints_bytes: int = 0
    labels: int = 0


def client_key(number: int, client_id: VerifyKey) -> bytes:
    """Return the key of a client in a label."""
    return _NUMBER.pack(number) + client_id


def leaf_rows(leaves: Iterable[tuple[LeafHash, int, int]]) -> list[tuple[bytes, bytes]]:
    """Return the rows of leaves (leaf, number, seq), in the order in which the tree has them."""
    return sorted(
        (leaf[:_LEAF_PREFIX], _NUMBER.pack(number) + seq.to_bytes((seq.bit_length() + 7) // 8))
        for leaf, number, seq in leaves
    )


class Snapshot:
    """The index as of one moment. Every method is one seek, or one and a walk over what it returns."""

    def __init__(self, txn: lmdb.Transaction, tables: "Mapping[str, _Database]") -> None:
        self.txn = txn
        self._tables = tables

    def _get(self, table: str, key: bytes) -> bytes | None:
        found = self.txn.get(key, db=self._tables[table])
        return None if found is None else bytes(found)

    def _last_at(self, table: str, number: int, key: int) -> tuple[int, bytes] | None:
        """Return the last row of a label at or before ``key``."""
        with self.txn.cursor(db=self._tables[table]) as cursor:
            found = cursor.set_range(place(number, key))
            if found and cursor.key() == place(number, key):
                return key, bytes(cursor.value())
            if not (cursor.prev() if found else cursor.last()):
                return None
            owner, at = placed(cursor.key())
            return (at, bytes(cursor.value())) if owner == number else None

    def _rows(self, table: str, number: int, start: int) -> Iterator[tuple[int, bytes]]:
        """Return the rows of a label from ``start`` on."""
        with self.txn.cursor(db=self._tables[table]) as cursor:
            found = cursor.set_range(place(number, start))
            while found:
                owner, at = placed(cursor.key())
                if owner != number:
                    return
                yield at, bytes(cursor.value())
                found = cursor.next()

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
        """Return what is known of a label."""
        stored = self._get("labels", label)
        return None if stored is None else LabelState.decode(label, stored)

    def binding(self, label: Label) -> StreamEpoch | None:
        """Return the stream and epoch of a label."""
        stored = self._get("labels", label)
        return None if stored is None else decode_binding(label, stored)

    def ref(self, label: Label) -> LabelRef | None:
        """Return what finding an entry of a label takes."""
        stored = self._get("labels", label)
        return None if stored is None else LabelRef.decode(label, stored)

    def label_count(self) -> int:
        """Return how many labels there are."""
        return int(self.txn.stat(self._tables["labels"])["entries"])

    def refs(self) -> Iterator[LabelRef]:
        """Return what finding entries takes, of all labels, in byte order."""
        with self.txn.cursor(db=self._tables["labels"]) as cursor:
            for key, stored in cursor:
                yield LabelRef.decode(Label(bytes(key)), bytes(stored))

    def labels(self) -> Iterator[LabelState]:
        """Return all labels, in byte order."""
        with self.txn.cursor(db=self._tables["labels"]) as cursor:
            for key, stored in cursor:
                yield LabelState.decode(Label(bytes(key)), bytes(stored))

    def client(self, number: int, client_id: VerifyKey) -> ClientCursor | None:
        """Return how far a client has come in a label."""
        key = client_key(number, client_id)
        stored = self._get("clients", key)
        return None if stored is None else decode_cursor(key, stored)

    def clients(self, number: int) -> Iterator[tuple[VerifyKey, ClientCursor]]:
        """Return all clients of a label."""
        prefix = _NUMBER.pack(number)
        with self.txn.cursor(db=self._tables["clients"]) as cursor:
            found = cursor.set_range(prefix)
            while found and bytes(cursor.key()).startswith(prefix):
                key = bytes(cursor.key())
                yield VerifyKey(key[len(prefix) :]), decode_cursor(key, bytes(cursor.value()))
                found = cursor.next()

    def client_since(self, client_id: VerifyKey) -> int | None:
        """Return when a client was first seen."""
        key = client_key(_ANY_LABEL, client_id)
        stored = self._get("clients", key)
        return None if stored is None else int(_U64.unpack(checked(key, stored))[0])

    def auth(self, auth_ref: AuthRef) -> AuthRecord | None:
        """Return when a token was first seen."""
        stored = self._get("auths", auth_ref)
        return None if stored is None else decode_auth(auth_ref, stored)

    def stream(self, binding: StreamEpoch) -> Label | None:
        """Return the label of a stream in an epoch, if it has come up."""
        stored = self._get("streams", binding.stream_id + _U64.pack(binding.epoch))
        return None if stored is None else Label(stored)

    def labels_of(self, stream_id: StreamId) -> Iterator[tuple[StreamEpoch, Label]]:
        """Return the labels of a stream that have come up, in the order of epochs."""
        with self.txn.cursor(db=self._tables["streams"]) as cursor:
            found = cursor.set_range(stream_id)
            while found and bytes(cursor.key()).startswith(stream_id):
                epoch = _U64.unpack(bytes(cursor.key())[len(stream_id) :])[0]
                yield StreamEpoch(stream_id, epoch), Label(bytes(cursor.value()))
                found = cursor.next()

    def block(self, number: int, seq: int) -> Block | None:
        """Return the block that holds an entry."""
        found = self._last_at("positions", number, seq)
        return None if found is None else Block.decode(place(number, found[0]), found[1])

    def position(self, number: int, seq: int) -> Span | None:
        """Return where an entry is."""
        block = self.block(number, seq)
        return None if block is None else block.find(seq)

    def leaves(self, leaf_hash: LeafHash) -> list[tuple[Label, int]]:
        """Return the places whose leaf begins like this one: the caller compares the rest."""
        with self.txn.cursor(db=self._tables["leaves"]) as cursor:
            if not cursor.set_key(leaf_hash[:_LEAF_PREFIX]):
                return []
            found = [bytes(value) for value in cursor.iternext_dup()]
        places = [(self._get("numbers", value[: _NUMBER.size]), value[_NUMBER.size :]) for value in found]
        # A leaf is written before the label that it is the first of: such a row is not for readers yet.
        return [(Label(label), int.from_bytes(seq)) for label, seq in places if label is not None]

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
        """Return the chunk that holds an entry, or the last one before it."""
        found = self._last_at("chunks", number, seq)
        return None if found is None else ChunkRow.decode(number, *found)

    def chunks(self, number: int, start: int = 0) -> Iterator[ChunkRow]:
        """Return the chunks of a label that begin at ``start`` or later."""
        for at, value in self._rows("chunks", number, start):
            yield ChunkRow.decode(number, at, value)

    def checkpoint_at(self, number: int, seq: int) -> CheckpointRow | None:
        """Return the last checkpoint at or before an entry."""
        found = self._last_at("checkpoints", number, seq)
        return None if found is None else CheckpointRow.decode(number, *found)

    def checkpoints(self, number: int, start: int = 0) -> Iterator[CheckpointRow]:
        """Return the checkpoints of a label from ``start`` on."""
        for at, value in self._rows("checkpoints", number, start):
            yield CheckpointRow.decode(number, at, value)

    def stale(self) -> list[Label]:
        """Return the labels whose checkpoint index file is out of date."""
        with self.txn.cursor(db=self._tables["stale"]) as cursor:
            return [Label(bytes(key)) for key in cursor.iternext(values=False)]

    def first_unpacked(self) -> tuple[Label, int] | None:
        """Return a sealed chunk that waits to be compressed."""
        with self.txn.cursor(db=self._tables["unpacked"]) as cursor:
            if not cursor.first():
                return None
            key = bytes(cursor.key())
            return Label(key[:32]), _U64.unpack(key[32:])[0]


class Changes(Snapshot):
    """A write transaction: becomes true as a whole, or not at all."""

    def _put(self, table: str, key: bytes, value: bytes) -> None:
        self.txn.put(key, value, db=self._tables[table])

    def put_meta(self, meta: Meta) -> None:
        """Write the row about the whole directory."""
        self._put("meta", _META_KEY, protect(_META_KEY, _META.pack(FORMAT, *astuple(meta))))

    def put_label(self, state: LabelState) -> None:
        """Write what is known of a label."""
        self._put("labels", state.label, state.encode())
        self._put("numbers", _NUMBER.pack(state.number), state.label)
        if state.binding is not None:
            self.put_stream(state.binding, state.label)

    def put_stream(self, binding: StreamEpoch, label: Label) -> None:
        """Write the label of a stream in an epoch."""
        self._put("streams", binding.stream_id + _U64.pack(binding.epoch), label)

    def put_client(self, number: int, client_id: VerifyKey, cursor: ClientCursor) -> None:
        """Write how far a client has come."""
        key = client_key(number, client_id)
        self._put("clients", key, encode_cursor(key, cursor))

    def put_client_since(self, client_id: VerifyKey, hub_ts: int) -> None:
        """Write when a client was first seen; an earlier time stays."""
        known = self.client_since(client_id)
        if known is None or hub_ts < known:
            key = client_key(_ANY_LABEL, client_id)
            self._put("clients", key, protect(key, _U64.pack(hub_ts)))

    def put_auth(self, auth_ref: AuthRef, record: AuthRecord) -> None:
        """Write when a token was first seen; what is known already stays."""
        known = self.auth(auth_ref)
        merged = known.merged(record) if known else record
        self._put("auths", auth_ref, encode_auth(auth_ref, merged))

    def put_blocks(self, number: int, blocks: list[Block]) -> None:
        """Write where entries are."""
        keys = [place(number, block.first_seq) for block in blocks]
        self._put_many(
            "positions", [(key, block.encode(key)) for key, block in zip(keys, blocks, strict=True)]
        )

    def put_leaves(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write rows that ``leaf_rows`` has made."""
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
        """Write that a checkpoint is stored."""
        key = place(number, row.upto_seq)
        self._put("checkpoints", key, row.encode(key))

    def put_stale(self, label: Label) -> None:
        """Write that the checkpoint index file of a label is out of date."""
        self._put("stale", label, b"")

    def clear_stale(self, label: Label) -> None:
        """Write that the checkpoint index file of a label is up to date."""
        self.txn.delete(label, db=self._tables["stale"])

    def put_unpacked(self, label: Label, start_seq: int) -> None:
        """Write that a sealed chunk waits to be compressed."""
        self._put("unpacked", label + _U64.pack(start_seq), b"")

    def clear_unpacked(self, label: Label, start_seq: int) -> None:
        """Write that a chunk does not wait to be compressed any more."""
        self.txn.delete(label + _U64.pack(start_seq), db=self._tables["unpacked"])


class Index:
    """The open index of a data directory."""

    def __init__(self, fs: Filesystem, env: lmdb.Environment, *, readonly: bool) -> None:
        self._fs = fs
        self._env = env
        if readonly:
            self._tables = {name: env.open_db(name.encode(), create=False) for name in _TABLES}
            return
        # In one transaction: a new index would else be synced once for each table.
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
        """Look at the index as it is now; what other threads commit meanwhile is not seen."""
        try:
            with self._env.begin(buffers=False) as txn:
                yield Snapshot(txn, self._tables)
        except _CORRUPT as error:
            raise StaleIndexError(paths.INDEX, None, f"the index is damaged ({error})") from error

    @contextmanager
    def change(self) -> Iterator[Changes]:
        """Change the index; durable when the block ends without an exception."""
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
        """Write the places of leaves, ahead of what makes them count; may be done again."""
        rows = leaf_rows(leaves)
        for start in range(0, len(rows), _LEAVES_AT_ONCE):
            with self.change() as changes:
                changes.put_leaves(rows[start : start + _LEAVES_AT_ONCE])

    def close(self) -> None:
        self._env.close()
