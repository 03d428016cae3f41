"""The node store of a label, compared with the nodes that follow from the log."""

from collections.abc import Iterator
from typing import Final

from veen.core.hashing import HASH_BYTES
from veen.core.mmr import node_count, trailing_zeros
from veen.core.types import NodeHash
from veen.storage.fsck.report import FoundError
from veen.storage.fsck.source import Source

_BLOCK_BYTES: Final = 1 << 20


class NodeStore:
    """Takes the nodes in order and compares them with the file, a block at a time."""

    def __init__(self, source: Source, path: str | None) -> None:
        self._source = source
        self._path = path
        self.size = (source.size(path) if path is not None else None) or 0
        self._expected: list[NodeHash] = []
        self._done = 0
        self._lost = False
        #: The first byte that is not the expected one; where the file ends, if it is too short.
        self.differs_at: int | None = None

    def feed(self, nodes: list[NodeHash]) -> None:
        """Expect these nodes next."""
        self._expected += nodes
        if len(self._expected) * HASH_BYTES >= _BLOCK_BYTES:
            self._compare()

    def skip_to(self, seq: int | None) -> None:
        """Leave out the nodes up to an entry; None: all that follow, because nobody knows them."""
        self._compare()
        self._lost = seq is None
        self._done = 0 if seq is None else node_bytes(seq)

    def finish(self) -> None:
        """Compare what is left."""
        self._compare()

    def _compare(self) -> None:
        if not self._expected:
            return
        expected = b"".join(self._expected)
        self._expected = []
        if self.differs_at is None and self._path is not None and not self._lost:
            try:
                actual = self._source.read(self._path, self._done, len(expected))
            except FoundError:  # can not be read: as good as not there
                actual = b""
            if actual != expected:
                self.differs_at = self._done + first_difference(actual, expected)
        self._done += len(expected)

    def by_entry(self, upto: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield the nodes that each entry completes: where, how many bytes, and the bytes, leaf first."""
        assert self._path is not None
        block, base, at = b"", 0, 0
        for seq in range(1, upto + 1):
            length = HASH_BYTES * (1 + trailing_zeros(seq))
            if at + length > base + len(block):
                base = at
                block = self._source.read(self._path, base, _BLOCK_BYTES)
            yield at, length, block[at - base : at - base + length]
            at += length


def node_bytes(seq: int) -> int:
    """Return how long a node store of so many entries is."""
    return node_count(seq) * HASH_BYTES


def first_difference(left: bytes, right: bytes) -> int:
    """Return the first place at which two byte strings differ."""
    shared = min(len(left), len(right))
    return next((at for at in range(shared) if left[at] != right[at]), shared)
