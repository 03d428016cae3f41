"""Merkle Mountain Ranges: append, peaks, root and node positions (001 section 5.1; decision C-20).

A range of n leaves is a row of perfect trees, one for each set bit of n, the oldest and highest first.
Its *peaks* are their tops, listed by increasing height: newest first. Node (height, index) covers the
leaves index * 2^height to (index + 1) * 2^height - 1, counted from 0.

Nodes are numbered in the order in which appends complete them, so that a node store is an append-only
file: leaf n (from 1) completes 1 + ctz(n) nodes, one per height.

    position  0  1  2  3  4  5  6  7 ...
    height    0  0  1  0  0  1  2  0 ...      (leaf 1, leaf 2 and its parent, leaf 3, leaf 4 and two more)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, cast

from veen.core.crypto.hash import HASH_BYTES, U64_MAX, tag_prefix
from veen.core.errors import Detail, ProtocolError
from veen.core.types import NodeHash
from veen.stdx.grammar import counted

_NODE_TAG: Final = tag_prefix("veen/mmr-node")
_ROOT_TAG: Final = tag_prefix("veen/mmr-root")

# Reads the node at a position; storage passes its node store, tests pass a list.
ReadNode = Callable[[int], NodeHash]


def parent(left: bytes, right: bytes) -> NodeHash:
    """Return the node above two siblings; ``left`` is the older one."""
    return NodeHash(sha256(_NODE_TAG + left + right).digest())


def fold_peaks(peaks: tuple[NodeHash, ...]) -> NodeHash:
    """Return the root over a complete list of peaks: a lone peak itself, else their hash (C-21)."""
    assert peaks, "an empty range has no root (C-26)"
    if len(peaks) == 1:
        return peaks[0]
    return NodeHash(sha256(_ROOT_TAG + b"".join(peaks)).digest())


def peak_heights(size: int) -> list[int]:
    """Return the heights of the peaks of a range of ``size`` leaves, increasing."""
    return [height for height in range(size.bit_length()) if size >> height & 1]


def trailing_zeros(value: int) -> int:
    """Return how many zero bits a positive number ends with."""
    return (value & -value).bit_length() - 1


@dataclass(frozen=True, slots=True)
class Peaks:
    """A range reduced to what appending and proving need: its size and its peaks."""

    size: int
    hashes: tuple[NodeHash, ...]

    def __post_init__(self) -> None:
        """Reject a list of peaks that no range of this size has."""
        if not 0 <= self.size <= U64_MAX or len(self.hashes) != self.size.bit_count():
            raise ProtocolError(
                Detail.PROOF_PEAKS,
                f"{counted(len(self.hashes), 'peak')} for a range of {counted(self.size, 'leaf')}",
            )
        if any(len(peak) != HASH_BYTES for peak in self.hashes):
            raise ProtocolError(Detail.FIELD_SIZE, "a peak has 32 bytes", field="peaks")

    @classmethod
    def empty(cls) -> "Peaks":
        """Return the range without leaves."""
        return cls(0, ())

    def append(self, leaf: bytes, tag: bytes = _NODE_TAG) -> "Peaks":
        """Return the range with one more leaf; at most 64 hashes, two on average."""
        return self.grow(leaf, tag)[0]

    def grow(self, leaf: bytes, tag: bytes = _NODE_TAG) -> tuple["Peaks", list[NodeHash]]:
        """Return the range with one more leaf, and the nodes that it completes, leaf first.

        A node store appends these nodes in this order.
        """
        if len(leaf) != HASH_BYTES:  # of any other length, left || right could be split in two ways
            raise ProtocolError(
                Detail.FIELD_SIZE, f"leaf of {counted(len(leaf), 'byte')} instead of {HASH_BYTES}"
            )
        size = self.size + 1
        if size > U64_MAX:
            raise ProtocolError(Detail.PROOF_PEAKS, f"no range has {size} leaves")
        node = NodeHash(leaf)
        completed = [node]
        merges = trailing_zeros(size)
        # A peak merges with the new node as long as both have the same height: once per trailing zero.
        for peak in self.hashes[:merges]:
            node = NodeHash(sha256(tag + peak + node).digest())
            completed.append(node)
        return Peaks._of(size, (node, *self.hashes[merges:])), completed

    def extend(self, leaves: Iterable[bytes]) -> tuple["Peaks", list[NodeHash]]:
        """Return the range with more leaves, and the root after each of them.

        Equivalent to appending one by one, in half the time: for callers that have a whole log.
        """
        stack: list[bytes] = list(self.hashes[::-1])
        roots: list[bytes] = []
        size = self.size
        for leaf in leaves:
            size += 1
            node = leaf
            merges = size & -size
            while merges > 1:
                node = sha256(_NODE_TAG + stack.pop() + node).digest()
                merges >>= 1
            stack.append(node)
            if len(stack) == 1:
                roots.append(node)
            else:
                roots.append(sha256(_ROOT_TAG + b"".join(stack[::-1])).digest())
        # Calling NodeHash for each hash would take longer than some of the hashes.
        return Peaks(size, cast("tuple[NodeHash, ...]", tuple(stack[::-1]))), cast("list[NodeHash]", roots)

    @classmethod
    def _of(cls, size: int, hashes: tuple[NodeHash, ...]) -> "Peaks":
        # Derived from valid peaks, so valid: another check would cost more than the hashes do.
        peaks = object.__new__(cls)
        object.__setattr__(peaks, "size", size)
        object.__setattr__(peaks, "hashes", hashes)
        return peaks

    @property
    def root(self) -> NodeHash:
        """The root; an empty range has none."""
        if not self.hashes:
            raise ProtocolError(Detail.PROOF_SEQ, "an empty range has no root")
        return fold_peaks(self.hashes)


def complete_nodes(leaves: Iterable[bytes]) -> list[NodeHash]:
    """Return all nodes over ``leaves`` by position: a node store in memory."""
    nodes: list[NodeHash] = []
    peaks = Peaks.empty()
    for leaf in leaves:
        peaks, completed = peaks.grow(leaf)
        nodes += completed
    return nodes


def subtrees(first_seq: int, leaves: Iterable[bytes]) -> list[tuple[int, NodeHash]]:
    """Return the tops of the largest whole trees over consecutive leaves: (height, hash), oldest first.

    Consecutive ranges can be computed independently: their subtrees, joined in order from the first leaf on,
    are the peaks (``join``).
    """
    trees: list[tuple[int, NodeHash]] = []
    for seq, leaf in enumerate(leaves, first_seq):
        _push(trees, seq, 0, NodeHash(leaf), first_seq)
    return trees


def join(peaks: Peaks, trees: Iterable[tuple[int, NodeHash]]) -> Peaks:
    """Return the range, extended by the subtrees of the range that follows it."""
    stack = [(height, hashed) for height, hashed in zip(peak_heights(peaks.size), peaks.hashes, strict=True)]
    stack.reverse()
    size = peaks.size
    for height, hashed in trees:
        if size % (1 << height):
            raise ProtocolError(Detail.PROOF_PEAKS, "a tree of this height cannot begin here")
        size += 1 << height
        _push(stack, size, height, hashed, 1)
    return Peaks(size, tuple(hashed for _, hashed in reversed(stack)))


def _push(stack: list[tuple[int, NodeHash]], last: int, height: int, node: NodeHash, first: int) -> None:
    """Push a tree that ends with leaf ``last``, merged with the trees on the stack that it completes."""
    while (
        stack and stack[-1][0] == height and last % (2 << height) == 0 and last - (2 << height) + 1 >= first
    ):
        node = parent(stack.pop()[1], node)
        height += 1
    stack.append((height, node))


def node_count(size: int) -> int:
    """Return how many nodes a range of ``size`` leaves has completed."""
    return 2 * size - size.bit_count()


def node_position(height: int, index: int) -> int:
    """Return the position of a node in completion order."""
    last_leaf = (index + 1) << height
    return node_count(last_leaf - 1) + height


def leaf_position(seq: int) -> int:
    """Return the position of the leaf with sequence number ``seq``, from 1."""
    return node_position(0, seq - 1)


def peak_positions(size: int) -> list[int]:
    """Return the positions of the peaks of a range, by increasing height."""
    return [node_position(height, (size >> height) - 1) for height in peak_heights(size)]


def read_peaks(read: ReadNode, size: int) -> Peaks:
    """Return the peaks of a prefix of ``size`` leaves from its nodes: O(log n) reads."""
    return Peaks(size, tuple(read(position) for position in peak_positions(size)))
