"""Cost of the storage engine: compared with bare writes of the same bytes, and as a log grows.

Entries have the size and shape of real ones, but are not signed or verified: signatures are measured
with the core, and would dominate here.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter

from bench.measure import Work
from veen.core.crypto.hash import sha256, tagged_hash, u32be, u64be
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.limits import DEFAULT_LIMITS
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import HubId, Label, LeafHash, NodeHash, ProfileId, Signature, VerifyKey
from veen.storage.directory import create_store
from veen.storage.fs import RealFilesystem
from veen.storage.journal.tail import SignReceipt
from veen.storage.write.batch import Batch
from veen.storage.write.writer import Writer

BATCH = 256
# With this ciphertext, an entry with receipt and frame has about 600 bytes.
_CIPHERTEXT = bytes(32) + u32be(16) + u32be(16) + os.urandom(88)
# Large enough to be encoded in the same length in every message.
_FIRST_SEQ = 2**32
_UNSIGNED = Signature(bytes(64))
_CLIENTS = [VerifyKey(sha256(f"client {number}".encode())) for number in range(64)]


def _template() -> bytes:
    return Msg(
        profile_id=ProfileId(bytes(32)),
        label=Label(bytes(32)),
        client_id=VerifyKey(bytes(32)),
        client_seq=_FIRST_SEQ,
        prev_ack=0,
        auth_ref=None,
        ct_hash=bytes(32),
        ciphertext=_CIPHERTEXT,
        sig=_UNSIGNED,
    ).encode()


_TEMPLATE = _template()


def _record(label: Label, number: int) -> NewEntry:
    """Return a message that decodes and has a unique leaf: a template with three fields filled in.

    Creating five million messages in the regular way would take longer than storing them.
    """
    client, seq = _CLIENTS[number % len(_CLIENTS)], _FIRST_SEQ + number
    content = b"".join(
        (_TEMPLATE[:38], label, _TEMPLATE[70:72], client, b"\x1b", u64be(seq), _TEMPLATE[113:])
    )
    return NewEntry(
        label,
        content,
        LeafHash(tagged_hash("veen/leaf", label + bytes(64) + client + u64be(seq))),
        client,
        seq,
    )


def _sign_checkpoint(label: Label, upto: int, root: NodeHash, _: StreamEpoch | None) -> Checkpoint:
    return Checkpoint(
        label_prev=label, label_curr=label, upto_seq=upto, mmr_root=root, epoch=0, hub_sig=_UNSIGNED
    )


def _receipt(record: NewEntry, hub_ts: int) -> SignReceipt:
    return lambda seq, root: Receipt(
        label=record.label,
        stream_seq=seq,
        leaf_hash=record.leaf_hash,
        mmr_root=root,
        hub_ts=hub_ts,
        hub_sig=_UNSIGNED,
    )


@dataclass
class Log:
    """A store of entries, spread over labels."""

    root: Path
    label_count: int
    entries: int = 0
    content_bytes: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - not for secrets

    def __post_init__(self) -> None:
        self.fs = RealFilesystem(self.root)
        self.labels = [Label(sha256(f"label {number}".encode())) for number in range(self.label_count)]
        create_store(self.fs, HubId(bytes(32)), DEFAULT_LIMITS)
        self.writer = self.open()

    def open(self) -> Writer:
        """Open the writer."""
        return Writer.open(self.fs, sign_checkpoint=_sign_checkpoint, random=os.urandom, owner="bench")

    def reopen(self) -> None:
        """Close the writer, and open it again."""
        self.writer.close()
        self.writer = self.open()

    def stage(self, count: int = BATCH) -> Batch:
        """Stage the next entries; each thousand has the same hub_ts."""
        batch = self.writer.batch()
        for number in range(self.entries, self.entries + count):
            # Runs of 16 for one label, as busy streams have them.
            label = self.labels[number // 16 % self.label_count]
            record = _record(label, number)
            receipt = batch.append(record, _receipt(record, 1_700_000_000 + number // 1_000))
            self.content_bytes += len(record.content) + len(receipt.encode())
        self.entries += count
        return batch

    def append(self) -> None:
        """Stage and commit one batch; a full journal segment is moved into chunks on the way."""
        self.writer.commit(self.stage())

    def fill(self, entries: int) -> None:
        """Append until the log has this number of entries."""
        while self.entries < entries:
            self.writer.commit(self.stage(8 * BATCH))
        self.writer.flush()

    def random_entry(self) -> tuple[Label, int]:
        """Return the label and the number of a random entry."""
        used = min(len(self.labels), max(1, self.entries // 16))
        label = self.labels[self._random.randrange(used)]
        return label, self._random.randint(1, self.writer.reader.last_seq(label))

    def works(self, name: str) -> dict[str, Work]:
        """Return the operations that are measured at different sizes."""
        reader = self.writer.reader

        def proof() -> object:
            label, seq = self.random_entry()
            return reader.prove(label, seq, reader.last_seq(label))

        def page() -> object:
            label, seq = self.random_entry()
            return next(reader.entries(label, seq, seq + 100))

        def at_time() -> object:
            label, _ = self.random_entry()
            return reader.seq_at(label, 1_700_000_000 + self._random.randint(0, self.entries // 1_000))

        return {
            f"append + commit {BATCH}, {name}": self.append,
            f"receipt by seq, {name}": lambda: reader.entry(*self.random_entry()).receipt,
            f"proof at head, {name}": proof,
            f"stream positioning, {name}": page,
            f"seq by time, {name}": at_time,
        }

    def bytes_on_disk(self) -> dict[str, int]:
        """Return the allocated bytes of files by kind: blocks, not lengths."""
        sizes = {"log": 0, "nodes": 0, "index": 0, "journal": 0, "derived": 0}
        for path in self.root.rglob("*"):
            if path.is_file():
                sizes[_sort(path)] += path.stat().st_blocks * 512
        return sizes

    def remove(self) -> None:
        """Delete everything."""
        self.writer.abandon()
        self.fs.close()
        shutil.rmtree(self.root)


def _sort(path: Path) -> str:
    if path.suffix == ".mmr":
        return "nodes"
    if path.suffix == ".wal":
        return "journal"
    if path.suffix == ".mdb":
        return "index"
    return "derived" if path.suffix == ".cborseq" else "log"


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a directory on the disk of the working directory, and delete it afterwards."""
    root = Path(mkdtemp(prefix="veen-bench-", dir="."))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Commits:
    """Commits of batches, compared with bare writes of the same bytes to other files."""

    def __init__(self, root: Path) -> None:
        self.log = Log(root / "store", 1)
        self._raw = os.open(root / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._naive = os.open(root / "naive", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._frames = self.log.stage().frames

    def rounds(self, count: int) -> dict[str, list[float]]:
        """Return the seconds per batch, one value per round, without staging and flushing."""
        names = (f"commit {BATCH} entries", "bare write + sync", "write + sync each")
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(count):
            batch = self.log.stage()
            works: tuple[Work, ...] = (partial(self.log.writer.commit, batch), self.raw, self.naive)
            for name, work in zip(names, works, strict=True):
                times[name].append(timed(work))
            self.log.writer.flush()
        return times

    def raw(self) -> None:
        """Write the bytes of a batch, and sync once."""
        os.write(self._raw, b"".join(self._frames))
        os.fdatasync(self._raw)

    def naive(self) -> None:
        """Write and sync each entry separately."""
        for frame in self._frames:
            os.write(self._naive, frame)
            os.fdatasync(self._naive)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    """Return the number of open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = perf_counter()
    work()
    return perf_counter() - start
