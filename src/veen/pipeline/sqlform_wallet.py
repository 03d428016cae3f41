"""Wallets in columns and kernels.

Which debits count can depend on everything before them. But what is found for all wallets holds if each one's
own events, given which credits come in, lead to it: the first place where it could be wrong has nothing wrong
before it. So wallets that break no rule are taken as they are, many at once, given that the debits of others
count. The others are judged together by the overlay itself, in the order of the log. A debit that it refuses
withholds a credit from somebody: that wallet is looked at again without it. It ends when nobody is left.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them
from pyspark.sql.pandas.types import from_arrow_schema

from veen.overlays import wallet_schemas as wal
from veen.overlays.events import Event, Report
from veen.overlays.folding import Annotator, Memory, memory_of
from veen.overlays.wallet import IN, OUT, Wallets, report
from veen.overlays.wallet_effects import CLOSED, OPENED, Effect
from veen.pipeline.fold_forms import Folded
from veen.pipeline.records import RECORDS
from veen.pipeline.sqlform_events import POSITION, folded, good, lists, outcomes, positions, record_at
from veen.pipeline.sqlform_wallet_check import CHECKED, OPS, TOO_LARGE, Op, check
from veen.pipeline.typed import EventTable, ints_of

_NUMBERS: Final = ("amount", "ts", "created_at", "delta", "daily_limit")
_FIELDS: Final = (
    "wallet_id",
    "to_wallet_id",
    "transfer_id",
    *_NUMBERS,
    "ref",
    "realm_id",
    "ctx_id",
    "currency",
)
WALLET_EVENTS: Final = EventTable(
    wal.SCHEMAS, _FIELDS, [RECORDS.field("client_id"), RECORDS.field("auth_ref")]
)
_KIND: Final = {schema.name: nth for nth, schema in enumerate(wal.SCHEMAS)}
_TRANSFER: Final = _KIND[wal.TRANSFER.name]
_OPEN: Final = _KIND[wal.OPEN.name]
#: A wallet that was opened has forgotten what was spent before.
_RESETS: Final = True
#: More events of wallets that break rules than the driver should judge.
MOST_JUDGED: Final = 2_000_000


def fold_wallets(events: DataFrame, overlay: Wallets) -> Folded | None:
    """Fold wallets; None if there is too much that breaks rules."""
    if overlay.wallets or overlay.replica:
        return None
    return _Fold(events, overlay).run()


@dataclass(slots=True)
class _Judged:
    """What the overlay says of some wallets."""

    memory: Memory
    reports: list[Report]
    #: (wallet, epoch, number): credits that other wallets do not get.
    withheld: set[tuple[bytes, int, int]]


class _Fold:
    def __init__(self, events: DataFrame, overlay: Wallets) -> None:
        self.overlay = overlay
        self.events = events
        self.taken = events.filter(good())
        self.ops = _ops(self.taken, overlay)
        #: Wallet -> what it comes to, of those that break no rule if they get all credits.
        self.clean: dict[bytes, Effect] = {}
        #: The same, of those that do not get all.
        self.short: dict[bytes, Effect] = {}

    def run(self) -> Folded | None:
        """Find out who breaks rules, and judge them."""
        self.clean, suspects = _effects(_checked(self.ops))
        listed = _Listed(self.taken)
        suspects |= listed.repeated()
        judged = _Judged(memory_of(self.overlay), [], set())
        while suspects:
            found = self._judge(suspects)
            if found is None:
                return None
            judged = found
            more = self._without(judged.withheld)
            if not more:
                break
            suspects |= more
        return self._united(listed, judged, suspects)

    def _judge(self, suspects: set[bytes]) -> _Judged | None:
        """Let the overlay judge some wallets; all others pay."""
        wanted = F.broadcast(_wallets(self.events, suspects, "judged"))
        payer = self.taken.join(wanted, F.col("wallet_id") == F.col("judged"), "left_semi")
        payee = self.taken.filter(F.col("kind") == _TRANSFER).join(
            wanted, F.col("to_wallet_id") == F.col("judged"), "left_semi"
        )
        rows = payer.unionByName(payee).limit(MOST_JUDGED + 1).toArrow()
        if len(rows) > MOST_JUDGED:
            return None
        return _judged(replace(self.overlay, wallets=frozenset(suspects)), rows)

    def _without(self, withheld: set[tuple[bytes, int, int]]) -> set[bytes]:
        """Look again at wallets that do not get some credits; returns those that then break a rule."""
        self.short = {}
        if not withheld:
            return set()
        spark = self.events.sparkSession
        names = ("wallet", "epoch", "stream_seq")
        columns = zip(*sorted(withheld), strict=True)
        kinds = [OPS.field(name).type for name in names]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        missing = spark.createDataFrame(pa.table(arrays, names=list(names)))
        ops = self.ops.join(F.broadcast(missing.select("wallet")), "wallet", "left_semi")
        missing = F.broadcast(missing.withColumn("op", F.lit(int(Op.IN))))
        ops = ops.join(missing, [*names, "op"], "left_anti")
        self.short, suspects = _effects(_checked(ops.select(OPS.names)))
        return suspects

    def _united(self, listed: "_Listed", judged: _Judged, suspects: set[bytes]) -> Folded:
        """Return the wallets that were judged, and those that were not."""
        told = list(judged.reports)
        for wallet, epoch, seq in judged.withheld:
            told.append(Report(epoch, seq, listed.msg_id(epoch, seq), *report("WAL.UNBACKED", wallet)))
        made = judged.memory.tables
        clean = {wallet: found for wallet, found in self.clean.items() if wallet not in suspects}
        tables: dict[str, dict[Any, Any]] = {
            "wallets": clean | self.short | made["wallets"],
            "opened": listed.opened(suspects) | made["opened"],
            "transfers": listed.transfers(suspects, judged.withheld) | made["transfers"],
        }
        return folded(tables, *outcomes(self.events), told)


# --- in columns ---------------------------------------------------------------------------------------------


def _ops(events: DataFrame, overlay: Wallets) -> DataFrame:
    """Return what happens to each wallet."""
    kind = F.col("kind")
    amount = F.coalesce("amount", "delta", "daily_limit")
    when = F.coalesce("ts", "created_at")
    fits = F.coalesce(F.abs(amount) < TOO_LARGE, F.expr("true")) & (when < TOO_LARGE)
    own = events.select(
        F.col("wallet_id").alias("wallet"),
        "epoch",
        "stream_seq",
        F.when(fits & ~_is_odd(overlay), _op()).otherwise(int(Op.ODD)).alias("op"),
        F.when(fits, amount).cast("bigint").alias("amount"),
        F.when(fits, when).cast("bigint").alias("ts"),
        (_once() if overlay.unique_withdraw_refs else F.lit(None).cast("binary")).alias("ref"),
    )
    incoming = events.filter(kind == _TRANSFER).select(
        F.col("to_wallet_id").alias("wallet"),
        "epoch",
        "stream_seq",
        F.when(fits, int(Op.IN)).otherwise(int(Op.ODD)).alias("op"),
        F.when(fits, amount).cast("bigint").alias("amount"),
        F.lit(None).cast("bigint").alias("ts"),
        F.lit(None).cast("binary").alias("ref"),
    )
    return own.unionByName(incoming)


def _op() -> Column:
    kind = F.col("kind")
    found = F.when(
        kind == _KIND[wal.LIMIT.name],
        F.when(F.col("daily_limit").isNull(), int(Op.NO_LIMIT)).otherwise(int(Op.LIMIT)),
    )
    for schema, op in _OPS.items():
        found = found.when(kind == _KIND[schema], int(op))
    return found.otherwise(int(Op.ODD))


_OPS: Final = {
    wal.DEPOSIT.name: Op.DEPOSIT,
    wal.WITHDRAW.name: Op.WITHDRAW,
    wal.TRANSFER.name: Op.OUT,
    wal.OPEN.name: Op.OPEN,
    wal.CLOSE.name: Op.CLOSE,
    wal.ADJUST.name: Op.ADJUST,
    wal.FREEZE.name: Op.FREEZE,
    wal.UNFREEZE.name: Op.UNFREEZE,
}


def _is_odd(overlay: Wallets) -> Column:
    """Tell of which events the overlay always says something."""
    kind = F.col("kind")
    odd = (kind == _TRANSFER) & (F.col("wallet_id") == F.col("to_wallet_id"))
    if overlay.institution:
        allowed = [F.lit(key) for key in sorted(overlay.institution)]
        signed = F.col("client_id").isin(allowed) | F.coalesce(
            F.col("auth_ref").isin(allowed), F.expr("false")
        )
        odd |= (kind == _KIND[wal.ADJUST.name]) & ~signed
    return odd


def _once() -> Column:
    return F.when(F.col("kind") == _KIND[wal.WITHDRAW.name], F.col("ref"))


def _checked(ops: DataFrame) -> pa.Table:
    """Return what becomes of each wallet by its own events."""
    return ops.repartition("wallet").mapInArrow(_check_all, from_arrow_schema(CHECKED)).toArrow()


def _check_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the wallets of a partition: all of its rows at once."""
    found = list(batches)
    if found:
        yield check(pa.Table.from_batches(found))


def _effects(checked: pa.Table) -> tuple[dict[bytes, Effect], set[bytes]]:
    """Return what clean wallets come to, and which are not clean."""
    is_clean = checked.column("clean")
    (suspects,) = lists(checked.filter(pc.invert(is_clean)), "wallet")
    found = checked.filter(is_clean)
    wallets, closed, frozen, limits, resets, *sums = lists(
        found, *(name for name in CHECKED.names if name != "clean")
    )
    made = {
        wallet: Effect(CLOSED if over else OPENED, frosty, (limit,), reset, _RESETS, *added)
        for wallet, over, frosty, limit, reset, added in zip(
            wallets, closed, frozen, limits, resets, zip(*sums, strict=True), strict=True
        )
    }
    return made, set(suspects)


def _wallets(rows: DataFrame, wallets: Iterable[bytes], name: str) -> DataFrame:
    return rows.sparkSession.createDataFrame(pa.table({name: pa.array(sorted(wallets), pa.binary())}))


class _Listed:
    """All openings and transfers: they are a part of the state."""

    def __init__(self, events: DataFrame) -> None:
        opened = events.filter(F.col("kind") == _OPEN)
        self._opened = opened.select(
            *POSITION, "wallet_id", "realm_id", "ctx_id", "currency", "created_at"
        ).toArrow()
        moved = events.filter(F.col("kind") == _TRANSFER)
        self._moved = moved.select(*POSITION, "wallet_id", "to_wallet_id", "transfer_id", "amount").toArrow()
        self._places: dict[tuple[int, int], bytes] = {}

    def repeated(self) -> set[bytes]:
        """Return wallets with transfers whose id has come before, and all that these are from or to."""
        found: set[bytes] = set()
        for side in ("wallet_id", "to_wallet_id"):
            keys = [side, "transfer_id"]
            counted = self._moved.group_by(keys).aggregate([([], "count_all")])
            twice = counted.filter(pc.greater(counted.column("count_all"), 1)).select(keys)
            if len(twice):
                rows = self._moved.join(twice, keys, join_type="left semi")
                found.update(*lists(rows, "wallet_id", "to_wallet_id"))
        return found

    def msg_id(self, epoch: int, seq: int) -> bytes:
        """Return the message of a transfer."""
        if not self._places:
            self._places = {(epoch, seq): msg_id for epoch, seq, msg_id in positions(self._moved)}
        return self._places[epoch, seq]

    def opened(self, judged: set[bytes]) -> dict[bytes, Any]:
        """Return the openings of wallets that were not judged."""
        wallets, realms, contexts, currencies = lists(
            self._opened, "wallet_id", "realm_id", "ctx_id", "currency"
        )
        times = ints_of(self._opened.column("created_at"))
        rows = zip(positions(self._opened), realms, contexts, currencies, times, strict=True)
        return {wallet: row for wallet, row in zip(wallets, rows, strict=True) if wallet not in judged}

    def transfers(self, judged: set[bytes], withheld: set[tuple[bytes, int, int]]) -> dict[Any, Any]:
        """Return the sides of transfers of wallets that were not judged."""
        places = positions(self._moved)
        amounts = ints_of(self._moved.column("amount"))
        sources, targets, ids = lists(self._moved, "wallet_id", "to_wallet_id", "transfer_id")
        rows = list(zip(places, amounts, sources, targets, ids, strict=True))
        made: dict[Any, Any] = {
            (source, OUT, once): (place, amount, target, "")
            for place, amount, source, target, once in rows
            if source not in judged
        }
        for place, amount, source, target, once in rows:
            if target not in judged and (not withheld or (target, *place[:2]) not in withheld):
                made[target, IN, once] = (place, amount, source, "")
        return made


# --- judged by the overlay ----------------------------------------------------------------------------------


def _judged(overlay: Wallets, rows: pa.Table) -> _Judged:
    """Judge the wallets of an overlay by all events that touch them."""
    memory = memory_of(overlay)
    annotator = Annotator(overlay, memory)
    reports: list[Report] = []
    withheld: set[tuple[bytes, int, int]] = set()
    previous = None
    for event in sorted(_events(rows), key=_place):
        place = event.position
        if place == previous:  # from one that is judged to another one: it was found twice
            continue
        previous = place
        item = annotator.enter(event)
        reports += item.reports
        if event.schema is not wal.TRANSFER:
            continue
        source, target = event.body["wallet_id"], event.body["to_wallet_id"]
        if (
            target not in overlay.wallets
            and memory.get("transfers", (source, OUT, event.body["transfer_id"]))[3]
        ):
            withheld.add((target, *place[:2]))
    return _Judged(memory, reports, withheld)


def _place(event: Event) -> tuple[int, int]:
    return event.record.epoch, event.record.stream_seq


def _events(rows: pa.Table) -> Iterator[Event]:
    """Yield rows as events; what is absent is null, as the overlay takes it."""
    names = [field for field in _FIELDS if field not in _NUMBERS]
    columns = dict(zip(names, lists(rows, *names), strict=True))
    columns |= {name: ints_of(rows.column(name)) for name in _NUMBERS}
    kinds, clients, refs = lists(rows, "kind", "client_id", "auth_ref")
    bodies = zip(*(columns[name] for name in _FIELDS), strict=True)
    for place, kind, client, ref, values in zip(positions(rows), kinds, clients, refs, bodies, strict=True):
        record = record_at(place)._replace(client_id=client, auth_ref=ref)
        yield Event(record, wal.SCHEMAS[kind], dict(zip(_FIELDS, values, strict=True)), record.msg_id)
