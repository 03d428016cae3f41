"""The fold rows of the pipeline: typed events to state on Spark, compared with SQL for one overlay."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

from bench.measure import Result, Work, best_us, ratio, time_all
from bench.storage import scratch
from tests.pipeline.record_batches import batch_of
from veen.core.types import StreamId
from veen.overlays.builtin.crdt import LWW, GCounter, LwwMap
from veen.overlays.overlay import Overlay
from veen.overlays.schema import Schema
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.overlay import Wallets
from veen.pipeline.fold_sql import FORMS
from veen.pipeline.open.records import RECORDS
from veen.pipeline.open.typed_columns import EventTable, ints_of

_KEYS = 100_000
_WALLETS = 10_000
# One wallet in this many is empty, and spends nevertheless.
_POOR = 50
_T0 = 1_700_000_000
_STREAM = StreamId(sha256(b"stream").digest())
_DAY = 86_400
# The approximate size of a transfer in bytes.
_BODY = 180
_FILES = 4
_DECODED = 100_000

Numbers = npt.NDArray[np.int64]


def measure_folds(spark: SparkSession, events: int, rounds: int) -> Iterator[Result]:
    """Measure folds of cached typed events, and the decoding of records into such events."""
    rng = np.random.default_rng(7)
    with scratch() as root:
        for overlay, columns, bare in (
            (LwwMap(), _registers(rng, events), _bare_registers),
            (GCounter(), _counts(rng, events), _bare_counts),
        ):
            with _cached(spark, root / overlay.name, FORMS[type(overlay)].table, columns) as rows:
                yield from _beside_bare(overlay, rows, events, bare, rounds)
        with _cached(spark, root / "wallet", FORMS[Wallets].table, _wallets(rng, events)) as rows:
            yield _rate(Wallets(), rows, events, rounds)
        yield _decoding(spark, root / "records", min(events, _DECODED), rounds)


# --- events -------------------------------------------------------------------------------------------------


def _hashes(numbers: Numbers) -> list[bytes]:
    return [sha256(number.to_bytes(8, "big", signed=True)).digest() for number in numbers.tolist()]


def _named(numbers: Numbers) -> pa.Array:
    """Return an id of 32 bytes for each number."""
    used, places = np.unique(numbers, return_inverse=True)
    return pa.array(_hashes(used), pa.binary()).take(pa.array(places))


def _random_ids(rng: np.random.Generator, count: int, size: int = 32) -> pa.Array:
    ends = np.arange(0, size * (count + 1), size, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(rng.bytes(size * count))]
    )


def _places(rng: np.random.Generator, count: int) -> dict[str, pa.Array]:
    return {
        "epoch": pa.array(np.zeros(count, np.int64)),
        "stream_seq": pa.array(np.arange(1, count + 1)),
        "msg_id": _random_ids(rng, count),
    }


def _registers(rng: np.random.Generator, count: int) -> dict[str, pa.Array]:
    return _places(rng, count) | {
        "key": _named(rng.integers(_KEYS, size=count)),
        "ts": pa.array(rng.integers(1 << 40, size=count)),
        "value": _random_ids(rng, count),
    }


def _counts(rng: np.random.Generator, count: int) -> dict[str, pa.Array]:
    return _places(rng, count) | {
        "shard": _named(rng.integers(_KEYS, size=count)),
        "delta": pa.array(rng.integers(100, size=count)),
    }


def _kind(*schemas: Schema) -> list[int]:
    return [wal.SCHEMAS.index(schema) for schema in schemas]


def _wallets(rng: np.random.Generator, count: int) -> dict[str, pa.Array]:
    """Open and fill wallets, then deposit, withdraw, transfer and set limits; 1% of it is rejected."""
    wallets = min(_WALLETS, count // 10)
    kinds = rng.choice(
        _kind(wal.DEPOSIT, wal.WITHDRAW, wal.TRANSFER, wal.LIMIT), size=count, p=[0.48, 0.4, 0.1, 0.02]
    )
    own = rng.integers(wallets, size=count)
    amount = rng.integers(1, 100, size=count)
    # First all are opened, then all but the poor ones are filled.
    kinds[: 2 * wallets] = np.repeat(_kind(wal.OPEN, wal.DEPOSIT), wallets)
    own[: 2 * wallets] = np.tile(np.arange(wallets), 2)
    is_poor = own % _POOR == 0
    amount[wallets : 2 * wallets] = np.where(is_poor[wallets : 2 * wallets], 0, 1_000_000)
    spends = np.isin(kinds, _kind(wal.WITHDRAW, wal.TRANSFER))
    amount[is_poor & spends] = 20_000
    (opened,), (moved,), (limited,) = _kind(wal.OPEN), _kind(wal.TRANSFER), _kind(wal.LIMIT)
    other = (own + 1 + rng.integers(wallets - 1, size=count)) % wallets
    ts = _T0 + np.arange(count) * (30 * _DAY) // count
    return _places(rng, count) | {
        "kind": pa.array(kinds.astype(np.int32)),
        "wallet_id": _named(own),
        "to_wallet_id": _only(_named(other), kinds == moved),
        "transfer_id": _only(_random_ids(rng, count), kinds == moved),
        "amount": _only(pa.array(amount), (kinds != opened) & (kinds != limited)),
        "ts": _only(pa.array(ts), kinds != opened),
        "created_at": _only(pa.array(ts), kinds == opened),
        "daily_limit": _only(pa.array(np.full(count, 10_000_000)), kinds == limited),
        "realm_id": _only(_named(np.zeros(count, np.int64)), kinds == opened),
        "ctx_id": _only(_named(own), kinds == opened),
        "currency": _only(pa.repeat("EUR", count), kinds == opened),
        "client_id": _named(np.zeros(count, np.int64)),
        "body": _random_ids(rng, count, _BODY),
    }


def _only(values: pa.Array, where: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.compute.if_else(pa.array(where), values, pa.scalar(None, values.type))


@contextmanager
def _cached(
    spark: SparkSession, path: Path, table: EventTable, columns: dict[str, pa.Array]
) -> Iterator[DataFrame]:
    """Cache typed events in memory."""
    count = len(columns["epoch"])
    columns.setdefault("kind", pa.array(np.zeros(count, np.int32)))
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in table.arrow
    ]
    _written(path, pa.Table.from_arrays(arrays, schema=table.arrow))
    rows = spark.read.parquet(str(path)).cache()
    rows.count()
    try:
        yield rows
    finally:
        rows.unpersist(blocking=True)


def _written(path: Path, table: pa.Table) -> None:
    path.mkdir()
    size = -(-len(table) // _FILES)
    for nth in range(_FILES):
        pq.write_table(table.slice(nth * size, size), path / f"{nth}.parquet")


# --- what is measured ---------------------------------------------------------------------------------------


def _bare_registers(events: DataFrame) -> object:
    best = F.max(F.struct("ts", "stream_seq", "value")).alias("best")
    winners = events.groupBy("key").agg(best).select("key", "best.*").toArrow()
    names = ("stream_seq", "value")
    rest = zip(
        ints_of(winners.column("ts")), *(winners.column(name).to_pylist() for name in names), strict=True
    )
    return dict(zip(winners.column("key").to_pylist(), rest, strict=True))


def _bare_counts(events: DataFrame) -> object:
    totals = events.groupBy("shard").agg(F.sum("delta").alias("total")).toArrow()
    return dict(zip(totals.column("shard").to_pylist(), ints_of(totals.column("total")), strict=True))


def _folding(overlay: Overlay, rows: DataFrame) -> Work:
    def work() -> object:
        folded = FORMS[type(overlay)].fold(rows, overlay, _STREAM)
        assert folded is not None
        return folded

    return work


def _beside_bare(
    overlay: Overlay, rows: DataFrame, events: int, bare: Callable[[DataFrame], object], rounds: int
) -> Iterator[Result]:
    works: dict[str, Work] = {"fold": _folding(overlay, rows), "bare": lambda: bare(rows)}
    times = time_all(works, rounds=rounds, batch_sec=0)
    us, factor = best_us(times, "fold") / events, ratio(times, "fold", "bare")
    yield Result(
        f"fold {overlay.name} on Spark, {events}",
        round(us, 3),
        "SQL for it alone",
        round(factor, 2),
        "<= 3 x",
        factor <= 3,
    )


def _rate(overlay: Overlay, rows: DataFrame, events: int, rounds: int) -> Result:
    """Fold wallets: some of their debits are rejected, and so are the credits of these."""
    times = time_all({"fold": _folding(overlay, rows)}, rounds=rounds, batch_sec=0)
    us = best_us(times, "fold") / events
    rate = round(1e6 / us)
    return Result(
        f"fold {overlay.name} on Spark, {events}",
        round(us, 3),
        "events/s",
        rate,
        ">= 500000",
        rate >= 500_000,
    )


def _decoding(spark: SparkSession, path: Path, events: int, rounds: int) -> Result:
    """Decode bodies into typed columns."""
    rng = np.random.default_rng(9)
    keys, times = rng.integers(_KEYS, size=events).tolist(), rng.integers(1 << 40, size=events).tolist()
    blank = dict.fromkeys(("label", "client_id", "receipt_id"), b"") | {
        "client_seq": 0,
        "hub_ts": 0,
        "schema": LWW.schema_id,
    }
    batch = batch_of(
        {
            **blank,
            "epoch": 0,
            "stream_seq": nth,
            "msg_id": b"%032d" % nth,
            "body": LWW.encode({"key": b"key %d" % key, "ts": ts, "value": b"%d" % ts}),
        }
        for nth, (key, ts) in enumerate(zip(keys, times, strict=True), 1)
    )
    _written(path, pa.Table.from_batches([batch], RECORDS))
    records = spark.read.parquet(str(path))

    def work() -> object:
        return FORMS[LwwMap].events(records).agg(F.count("key"), F.max("ts")).collect()

    us = best_us(time_all({"decode": work}, rounds=rounds, batch_sec=0), "decode") / events
    return Result(f"records to typed events, {events}", round(us, 3), "events/s", round(1e6 / us), "", None)
