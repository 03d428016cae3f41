"""The node store: every completed node of a label's range, 32 bytes each, by position."""

from veen.core import layout
from veen.core.hashing import HASH_BYTES
from veen.core.layout import Domain
from veen.core.mmr import ReadNode
from veen.core.types import Label, NodeHash
from veen.storage.errors import StaleIndexError
from veen.storage.fs import Filesystem


def node_reader(fs: Filesystem, domain: Domain, label: Label) -> ReadNode:
    """Return a function that reads stored nodes."""
    path = layout.nodes(domain, label)

    def read(position: int) -> NodeHash:
        offset = position * HASH_BYTES
        try:
            node = fs.read(path, offset, HASH_BYTES)
        except FileNotFoundError:
            raise StaleIndexError(path, None, "the node store is missing") from None
        if len(node) != HASH_BYTES:
            raise StaleIndexError(path, offset, "the node store is too short")
        return NodeHash(node)

    return read
