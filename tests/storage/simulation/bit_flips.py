"""Small directories to be damaged, and everything that can be asked of one: for the tests of flipped bits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests import builders
from tests.storage.checks import contents
from tests.storage.simulation.sim_state import FrozenInode, FrozenPlatter
from tests.storage.simulation.simdisk import SimDisk, Snapshot
from tests.storage.stores import AUTHORIZE, CONTROL, A, B, Store, make, open_writer
from veen.core.data_dir import paths
from veen.core.limits import Limits
from veen.core.objects.new_entry import NewEntry
from veen.core.types import Label, LeafHash
from veen.storage.fs import Filesystem, RealFilesystem
from veen.storage.read.reader import Reader

#: Two entries fill a chunk, so that very few bytes have a sealed and an open one.
SMALL: Final = Limits(max_msg_bytes=400, max_chunk_bytes=2_000, max_checkpoint_interval=2)
TOKEN: Final = builders.cap_token()
CLIENTS: Final = ("x", "y")
_INDEX: Final = f"{paths.INDEX}/data.mdb"


def _send(store: Store, *labels: Label) -> None:
    batch = store.writer.batch()
    for label in labels:
        client = CLIENTS[batch.head(label).seq % 2]
        position = batch.client(label, builders.verify_key(client))
        context = builders.context(
            label=label, client=client, client_seq=position.client_seq + 1, auth_ref=TOKEN.auth_ref
        )
        record = NewEntry.of_msg(builders.msg(context, signer=client, body=b"", pad_block=0))
        batch.append(record, store.signer(record))
    store.writer.commit(batch)
    store.tick()


def _begin(fs: Filesystem) -> Store:
    make(fs, SMALL)
    store = Store(open_writer(fs))
    store.authorize(TOKEN)
    store.record(NewEntry.of_control(CONTROL, b"a record"))
    _send(store, A, B)
    _send(store, B, A)
    _send(store, A)
    store.writer.checkpoint(A, 1)
    return store


def unclean(fs: Filesystem) -> None:
    """Chunks of both labels, sealed and open; then a journal with batches and a checkpoint; no clean stop."""
    store = _begin(fs)
    store.writer.flush()
    _send(store, A, B)
    store.writer.checkpoint(A, 4)
    _send(store, B)
    store.writer.abandon()


def clean(fs: Filesystem) -> None:
    """The same and no journal."""
    _begin(fs).writer.close()


def pruned(fs: Filesystem) -> None:
    """The first chunk of one label is pruned."""
    store = _begin(fs)
    store.writer.flush()
    store.writer.prune(A, 2)
    store.writer.close()


# --- what a store answers -----------------------------------------------------------------------------------


class LabelView(NamedTuple):
    """All of one label."""

    first_seq: int
    frames: tuple[bytes, ...]
    root: bytes
    proofs: tuple[bytes, ...]
    consistency: bytes
    cursors: tuple[tuple[int, int], ...]
    times: tuple[int, ...]


class View(NamedTuple):
    """All that a reader can be asked."""

    labels: dict[Label, LabelView]
    checkpoints: dict[Label, tuple[bytes, ...]]
    auth: object
    places: dict[LeafHash, object]


def view(reader: Reader, leaves: tuple[LeafHash, ...]) -> View:
    """Ask a reader for everything; ``leaves`` are the messages to look for."""
    known = sorted(reader.labels())
    return View(
        {label: _label_view(reader, label) for label in known},
        {label: _checkpoints(reader, label) for label in known},
        reader.auth(TOKEN.auth_ref),
        {leaf: reader.find(leaf) for leaf in leaves},
    )


def _label_view(reader: Reader, label: Label) -> LabelView:
    manifest = reader.manifest(label)
    head = manifest.head
    return LabelView(
        manifest.first_seq,
        tuple(place.entry.encode() for place in reader.entries(label, manifest.first_seq, head.seq)),
        head.root,
        tuple(reader.prove(label, seq, head.seq).encode() for seq in range(1, head.seq + 1)),
        reader.prove_consistency(label, 1, head.seq).encode(),
        tuple(reader.client(label, builders.verify_key(client)) for client in CLIENTS),
        tuple(reader.seq_at(label, 1_000 + second) for second in range(8)),
    )


def _checkpoints(reader: Reader, label: Label) -> tuple[bytes, ...]:
    return tuple(made.encode() for made in reader.checkpoints(label, 1, reader.last_seq(label)))


# --- directories in memory ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Directory:
    """A directory made by the engine on a real file system, taken into memory."""

    name: str
    files: dict[str, bytes]
    index: bytes
    leaves: tuple[LeafHash, ...]
    expected: View
    scratch: Path

    def with_file(self, path: str, data: bytes) -> Snapshot:
        """Return a disk that has this directory, with another content of one file."""
        return self._snapshot({**self.files, path: data})

    def _snapshot(self, files: dict[str, bytes]) -> Snapshot:
        tables: dict[str, dict[str, int]] = {"": {}, paths.ANCHORS_DIR: {}}
        inodes: dict[int, FrozenInode] = {}
        for number, (path, data) in enumerate((*files.items(), (_INDEX, self.index))):
            directory, _, name = path.rpartition("/")
            for above in (directory.rpartition("/")[0], directory):
                tables.setdefault(above, {})
            tables[directory][name] = number
            inodes[number] = FrozenInode(*_content(path, data))
        durable = {directory: dict(names) for directory, names in tables.items()}
        return Snapshot(FrozenPlatter(inodes, tables, durable, (), (), len(inodes)), self.scratch)

    @contextmanager
    def disk(self, path: str, data: bytes) -> Iterator[SimDisk]:
        """Put the directory on a simulated disk, with another content of one file."""
        with SimDisk.from_snapshot(self.with_file(path, data)) as disk:
            yield disk


def _content(path: str, data: bytes) -> tuple[bytes, bytes, tuple[()], bytes | None]:
    return (b"", b"", (), data) if path == _INDEX else (data, data, (), None)


def build(root: Path, make_one: Callable[[Filesystem], None]) -> Directory:
    """Let the engine make a directory on the real file system, and read it."""
    fs = RealFilesystem(root / make_one.__name__)
    make_one(fs)
    files = contents(fs)
    index = (fs.root / _INDEX).read_bytes()
    reader = Reader.open(fs)
    leaves = tuple(
        place.entry.receipt.leaf_hash
        for label in (A, B, AUTHORIZE, CONTROL)
        for place in reader.entries(label, reader.manifest(label).first_seq, reader.last_seq(label))
    )
    expected = view(reader, leaves)
    reader.close()
    fs.close()
    return Directory(make_one.__name__, files, index, leaves, expected, root)
