"""Where the records of a fold come from, and how far they reach: a log that is opened here, or a lake."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from veen.client.reading import LATE_SEC
from veen.client.records import Reached
from veen.core.errors import VeenError
from veen.core.hubfiles import SETTINGS, HubSettings
from veen.core.types import Label, NodeHash, StreamId
from veen.overlays.events import Record
from veen.overlays.folding import Run
from veen.overlays.tree.reading import Place
from veen.pipeline.kernel import Level
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import LabelFact, State
from veen.pipeline.lake.comparing import require_committed
from veen.pipeline.lake.holding import load
from veen.pipeline.lake.hub import FILES, read_blob
from veen.pipeline.lake.paths import spark_paths
from veen.pipeline.logs import LabelHead, Log
from veen.pipeline.opening import open_records
from veen.pipeline.records import RECORDS_SCHEMA
from veen.pipeline.verifying import Verification

if TYPE_CHECKING:
    from veen.pipeline.keyring import SharedKeys


class UnverifiedError(VeenError):
    """A log that is to be folded is not whole."""


class OtherRootError(UnverifiedError):
    """What was folded is not what the log has."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream, to be folded up to a place."""

    records: DataFrame
    #: By epoch, how far each label goes.
    heads: Mapping[int, LabelHead]
    #: What is asked for; no record behind it is folded.
    target: Place
    epoch_sec: int = 0

    def reached(self, runs: list[Run], roots: Mapping[int, bytes]) -> list[Reached]:
        """Return how far each label was folded; ``roots`` are those that the folded records make up."""
        found = []
        for epoch, _, last in runs:
            head = self.heads[epoch]
            if last == head.last_seq and roots[epoch] != head.mmr_root:
                raise OtherRootError(f"the entries of epoch {epoch} do not make up the root of the log")
            found.append(Reached(epoch, head.label, last, roots[epoch]))
        return found

    def is_provisional(self, reached: list[Reached], now: int) -> bool:
        """Tell whether entries may still come before some of these (OVR-012)."""
        if not self.epoch_sec:
            return False
        by_clock = (now - LATE_SEC) // self.epoch_sec
        closed = max(by_clock, max(self.heads, default=0) - LATE_SEC // self.epoch_sec - 1, 0)
        return any(item.epoch > closed for item in reached)


def _target(epochs: Iterable[int], upto: int | None, epoch: int | None) -> Place:
    """Return the last place that is asked for; as ``veen interpret`` does."""
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
) -> Opened:
    """Return a stream of a log, checked and opened: once, since a fold looks at records several times."""
    known = log.heads()
    heads = {each: known[label] for each, label in log.labels_of(stream).items()}
    target = _target(heads, upto, epoch)
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
    return Opened(records.persist(), heads, target, log.profiles[0].epoch_sec)


def from_lake(
    spark: SparkSession, root: Path, stream: StreamId, *, upto: int | None = None, epoch: int | None = None
) -> Opened:
    """Return a stream of a lake; what is in it was checked and opened when it was taken in.

    Its files must be those that were committed then: this is looked at here, before they are read.
    """
    state = load(root)
    facts = state.own_labels().get(stream.hex(), [])  # a fork also has the labels of its parent
    heads = {fact.epoch: _head(fact) for fact in facts}
    target = _target(heads, upto, epoch)
    epochs = {fact.label: fact.epoch for fact in facts}
    files = [
        fact
        for fact in state.of_table(layout.RECORDS)
        if fact.label in epochs and (epochs[fact.label], fact.from_seq) <= target
    ]
    require_committed(spark.sparkContext, root, files)
    reading, paths = spark.read.schema(RECORDS_SCHEMA), spark_paths(root, (fact.path for fact in files))
    records = reading.parquet(*paths) if paths else spark.createDataFrame([], RECORDS_SCHEMA)
    return Opened(records, heads, target, _epoch_sec(root, state))


def _head(fact: LabelFact) -> LabelHead:
    label, root = Label(bytes.fromhex(fact.label)), NodeHash(bytes.fromhex(fact.mmr_root))
    first = 1 if not fact.missing else fact.missing[-1][1] + 1
    return LabelHead(label, fact.stream, fact.epoch, first, fact.upto_seq, root)


def _epoch_sec(root: Path, state: State) -> int:
    """Return how long labels last; by the epochs and times there are, if the lake does not know the hub."""
    blob = state.hub.get(f"{FILES}/{SETTINGS}")
    if blob is not None:
        return HubSettings.decode(read_blob(root, blob)).epoch_sec
    epochs = {fact.label: fact.epoch for fact in state.labels.values() if fact.epoch}
    times = (
        fact.last_ts // epochs[fact.label] for fact in state.of_table(layout.RECORDS) if fact.label in epochs
    )
    return max(times, default=0)


def _check(spark: SparkSession, log: Log, labels: list[Label], level: Level) -> None:
    report = Verification(spark.sparkContext, log, level).run(labels)
    if not report.ok:
        raise UnverifiedError(f"the log is not whole: {report.first}")
