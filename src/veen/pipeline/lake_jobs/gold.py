"""The gold layer: states of overlays over the streams of a lake, each bound to the roots of its input.

A state is stored twice: as rows for queries, and as bytes from which the next fold resumes, so that a run
folds new records only. Both follow from the log alone, however its ingest was divided into runs.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from veen.core.encoding import cbor
from veen.core.types import JsonValue, StreamId
from veen.overlays import monoid, registry
from veen.overlays.engine import Annotator, Fold, hash_state, memory_of, table_kinds
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Record
from veen.overlays.overlay import Overlay, sorted_items
from veen.overlays.parameters import configured
from veen.pipeline.fold.state import FoldState
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Changes, FileFact, LabelFact, State, canonical
from veen.pipeline.lake.committed_files import open_committed
from veen.pipeline.lake.layout import spark_paths
from veen.pipeline.lake.table_files import TableFile, write_durably
from veen.pipeline.open.records import records_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veen.pipeline.fold.sql_form import Folded
    from veen.pipeline.lake.lake import Lake

# Alternative overlays of the same events: used only if named.
_BY_NAME: Final = frozenset({"wallet.literal"})

_STATE: Final = ".state"
# Up to this many records, sending them to tasks costs more than folding them here.
_SMALL: Final = 20_000

# A row for each key of each table of a state; key and value as JSON, byte strings in hex.
STATES: Final = pa.schema(
    [
        pa.field("overlay", pa.string(), nullable=False),
        pa.field("stream_id", pa.binary(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
    ]
)
GOLD_TABLES: Final[dict[str, pa.Schema]] = {f"{layout.GOLD}/{name}": STATES for name in registry.names()}


def rows_files(table: str, state: State) -> dict[str, str]:
    """Return the files of a table of states, in order, and their hashes."""
    known = [item for (overlay, _), item in state.gold.items() if f"{layout.GOLD}/{overlay}" == table]
    sizes_and_hashes = {path: held for item in known for path, held in item["files"].items()}
    return {path: sizes_and_hashes[path] for path in sorted(sizes_and_hashes) if not path.endswith(_STATE)}


class Reached(NamedTuple):
    """The end of a state in a label."""

    epoch: int
    label: str
    upto_seq: int
    mmr_root: str


@dataclass(frozen=True, slots=True)
class StaleState:
    """A state to update."""

    overlay: str
    stream_id: str
    labels: tuple[LabelFact, ...]
    # The stored state; None to fold from the start.
    known: dict[str, Any] | None = None

    @property
    def stream(self) -> StreamId:
        return StreamId(bytes.fromhex(self.stream_id))

    @property
    def fold(self) -> str:
        """The identity of the fold: another version of an overlay may have other results."""
        return _fold_id(self.overlay)

    @property
    def reached(self) -> list[Reached]:
        """The positions and roots that the new state covers."""
        return [Reached(fact.epoch, fact.label, fact.upto_seq, fact.mmr_root) for fact in self.labels]

    @property
    def rows_path(self) -> str:
        """The file of its rows."""
        return f"{self._place}/{self._end}.parquet"

    @property
    def state_path(self) -> str:
        """The file to resume from; its name hides it from readers of all files of a table."""
        return f"{self._place}/_{self._end}{_STATE}"

    @property
    def _place(self) -> str:
        return f"{layout.GOLD}/{self.overlay}/stream={self.stream_id}"

    @property
    def _end(self) -> str:
        last = self.labels[-1]
        # Earlier epochs can grow, and overlays have versions: a file that is part of the lake must never be
        # replaced.
        held = hashlib.sha256(canonical([self.fold, *map(list, self.reached)])).hexdigest()
        return layout.state_name(last.epoch, last.upto_seq, held)


# Overlay and stream.
Key = tuple[str, str]


def find_wanted(
    state: State, overlays: Iterable[str] = (), *, again: Iterable[Key] = (), root: Path | None = None
) -> list[StaleState]:
    """Return the states that are behind the lake: of overlays with events in it, or of the named ones.

    Includes those in ``again``, those of another version of their overlay, and those whose files are missing
    in ``root``: a state can always be rebuilt.
    """
    named = list(overlays)
    present = {(fact.table, fact.label) for fact in state.files.values()}
    current = {*state.gold, *again}
    stale_states = []
    for stream, labels in sorted(state.own_labels().items()):
        if any(fact.missing for fact in labels):
            continue  # a state needs all entries from the first
        also = {overlay for overlay, of in current if of == stream}
        for overlay in sorted({*(named or _fitting(present, labels)), *also}):
            known = state.gold.get((overlay, stream))
            stale = StaleState(overlay, stream, tuple(labels), known)
            if known is not None and (known.get("fold") != stale.fold or not _is_there(root, known)):
                known, stale = None, replace(stale, known=None)
            if known is None or [Reached(*item) for item in known["reached"]] != stale.reached:
                stale_states.append(stale)
    return stale_states


def _is_there(root: Path | None, known: Mapping[str, Any]) -> bool:
    return root is None or all((root / path).is_file() for path in known["files"])


def of_streams(state: State, streams: Iterable[str | None]) -> list[Key]:
    """Return the existing states of some streams."""
    stream_ids = set(streams)
    return sorted(key for key in state.gold if key[1] in stream_ids)


def _fitting(present: set[tuple[str, str]], labels: Iterable[LabelFact]) -> Iterator[str]:
    listed = [fact.label for fact in labels]
    for overlay in registry.overlays():
        tables = [layout.schema_table(schema.name) for schema in overlay.schemas]
        if overlay.name not in _BY_NAME and any(
            (table, label) in present for table in tables for label in listed
        ):
            yield overlay.name


def bring_up(
    spark: "SparkSession", lake: "Lake", overlays: Iterable[str] = (), *, again: Iterable[Key] = ()
) -> int:
    """Fold the new records of each stream, and commit the states; return their number."""
    stale_states = find_wanted(lake.state, overlays, again=again, root=lake.root)
    if not stale_states:
        return 0
    changes = Changes(kind="gold")
    with lake.writing():
        for item in stale_states:
            changes.gold.append(_state(spark, lake, item))
        lake.commit(changes)
    return len(stale_states)


def overlay_of(name: str) -> Overlay:
    """Return an overlay with its default parameters."""
    return configured(registry.overlay_class(name), {})


@cache
def _fold_id(name: str) -> str:
    return overlay_of(name).identity.hex()


def _state(spark: "SparkSession", lake: "Lake", wanted: StaleState) -> dict[str, Any]:
    overlay = overlay_of(wanted.overlay)
    resume = resumed(lake.root, wanted, overlay)
    folded = fold(spark, lake.root, lake.state, wanted, resume)
    assert folded.state is not None
    content = folded.state.encode()
    write_durably(lake.root / wanted.state_path, content)
    table = _write_rows(lake.root, wanted, overlay, folded)
    return {
        "overlay": wanted.overlay,
        "stream_id": wanted.stream_id,
        "fold": wanted.fold,
        "reached": [list(item) for item in wanted.reached],
        "state_hash": hash_of(overlay, folded),
        "counts": {outcome.value: count for outcome, count in folded.counts.items()},
        "reports": len(folded.reports),
        "files": {
            wanted.rows_path: table,
            wanted.state_path: hashlib.sha256(content).hexdigest(),
        },
    }


def hash_of(overlay: Overlay, folded: "Folded") -> str | None:
    """Return the hash of a state; None if it has none."""
    try:
        return hash_state(overlay, folded.memory(overlay)).hex()
    except InvalidBodyError:
        return None


def resumed(root: Path, wanted: StaleState, overlay: Overlay) -> FoldState | None:
    """Return the state to resume from, if it is undamaged and no entries were added before its end."""
    if wanted.known is None:
        return None
    before = {item[1]: Reached(*item) for item in wanted.known["reached"]}
    last = max(item.epoch for item in before.values())
    for fact in wanted.labels:
        known = before.get(fact.label)
        if fact.epoch < last and (known is None or known.upto_seq != fact.upto_seq):
            return None
    ((path, digest),) = (
        (path, held) for path, held in wanted.known["files"].items() if path.endswith(_STATE)
    )
    try:
        content = (root / path).read_bytes()
    except OSError:
        return None
    return FoldState.decode(overlay, content) if hashlib.sha256(content).hexdigest() == digest else None


def fold(
    spark: "SparkSession",
    root: Path,
    state: State,
    wanted: StaleState,
    resume: FoldState | None,
    *,
    small: int = _SMALL,
) -> "Folded":
    """Fold the records of a stream after a state, or all; few of them in this process, else on Spark."""
    from veen.pipeline.fold.inputs import RECORDS_SCHEMA
    from veen.pipeline.fold.job import FoldSettings, fold_stream
    from veen.pipeline.fold_sql import FORMS

    overlay, files = overlay_of(wanted.overlay), _files_behind(state, wanted, resume)
    if sum(fact.rows for fact in files) <= small:
        return fold_here(overlay, records_in(root, files), wanted.stream, resume)
    paths = spark_paths(root, (fact.path for fact in files))
    records = spark.read.schema(RECORDS_SCHEMA).parquet(*paths)
    how = FoldSettings(forms=FORMS, keeps=True)
    return fold_stream(spark, records, overlay, wanted.stream, resume=resume, how=how)


def _files_behind(state: State, wanted: StaleState, resume: FoldState | None) -> list[FileFact]:
    """Return the files with records after a state, in stream order."""
    place = (0, 0) if resume is None else resume.place
    epochs = {fact.label: fact.epoch for fact in wanted.labels}
    files = [
        fact
        for fact in state.of_table(layout.RECORDS)
        if fact.label in epochs and (epochs[fact.label], fact.upto_seq) > place
    ]
    return sorted(files, key=lambda fact: (epochs[fact.label], fact.from_seq))


def records_in(root: Path, files: Iterable[FileFact]) -> Iterator[Record]:
    """Yield the records in files, in order; each file must be as committed."""
    for fact in files:
        with open_committed(root, fact) as file:
            for batch in file.iter_batches(columns=list(Record._fields)):
                yield from records_of(batch)


def fold_here(
    overlay: Overlay, records: Iterable[Record], stream_id: StreamId, resume: FoldState | None
) -> "Folded":
    """Fold records in this process, sequentially; the bytes are the same as on Spark."""
    from veen.pipeline.fold.sql_form import Folded

    summary = (resume or FoldState.initial(overlay)).summary
    place = (0, 0) if resume is None else resume.place
    head = memory_of(overlay)
    head.tables = summary.tables
    annotator, counting = Annotator(overlay, head, stream_id), Fold(overlay)
    for record in records:
        if (record.epoch, record.stream_seq) > place:
            # The tables are updated already; count and report it.
            counting.step(summary, annotator.annotate(record)._replace(cells=()))
    state = FoldState(overlay, summary)
    tables = {name: summary.tables[name] for name in overlay.tables}
    return Folded(tables, summary.counts, summary.reports, summary.runs, state)


def _write_rows(root: Path, wanted: StaleState, overlay: Overlay, folded: "Folded") -> str:
    out = TableFile(root, wanted.rows_path, STATES)
    try:
        for batch in row_batches(wanted, overlay, folded):
            out.add(batch)
        return out.finish().sha256
    finally:
        out.discard()


def row_batches(wanted: StaleState, overlay: Overlay, folded: "Folded") -> Iterator[pa.RecordBatch]:
    """Yield the rows of a state, in their order."""
    kinds = table_kinds(overlay)
    for name, table in sorted(folded.tables.items()):
        rows = [(_text(key), _text(_decoded(kinds[name], value))) for key, value in sorted_items(table)]
        columns = [
            pa.array([wanted.overlay] * len(rows), pa.string()),
            pa.array([wanted.stream] * len(rows), pa.binary()),
            pa.array([name] * len(rows), pa.string()),
            pa.array([key for key, _ in rows], pa.string()),
            pa.array([value for _, value in rows], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=STATES)


def _decoded(kind: monoid.Monoid, value: Any) -> Any:  # noqa: ANN401 - of any overlay
    return cbor.decode(monoid.encode(kind, value), max_items=None)


def _text(value: Any) -> str:  # noqa: ANN401 - of any overlay
    return json.dumps(_plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> JsonValue:  # noqa: ANN401 - of any overlay
    match value:
        case bytes():
            return value.hex()
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(_plain(key)): _plain(item) for key, item in value.items()}
    return value  # type: ignore[no-any-return] # null, bool, int or text
