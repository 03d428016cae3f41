"""Wallets in columns and kernels.

Which debits count can depend on everything before them. But a result for all wallets is right if the result
of each follows from its own events and the credits that it receives: the first wrong position would have
nothing wrong before it. So wallets that break no rule are summed in columns, many at once, assuming that the
debits of others count. The rest are judged together by the overlay itself, in log order. A debit that it
rejects withholds a credit from another wallet, which is checked again without it, until none is left.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them
from pyspark.sql.pandas.types import from_arrow_schema

from veen.core.types import StreamId
from veen.overlays.engine import Annotator, MemoryTables, memory_of
from veen.overlays.event import Event, Report
from veen.overlays.monoid import Position
from veen.overlays.overlay import Tables
from veen.overlays.summary_tree.reader import Place
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.effects import CLOSED, OPENED, Effect
from veen.overlays.wallet.overlay import IN, OUT, Wallets, report
from veen.overlays.wallet.schemas import is_own_stream
from veen.pipeline.fold.sql_form import Folded
from veen.pipeline.fold_sql.events import GOOD, POSITION, fold_result, lists, positions, record_at, refusals
from veen.pipeline.fold_sql.wallet_rules import CHECKED, OPS, Op, check
from veen.pipeline.open.records import RECORDS
from veen.pipeline.open.typed_columns import EventTable

_FIELDS: Final = (
    "wallet_id",
    "to_wallet_id",
    "transfer_id",
    "amount",
    "ts",
    "created_at",
    "delta",
    "daily_limit",
    "ref",
    "realm_id",
    "ctx_id",
    "currency",
)
WALLET_EVENTS: Final = EventTable(
    wal.SCHEMAS, _FIELDS, [RECORDS.field(name) for name in ("client_id", "auth_ref", "body")], longs=True
)
# Credits that a wallet does not receive: their positions and amounts.
Withheld = dict[bytes, dict[Place, int]]
_OPEN, _TRANSFER, _LIMIT, _WITHDRAW, _ADJUST = map(
    wal.SCHEMAS.index, (wal.OPEN, wal.TRANSFER, wal.LIMIT, wal.WITHDRAW, wal.ADJUST)
)
assert [op.name for op in Op][:9] == [
    {"TRANSFER": "OUT"}.get(name, name)
    for name in (schema.name.split(".")[1].upper() for schema in wal.SCHEMAS)
], "operations are numbered as the schemas are"
_LISTED: Final = (
    "wallet_id",
    "to_wallet_id",
    "transfer_id",
    "amount",
    "realm_id",
    "ctx_id",
    "currency",
    "created_at",
)
# Of a transfer, to compare those with the same id.
_BODY_HASH: Final = f"case when kind = {_TRANSFER} then unhex(sha2(body, 256)) end"
_CLEAN_COLUMNS: Final = [name for name in CHECKED.names if name not in ("clean", "events")]
# After this many rounds, all wallets that could be affected are judged at once: a chain of transfers would
# otherwise be followed link by link.
_ROUNDS: Final = 4
# Up to this many can be listed in a query.
FEW: Final = 2000
# Opening a wallet resets what it spent before.
_RESETS: Final = True
# The most events of wallets that break rules that the driver should judge.
MOST_JUDGED: Final = 2_000_000


def fold_wallets(events: DataFrame, overlay: Wallets, stream_id: StreamId) -> Folded | None:
    """Fold wallets; None if too many events break rules, or the stream is a wallet's own."""
    if overlay.replica:
        return None
    return _Fold(events, overlay, stream_id).run()


class SomeWallets(Wallets):
    """Some wallets of a shared stream, assuming that all debits of others count."""

    some: frozenset[bytes] = frozenset()

    def is_here(self, wallet: bytes, before: Tables) -> bool:  # noqa: ARG002 - whatever was before
        """Return whether a wallet is one of these."""
        return wallet in self.some


class _Clean(NamedTuple):
    """A wallet that breaks no rule: its lowest balance after spending, and its result."""

    low: int
    effect: Effect


class _Judged(NamedTuple):
    """The overlay's verdict on some wallets, and the credits withheld from others because of it."""

    memory: MemoryTables
    reports: list[Report]
    withheld: Withheld


class _Settled(NamedTuple):
    """The verdict on all wallets: those that were judged, and the clean ones."""

    judged: _Judged
    suspects: set[bytes]
    clean: dict[bytes, _Clean]


class _Fold:
    def __init__(self, events: DataFrame, overlay: Wallets, stream_id: StreamId) -> None:
        self.overlay = overlay
        self.stream_id = stream_id
        self.events = events
        self.taken = events.filter(GOOD)
        self.ops = _ops(self.taken, overlay)

    def run(self) -> Folded | None:
        """Find the wallets that break rules, and judge them."""
        rows = _listed_rows(self.taken)
        if _has_own(rows, self.stream_id):  # the sequential events of a single wallet
            return None
        with ThreadPoolExecutor(2) as pool:  # Spark and the driver work concurrently
            listing = pool.submit(_Listed, rows)
            refusing = pool.submit(refusals, self.events)
            checked = _checked(self.ops)
            listed = listing.result()
            settled = self._settle(_effects(checked), set(_suspects(checked)) | listed.repeated(), listed)
            if settled is None:
                return None
            events = pc.sum(checked.column("events")).as_py() or 0
            tables, reports = _united(listed, settled)
            return fold_result(tables, events, refusing.result(), reports)

    def _settle(self, clean: dict[bytes, _Clean], suspects: set[bytes], listed: "_Listed") -> _Settled | None:
        """Judge wallets, and those that then break a rule, until none is left."""
        judged = _Judged(memory_of(self.overlay), [], {})
        if not suspects:
            return _Settled(judged, suspects, clean)
        rounds = 0
        while True:
            verdicts = self._judge(suspects)
            if verdicts is None:
                return None
            short, more = self._without(verdicts, clean)
            if not more:
                return _Settled(verdicts, suspects, short)
            suspects |= more
            rounds += 1
            if rounds == _ROUNDS:  # no further wallet can be affected: the next round is the last
                suspects = listed.reached_from(suspects)

    def _judge(self, suspects: set[bytes]) -> _Judged | None:
        """Have the overlay judge some wallets, assuming that all debits of others count."""
        rows = _touching(self.taken, suspects).limit(MOST_JUDGED + 1).toArrow()
        if len(rows) > MOST_JUDGED:
            return None
        overlay = SomeWallets(**vars(self.overlay), some=frozenset(suspects))
        return _judged(overlay, rows, self.stream_id)

    def _without(self, judged: _Judged, clean: dict[bytes, _Clean]) -> tuple[dict[bytes, _Clean], set[bytes]]:
        """Return wallets without the credits withheld from them, and those that then break a rule."""
        short = dict(clean)
        lacking: dict[bytes, list[Place]] = {}
        for wallet, credits_ in judged.withheld.items():
            low, effect = clean[wallet]
            amount = sum(credits_.values())
            if amount <= low:
                short[wallet] = _Clean(low - amount, effect._replace(balance=effect.balance - amount))
            else:
                lacking[wallet] = list(credits_)
        if not lacking:
            return short, set()
        checked = _checked(_ops_without(self.ops, lacking))
        return short | _effects(checked), set(_suspects(checked))


def _united(listed: "_Listed", settled: _Settled) -> tuple[dict[str, dict[Any, Any]], list[Report]]:
    """Return the tables and reports of the judged and the clean wallets together."""
    judged, suspects, clean = settled
    reports = list(judged.reports)
    for wallet, credits_ in judged.withheld.items():
        reports += [Report(*place, *report("WAL.UNBACKED", wallet)) for place in map(listed.place, credits_)]
    judged_tables = judged.memory.tables
    wallets = {wallet: found.effect for wallet, found in clean.items() if wallet not in suspects}
    tables: dict[str, dict[Any, Any]] = {
        **{name: {} for name in Wallets.tables},  # nothing is pending in a shared stream
        "wallets": wallets | judged_tables["wallets"],
        "opened": listed.openings(suspects) | judged_tables["opened"],
        "transfers": listed.transfers(suspects, judged.withheld) | judged_tables["transfers"],
    }
    return tables, reports


# --- in columns ---------------------------------------------------------------------------------------------


# The effect of an event on its own wallet; a kind is the index of its schema.
_OWN_OP: Final = f"""case when raw is not null then {Op.ODD:d}
    when kind = {_TRANSFER} and wallet_id = to_wallet_id then {Op.ODD:d}
    when kind = {_LIMIT} and daily_limit is null then {Op.NO_LIMIT:d} else kind end"""
_ONCE: Final = f"case when kind = {_WITHDRAW} then ref end as ref"
_NOTHING: Final = "cast(null as binary) as ref"


def _ops(events: DataFrame, overlay: Wallets) -> DataFrame:
    """Return the operations on each wallet."""
    odd = _odd(overlay)
    own = events.selectExpr(
        "wallet_id as wallet",
        "epoch",
        "stream_seq",
        f"cast({f'case when {odd} then {Op.ODD:d} else {_OWN_OP} end' if odd else _OWN_OP} as int) as op",
        "coalesce(amount, delta, daily_limit) as amount",
        "coalesce(ts, created_at) as ts",
        _ONCE if overlay.unique_withdraw_refs else _NOTHING,
    )
    incoming = events.filter(f"kind = {_TRANSFER}").selectExpr(
        "to_wallet_id as wallet",
        "epoch",
        "stream_seq",
        f"case when raw is null then {Op.IN:d} else {Op.ODD_IN:d} end as op",
        "amount",
        "cast(null as bigint) as ts",
        _NOTHING,
    )
    return own.union(incoming)


def _odd(overlay: Wallets) -> str:
    """Return the condition for events that the overlay reports in any state; "": none."""
    if not overlay.institution:
        return ""
    keys = _literals(overlay.institution)
    return f"(kind = {_ADJUST} and not (client_id in ({keys}) or coalesce(auth_ref in ({keys}), false)))"


def _ops_without(ops: DataFrame, lacking: dict[bytes, list[Place]]) -> DataFrame:
    """Return the operations on some wallets, without some credits."""
    names = ["wallet", "epoch", "stream_seq"]
    rows = [(wallet, *place) for wallet, places in lacking.items() for place in places]
    arrays = [
        pa.array(column, OPS.field(name).type)
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    ]
    missing = ops.sparkSession.createDataFrame(pa.table(arrays, names=names))
    affected = ops.join(F.broadcast(missing.select("wallet")), "wallet", "left_semi")
    missing = F.broadcast(missing.withColumn("op", F.lit(int(Op.IN))))
    return affected.join(missing, [*names, "op"], "left_anti").select(OPS.names)


def _touching(events: DataFrame, wallets: set[bytes]) -> DataFrame:
    """Return the events of some wallets, and transfers to them."""
    if len(wallets) <= FEW:
        keys = _literals(wallets)
        return events.filter(f"wallet_id in ({keys}) or to_wallet_id in ({keys})")
    table = pa.table({"judged": pa.array(sorted(wallets), pa.binary())})
    wallet_rows = F.broadcast(events.sparkSession.createDataFrame(table))
    is_own, is_to = (F.col(name) == F.col("judged") for name in ("wallet_id", "to_wallet_id"))
    return events.join(wallet_rows, is_own, "left_semi").union(
        events.filter(f"kind = {_TRANSFER}")
        .join(wallet_rows, is_own, "left_anti")
        .join(wallet_rows, is_to, "left_semi")
    )


def _literals(keys: Iterable[bytes]) -> str:
    return ", ".join(f"X'{key.hex()}'" for key in sorted(keys))


def _checked(ops: DataFrame) -> pa.Table:
    """Return the verdict on each wallet from its own events."""
    return ops.repartition("wallet").mapInArrow(_check_all, from_arrow_schema(CHECKED)).toArrow()


def _check_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the wallets of a partition, with all of its rows at once."""
    rows = list(batches)
    if rows:
        yield check(pa.Table.from_batches(rows))


def _suspects(checked: pa.Table) -> list[bytes]:
    """Return the wallets that are not clean."""
    suspects: list[bytes] = checked.filter(pc.invert(checked.column("clean"))).column("wallet").to_pylist()
    return suspects


def _effects(checked: pa.Table) -> dict[bytes, _Clean]:
    """Return the results of clean wallets."""
    wallets, lows, closed, frozen, limits, resets, *sums = lists(
        checked.filter(checked.column("clean")), *_CLEAN_COLUMNS
    )
    return {
        wallet: _Clean(low, Effect(CLOSED if over else OPENED, frosty, (limit,), reset, _RESETS, *added))
        for wallet, low, over, frosty, limit, reset, added in zip(
            wallets, lows, closed, frozen, limits, resets, zip(*sums, strict=True), strict=True
        )
    }


def _listed_rows(events: DataFrame) -> pa.Table:
    """Return all openings and transfers."""
    listed = events.filter(f"kind in ({_OPEN}, {_TRANSFER})")
    return listed.select("kind", *POSITION, *_LISTED, F.expr(_BODY_HASH).alias("body_hash")).toArrow()


def _has_own(rows: pa.Table, stream_id: StreamId) -> bool:
    """Return whether the stream belongs to a wallet that is opened in it or receives a transfer."""
    opened = rows.filter(pc.equal(rows.column("kind"), _OPEN)).column("wallet_id")
    columns = opened, rows.column("to_wallet_id").drop_null()
    wallets = {wallet for column in columns for wallet in pc.unique(column).to_pylist()}
    return any(is_own_stream(stream_id, wallet) for wallet in wallets)


class _Listed:
    """All openings and transfers, which are part of the state."""

    def __init__(self, rows: pa.Table) -> None:
        self._opened = rows.filter(pc.equal(rows.column("kind"), _OPEN))
        self._moved = rows.filter(pc.equal(rows.column("kind"), _TRANSFER))
        self._places = positions(self._moved)
        self._transfers = self._all_transfers()
        self._by_place: dict[Place, Position] = {}

    def repeated(self) -> set[bytes]:
        """Return the wallets on either side of transfers with a repeated id."""
        wallets: set[bytes] = set()
        if len(self._transfers) == 2 * len(self._moved):
            return wallets
        for side in ("wallet_id", "to_wallet_id"):
            keys = [side, "transfer_id"]
            counted = self._moved.select(keys).group_by(keys).aggregate([([], "count_all")])
            twice = counted.filter(pc.greater(counted.column("count_all"), 1)).select(keys)
            repeated_keys = set(zip(*lists(twice, *keys), strict=True))
            sources, targets, ids = lists(self._moved, "wallet_id", "to_wallet_id", "transfer_id")
            own = sources if side == "wallet_id" else targets
            for source, target, key in zip(sources, targets, zip(own, ids, strict=True), strict=True):
                if key in repeated_keys:
                    wallets |= {source, target}
        return wallets

    def reached_from(self, wallets: set[bytes]) -> set[bytes]:
        """Return wallets and all wallets that receive transfers from them, transitively."""
        paid: dict[bytes, set[bytes]] = {}
        for source, target in zip(*lists(self._moved, "wallet_id", "to_wallet_id"), strict=True):
            paid.setdefault(source, set()).add(target)
        reached, new = set(wallets), set(wallets)
        while new:
            new = {target for wallet in new for target in paid.get(wallet, ())} - reached
            reached |= new
        return reached

    def place(self, place: Place) -> Position:
        """Return the position and message of a transfer."""
        if not self._by_place:
            self._by_place = {found[:2]: found for found in self._places}
        return self._by_place[place]

    def openings(self, judged: set[bytes]) -> dict[bytes, Any]:
        """Return the openings of wallets that were not judged."""
        table = self._opened
        wallets, *rest = lists(table, "wallet_id", "realm_id", "ctx_id", "currency", "created_at")
        rows = zip(positions(table), *rest, strict=True)
        return {wallet: row for wallet, row in zip(wallets, rows, strict=True) if wallet not in judged}

    def transfers(self, judged: set[bytes], withheld: Withheld) -> dict[Any, Any]:
        """Return the sides of transfers of wallets that were not judged."""
        if not judged:
            return self._transfers
        return {
            key: found
            for key, found in self._transfers.items()
            if key[0] not in judged
            and (key[1] == OUT or key[0] not in withheld or found[0][:2] not in withheld[key[0]])
        }

    def _all_transfers(self) -> dict[Any, Any]:
        """Return both sides of all transfers, assuming that all of them count."""
        table, places = self._moved, self._places
        sources, targets, ids, amounts, hashes = lists(
            table, "wallet_id", "to_wallet_id", "transfer_id", "amount", "body_hash"
        )
        applied = [""] * len(ids)
        sides: dict[Any, Any] = {}
        for own, side, other in ((sources, OUT, targets), (targets, IN, sources)):
            keys = zip(own, [side] * len(ids), ids, strict=True)
            sides.update(zip(keys, zip(places, amounts, other, applied, hashes, strict=True), strict=True))
        return sides


# --- judged by the overlay ----------------------------------------------------------------------------------


def _judged(overlay: SomeWallets, rows: pa.Table, stream_id: StreamId) -> _Judged:
    """Judge the wallets of an overlay by all events that touch them."""
    memory = memory_of(overlay)
    annotator = Annotator(overlay, memory, stream_id)
    reports: list[Report] = []
    withheld: Withheld = {}
    for event in sorted(_events(rows, stream_id), key=_place):
        item = annotator.enter(event)
        reports += item.reports
        if event.schema is not wal.TRANSFER:
            continue
        source, target, once = (event.body[name] for name in ("wallet_id", "to_wallet_id", "transfer_id"))
        if target not in overlay.some and memory.get("transfers", (source, OUT, once))[3]:
            withheld.setdefault(target, {})[_place(event)] = event.body["amount"]
    return _Judged(memory, reports, withheld)


def _place(event: Event) -> tuple[int, int]:
    return event.record.epoch, event.record.stream_seq


def _events(rows: pa.Table, stream_id: StreamId) -> Iterator[Event]:
    """Yield rows as events; absent fields are null, as the overlay expects."""
    columns = lists(rows, "kind", "client_id", "auth_ref", "body", "raw")
    fields = zip(*lists(rows, *_FIELDS), strict=True)
    for place, kind, client, ref, data, raw, values in zip(positions(rows), *columns, fields, strict=True):
        record = record_at(place)._replace(client_id=client, auth_ref=ref, body=data)
        schema = wal.SCHEMAS[kind]
        body = dict(zip(_FIELDS, values, strict=True)) if raw is None else schema.decode(raw)
        yield Event(record, schema, body, record.msg_id, stream_id)
