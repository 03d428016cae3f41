"""The pipeline rows of the report: Spark beside bare loops and plain processes, over the same entries.

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
#: Java gets quicker for some rounds; the best one counts, here and beside.
_FOLD_ROUNDS = 7
_ROUNDS = 4

#: Seconds, one figure a round.
Times = dict[str, list[float]]


def measure_pipeline(entries: int, place: str = "") -> Iterator[Result]:
    """Run everything of the pipeline and judge it; a log at ``place`` is made once and used again."""
    with _kept(place) as root:
        made = BenchLog(root)
        with _opened(made.root) as log:
            missing = entries - sum(head.last_seq for head in log.heads().values())
        if missing > 0:
            made.grow(missing, _CORES)
        made.close()
        yield from _verification(made)
        yield from _scaling(made)
        yield from _ingest(made)
        with session.running(app="bench", master=f"local[{_CORES},3]") as spark:
            yield from measure_folds(spark, entries, _FOLD_ROUNDS)
        yield _cold()
        yield _memory(made)


@contextmanager
def _kept(place: str) -> Iterator[Path]:
    if place:
        yield Path(place)
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
    """Have Spark and plain processes, which are forked while there are no threads yet."""
    with Pool(cores) as pool, session.running(app="bench", master=f"local[{cores},3]") as spark:
        yield spark, pool


def _timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _share(row: str, times: Times, subject: str, floor: str, least: float) -> Result:
    """Tell how much of a floor's speed a subject has."""
    share = ratio(times, floor, subject)
    us = round(best_us(times, subject), 2)
    return Result(row, us, floor, round(share, 3), f">= {least:g}", share >= least)


# --- verification -------------------------------------------------------------------------------------------


def _verification(made: BenchLog) -> Iterator[Result]:
    """Measure all checks over the entries of one label, and the others over all labels.

    The speed of a machine that is shared changes within seconds: what is compared takes turns, a few times.
    """
    times: Times = {}
    with _beside(_CORES) as (spark, pool), _opened(made.root) as log:
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
    for level, least in (("frames", 180_000), ("roots", 100_000)):
        best = min(times[level])
        rate = 1 / best / _CORES
        text = f">= {least // 1000}k /s/core"
        yield Result(
            f"verify {level}, a core",
            round(best * 1e6, 2),
            "entries/s/core",
            round(rate),
            text,
            rate >= least,
        )


def _one_label(log: Log, nth: int) -> tuple[Label, list[Part]]:
    """Return a label by its size, the smallest is the first, and its parts."""
    head = sorted(log.heads().values(), key=lambda head: head.last_seq)[nth - 1]
    return head.label, log.plan({head.label: (head.first_seq, head.last_seq)}, parts=4 * _CORES)


def _verify(spark: SparkSession, log: Log, level: Level, label: Label | None = None) -> float:
    def run() -> None:
        report = Verification(spark.sparkContext, log, level).run(None if label is None else [label])
        assert report.ok, report.first

    return _timed(run)


def _plain(pool: Pool, parts: Sequence[Part], keys: HubKeys) -> float:
    """Return how long the same kernel takes in plain processes."""
    tasks = [PartTask(number, part) for number, part in enumerate(parts)]
    return _timed(lambda: pool.map(partial(_check, keys=keys), tasks, chunksize=1))


def _check(task: PartTask, keys: HubKeys) -> int:
    found = check_part(task, Level.FULL, keys)
    assert not found.faults
    return found.entries


def _bare(pool: Pool, parts: Sequence[Part], keys: HubKeys, processes: int = _CORES) -> float:
    """Return what an entry costs a loop that does nothing but verify its two signatures, on some cores."""
    loop = partial(_bare_loop, hub_pk=keys.identity.hub_keys[0].hub_pk)
    return _each(pool, loop, parts, processes)


def _each(pool: Pool, loop: Callable[[Part], float], parts: Sequence[Part], processes: int = _CORES) -> float:
    """Return seconds for each entry of a loop over parts; what it prepares does not count."""
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


def _scaling(made: BenchLog) -> Iterator[Result]:
    """Measure one core beside two, over the same label; and the bare loop, which shows what two are worth."""
    times: Times = {}
    for _ in range(3):
        for cores in (1, 2):
            with _beside(cores) as (spark, pool), _opened(made.root) as log:
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


def _ingest(made: BenchLog) -> Iterator[Result]:
    keyring = load_keyring(made.client)
    with scratch() as place, _beside(_CORES) as (spark, pool):
        small = BenchLog(place / "small")
        small.grow(_SMALL)
        _more(spark, small, place / "small-lake")  # warm
        with _opened(made.root) as log:
            yield from _beside_opening(spark, pool, log, keyring, place)
            _take(spark, log, keyring, place / "lake")
            count = sum(head.last_seq for head in log.heads().values())
        times: Times = {}
        for _ in range(_ROUNDS):
            for name, log_made in (("small", small), ("", made)):
                times.setdefault(name, []).append(_more(spark, log_made, place / f"{name}-lake".strip("-")))
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
    spark: SparkSession, pool: Pool, log: Log, keyring: Keyring, place: Path
) -> Iterator[Result]:
    """Take one label in, a few times, beside loops that do nothing but open, or verify and open."""
    label, parts = _one_label(log, 2)
    count = sum(part.count for part in parts)
    stream = next(found for name in STREAMS if label in log.labels_of(found := stream_id(name)).values())
    times: Times = {}
    for nth in range(_ROUNDS):
        verifying, opening = _bare(pool, parts, log.keys), _each(pool, _open_loop, parts)
        times.setdefault("bare open alone", []).append(opening)
        times.setdefault("bare verify + open", []).append(verifying + opening)
        taken = _timed(partial(_take, spark, log, keyring, place / f"lake {nth}", stream))
        times.setdefault("ingest", []).append(taken / count)
    name = f"ingest, {count} entries"
    yield _share(name, times, "ingest", "bare verify + open", 0.6)
    yield _share(name, times, "ingest", "bare open alone", 0.6)


def _take(spark: SparkSession, log: Log, keyring: Keyring, place: Path, *streams: StreamId) -> None:
    with sharing(spark, keyring) as shared, lock_lake(place, create=True) as lake:
        Ingest(spark, lake, log, keyring=keyring, shared=shared, streams=streams).run()


def _more(spark: SparkSession, made: BenchLog, place: Path) -> float:
    again = BenchLog(made.root.parent)
    again.grow(_PORTION)
    again.close()
    keyring = load_keyring(made.client)
    with _opened(made.root) as log:
        return _timed(partial(_take, spark, log, keyring, place))


def _open_loop(part: Part) -> float:
    entries = part.entries()
    msgs = [Msg.decode(entries.msg_bytes(nth)) for nth in range(len(entries))]
    key = ReaderKey.from_secret(ReaderSecretKey(reader_secret()))
    start = perf_counter()
    for msg in msgs:
        open_msg(msg, key, pad_block=0)
    return perf_counter() - start


# --- a command from the beginning ---------------------------------------------------------------------------


def _cold() -> Result:
    """Measure ``veen pipeline verify`` of a small log, from its start to its verdict."""
    with scratch() as place:
        small = BenchLog(place)
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


def _memory(made: BenchLog) -> Result:
    """Verify everything with 1 GB for the driver's Java; tell how much memory its Python has used."""
    report = _command(made.root, "--driver-memory", "1g")
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
    found: dict[str, object] = json.loads(done.stdout)
    return found
