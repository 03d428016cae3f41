"""The hub's metrics (OBS0). Observing is a list increment; text is rendered on request.

``TimedFilesystem`` measures the journal's syncs, which acknowledgements wait for (OPS-003).
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from veen.core.errors import Code
from veen.storage import RealFilesystem
from veen.storage.fs import AppendFile

_MS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)
_SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
_ENTRIES: Final = (1.0, 10.0, 100.0, 1000.0, 10_000.0, 65_536.0)
# The window of error rates, in slots of seconds.
_SLOT_SEC: Final = 10
_SLOTS: Final = 30
_KEPT_FAILURES: Final = 1000


class Histogram:
    """Counts of observations by upper bound."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.text = text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self) -> Metric:
        """Return the histogram as the exposition library has it."""
        total = 0
        buckets = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
        family = HistogramMetricFamily(self.name, self.text)
        family.add_metric([], buckets=buckets, sum_value=self._sum)
        return family


class Failure(NamedTuple):
    """A rejected message, reduced to what an operator may see."""

    ts: int
    code: str
    detail: str
    label_prefix: str
    client_id_prefix: str


class Metrics:
    """All metrics of one hub."""

    def __init__(self, clock: Callable[[], int], fsync_ms: Histogram) -> None:
        self._clock = clock
        self.verify_ms = Histogram(
            "veen_verify_latency_ms",
            "time from the arrival of a message to the end of its stateless checks",
            _MS,
        )
        self.commit_ms = Histogram(
            "veen_commit_latency_ms", "time from the stateless checks to durable or rejected", _MS
        )
        self.end_to_end_ms = Histogram(
            "veen_end_to_end_latency_ms", "time from the arrival of a message to its answer", _MS
        )
        self.fsync_ms = fsync_ms
        self.proof_ms = Histogram("veen_proof_time_ms", "time to build one proof", _MS)
        self.batch_size = Histogram("veen_batch_size", "messages in one commit", _SIZES)
        self.checkpoint_interval = Histogram(
            "veen_checkpoint_interval", "entries between a checkpoint and the one before it", _ENTRIES
        )
        self.ok = 0
        self.rate_limited = 0
        self.overloaded = 0
        self.turned_away: Counter[str] = Counter()
        self.anchor_ok = 0
        self.anchor_fail = 0
        self.lost_workers = 0
        self.control_applied = 0
        self.control_ignored: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.failures: deque[Failure] = deque(maxlen=_KEPT_FAILURES)
        # Values read on request: description and getter by name.
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._slots: deque[tuple[int, Counter[str]]] = deque(maxlen=_SLOTS)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def rejected(self, failure: Failure) -> None:
        """Count a rejected message. All rejections are counted here."""
        self.errors[failure.code] += 1
        self.rate_limited += failure.code == Code.RATE
        self.failures.append(failure)
        slot = failure.ts // _SLOT_SEC
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, Counter()))
        self._slots[-1][1][failure.code] += 1

    def error_rates(self, codes: Iterable[str]) -> dict[str, int]:
        """Return rejections per minute by code, averaged over the last minutes and rounded."""
        oldest = self._clock() // _SLOT_SEC - _SLOTS
        recent: Counter[str] = Counter()
        for slot, counts in self._slots:
            if slot > oldest:
                recent += counts
        minutes = _SLOTS * _SLOT_SEC / 60
        return {code: round(recent[code] / minutes) for code in codes}

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; called by the exposition library."""
        yield CounterMetricFamily("veen_submit_ok", "messages that are in the log", self.ok)
        refused = CounterMetricFamily("veen_submit_err", "messages rejected, by code", labels=["code"])
        for code, count in sorted(self.errors.items()):
            refused.add_metric([code], count)
        yield refused
        yield CounterMetricFamily(
            "veen_rate_limited", "messages over the rate of their token", self.rate_limited
        )
        yield CounterMetricFamily(
            "veen_overloaded", "requests answered 503 because of overload", self.overloaded
        )
        away = CounterMetricFamily(
            "veen_turned_away",
            "requests rejected for the host or the origin that they name, by header",
            labels=["header"],
        )
        for header, count in sorted(self.turned_away.items()):
            away.add_metric([header], count)
        yield away
        yield CounterMetricFamily("veen_anchor_ok", "anchors that were published", self.anchor_ok)
        yield CounterMetricFamily("veen_anchor_fail", "anchors that could not be published", self.anchor_fail)
        yield CounterMetricFamily("veen_verifier_lost", "verifier processes that ended", self.lost_workers)
        yield CounterMetricFamily(
            "veen_control_applied", "messages of admins applied to the control log", self.control_applied
        )
        ignored = CounterMetricFamily(
            "veen_control_ignored", "messages on control streams that changed nothing", labels=["why"]
        )
        for why, count in sorted(self.control_ignored.items()):
            ignored.add_metric([why], count)
        yield ignored
        for histogram in (
            self.verify_ms,
            self.commit_ms,
            self.end_to_end_ms,
            self.fsync_ms,
            self.proof_ms,
            self.batch_size,
            self.checkpoint_interval,
        ):
            yield histogram.family()
        for name, (text, read) in self.gauges.items():
            yield GaugeMetricFamily(name, text, read())

    def text(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self._registry)


class _TimedAppend:
    def __init__(self, file: AppendFile, sync_ms: Histogram) -> None:
        self.write = file.write
        self.truncate = file.truncate
        self.close = file.close
        self._sync = file.sync
        self._sync_ms = sync_ms

    def sync(self) -> None:
        """Make everything written durable."""
        started = perf_counter()
        self._sync()
        self._sync_ms.observe(1000 * (perf_counter() - started))


class TimedFilesystem(RealFilesystem):
    """Measures the syncs of the journal."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sync_ms = Histogram("veen_fsync_latency_ms", "one sync of the journal", _MS)

    def open_append(self, path: str) -> AppendFile:
        """Open an existing file for appending."""
        return _TimedAppend(super().open_append(path), self.sync_ms)
