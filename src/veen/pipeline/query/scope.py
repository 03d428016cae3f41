"""Which labels of a lake a query reads, and up to where: names of streams, resolved, and positions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.parquet as pq

from veen.core import labels as naming
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Commits, FileFact, LabelFact, State
from veen.pipeline.lake.holding import load
from veen.query.digest import Position, ResultDigest
from veen.query.errors import QueryError, not_a_stream

#: A stream that leaves a zone, and what it is called where it arrives (QRY-061, AGB-014).
_EXPORT, _IMPORT = "export/", "import/"
_MOST: Final = (1 << 63) - 1


class Stream(NamedTuple):
    """A stream in scope, as the lake has it."""

    #: As the scope names it.
    name: str
    #: As it is called here; another name if the lake has copies of it.
    local: str
    labels: tuple[LabelFact, ...]

    @property
    def is_copied(self) -> bool:
        """Whether the lake has the stream as copies in a stream of another name."""
        return self.name != self.local

    @property
    def takes_copies(self) -> bool:
        """Whether copies in it count: a recorder's own stream has none, whoever writes them there."""
        return self.is_copied or self.local.startswith(_IMPORT)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is read: streams, how far each label, and what the digest says of that."""

    streams: tuple[Stream, ...]
    #: For the digest, by stream and epoch.
    positions: tuple[Position, ...]
    #: The last entry of each label that is read by its own positions.
    upto: Mapping[str, int]
    #: The last entry of each label of the origin; None if copies are not read by those.
    origins: Mapping[str, int] | None = None
    #: Labels of which only copies are read that ``origins`` has.
    by_origin: frozenset[str] = field(default=frozenset())

    def last(self, label: str) -> int:
        """Return up to which entry a label is read; 0 if it is not."""
        return _MOST if label in self.by_origin else self.upto.get(label, 0)

    def files(self, state: State, table: str) -> list[FileFact]:
        """Return the files of a table that may hold rows of it, by label and in order."""
        return [fact for fact in state.of_table(table) if fact.from_seq <= self.last(fact.label)]


def local_names(name: str, names: Mapping[str, str]) -> list[str]:
    """Return what a stream may be called here, the likeliest first."""
    if name in names:
        return [names[name]]
    return [name, _IMPORT + name.removeprefix(_EXPORT)] if name.startswith(_EXPORT) else [name]


def own_labels(root: Path) -> Mapping[str, Sequence[LabelFact]]:
    """Return the labels of all streams of a lake, by the ids of streams; worked out once for each commit."""
    number = len(Commits(root).numbers())
    last = root / layout.commit_file(number)
    return _own_labels(root, number, last.stat().st_mtime_ns if number else 0)


@lru_cache(maxsize=4)
def _own_labels(root: Path, number: int, changed_ns: int) -> Mapping[str, Sequence[LabelFact]]:
    del changed_ns
    return load(root).own_labels() if number else {}


def find_stream(own: Mapping[str, Sequence[LabelFact]], name: str, names: Mapping[str, str]) -> Stream:
    """Return a stream by its name, out of the labels of all streams.

    ``names`` says what streams of other zones are called here.
    """
    for local in local_names(name, names):
        found = own.get(naming.stream_id(local).hex())
        if found is not None:
            return Stream(name, local, tuple(found))
    raise not_a_stream(name)


def resolve(
    root: Path,
    state: State,
    names: Sequence[str],
    *,
    called: Mapping[str, str],
    upto: Sequence[Position] | None = None,
) -> Scope:
    """Return what a query reads: all that there is, or what there was at some positions."""
    own = state.own_labels()
    streams = tuple(find_stream(own, name, called) for name in names)
    known = {fact.label: (stream, fact) for stream in streams for fact in stream.labels}
    if upto is None:
        ends = {label: fact.upto_seq for label, (_, fact) in known.items()}
        return Scope(streams, _positions(known.values()), ends)
    if len({item.label for item in upto}) != len(upto):
        raise _failed("upto names a label twice")
    here = {item.label: item for item in upto if item.label in state.labels}
    for label, item in here.items():
        if label not in known:
            raise _failed(f"upto names label {label} of {item.stream}, which is not in scope")
        stream, fact = known[label]
        if (item.stream, item.epoch) != (stream.local, fact.epoch):
            raise _failed(f"upto calls label {label} epoch {item.epoch} of {item.stream}, which it is not")
        _check_root(root, state, fact, item)
    origins = {item.label: item.upto_seq for item in upto if item.label not in here}
    return Scope(
        streams,
        tuple(upto),
        {label: item.upto_seq for label, item in here.items()},
        origins,
        frozenset(known) - frozenset(here) if origins else frozenset(),
    )


def left_out(
    state: State, names: Sequence[str], *, called: Mapping[str, str], digest: ResultDigest
) -> list[LabelFact]:
    """Return the labels in scope that had entries when a query was answered, and that its digest passes over.

    Of labels that are read by the positions of another zone nothing can be told.
    """
    if digest.upto is None:
        return []
    named = {item.label for item in digest.upto}
    elsewhere = any(label not in state.labels for label in named)
    began: dict[str, int] = {}
    for file in state.of_table(layout.ENTRIES):
        began.setdefault(file.label, file.first_ts)
    own = state.own_labels()
    streams = [find_stream(own, name, called) for name in names]
    return [
        fact
        for stream in streams
        if not (elsewhere and stream.takes_copies)
        for fact in stream.labels
        if fact.label not in named and began.get(fact.label, digest.executed_at + 1) <= digest.executed_at
    ]


def _positions(found: Iterable[tuple[Stream, LabelFact]]) -> tuple[Position, ...]:
    listed = [
        Position(stream.local, fact.epoch, fact.label, fact.upto_seq, fact.mmr_root) for stream, fact in found
    ]
    return tuple(sorted(listed, key=lambda item: (item.stream.encode(), item.epoch)))


def _failed(text: str) -> QueryError:
    return QueryError("execution_failed", text)


def _check_root(root: Path, state: State, fact: LabelFact, wanted: Position) -> None:
    """Require that the lake has the same log up to a position."""
    if wanted.upto_seq > fact.upto_seq:
        raise _failed(
            f"the lake has {fact.upto_seq} entries of {wanted.stream}, and the answer is of"
            f" {wanted.upto_seq}: take in more of the log first"
        )
    if _root_at(root, state, fact, wanted.upto_seq) != wanted.mmr_root:
        raise _failed(
            f"entry {wanted.upto_seq} of {wanted.stream} has another root here: this is not the log that"
            " the answer is of"
        )


def _root_at(root: Path, state: State, fact: LabelFact, seq: int) -> str | None:
    """Return the root after an entry: where a label ends it is known, else its receipt says it."""
    if seq == fact.upto_seq:
        return fact.mmr_root
    for file in state.of_table(layout.ENTRIES):
        if file.label == fact.label and file.from_seq <= seq <= file.upto_seq:
            found = pq.read_table(
                root / file.path, columns=["mmr_root"], filters=[("stream_seq", "=", seq)], partitioning=None
            )
            return str(found.column("mmr_root")[0].as_py().hex()) if len(found) else None
    return None
