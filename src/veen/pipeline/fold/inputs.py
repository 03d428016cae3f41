"""The input of a fold from a log: records, positions and the roots computed from them."""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from veen.client.fold.incremental import Reached
from veen.client.read import LATE_SEC
from veen.core.encoding import cbor
from veen.core.merkle.mmr import Peaks, join, subtrees
from veen.core.objects.finding import Level
from veen.core.types import Label, NodeHash, StreamId
from veen.overlays.engine import Run
from veen.overlays.event import Record
from veen.overlays.summary_tree.reader import Place
from veen.pipeline.errors import IncompleteStreamError, RootMismatchError, UnverifiedError
from veen.pipeline.log.entry_columns import parse
from veen.pipeline.log.log import LabelHead, Log
from veen.pipeline.open.decrypt import open_entries
from veen.pipeline.open.records import RECORDS
from veen.pipeline.verify.job import Verification
from veen.pipeline.verify.kernel import check

if TYPE_CHECKING:
    from veen.core.profile import Profile
    from veen.pipeline.log.partition import Part
    from veen.pipeline.shared_keys import SharedKeys


RECORDS_SCHEMA: Final[StructType] = from_arrow_schema(RECORDS)


@dataclass(frozen=True, slots=True)
class FoldInput:
    """The records of a stream, to be folded up to a position."""

    records: DataFrame
    # By epoch.
    heads: Mapping[int, LabelHead]
    # The requested last position; no later record is folded.
    target: Place
    epoch_sec: int = 0

    def reached(self, runs: list[Run], roots: Mapping[int, bytes]) -> list[Reached]:
        """Return the last folded position of each label; ``roots`` are computed from the folded records."""
        positions = []
        for epoch, _, last in runs:
            head = self.heads[epoch]
            if last == head.last_seq and roots[epoch] != head.mmr_root:
                raise RootMismatchError(f"the entries of epoch {epoch} do not make up the root of the log")
            positions.append(Reached(epoch, head.label, last, roots[epoch]))
        return positions

    def is_provisional(self, reached: list[Reached], now: int) -> bool:
        """Return whether later entries may still sort before some of these (OVR-012)."""
        if not self.epoch_sec:
            return False
        by_clock = (now - LATE_SEC) // self.epoch_sec
        closed = max(by_clock, max(self.heads, default=0) - LATE_SEC // self.epoch_sec - 1, 0)
        return any(item.epoch > closed for item in reached)


def last_position(epochs: Iterable[int], upto: int | None, epoch: int | None) -> Place:
    """Return the requested last position, as ``veen interpret`` does."""
    last = max(epochs, default=0)
    return (last if epoch is None else epoch, 2**63 - 1 if upto is None else upto)


def from_log(
    spark: SparkSession,
    log: Log,
    stream: StreamId,
    keys: "SharedKeys",
    *,
    upto: int | None = None,
    epoch: int | None = None,
    level: Level = Level.FULL,
    parts: int = 0,
) -> FoldInput:
    """Return a stream of a log, checked, decrypted, and persisted: a fold reads records several times."""
    known = log.heads()
    heads = {each: known[label] for each, label in log.labels_of(stream).items()}
    target = last_position(heads, upto, epoch)
    ranges = {
        head.label: (head.first_seq, head.last_seq if each < target[0] else min(head.last_seq, target[1]))
        for each, head in heads.items()
        if each <= target[0]
    }
    ranges = {label: span for label, span in ranges.items() if span[0] <= span[1]}
    if ranges and level > Level.FRAMES:
        _check(spark, log, list(ranges), level)
    tasks = parts or 2 * spark.sparkContext.defaultParallelism
    records = open_records(spark, log, stream, keys, ranges=ranges, parts=tasks).select(*Record._fields)
    return FoldInput(records.persist(), heads, target, log.profiles[0].epoch_sec)


def open_records(
    spark: SparkSession,
    log: Log,
    stream: StreamId,
    keys: "SharedKeys",
    *,
    ranges: Mapping[Label, tuple[int, int]] | None = None,
    parts: int = 1,
) -> DataFrame:
    """Return the entries of a stream, decrypted; with ``ranges``, only those ranges of those labels.

    Entries are compared with their hashes where they are read; ``veen.pipeline.verify`` checks that they are
    the log's. The keys must stay shared as long as the table is used.
    """
    epochs = {label: epoch for epoch, label in log.labels_of(stream).items()}
    heads = {label: head for label, head in log.heads().items() if label in epochs}
    whole = {label: (head.first_seq, head.last_seq) for label, head in heads.items()}
    ranges_to_read = (
        whole if ranges is None else {label: span for label, span in ranges.items() if label in epochs}
    )
    planned = log.plan(ranges_to_read, parts=parts) if ranges_to_read else []
    profiles = tuple(log.profiles)
    listed = [(nth, epochs[part.label], pickle.dumps(part)) for nth, part in enumerate(planned)]
    spread = spark.createDataFrame(listed, "nth int, epoch bigint, part binary")
    spread = spread.repartitionByRange(max(len(listed), 1), "nth")
    return spread.mapInArrow(lambda batches: _opened(batches, keys, profiles, stream), RECORDS_SCHEMA)


def _opened(
    batches: Iterable[pa.RecordBatch],
    keys: "SharedKeys",
    profiles: "tuple[Profile, ...]",
    stream: StreamId,
) -> Iterator[pa.RecordBatch]:
    reading = keys.open()
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("epoch", "part"))
        for epoch, data in zip(*columns, strict=True):
            part: Part = pickle.loads(data)  # noqa: S301 - written by our own driver
            entries = parse(part.read())
            for fault in check(entries, Level.FRAMES).faults:
                at = int(entries.starts[fault.seq - part.first_seq])
                raise entries.frames.refused(fault.seq, at, fault.detail, fault.text)
            yield open_entries(entries, reading, profiles, stream, epoch)


def _check(spark: SparkSession, log: Log, labels: list[Label], level: Level) -> None:
    report = Verification(spark.sparkContext, log, level).run(labels)
    if not report.ok:
        raise UnverifiedError(f"the log is not whole: {report.first}")


# Leaves of a run: a whole tree, so that the driver receives one hash per run.
_RUN: Final = 1 << 14
_TREES: Final = pa.schema(
    [pa.field("epoch", pa.int64()), pa.field("first", pa.int64()), pa.field("trees", pa.binary())]
)


def roots_of(records: DataFrame, partitions: int = 0) -> dict[int, bytes]:
    """Return the root of each epoch's label after its last record; ``records`` must start with its first."""
    tasks = partitions or records.sparkSession.sparkContext.defaultParallelism
    run = sf.expr(f"(stream_seq - 1) div {_RUN}")
    apart = records.select("epoch", "stream_seq", "msg_id").repartition(tasks, "epoch", run)
    ordered = apart.sortWithinPartitions("epoch", "stream_seq")
    rows = ordered.mapInArrow(_trees, "epoch bigint, first bigint, trees binary").toArrow().to_pylist()
    rows.sort(key=lambda row: (row["epoch"], row["first"]))
    return {epoch: _root(list(group)) for epoch, group in groupby(rows, key=lambda row: row["epoch"])}


def _trees(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the trees over runs of consecutive records."""
    columns = ((item.to_pylist() for item in batch.columns) for batch in batches)
    leaves = chain.from_iterable(zip(*each, strict=True) for each in columns)
    for (epoch, _), group in groupby(leaves, key=lambda row: (row[0], (row[1] - 1) // _RUN)):
        run = list(group)
        first = run[0][1]
        if [row[1] for row in run] != list(range(first, first + len(run))):
            raise IncompleteStreamError(f"entries of epoch {epoch} after {first} are missing or duplicate")
        trees = cbor.encode([list(tree) for tree in subtrees(first, (row[2] for row in run))])
        yield pa.RecordBatch.from_pylist([{"epoch": epoch, "first": first, "trees": trees}], _TREES)


def _root(rows: list[dict[str, Any]]) -> bytes:
    peaks = Peaks.empty()
    for row in rows:
        if row["first"] != peaks.size + 1:
            raise IncompleteStreamError(f"entry {peaks.size + 1} of epoch {row['epoch']} is missing")
        trees: Any = cbor.decode(row["trees"])
        peaks = join(peaks, ((height, NodeHash(node)) for height, node in trees))
    return bytes(peaks.root)
