"""Wallets in columns beside the overlay: whoever is found clean is exactly that."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.overlays.histories_wallet import wallet
from tests.overlays.logs import STREAM, T0, Log, ident
from tests.pipeline.fold_sql.wallet_logs import many_wallets
from veen.overlays.engine import Annotator, memory_of
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Decoder, Event, Record
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.schemas import DAY, wallet_id
from veen.pipeline.fold_sql.wallet import SomeWallets
from veen.pipeline.fold_sql.wallet_rules import CHECKED, OPS, Op, check

_SIMPLE = {
    wal.CLOSE.name: Op.CLOSE,
    wal.DEPOSIT.name: Op.DEPOSIT,
    wal.WITHDRAW.name: Op.WITHDRAW,
    wal.ADJUST.name: Op.ADJUST,
    wal.FREEZE.name: Op.FREEZE,
    wal.UNFREEZE.name: Op.UNFREEZE,
    wal.OPEN.name: Op.OPEN,
}


def events_of(records: Iterable[Record]) -> list[Event]:
    """Return what decodes."""
    decoder = Decoder(wal.SCHEMAS)
    found = []
    for record in records:
        schema = decoder.schema_of(record)
        if schema is None:
            continue
        try:
            body = decoder.decode(record, schema)
        except InvalidBodyError:
            continue
        found.append(Event(record, schema, body, record.msg_id, STREAM))
    return found


def _rows(event: Event) -> list[tuple[Any, ...]]:
    body, name = event.body, event.name
    place = (event.record.epoch, event.record.stream_seq)
    amount = next(
        (body[key] for key in ("amount", "delta", "daily_limit") if body.get(key) is not None), None
    )
    ts: int = body["ts"] if "ts" in body else body["created_at"]
    if name == wal.LIMIT.name:
        op = Op.NO_LIMIT if body["daily_limit"] is None else Op.LIMIT
    else:
        op = Op.OUT if name == wal.TRANSFER.name else _SIMPLE[name]
    if name == wal.TRANSFER.name and body["wallet_id"] == body["to_wallet_id"]:
        op = Op.ODD
    ref = body.get("ref") if op is Op.WITHDRAW else None
    rows: list[tuple[Any, ...]] = [(body["wallet_id"], *place, op, amount, ts, ref)]
    if name == wal.TRANSFER.name:
        rows.append((body["to_wallet_id"], *place, Op.IN, amount, None, None))
    if max(abs(amount or 0), ts) >= 2**63:
        rows = [(*row[:3], Op.ODD_IN if row[3] is Op.IN else Op.ODD, None, None, row[6]) for row in rows]
    return rows


def checked(events: Iterable[Event], rng: Random) -> dict[bytes, dict[str, Any]]:
    """Check wallets by rows in any order."""
    rows = [row for event in events for row in _rows(event)]
    rng.shuffle(rows)
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, OPS, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=OPS)
    batch = check(table)
    batch.validate(full=True)
    return {row.pop("wallet"): row for row in batch.to_pylist()}


def _alone(events: list[Event], wallet: bytes, *, forward_only: bool) -> tuple[Any, list[tuple[str, str]]]:
    """Return what a wallet comes to if all others pay, and what is said of which events."""
    overlay = SomeWallets("gt" if forward_only else "neq", some=frozenset({wallet}))
    head = memory_of(overlay)
    annotator = Annotator(overlay, head, STREAM)
    told = []
    for event in events:
        if wallet in (event.body["wallet_id"], event.body.get("to_wallet_id")):
            told += [(event.name, report.code) for report in annotator.enter(event).reports]
    return head.get("wallets", wallet), told


def _assert_right(events: list[Event], seed: int) -> tuple[int, int]:
    found = checked(events, Random(seed))
    assert sum(row["events"] for row in found.values()) == len(events)
    clean = 0
    for one, row in found.items():
        if not row["clean"]:
            continue
        effect, told = _alone(events, one, forward_only=seed % 2 == 0)
        if (wal.TRANSFER.name, "WAL.DUPLICATE") in told:
            continue  # which is looked for elsewhere
        clean += 1
        assert not told
        assert effect == (
            2 if row["closed"] else 1,
            row["frozen"],
            (row["limit"],),
            row["last_reset"],
            True,
            *(row[name] for name in CHECKED.names[8:]),
        )
    return clean, len(found)


@pytest.mark.parametrize("seed", range(12))
def test_clean_wallets_are_what_the_overlay_makes_of_them(seed: int) -> None:
    events = events_of(many_wallets(Random(seed), 1500))
    clean, all_of_them = _assert_right(events, seed)
    assert clean >= 0.8 * all_of_them, "most are found to be clean"


def test_whatever_happens_no_wallet_is_taken_for_clean_that_is_not() -> None:
    clean = 0
    for seed in range(400):
        clean += _assert_right(events_of(wallet(Random(seed), 5 + seed % 60)), seed)[0]
    assert clean > 10


def _one(*events: tuple[Any, dict[str, Any]], created_at: int = T0) -> dict[str, Any]:
    """Check a wallet that is opened, then some events."""
    log = Log(Random(1))
    ctx = ident("ctx")
    mine = wallet_id(ident("realm"), ctx, "EUR")
    opened: dict[str, Any] = {
        "realm_id": ident("realm"),
        "ctx_id": ctx,
        "currency": "EUR",
        "created_at": created_at,
    }
    log.event(wal.OPEN, wallet_id=mine, **opened)
    for schema, values in events:
        log.event(schema, wallet_id=mine, **values)
    (row,) = checked(events_of(log.records), Random(2)).values()
    return row


def test_days_and_limits_are_counted_as_the_overlay_does() -> None:
    put = (wal.DEPOSIT, {"amount": 100, "ts": T0})
    limit = (wal.LIMIT, {"daily_limit": 30, "ts": T0})

    def takes(amount: int, ts: int) -> tuple[Any, dict[str, Any]]:
        return wal.WITHDRAW, {"amount": amount, "ts": ts}

    row = _one(put, limit, takes(20, T0), takes(10, T0 + 5), takes(30, T0 + DAY))
    assert (row["clean"], row["pending"], row["last_reset"], row["balance"]) == (True, 30, T0 + DAY, 40)
    assert not _one(put, limit, takes(20, T0), takes(11, T0 + 5))["clean"], "over the limit of the day"
    assert not _one(put, limit, takes(5, T0 + DAY), takes(5, T0))["clean"], "back to an earlier day"
    assert _one(put, takes(50, T0 + DAY), limit, takes(30, T0))["clean"], "nothing is counted without a limit"
    assert not _one(put, limit, takes(5, T0), created_at=0)["clean"], "left to the overlay"
    assert not _one(put, takes(101, T0))["clean"]


def test_no_rows_are_no_wallets() -> None:
    assert check(OPS.empty_table()).num_rows == 0
