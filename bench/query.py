"""The query rows of the report: warm queries of a lake, compared with hand-written SQL and a bare loop."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from statistics import median

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.measure import Result, best_us, ratio
from bench.pipeline import _bare, _beside, _kept, _opened, _timed
from bench.query_log import START, STREAM, QueryLog, subject
from veen.pipeline.lake.lake import load
from veen.pipeline.lake.layout import spark_paths
from veen.pipeline.query.engine import Engine
from veen.pipeline.query.event_sources import EVENTS_TABLE, Sources
from veen.pipeline.query.local_backend import pick
from veen.pipeline.query.scope import resolve
from veen.query.descriptor import Descriptor, normalize
from veen.query.timestamps import format_time

_CORES = os.cpu_count() or 1
_ROUNDS = 5
_DAY = 86_400
# The whole table is grouped by these fields.
_GROUPS = ("event_type", "origin")


def measure_query(events: int, directory: str = "") -> Iterator[Result]:
    """Measure queries; a log and a lake at ``directory`` are created once and reused."""
    with _kept(directory) as root, _beside(_CORES) as (spark, pool):
        query_log = QueryLog(root / "query", events)
        query_log.make(spark, _CORES)
        asking = _Asking(spark, query_log)
        yield from asking.selective()
        yield asking.grouped()
        with _opened(query_log.root) as log:
            (head,) = log.heads().values()
            parts = log.plan({head.label: (head.first_seq, head.last_seq)}, parts=4 * _CORES)
            times: dict[str, list[float]] = {}
            for _ in range(2):
                times.setdefault("bare verify loop", []).append(_bare(pool, parts, log.keys))
                times.setdefault("evidence", []).append(asking.evidence() / events)
        share = ratio(times, "bare verify loop", "evidence")
        yield Result(
            f"evidence full, {events} events",
            round(best_us(times, "evidence"), 2),
            "bare verify loop",
            round(share, 3),
            ">= 0.6",
            share >= 0.6,
        )


def _asked(**members: object) -> Descriptor:
    return normalize({"query_id": "q-bench", "scope": [STREAM], **members}, lambda: "q-bench")  # type: ignore[dict-item]


class _Asking:
    """A lake, and the measured queries of it."""

    def __init__(self, spark: SparkSession, query_log: QueryLog) -> None:
        self._spark = spark
        self._made = query_log
        self._out = query_log.directory / "answer"

    def _run(self, descriptor: Descriptor, few_rows: int | None = None) -> None:
        shutil.rmtree(self._out, ignore_errors=True)
        engine = Engine(self._spark, self._made.lake)
        if few_rows is not None:
            engine = Engine(self._spark, self._made.lake, few_rows=few_rows)
        engine.run(descriptor, result_id="r-bench", out=self._out, executed_at=START)

    def selective(self) -> Iterator[Result]:
        """Query one subject and one day: seconds without Spark and on Spark, and the share that is read."""
        day = {"from": format_time(START + 12 * _DAY), "to": format_time(START + 13 * _DAY)}
        query = _asked(filter={"subject_id": subject(17), "time": day})
        share = self._share(query)
        for name, few_rows in (("", None), (" on Spark", -1)):
            self._run(query, few_rows)  # warm
            seconds = median(_timed(partial(self._run, query, few_rows)) for _ in range(_ROUNDS))
            yield Result(
                f"one subject, one day of {self._made.events}{name}",
                round(seconds * 1e6),
                "seconds",
                round(seconds, 3),
                "<= 2 s",
                seconds <= 2,
            )
        yield Result(
            "of the table's bytes, in row groups",
            round(share * 1e6),
            "share",
            round(share, 4),
            "<= 0.05",
            share <= 0.05,
        )

    def _share(self, query: Descriptor) -> float:
        """Return the share of the table's bytes in row groups that footers do not rule out."""
        state = load(self._made.lake)
        scope = resolve(self._made.lake, state, query.scope, called={})
        sources = Sources(self._made.lake, state, scope, query.filter)
        picked = pick(sources, self._made.events) or []
        read = sum(
            pq.read_metadata(self._made.lake / item.fact.path).row_group(nth).total_byte_size
            for item in picked
            for nth in item.groups
        )
        whole = sum(
            metadata.row_group(nth).total_byte_size
            for fact in sources.files
            for metadata in [pq.read_metadata(self._made.lake / fact.path)]
            for nth in range(metadata.num_row_groups)
        )
        return float(read / whole)

    def grouped(self) -> Result:
        """Count the whole table by two fields, compared with the same in hand-written Spark SQL."""
        query = _asked(aggregate={"group_by": list(_GROUPS), "metrics": ["count", "max(event_time)"]})
        files = spark_paths(
            self._made.lake, (fact.path for fact in load(self._made.lake).of_table(EVENTS_TABLE))
        )
        self._spark.read.parquet(*files).createOrReplaceTempView("by_hand")
        fields = ", ".join(_GROUPS)
        text = f"SELECT {fields}, count(*), max(event_time) FROM by_hand GROUP BY {fields} ORDER BY {fields}"  # noqa: S608 - ours

        def hand() -> object:
            # A new frame each time: a frame that is collected twice reuses the output of its stages.
            return self._spark.sql(text).collect()

        times: dict[str, list[float]] = {}
        for nth in range(_ROUNDS + 2):
            for name, work in (("by hand", hand), ("query", partial(self._run, query))):
                seconds = _timed(work)
                if nth > 1:  # warm
                    times.setdefault(name, []).append(seconds)
        factor = ratio(times, "query", "by hand")
        return Result(
            f"aggregate of {self._made.events} events",
            round(best_us(times, "query")),
            "Spark SQL by hand",
            round(factor, 3),
            "<= 3 x",
            factor <= 3,
        )

    def evidence(self) -> float:
        """Return the seconds of a query with full evidence."""
        return _timed(partial(self._run, _asked(evidence={"mode": "full"})))
