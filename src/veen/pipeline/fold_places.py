"""Where the records of a fold come from, and how far they reach: a log that is opened here, or a lake."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from veen.client.reading import LATE_SEC
from veen.client.records import Reached
from veen.core.errors import VeenError
from veen.core.types import Label, StreamId
from veen.overlays.folding import Run
from veen.overlays.tree.reading import Place
from veen.pipeline.frames import parse
from veen.pipeline.kernel import Level
from veen.pipeline.logs import LabelHead, Log
from veen.pipeline.opening import open_records
from veen.pipeline.verifying import Verification

if TYPE_CHECKING:
    from veen.pipeline.keyring import SharedKeys


class UnverifiedError(VeenError):
    """A log that is to be folded is not whole."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream, to be folded up to a place."""

    records: DataFrame
    labels: Mapping[int, Label]
    #: What is asked for; no record behind it is in ``records``.
    target: Place
    #: Returns the root of a label after an entry.
    root_at: Callable[[Label, int], bytes]
    epoch_sec: int = 0
    #: Whether records are opened each time that they are looked at.
    costly: bool = False

    def reached(self, runs: list[Run]) -> list[Reached]:
        """Return how far each label was folded, and the root there."""
        return [
            Reached(epoch, self.labels[epoch], last, self.root_at(self.labels[epoch], last))
            for epoch, _, last in runs
        ]

    def is_provisional(self, reached: list[Reached], now: int) -> bool:
        """Tell whether entries may still come before some of these (OVR-012)."""
        if not self.epoch_sec:
            return False
        by_clock = (now - LATE_SEC) // self.epoch_sec
        closed = max(by_clock, max(self.labels, default=0) - LATE_SEC // self.epoch_sec - 1, 0)
        return any(item.epoch > closed for item in reached)


def _target(epochs: Mapping[int, Label], upto: int | None, epoch: int | None) -> Place:
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
    """Return a stream of a log, checked; its entries are opened by whoever looks at the records."""
    labels = log.labels_of(stream)
    heads = log.heads()
    target = _target(labels, upto, epoch)
    ranges = {
        label: (heads[label].first_seq, min(heads[label].last_seq, target[1]) if each == target[0] else last)
        for each, label in labels.items()
        if each <= target[0]
        for last in [heads[label].last_seq]
    }
    ranges = {label: span for label, span in ranges.items() if span[0] <= span[1]}
    if ranges and level > Level.FRAMES:
        _check(spark, log, list(ranges), level)
    tasks = parts or 2 * spark.sparkContext.defaultParallelism
    records = open_records(spark, log, stream, keys, ranges=ranges, parts=tasks)

    def root_at(label: Label, seq: int) -> bytes:
        return _root_at(log, heads[label], seq)

    return Opened(records, labels, target, root_at, log.profiles[0].epoch_sec, costly=True)


def _check(spark: SparkSession, log: Log, labels: list[Label], level: Level) -> None:
    report = Verification(spark.sparkContext, log, level).run(labels)
    if not report.ok:
        raise UnverifiedError(f"the log is not whole: {report.first or '; '.join(report.others)}")


def _root_at(log: Log, head: LabelHead, seq: int) -> bytes:
    """Return the root that the receipt of an entry states."""
    if seq == head.last_seq:
        return head.mmr_root
    (part,) = log.plan({head.label: (seq, seq)})
    return bytes(parse(part.read()).mmr_root[seq - part.first_seq])
