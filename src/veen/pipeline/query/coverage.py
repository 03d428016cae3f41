"""What an answer does not cover: entries that could not be read, labels passed over, and what came later."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from veen.core.objects.hub_identity import HubIdentity
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import FileFact, LabelFact, State
from veen.pipeline.lake_jobs.ingest_task import count_sealed
from veen.pipeline.query.scope import Scope, entry_at, find_stream, resolve
from veen.query.digest import Position, ResultDigest

#: Clocks of a hub and of who answers may differ so much.
SKEW_SEC: Final = 300


class Coverage(NamedTuple):
    """An answer beside the log that a lake has."""

    #: Labels in scope that had entries when the query was answered, and that its digest passes over.
    left_out: tuple[LabelFact, ...]
    #: Entries of the labels it names that the log had then, behind what was read.
    behind: int
    #: The time of the newest entry that it names; 0 if there is none here.
    newest: int
    #: Whether it is of labels of another zone, of which there are copies here.
    is_elsewhere: bool
    #: Positions whose roots nothing here can tell.
    unchecked: tuple[Position, ...]


def unread(root: Path, state: State, scope: Scope) -> int:
    """Return how many entries that were to be read could not be: they are sealed for others, or pruned."""
    return sum(
        _unread(root, state, fact, min(scope.last(fact.label), fact.upto_seq))
        for fact in {fact.label: fact for stream in scope.streams for fact in stream.labels}.values()
    )


def _unread(root: Path, state: State, fact: LabelFact, last: int) -> int:
    if last == 0:
        return 0
    pruned = sum(min(gap.last, last) - gap.first + 1 for gap in fact.missing if gap.first <= last)
    if not fact.sealed or last == fact.upto_seq:
        return pruned + fact.sealed
    files = [file for file in state.of_table(layout.RECORDS) if file.label == fact.label]
    return pruned + sum(_sealed(root, file, last) for file in files if file.from_seq <= last)


def _sealed(root: Path, file: FileFact, last: int) -> int:
    with pq.ParquetFile(root / file.path) as records:
        batches = records.iter_batches(columns=["stream_seq", "reason"])
        return sum(count_sealed(batch.filter(_upto(batch, last))) for batch in batches)


def _upto(batch: pa.RecordBatch, last: int) -> pa.BooleanArray:
    return pc.less_equal(batch.column("stream_seq"), last)


def standing(
    root: Path,
    state: State,
    names: Sequence[str],
    digest: ResultDigest,
    *,
    called: Mapping[str, str],
    origins: Mapping[bytes, HubIdentity],
) -> Coverage:
    """Return how an answer stands to the log; of labels that copies come from little can be told."""
    if digest.upto is None:
        return Coverage((), 0, 0, is_elsewhere=False, unchecked=())
    scope = resolve(root, state, names, called=called, upto=digest.upto, origins=origins)
    newest = max((_time_at(root, state, label, seq) for label, seq in scope.upto.items()), default=0)
    return Coverage(
        tuple(_left_out(state, names, called, scope, max(digest.executed_at, newest))),
        sum(_behind(root, state, label, seq, digest.executed_at) for label, seq in scope.upto.items()),
        newest,
        scope.origins is not None,
        scope.unchecked,
    )


def _time_at(root: Path, state: State, label: str, seq: int) -> int:
    found = entry_at(root, state, label, seq, "hub_ts")
    return found if isinstance(found, int) else 0


def _left_out(
    state: State, names: Sequence[str], called: Mapping[str, str], scope: Scope, when: int
) -> list[LabelFact]:
    began: dict[str, int] = {}
    for file in state.of_table(layout.ENTRIES):
        began.setdefault(file.label, file.first_ts)
    own = state.own_labels()
    return [
        fact
        for stream in (find_stream(own, name, called) for name in names)
        for fact in stream.labels
        if fact.label not in scope.upto and fact.label not in scope.by_origin
        if began.get(fact.label, when + 1) <= when
    ]


def _behind(root: Path, state: State, label: str, seq: int, when: int) -> int:
    """Return how many entries of a label stand behind one, and are older than a time."""
    found = 0
    for file in state.of_table(layout.ENTRIES):
        if file.label != label or file.upto_seq <= seq or file.first_ts >= when:
            continue
        if file.last_ts < when and file.from_seq > seq:
            found += file.upto_seq - file.from_seq + 1
            continue
        where = [("stream_seq", ">", seq), ("hub_ts", "<", when)]
        found += pq.read_table(
            root / file.path, columns=["stream_seq"], filters=where, partitioning=None
        ).num_rows
    return found
