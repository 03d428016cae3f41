"""What is in the chunk directories, by label, from names alone: for repair and copying."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from veen.core import layout
from veen.core.layout import Domain, FileName, Kind
from veen.core.types import Label
from veen.storage.errors import DamagedError
from veen.storage.fs import Filesystem


@dataclass(slots=True)
class Found:
    """The files of one label."""

    domain: Domain
    label: Label
    #: Chunk files by first entry; a chunk that is there twice counts as the plain one.
    chunks: dict[int, FileName] = field(default_factory=dict)
    tombstones: dict[int, FileName] = field(default_factory=dict)
    checkpoints: list[int] = field(default_factory=list)
    has_nodes: bool = False

    def pruned(self) -> list[FileName]:
        """Return the pruned chunks, in order: those whose file is really gone."""
        first = min(self.chunks, default=None)
        return [name for start, name in sorted(self.tombstones.items()) if first is None or start < first]

    def path(self, name: FileName) -> str:
        """Return the path of a chunk file."""
        assert name.start_seq is not None
        if name.kind is Kind.OPEN_CHUNK:
            return layout.open_chunk(self.domain, self.label, name.start_seq)
        assert name.end_seq is not None
        path = layout.chunk(self.domain, self.label, name.start_seq, name.end_seq)
        return path + layout.COMPRESSED if name.compressed else path


def survey(fs: Filesystem, domains: Iterable[Domain] = tuple(Domain)) -> list[Found]:
    """Return what every label has, in order of domain and label."""
    found: dict[tuple[Domain, Label], Found] = {}
    for domain in domains:
        for text in fs.names(domain):
            name = layout.parse(text)
            if name is not None:
                item = found.setdefault((domain, name.label), Found(domain, name.label))
                _add(item, name)
    return [found[key] for key in sorted(found)]


def _add(found: Found, name: FileName) -> None:
    start, end = name.start_seq, name.end_seq
    if name.kind in (Kind.CHUNK, Kind.OPEN_CHUNK):
        assert start is not None
        known = found.chunks.get(start)
        if known is not None and (known.end_seq != end or known.compressed == name.compressed):
            raise DamagedError(found.path(name), None, f"there are two chunks that begin with entry {start}")
        if known is None or known.compressed:
            found.chunks[start] = name
    elif name.kind is Kind.TOMBSTONE:
        assert start is not None
        found.tombstones[start] = name
    elif name.kind is Kind.CHECKPOINT:
        assert end is not None
        found.checkpoints.append(end)
    elif name.kind is Kind.NODES:
        found.has_nodes = True
