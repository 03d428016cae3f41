"""The ledger of paid operations in SQL: sums over both sides of each operation.

Where accounts must not be overdrawn, this is exact if no operation is rejected, which the running sum of
every account shows. If one is rejected, its effects on other accounts need a fold in log order.
"""

from itertools import starmap
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

from veen.core.types import StreamId
from veen.overlays.event import Event, Report
from veen.overlays.operations.paid_ledger import PAID, PaidLedger
from veen.pipeline.fold.sql_form import Folded
from veen.pipeline.fold_sql.events import (
    GOOD,
    POSITION,
    fold_result,
    lists,
    positions,
    record_at,
    refusals,
    said_of,
)
from veen.pipeline.open.records import RECORDS
from veen.pipeline.open.typed_columns import EventTable, ints_of

LEDGER_EVENTS: Final = EventTable(
    (PAID,),
    ("payer_account", "payee_account", "amount", "currency_code"),
    [RECORDS.field("hub_ts"), RECORDS.field("expires_at")],
)
_NOBODY: Final = bytes(32)


def fold_ledger(events: DataFrame, overlay: PaidLedger, stream_id: StreamId) -> Folded | None:
    """Fold the ledger; None if an operation is rejected because of its payer's balance."""
    valid = events.filter(GOOD).withColumn("currency", _currency(overlay))
    counted = _remapped(valid.filter("currency is not null"), overlay)
    legs = _legs(counted)
    if overlay.forbid_negative and _owes(legs, overlay):
        return None
    place = F.min(F.struct(*POSITION)).alias("first")
    sums = legs.groupBy("currency", "account").agg(F.sum("change").alias("balance"), place)
    rows = sums.select("currency", "account", "balance", "first.*").toArrow()
    currencies, accounts = lists(rows, "currency", "account")
    balances = dict(zip(zip(currencies, accounts, strict=True), ints_of(rows.column("balance")), strict=True))
    firsts: dict[str, Any] = {}
    for name, first in zip(currencies, positions(rows), strict=True):
        firsts[name] = min(firsts.get(name, (first,)), (first,))
    tables: dict[str, dict[Any, Any]] = {"balances": balances, "currencies": firsts}
    return fold_result(tables, valid.count(), refusals(events), _told(valid, overlay, stream_id))


def _currency(overlay: PaidLedger) -> Column:
    return F.coalesce(F.col("currency_code"), F.lit(overlay.default_currency))


def _remapped(rows: DataFrame, overlay: PaidLedger) -> DataFrame:
    """Return operations with accounts replaced as the overlay's ``remap`` says."""
    if not overlay.remap:
        return rows
    pairs = [(account, overlay.account(account)) for account in overlay.remap]
    for side in ("payer_account", "payee_account"):
        known = rows.sparkSession.createDataFrame(
            pa.table(
                {
                    side: pa.array([a for a, _ in pairs], pa.binary()),
                    "became": pa.array([b for _, b in pairs]),
                }
            )
        )
        rows = rows.join(F.broadcast(known), side, "left")
        rows = rows.withColumn(side, F.coalesce("became", side)).drop("became")
    return rows


def _legs(rows: DataFrame) -> DataFrame:
    """Return both sides of each operation; a single one of amount 0 where they are the same account."""
    amount = F.col("amount").cast("decimal(28,0)")
    place = ("currency", *POSITION)
    own = F.col("payer_account") == F.col("payee_account")
    paid = rows.select(
        *place, F.col("payer_account").alias("account"), F.when(own, 0).otherwise(-amount).alias("change")
    )
    got = rows.filter(~own).select(*place, F.col("payee_account").alias("account"), amount.alias("change"))
    return paid.unionByName(got)


def _owes(legs: DataFrame, overlay: PaidLedger) -> bool:
    """Return whether an account would be overdrawn if all operations counted."""
    account = F.col("account")
    strict = legs.filter(~account.isin(list(overlay.issuers))) if overlay.issuers else legs
    in_order = Window.partitionBy("currency", "account").orderBy("epoch", "stream_seq")
    running = F.sum("change").over(in_order.rowsBetween(Window.unboundedPreceding, 0))
    return bool(strict.select(running.alias("has")).filter("has < 0").head(1))


def _told(events: DataFrame, overlay: PaidLedger, stream_id: StreamId) -> list[Report]:
    """Return reports on operations without a currency, and on late ones."""
    rows = (
        events.filter("currency is null or hub_ts > expires_at")
        .select(*POSITION, "currency", "hub_ts", "expires_at")
        .toArrow()
    )
    columns = (positions(rows), *lists(rows, "currency", "hub_ts"), ints_of(rows.column("expires_at")))

    def reports_of(
        place: tuple[int, int, bytes], currency: str | None, hub_ts: int, expires_at: int
    ) -> list[Report]:
        record = record_at(place)._replace(hub_ts=hub_ts, expires_at=expires_at)
        body = {"payer_account": _NOBODY, "payee_account": _NOBODY, "amount": 0, "currency_code": currency}
        return said_of(overlay, Event(record, PAID, body, record.msg_id, stream_id))

    return [report for reports in starmap(reports_of, zip(*columns, strict=True)) for report in reports]
