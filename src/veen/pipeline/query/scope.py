"""The scope of a query: stream names resolved to labels, and the positions up to which these are read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from veen.core.encoding.hexadecimal import is_hex32
from veen.core.errors import ProtocolError
from veen.core.objects import labels as naming
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.receipt import Receipt
from veen.overlays.recorder.schemas import IMPORTED
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Commits, FileFact, LabelFact, State
from veen.pipeline.lake.lake import load
from veen.query.digest import Position
from veen.query.errors import QueryError, not_a_stream
from veen.stdx.grammar import counted

# The prefixes of a stream's name where it leaves a zone and where it arrives (QRY-061, AGB-014).
_EXPORT, _IMPORT = "export/", "import/"
COPIES_TABLE: Final = layout.schema_table(IMPORTED.name)
_MOST: Final = (1 << 63) - 1


class Stream(NamedTuple):
    """A stream in scope, as the lake has it."""

    # As the scope names it.
    name: str
    # The local name; different if the lake has copies of it.
    local: str
    labels: tuple[LabelFact, ...]

    @property
    def is_copied(self) -> bool:
        """Whether the lake has the stream as copies in a stream of another name."""
        return self.name != self.local

    @property
    def takes_copies(self) -> bool:
        """Whether copies in it count: in a recorder's own stream they never do, whoever wrote them."""
        return self.is_copied or self.local.startswith(_IMPORT)


@dataclass(frozen=True, slots=True)
class Scope:
    """The resolved scope: streams, the last position of each label, and the positions in the digest."""

    streams: tuple[Stream, ...]
    # For the digest, by stream and epoch.
    positions: tuple[Position, ...]
    # The last entry of each label that is read by its own positions.
    upto: Mapping[str, int]
    # The last entry of each label of the origin; None if copies are not limited by these.
    origins: Mapping[str, int] | None = None
    # Labels of which only those copies are read that are in ``origins``.
    by_origin: frozenset[str] = field(default=frozenset())
    # Positions of another zone's labels whose roots are unknown: the lake has no copy of the entry.
    unchecked: tuple[Position, ...] = ()

    def last(self, label: str) -> int:
        """Return the last entry read of a label; 0 if it is not read."""
        return _MOST if label in self.by_origin else self.upto.get(label, 0)

    def files(self, state: State, table: str) -> list[FileFact]:
        """Return the files of a table with rows in scope, by label and in order."""
        return [fact for fact in state.of_table(table) if fact.from_seq <= self.last(fact.label)]


def local_names(name: str, names: Mapping[str, str]) -> list[str]:
    """Return the possible local names of a stream, the likeliest first."""
    if name in names:
        return [names[name]]
    return [name, _IMPORT + name.removeprefix(_EXPORT)] if name.startswith(_EXPORT) else [name]


def own_labels(root: Path) -> Mapping[str, Sequence[LabelFact]]:
    """Return the labels of all streams of a lake, by stream id; computed once per commit."""
    number = len(Commits(root).numbers())
    last = root / layout.commit_file(number)
    return _own_labels(root, number, last.stat().st_mtime_ns if number else 0)


@lru_cache(maxsize=4)
def _own_labels(root: Path, number: int, changed_ns: int) -> Mapping[str, Sequence[LabelFact]]:
    del changed_ns
    return load(root).own_labels() if number else {}


def find_stream(own: Mapping[str, Sequence[LabelFact]], name: str, names: Mapping[str, str]) -> Stream:
    """Find a stream by its name among the labels of all streams.

    ``names`` has the local names of other zones' streams. Ids would not suffice: the name of a stream
    determines which copies count in it.
    """
    for local in () if is_hex32(name) else local_names(name, names):
        labels = own.get(naming.stream_id(local).hex())
        if labels is not None:
            return Stream(name, local, tuple(labels))
    raise not_a_stream(name)


def resolve(
    root: Path,
    state: State,
    names: Sequence[str],
    *,
    called: Mapping[str, str],
    upto: Sequence[Position] | None = None,
    origins: Mapping[bytes, HubIdentity] | None = None,
) -> Scope:
    """Resolve a scope: all entries, or those up to given positions.

    Positions are those of the lake's own labels, or of the labels that its copies come from.
    """
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
    elsewhere = [item for item in upto if item.label not in here]
    for item in elsewhere:
        _check_origin(streams, item, origins or {})
    return Scope(
        streams,
        tuple(upto),
        {label: item.upto_seq for label, item in here.items()},
        {item.label: item.upto_seq for item in elsewhere} or None,
        frozenset(label for label, (stream, _) in known.items() if stream.is_copied and label not in here)
        if elsewhere
        else frozenset(),
        tuple(item for item in elsewhere if not _is_copied(root, state, streams, item)),
    )


def _positions(found: Iterable[tuple[Stream, LabelFact]]) -> tuple[Position, ...]:
    listed = [
        Position(stream.local, fact.epoch, fact.label, fact.upto_seq, fact.mmr_root) for stream, fact in found
    ]
    return tuple(sorted(listed, key=lambda item: (item.stream.encode(), item.epoch)))


def _failed(text: str) -> QueryError:
    return QueryError("execution_failed", text)


def _check_root(root: Path, state: State, fact: LabelFact, position: Position) -> None:
    """Require that the lake has the same log up to a position."""
    if position.upto_seq > fact.upto_seq:
        raise _failed(
            f"the lake has {counted(fact.upto_seq, 'entry')} of {position.stream}, but the answer covers"
            f" {position.upto_seq}: ingest more of the log first"
        )
    if _root_at(root, state, fact, position.upto_seq) != position.mmr_root:
        raise _failed(
            f"entry {position.upto_seq} of {position.stream} has another root here: this is not the log that"
            " the answer is of"
        )


def _root_at(root: Path, state: State, fact: LabelFact, seq: int) -> str | None:
    """Return the root after an entry: known at the end of a label, else from its receipt."""
    if seq == fact.upto_seq:
        return fact.mmr_root
    root_in_receipt = entry_at(root, state, fact.label, seq, "mmr_root")
    return root_in_receipt.hex() if isinstance(root_in_receipt, bytes) else None


def entry_at(root: Path, state: State, label: str, seq: int, column: str) -> object:
    """Return an entry's row in the lake; None if it has none."""
    for file in state.of_table(layout.ENTRIES):
        if file.label == label and file.from_seq <= seq <= file.upto_seq:
            rows = pq.read_table(
                root / file.path, columns=[column], filters=[("stream_seq", "=", seq)], partitioning=None
            )
            return rows.column(column)[0].as_py() if len(rows) else None
    return None


# --- positions of another zone ------------------------------------------------------------------------------


def _check_origin(
    streams: Sequence[Stream], position: Position, origins: Mapping[bytes, HubIdentity]
) -> None:
    """Require that a label missing in the lake is one that copies come from."""
    if not any(stream.is_copied and stream.name == position.stream for stream in streams):
        raise _failed(
            f"the lake does not have epoch {position.epoch} of {position.stream} (label {position.label}),"
            " but the answer covers it: ingest more of the log first"
        )
    made = {
        naming.label(identity.routing_key, naming.stream_id(position.stream), position.epoch).hex()
        for identity in origins.values()
    }
    if made and position.label not in made:
        raise _failed(
            f"upto calls label {position.label} epoch {position.epoch} of {position.stream}, and no"
            " --origin does"
        )


def _is_copied(root: Path, state: State, streams: Sequence[Stream], position: Position) -> bool:
    """Return whether the lake has a copy of the entry at a position; one with another root is rejected."""
    labels = {fact.label for stream in streams if stream.is_copied for fact in stream.labels}
    place = [
        (name, "=", pa.scalar(Decimal(value), pa.decimal128(20)))
        for name, value in (("origin_epoch", position.epoch), ("origin_stream_seq", position.upto_seq))
    ]
    for file in state.of_table(COPIES_TABLE):
        if file.label not in labels:
            continue
        receipts = pq.read_table(
            root / file.path, columns=["origin_receipt"], filters=place, partitioning=None
        )
        for data in receipts.column("origin_receipt").to_pylist():
            try:
                receipt = Receipt.decode(data)
            except ProtocolError:
                continue
            if (receipt.label.hex(), receipt.stream_seq) != (position.label, position.upto_seq):
                continue
            if receipt.mmr_root.hex() != position.mmr_root:
                raise _failed(
                    f"the copy of entry {position.upto_seq} of {position.stream} has another root: these are"
                    " not copies of the log that the answer is of"
                )
            return True
    return False
