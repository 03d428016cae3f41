"""What an answer does not cover: unreadable entries, omitted labels, and later entries."""

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

# The tolerated difference between the clocks of hub and responder.
SKEW_SEC: Final = 300


class Coverage(NamedTuple):
    """An answer compared with the log in a lake."""

    # Labels in scope that had entries when the query was answered, and that its digest omits.
    left_out: tuple[LabelFact, ...]
    # Entries that the log had then, after those read, in the labels that the digest names.
    behind: int
    # The time of the newest entry that it names; 0 if the lake has none.
    newest: int
    # Whether it names labels of another zone, of which the lake has copies.
    is_elsewhere: bool
    # Positions whose roots cannot be determined here.
    unchecked: tuple[Position, ...]


def unread(root: Path, state: State, scope: Scope) -> int:
    """Return the number of entries in scope that could not be read: sealed to other readers, or pruned."""
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
    """Compare an answer with the log; little is known about labels that copies come from."""
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
    hub_ts = entry_at(root, state, label, seq, "hub_ts")
    return hub_ts if isinstance(hub_ts, int) else 0


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
    """Return the number of entries of a label after a position and older than a time."""
    count = 0
    for file in state.of_table(layout.ENTRIES):
        if file.label != label or file.upto_seq <= seq or file.first_ts >= when:
            continue
        if file.last_ts < when and file.from_seq > seq:
            count += file.upto_seq - file.from_seq + 1
            continue
        where = [("stream_seq", ">", seq), ("hub_ts", "<", when)]
        count += pq.read_table(
            root / file.path, columns=["stream_seq"], filters=where, partitioning=None
        ).num_rows
    return count
