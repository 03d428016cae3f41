"""Merkle Mountain Ranges the slow and obvious way: whole trees, by recursion, from all leaves.

The range of n leaves is split into perfect trees, the largest that fits first. Nothing here is shared
with the library but the two hash tags.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256

from veen.core.types import NodeHash


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"veen/mmr-node\x00" + left + right).digest()


def tree_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of a perfect tree."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    return node(tree_root(leaves[:half]), tree_root(leaves[half:]))


def trees(leaves: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Return the leaves of each perfect tree, oldest and largest first."""
    made = []
    while leaves:
        size = 1
        while size * 2 <= len(leaves):
            size *= 2
        made.append(leaves[:size])
        leaves = leaves[size:]
    return made


def peaks(leaves: Sequence[bytes]) -> list[bytes]:
    """Return the peaks by increasing height: newest first."""
    return [tree_root(tree) for tree in reversed(trees(leaves))]


def root(leaves: Sequence[bytes]) -> bytes:
    tops = peaks(leaves)
    return tops[0] if len(tops) == 1 else sha256(b"veen/mmr-root\x00" + b"".join(tops)).digest()


def path(leaves: Sequence[bytes], number: int) -> list[tuple[int, bytes]]:
    """Return the way of leaf ``number`` (from 1) up to its peak: (is it a right child, its sibling)."""
    index = number - 1
    for tree in trees(leaves):
        if index < len(tree):
            return _climb(tree, index)
        index -= len(tree)
    raise AssertionError(number)


def _climb(tree: Sequence[bytes], index: int) -> list[tuple[int, bytes]]:
    if len(tree) == 1:
        return []
    half = len(tree) // 2
    if index < half:
        return [*_climb(tree[:half], index), (0, tree_root(tree[half:]))]
    return [*_climb(tree[half:], index - half), (1, tree_root(tree[:half]))]


def completion_order(size: int) -> Iterator[tuple[int, int]]:
    """Yield (height, index) of all nodes in the order in which appending leaves completes them."""
    complete: set[tuple[int, int]] = set()
    for leaf in range(size):
        height, index = 0, leaf
        while True:
            complete.add((height, index))
            yield height, index
            if index % 2 == 0 or (height, index - 1) not in complete:
                break
            height, index = height + 1, index // 2


def height_at(position: int) -> int:
    """Return the height of the node at a position, by jumping to the left until a tree begins there."""
    place = position + 1
    while place & (place + 1):
        place -= (1 << place.bit_length() - 1) - 1
    return place.bit_length() - 1


class UniformLog:
    """A log of any size whose leaves are all equal, so that every node is known by its height alone."""

    def __init__(self) -> None:
        self.by_height = [sha256(b"leaf").digest()]
        for _ in range(64):
            self.by_height.append(node(self.by_height[-1], self.by_height[-1]))
        self.reads = 0

    def read(self, position: int) -> NodeHash:
        self.reads += 1
        return NodeHash(self.by_height[height_at(position)])

    def root(self, size: int) -> bytes:
        tops = [self.by_height[height] for height in range(64) if size >> height & 1]
        return tops[0] if len(tops) == 1 else sha256(b"veen/mmr-root\x00" + b"".join(tops)).digest()
