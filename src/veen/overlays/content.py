"""The root of published data (PUB-003, PUB-004): a Merkle range over files, sorted by their names.

    leaf  Ht("veen/content-leaf", u64be(len(name)) || name || u64be(size) || H(bytes))
    node  Ht("veen/content-node", left || right)
    root  Ht("veen/content-root", peaks), by increasing height as in the log; of a single peak too

A name is the path within what is published, in UTF-8, with ``/``; names are sorted by their bytes.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from veen.core.hashing import ht, tag_prefix, u64be
from veen.core.mmr import Peaks
from veen.overlays.schema import RejectedError

_NODE_TAG: Final = tag_prefix("veen/content-node")


class Part(NamedTuple):
    """A file of what is published."""

    name: str
    size: int
    #: H of its bytes.
    digest: bytes


def leaf(part: Part) -> bytes:
    """Return the leaf of a file."""
    name = part.name.encode()
    return ht("veen/content-leaf", u64be(len(name)) + name + u64be(part.size) + part.digest)


def content_root(parts: Iterable[Part]) -> bytes:
    """Return the root of some files; there is at least one, and each name is there once."""
    ordered = sorted(parts, key=lambda part: part.name.encode())
    if not ordered:
        raise RejectedError("OP.CONTENT_EMPTY", "what is published has at least one file")
    if len({part.name for part in ordered}) != len(ordered):
        raise RejectedError("OP.CONTENT_NAMES", "two files have the same name")
    peaks = Peaks.empty()
    for part in ordered:
        peaks = peaks.append(leaf(part), _NODE_TAG)
    return ht("veen/content-root", b"".join(peaks.hashes))
