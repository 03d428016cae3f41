"""The node store: every completed node of a label's range, 32 bytes each, by position."""

from collections.abc import Sequence

from veen.core import layout
from veen.core.hashing import HASH_BYTES
from veen.core.layout import Domain
from veen.core.mmr import ReadNode
from veen.core.types import Label, NodeHash
from veen.storage.errors import StaleIndexError
from veen.storage.fs import Filesystem


def read_nodes(fs: Filesystem, domain: Domain, label: Label, positions: Sequence[int]) -> list[NodeHash]:
    """Return stored nodes."""
    path = layout.nodes(domain, label)
    offsets = [position * HASH_BYTES for position in positions]
    try:
        nodes = fs.read_each(path, offsets, HASH_BYTES)
    except FileNotFoundError:
        raise StaleIndexError(path, None, "the node store is missing") from None
    for offset, node in zip(offsets, nodes, strict=True):
        if len(node) != HASH_BYTES:
            raise StaleIndexError(path, offset, "the node store is too short")
    return [NodeHash(node) for node in nodes]


def node_reader(fs: Filesystem, domain: Domain, label: Label) -> ReadNode:
    """Return a function that reads one stored node."""
    return lambda position: read_nodes(fs, domain, label, (position,))[0]
