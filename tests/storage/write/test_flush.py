"""What a label's files hold, computed here a second time from its entries."""

from dataclasses import dataclass

import cbor2
import pytest

from tests import builders
from tests.storage.checks import chunk_ranges, entries, reading, writing
from tests.storage.stores import AUTHORIZE, CONTROL, HUB, A, B, Store, make, message, new_store
from veen.core.crypto.hash import sha256, tagged_hash
from veen.core.data_dir import paths as layout
from veen.core.data_dir.paths import Domain
from veen.core.limits import Limits
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry
from veen.core.objects.new_entry import NewEntry
from veen.core.types import Label
from veen.storage.fs import RealFilesystem


def root_of(leaves: list[bytes]) -> bytes:
    """Return the root of a range, from its definition: perfect trees from the left, folded if several."""
    peaks: list[bytes] = []
    rest = leaves
    while rest:
        size = 1 << (len(rest).bit_length() - 1)
        tree = rest[:size]
        while len(tree) > 1:
            tree = [tagged_hash("veen/mmr-node", tree[at] + tree[at + 1]) for at in range(0, len(tree), 2)]
        peaks.insert(0, tree[0])  # by increasing height: the newest first
        rest = rest[size:]
    return peaks[0] if len(peaks) == 1 else tagged_hash("veen/mmr-root", b"".join(peaks))


def peaks_of(leaves: list[bytes]) -> list[bytes]:
    made: list[bytes] = []
    rest = leaves
    while rest:
        size = 1 << (len(rest).bit_length() - 1)
        made.insert(0, root_of(rest[:size]))
        rest = rest[size:]
    return made


@dataclass(frozen=True)
class Files:
    """The files of a label, and what its entries make of them."""

    fs: RealFilesystem
    domain: Domain
    label: Label
    log: list[Entry]

    def leaves(self, upto: int) -> list[bytes]:
        return [entry.receipt.leaf_hash for entry in self.log[:upto]]

    def check(self, ends: list[int], asked: list[int]) -> None:
        """Check everything about a label with chunks that end here, and checkpoints asked for there."""
        starts = [1, *(end + 1 for end in ends)]
        for start, end in zip(starts, ends, strict=False):
            self._check_sealed(start, end)
        rest = self.log[starts[-1] - 1 :]
        growing = layout.open_chunk(self.domain, self.label, starts[-1])
        assert self.fs.size(growing) == (sum(len(entry.encode()) for entry in rest) if rest else None)
        index = {}
        for upto in sorted({*ends, *asked}):
            self._check_checkpoint(upto)
            start = max(start for start in starts if start <= upto)
            name = f"peaks-{self.label.hex()}-{upto:020}.cbor"
            index[upto] = [root_of(self.leaves(upto)), [start, upto], name]
        path = layout.checkpoint_index(self.domain, self.label)
        assert (cbor2.loads(self.fs.read(path)) if index else self.fs.size(path)) == (index or None)
        assert [name for name in self.fs.names(self.domain) if name.endswith(".tmp")] == []

    def _check_sealed(self, start: int, end: int) -> None:
        held = [entry.encode() for entry in self.log[start - 1 : end]]
        assert self.fs.read(layout.chunk(self.domain, self.label, start, end)) == b"".join(held)
        hashes = [
            sha256(b"veen/entry" + entry.msg_bytes + entry.receipt.encode())
            for entry in self.log[start - 1 : end]
        ]
        assert cbor2.loads(self.fs.read(layout.summary(self.domain, self.label, start, end))) == [
            self.label,
            start,
            end,
            root_of(self.leaves(end)),
            end - start + 1,
            sum(map(len, held)),
            root_of(hashes),
        ]

    def _check_checkpoint(self, upto: int) -> None:
        stored = Checkpoint.decode(self.fs.read(layout.checkpoint(self.domain, self.label, upto)))
        stored.verify_signature(HUB.public_key)
        assert (stored.label_curr, stored.upto_seq) == (self.label, upto)
        assert stored.mmr_root == root_of(self.leaves(upto)) == self.log[upto - 1].receipt.mmr_root
        peaks = cbor2.loads(self.fs.read(layout.peaks(self.domain, self.label, upto)))
        assert peaks == peaks_of(self.leaves(upto))


def files_of(fs: RealFilesystem, label: Label, domain: Domain = Domain.DATA) -> Files:
    with reading(fs) as reader:
        return Files(fs, domain, label, entries(reader, label))


def test_files_of_a_label_are_those_of_its_entries(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for number in range(11):
        store.append(A)
        store.tick()
        if number % 3 == 0:
            store.writer.flush()
    for upto in (2, 11, 4):
        store.writer.checkpoint(A, upto)
    store.append(B)
    store.writer.close()
    files_of(fs, A).check([4, 8], [2, 11])
    files_of(fs, B).check([], [])


def test_files_of_reserved_logs_are_in_the_same_form(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for number in range(5):
        store.authorize(builders.cap_token(ttl=number + 1))
        store.record(NewEntry.of_control(CONTROL, bytes([number])))
    store.writer.close()
    files_of(fs, AUTHORIZE, Domain.AUTHORIZE).check([4], [])
    files_of(fs, CONTROL, Domain.CONTROL).check([4], [])
    assert not fs.size(layout.RECEIPTS)  # those of messages only
    assert not fs.size(layout.CHECKPOINTS)


def test_chunks_end_by_bytes_before_they_would_be_too_long(fs: RealFilesystem) -> None:
    make(fs, Limits(max_msg_bytes=2_000, max_chunk_bytes=2_300, max_checkpoint_interval=100))
    with writing(fs) as store:
        for _ in range(4):
            store.append(A)
        store.append(A, body_size=1_000)
        store.append(A)
        store.writer.close()
    ranges = chunk_ranges(fs, A)
    assert all(
        size <= 2_300
        for name in fs.names(Domain.DATA)
        if (size := fs.size(f"log/{name}") or 0) and ".log" in name
    )
    files_of(fs, A).check([end for _, end in ranges if end], [])


def test_checkpoints_asked_for_never_end_a_chunk(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for seq in range(1, 7):
        store.append(A)
        store.writer.checkpoint(A, seq)
        store.writer.flush()
    store.writer.close()
    files_of(fs, A).check([4], [1, 2, 3, 4, 5, 6])


def test_a_checkpoint_of_an_older_chunk_is_listed_with_that_chunk(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(10):
        store.append(A)
    store.writer.flush()
    for upto in (1, 6, 9):
        store.writer.checkpoint(A, upto)
    store.writer.close()
    files_of(fs, A).check([4, 8], [1, 6, 9])


def test_an_index_file_is_written_again_only_when_it_is_out_of_date(fs: RealFilesystem) -> None:
    store = new_store(fs)
    for _ in range(4):
        store.append(A, B)
    store.writer.close()
    paths = [fs.root / layout.checkpoint_index(Domain.DATA, label) for label in (A, B)]
    before = [path.stat().st_ino for path in paths]
    with writing(fs) as again:
        for _ in range(4):
            again.append(A)
        again.writer.close()
    after = [path.stat().st_ino for path in paths]
    assert (after[0] != before[0], after[1] == before[1]) == (True, True)
    files_of(fs, A).check([4, 8], [])


@pytest.mark.parametrize("clients", [1, 3])
def test_the_largest_message_has_a_chunk_of_its_own(fs: RealFilesystem, clients: int) -> None:
    store: Store = new_store(fs)
    size = next(size for size in range(2_000, 0, -1) if len(message(A, "c0", 1, size).encode()) <= 2_000)
    for number in range(clients):
        record = NewEntry.of_msg(message(A, f"c{number}", 1, size))
        assert len(record.content) <= 2_000
        store.record(record)
    store.writer.close()
    files_of(fs, A).check([end for _, end in chunk_ranges(fs, A) if end], [])
