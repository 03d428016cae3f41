"""The storage rows of the report: commits compared with bare writes, and how costs grow with the log."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.measure import Result, best_us, ratio, time_all
from bench.storage import BATCH, Commits, Log, open_files, resident_bytes, scratch, timed
from veen.stdx.grammar import counted
from veen.storage.write.writer import Options

_SMALL = 50_000
# A log has few labels or many; this is the second case.
_MANY_LABELS = 10_000


def measure_storage(entries: int, labels: int, rounds: int) -> Iterator[Result]:
    """Measure the storage engine, one group of rows after the other."""
    with scratch() as root:
        yield from _commits(root / "commits", rounds)
        for count in (1, _MANY_LABELS):
            yield from _growth(root / f"growth-{count}", count, entries, rounds)
        yield from _many_labels(root / "labels", labels)


def _judged(subject: str, us: float, floor: str, figure: float, bound: tuple[str, float] | None) -> Result:
    if bound is None:
        return Result(subject, round(us, 2), floor, round(figure, 3), "", None)
    sign, limit = bound
    met = figure >= limit if sign == ">=" else figure <= limit
    return Result(subject, round(us, 2), floor, round(figure, 3), f"{sign} {limit:g}", met)


def _commits(root: Path, rounds: int) -> list[Result]:
    root.mkdir()
    commits = Commits(root)
    times = commits.rounds(rounds * 4)
    commits.log.remove()
    subject, raw, naive = times
    us = best_us(times, subject)
    return [
        _judged(subject, us, f"speed of {naive}", ratio(times, naive, subject), (">=", 8)),
        _judged(subject, us, f"speed of {raw}", ratio(times, raw, subject), (">=", 0.5)),
    ]


def _growth(root: Path, labels: int, entries: int, rounds: int) -> list[Result]:
    root.mkdir()
    small, large = Log(root / "small", labels), Log(root / "large", labels)
    small.fill(_SMALL)
    large.fill(entries)
    results = [_disk(large)]
    openings = {log.entries: [timed(log.reopen) for _ in range(9)] for log in (small, large)}
    works = small.works("small") | large.works("large")
    times = time_all(works, rounds=rounds, batch_sec=0.02)
    suffix = counted(labels, "label")
    for name in small.works(""):
        stem = name.removesuffix(", ")
        growth = ratio(times, f"{stem}, large", f"{stem}, small")
        us = best_us(times, f"{stem}, large")
        results.append(_judged(f"{stem}, {suffix}", us, "same, small log", growth, ("<=", 2)))
    first, last = (median(times) for times in openings.values())
    results.append(_judged(f"close + open, {suffix}", last * 1e6, "same, small log", last / first, ("<=", 2)))
    start = _cold_start(large)
    results.append(_judged(f"start with a full journal, {suffix}", start * 1e6, "seconds", start, ("<=", 2)))
    small.remove()
    large.remove()
    return results


def _cold_start(log: Log) -> float:
    """Return the seconds of a start after a crash, with a journal segment that is nearly full."""
    full = Options().segment_bytes - BATCH * 700
    while log.writer.journal_bytes < full:
        log.append()
    log.writer.abandon()

    def start() -> None:
        log.writer = log.open()

    return timed(start)


def _disk(log: Log) -> Result:
    sizes = log.bytes_on_disk()
    derived = sizes.pop("derived")
    beyond = (sum(sizes.values()) - log.content_bytes) / log.entries
    parts = ", ".join(f"{name} {size / log.entries:.0f}" for name, size in sizes.items())
    subject = f"bytes on disk beyond msg + receipt ({log.label_count})"
    return _judged(subject, derived / log.entries, f"{parts}; us column: derived copies", beyond, ("<=", 250))


def _many_labels(root: Path, labels: int) -> list[Result]:
    files = open_files()
    log = Log(root, labels)
    log.fill(labels * 16)
    log.reopen()
    for label in log.labels:
        log.writer.head(label)
    grown = open_files() - files
    resident = resident_bytes() / 2**20
    for _ in range(4 * len(log.labels) // BATCH):
        log.append()
    resident = max(resident, resident_bytes() / 2**20)
    log.remove()
    return [
        _judged(f"resident MB, {labels} labels", 0, "", resident, ("<=", 500)),
        _judged(f"open files, {labels} labels", 0, "", grown, ("<=", 160)),
    ]
