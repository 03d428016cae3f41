"""The pipeline rows of the report: Spark compared with bare loops and plain processes, on the same entries.

Figures are microseconds for one entry with all cores at work, unless the row says what they are.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from multiprocessing.pool import Pool
from pathlib import Path
from time import perf_counter

from nacl.bindings import crypto_sign_open
from pyspark.sql import SparkSession

from bench.measure import Result, best_us, ratio
from bench.pipeline_folds import measure_folds
from bench.pipeline_log import STREAMS, BenchLog, reader_secret
from bench.storage import scratch
from veen.core.crypto.hash import tag_prefix
from veen.core.crypto.hpke import ReaderKey
from veen.core.objects.finding import Level
from veen.core.objects.labels import stream_id
from veen.core.objects.msg import Msg
from veen.core.objects.sealed_payload import open_msg
from veen.core.types import Label, ReaderSecretKey, StreamId
from veen.pipeline.lake.lake import lock_lake
from veen.pipeline.lake_jobs.ingest import Ingest
from veen.pipeline.log.entry_columns import rows
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.log import Log
from veen.pipeline.log.open import open_log
from veen.pipeline.log.partition import Part
from veen.pipeline.open.keyring import Keyring, load_keyring
from veen.pipeline.shared_keys import sharing
from veen.pipeline.spark import session
from veen.pipeline.verify.job import Verification
from veen.pipeline.verify.task import PartTask, check_part

_CORES = os.cpu_count() or 1
_MSG_TAG, _RECEIPT_TAG = tag_prefix("veen/sig") + b"\x89", tag_prefix("veen/sig") + b"\x86"
_PORTION = 1_000
_SMALL = 10_000
# The JVM gets faster during the first rounds; the best round counts, also of what is compared.
_FOLD_ROUNDS = 7
_ROUNDS = 4

# Seconds, one value per round.
Times = dict[str, list[float]]


def measure_pipeline(entries: int, directory: str = "") -> Iterator[Result]:
    """Measure the pipeline; a log at ``directory`` is created once and reused."""
    with _kept(directory) as root:
        bench_log = BenchLog(root)
        with _opened(bench_log.root) as log:
            missing = entries - sum(head.last_seq for head in log.heads().values())
        if missing > 0:
            bench_log.grow(missing, _CORES)
        bench_log.close()
        yield from _verification(bench_log)
        yield from _scaling(bench_log)
        yield from _ingest(bench_log)
        with session.running(app="bench", master=f"local[{_CORES},3]") as spark:
            yield from measure_folds(spark, entries, _FOLD_ROUNDS)
        yield _cold()
        yield _memory(bench_log)


@contextmanager
def _kept(directory: str) -> Iterator[Path]:
    if directory:
        yield Path(directory)
    else:
        with scratch() as root:
            yield root


@contextmanager
def _opened(root: Path) -> Iterator[Log]:
    log = open_log(str(root))
    try:
        yield log
    finally:
        log.close()


@contextmanager
def _beside(cores: int) -> Iterator[tuple[SparkSession, Pool]]:
    """Run Spark beside a pool of processes, which are forked before there are threads."""
    with Pool(cores) as pool, session.running(app="bench", master=f"local[{cores},3]") as spark:
        yield spark, pool


def _timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _share(row: str, times: Times, subject: str, floor: str, min_share: float) -> Result:
    """Return the row for the share of a floor's speed that a subject reaches."""
    share = ratio(times, floor, subject)
    us = round(best_us(times, subject), 2)
    return Result(row, us, floor, round(share, 3), f">= {min_share:g}", share >= min_share)


# --- verification -------------------------------------------------------------------------------------------


def _verification(bench_log: BenchLog) -> Iterator[Result]:
    """Measure the level full on the entries of one label, and the other levels on all labels.

    The speed of a shared machine changes within seconds: the subjects alternate, a few times.
    """
    times: Times = {}
    with _beside(_CORES) as (spark, pool), _opened(bench_log.root) as log:
        label, parts = _one_label(log, 3)
        count, total = (sum(part.count for part in some) for some in (parts, log.plan()))
        _verify(spark, log, Level.FRAMES)  # warm
        for _ in range(_ROUNDS):
            times.setdefault("bare libsodium loop", []).append(_bare(pool, parts, log.keys))
            times.setdefault("spark", []).append(_verify(spark, log, Level.FULL, label) / count)
            times.setdefault("plain processes", []).append(_plain(pool, parts, log.keys) / count)
            times.setdefault("roots", []).append(_verify(spark, log, Level.ROOTS) / total)
            times.setdefault("frames", []).append(_verify(spark, log, Level.FRAMES) / total)
    name = f"verify full, {count} entries"
    yield _share(name, times, "spark", "bare libsodium loop", 0.80)
    yield _share(name, times, "spark", "plain processes", 0.95)
    for level, min_rate in (("frames", 180_000), ("roots", 100_000)):
        best = min(times[level])
        rate = 1 / best / _CORES
        text = f">= {min_rate // 1000}k /s/core"
        yield Result(
            f"verify {level}, a core",
            round(best * 1e6, 2),
            "entries/s/core",
            round(rate),
            text,
            rate >= min_rate,
        )


def _one_label(log: Log, nth: int) -> tuple[Label, list[Part]]:
    """Return the label that is n-th by size, the smallest first, and its partitions."""
    head = sorted(log.heads().values(), key=lambda head: head.last_seq)[nth - 1]
    return head.label, log.plan({head.label: (head.first_seq, head.last_seq)}, parts=4 * _CORES)


def _verify(spark: SparkSession, log: Log, level: Level, label: Label | None = None) -> float:
    def run() -> None:
        report = Verification(spark.sparkContext, log, level).run(None if label is None else [label])
        assert report.ok, report.first

    return _timed(run)


def _plain(pool: Pool, parts: Sequence[Part], keys: HubKeys) -> float:
    """Return the seconds of the same kernel in plain processes."""
    tasks = [PartTask(number, part) for number, part in enumerate(parts)]
    return _timed(lambda: pool.map(partial(_check, keys=keys), tasks, chunksize=1))


def _check(task: PartTask, keys: HubKeys) -> int:
    findings = check_part(task, Level.FULL, keys)
    assert not findings.faults
    return findings.entries


def _bare(pool: Pool, parts: Sequence[Part], keys: HubKeys, processes: int = _CORES) -> float:
    """Return the seconds per entry of a loop that only verifies its two signatures, on some cores."""
    loop = partial(_bare_loop, hub_pk=keys.identity.hub_keys[0].hub_pk)
    return _each(pool, loop, parts, processes)


def _each(pool: Pool, loop: Callable[[Part], float], parts: Sequence[Part], processes: int = _CORES) -> float:
    """Return the seconds per entry of a loop over partitions, without its preparation."""
    return sum(pool.map(loop, parts, chunksize=1)) / processes / sum(part.count for part in parts)


def _bare_loop(part: Part, hub_pk: bytes) -> float:
    entries = part.entries()
    data, signed = entries.frames.data, []
    clients, sigs, hub_sigs = rows(entries.client_id), rows(entries.sig), rows(entries.hub_sig)
    for nth in range(len(entries)):
        start, middle, end = (
            int(column[nth]) for column in (entries.msg_start, entries.msg_end, entries.receipt_end)
        )
        msg = sha256(_MSG_TAG + data[start + 1 : middle - 66]).digest()
        receipt = sha256(_RECEIPT_TAG + data[middle + 1 : end - 66]).digest()
        signed.append((sigs[nth] + msg, clients[nth], hub_sigs[nth] + receipt))
    start_at = perf_counter()
    for msg, client, receipt in signed:
        crypto_sign_open(msg, client)
        crypto_sign_open(receipt, hub_pk)
    return perf_counter() - start_at


def _scaling(bench_log: BenchLog) -> Iterator[Result]:
    """Compare one core with two on the same label; the bare loop shows what the second core is worth."""
    times: Times = {}
    for _ in range(3):
        for cores in (1, 2):
            with _beside(cores) as (spark, pool), _opened(bench_log.root) as log:
                label, parts = _one_label(log, 2)
                _verify(spark, log, Level.FRAMES, label)  # warm
                times.setdefault(f"spark {cores}", []).append(_verify(spark, log, Level.FULL, label))
                times.setdefault(f"bare {cores}", []).append(_bare(pool, parts, log.keys, cores))
    bare, gain = (ratio(times, f"{name} 1", f"{name} 2") for name in ("bare", "spark"))
    yield Result(
        "verify on 2 cores", best_us(times, "spark 2"), "on 1 core", round(gain, 3), ">= 1.8 x", gain >= 1.8
    )
    yield Result("bare libsodium loop on 2", best_us(times, "bare 2"), "on 1 core", round(bare, 3), "", None)


# --- ingest -------------------------------------------------------------------------------------------------


def _ingest(large: BenchLog) -> Iterator[Result]:
    keyring = load_keyring(large.client)
    with scratch() as directory, _beside(_CORES) as (spark, pool):
        small = BenchLog(directory / "small")
        small.grow(_SMALL)
        _more(spark, small, directory / "small-lake")  # warm
        with _opened(large.root) as log:
            yield from _beside_opening(spark, pool, log, keyring, directory)
            _ingest_all(spark, log, keyring, directory / "lake")
            count = sum(head.last_seq for head in log.heads().values())
        times: Times = {}
        for _ in range(_ROUNDS):
            for name, log_made in (("small", small), ("", large)):
                times.setdefault(name, []).append(
                    _more(spark, log_made, directory / f"{name}-lake".strip("-"))
                )
        factor = ratio(times, "", "small")
        yield Result(
            f"ingest {_PORTION} more, into {count}",
            round(best_us(times, "")),
            f"into {_SMALL}",
            round(factor, 3),
            "<= 1.5 x",
            factor <= 1.5,
        )
        small.close()


def _beside_opening(
    spark: SparkSession, pool: Pool, log: Log, keyring: Keyring, directory: Path
) -> Iterator[Result]:
    """Ingest one label, a few times, compared with loops that only open, or verify and open."""
    label, parts = _one_label(log, 2)
    count = sum(part.count for part in parts)
    stream = next(
        stream_of for name in STREAMS if label in log.labels_of(stream_of := stream_id(name)).values()
    )
    times: Times = {}
    for nth in range(_ROUNDS):
        verifying, opening = _bare(pool, parts, log.keys), _each(pool, _open_loop, parts)
        times.setdefault("bare open alone", []).append(opening)
        times.setdefault("bare verify + open", []).append(verifying + opening)
        seconds = _timed(partial(_ingest_all, spark, log, keyring, directory / f"lake {nth}", stream))
        times.setdefault("ingest", []).append(seconds / count)
    name = f"ingest, {count} entries"
    yield _share(name, times, "ingest", "bare verify + open", 0.6)
    yield _share(name, times, "ingest", "bare open alone", 0.6)


def _ingest_all(spark: SparkSession, log: Log, keyring: Keyring, directory: Path, *streams: StreamId) -> None:
    with sharing(spark, keyring) as shared, lock_lake(directory, create=True) as lake:
        Ingest(spark, lake, log, keyring=keyring, shared=shared, streams=streams).run()


def _more(spark: SparkSession, bench_log: BenchLog, directory: Path) -> float:
    grown = BenchLog(bench_log.root.parent)
    grown.grow(_PORTION)
    grown.close()
    keyring = load_keyring(bench_log.client)
    with _opened(bench_log.root) as log:
        return _timed(partial(_ingest_all, spark, log, keyring, directory))


def _open_loop(part: Part) -> float:
    entries = part.entries()
    msgs = [Msg.decode(entries.msg_bytes(nth)) for nth in range(len(entries))]
    key = ReaderKey.from_secret(ReaderSecretKey(reader_secret()))
    start = perf_counter()
    for msg in msgs:
        open_msg(msg, key, pad_block=0)
    return perf_counter() - start


# --- a command, including its start -------------------------------------------------------------------------


def _cold() -> Result:
    """Measure ``veen pipeline verify`` of a small log, from its start to its verdict."""
    with scratch() as directory:
        small = BenchLog(directory)
        small.grow(1_000, _CORES)
        small.close()
        seconds = min(_timed(partial(_command, small.root)) for _ in range(3))
    return Result(
        "cold verify of 1000 entries",
        round(seconds * 1e6),
        "seconds",
        round(seconds, 2),
        "<= 6 s",
        seconds <= 6,
    )


def _memory(log: BenchLog) -> Result:
    """Verify the log with 1 GB for the driver's JVM; return the peak memory of its Python processes."""
    report = _command(log.root, "--driver-memory", "1g")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return Result(
        f"verify {report['entries']} with 1 GB",
        round(peak),
        "MB, largest process",
        1.0,
        "is ok",
        report["ok"] is True,
    )


def _command(log: Path, *options: str) -> dict[str, object]:
    command = [sys.executable, "-m", "veen.cli.main", "pipeline", "verify", str(log), "--json", *options]
    done = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603 - our own
    report: dict[str, object] = json.loads(done.stdout)
    return report
