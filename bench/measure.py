"""Interleaved measurement: subjects and floors alternate, so that other load slows all of them alike."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Result:
    """A measured row of the report."""

    subject: str
    us: float
    floor: str
    ratio: float
    target: str
    met: bool | None


def time_all(works: Mapping[str, Work], *, rounds: int, batch_sec: float) -> dict[str, list[float]]:
    """Return the seconds per call of each work, one value per round."""
    calls = {name: _calls_for(work, batch_sec) for name, work in works.items()}
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            count = calls[name]
            start = perf_counter()
            for _ in range(count):
                work()
            times[name].append((perf_counter() - start) / count)
    return times


def _calls_for(work: Work, batch_sec: float) -> int:
    work()  # warm caches and lazy imports
    start = perf_counter()
    work()
    return max(1, int(batch_sec / max(perf_counter() - start, 1e-9)))


def ratio(times: Mapping[str, list[float]], subject: str, floor: str) -> float:
    """Return the median over all rounds of subject / floor."""
    return float(median(mine / bare for mine, bare in zip(times[subject], times[floor], strict=True)))


def best_us(times: Mapping[str, list[float]], name: str) -> float:
    """Return the best round in microseconds, which approximates the cost on an idle machine."""
    return min(times[name]) * 1e6
