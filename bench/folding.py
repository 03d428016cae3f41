"""The fold rows of the report: folding decoded events, compared with a loop written for one overlay."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from random import Random
from typing import Any

from bench.measure import Result, best_us, ratio, time_all
from veen.core.encoding.shape import Fields
from veen.core.types import StreamId
from veen.overlays.builtin.crdt import COUNTER, LWW, GCounter, LwwMap
from veen.overlays.engine import Annotator, memory_of
from veen.overlays.event import Event, Record
from veen.overlays.operations.paid_ledger import PAID, PaidLedger
from veen.overlays.overlay import Overlay
from veen.overlays.schema import Schema
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.overlay import Wallets
from veen.overlays.wallet.schemas import wallet_id

_EVENTS = 20_000
_KEYS = 1_000
_REALM = bytes(32)
_WRITER = sha256(b"writer").digest()
_ACCOUNTS = [sha256(b"account %d" % nth).digest() for nth in range(_KEYS)]
_WALLETS = [wallet_id(_REALM, account, "EUR") for account in _ACCOUNTS]
_T0 = 1_700_000_000
_STREAM = StreamId(sha256(b"stream").digest())

TypedBodies = Iterator[tuple[Schema, Fields]]


def _registers(rng: Random) -> TypedBodies:
    while True:
        value = rng.randbytes(8)
        yield LWW, LWW.make(key=b"key %d" % rng.randrange(_KEYS), ts=rng.randrange(1 << 40), value=value)


def _counts(rng: Random) -> TypedBodies:
    while True:
        yield COUNTER, COUNTER.make(shard=rng.choice(_ACCOUNTS), delta=rng.randrange(100))


def _payments(rng: Random) -> TypedBodies:
    while True:
        yield (
            PAID,
            PAID.make(
                operation_type="bench.v1",
                operation_args=None,
                payer_account=rng.choice(_ACCOUNTS),
                payee_account=rng.choice(_ACCOUNTS),
                amount=rng.randrange(100),
                currency_code="EUR",
            ),
        )


def _wallets(rng: Random) -> TypedBodies:
    """Open all wallets, then deposit, withdraw and transfer; some events are rejected."""
    for account, wallet in zip(_ACCOUNTS, _WALLETS, strict=True):
        opened = {"realm_id": _REALM, "ctx_id": account, "currency": "EUR", "created_at": _T0}
        yield wal.OPEN, wal.OPEN.make(wallet_id=wallet, **opened)
    while True:
        wallet, amount, ts = rng.choice(_WALLETS), rng.randrange(500), _T0 + rng.randrange(1 << 20)
        kind = rng.random()
        if kind < 0.4:
            yield wal.DEPOSIT, wal.DEPOSIT.make(wallet_id=wallet, amount=2 * amount, ts=ts)
        elif kind < 0.6:
            yield wal.WITHDRAW, wal.WITHDRAW.make(wallet_id=wallet, amount=amount, ts=ts)
        else:
            named = {"to_wallet_id": rng.choice(_WALLETS), "transfer_id": rng.randbytes(32)}
            yield wal.TRANSFER, wal.TRANSFER.make(wallet_id=wallet, amount=amount, ts=ts, **named)


def _decoded(bodies: TypedBodies) -> list[Event]:
    events = []
    for seq, (schema, body) in zip(range(1, _EVENTS + 1), bodies, strict=False):
        msg_id = sha256(seq.to_bytes(8, "big")).digest()
        record = Record(seq, msg_id, _WRITER, seq, _T0 + seq, schema.schema_id, b"")
        events.append(Event(record, schema, body, msg_id, _STREAM))
    return events


def _folding(overlay: Overlay, events: list[Event]) -> Callable[[], object]:
    def work() -> object:
        head = memory_of(overlay)
        enter = Annotator(overlay, head, _STREAM).enter
        for event in events:
            enter(event)
        return head

    return work


def _bare_registers(events: list[Event]) -> object:
    best: dict[bytes, Any] = {}
    for event in events:
        body = event.body
        new = (body["ts"], event.record.stream_seq, body["value"])
        if body["key"] not in best or new > best[body["key"]]:
            best[body["key"]] = new
    return best


def _bare_counts(events: list[Event]) -> object:
    shards: dict[bytes, int] = {}
    for event in events:
        shard = event.body["shard"]
        shards[shard] = shards.get(shard, 0) + event.body["delta"]
    return shards


def _bare_payments(events: list[Event]) -> object:
    balances: dict[tuple[str, bytes], int] = {}
    for event in events:
        body = event.body
        for account, sign in ((body["payer_account"], -1), (body["payee_account"], 1)):
            key = (body["currency_code"], account)
            balances[key] = balances.get(key, 0) + sign * body["amount"]
    return balances


# Overlay, its events, a hand-written loop if there is a short one, and the required events per second.
_SUBJECTS: tuple[
    tuple[Overlay, Callable[[Random], TypedBodies], Callable[[list[Event]], object] | None, int], ...
] = (
    (LwwMap(), _registers, _bare_registers, 150_000),
    (GCounter(), _counts, _bare_counts, 150_000),
    (PaidLedger(), _payments, _bare_payments, 150_000),
    (Wallets(), _wallets, None, 60_000),
)


def measure_folds(rounds: int) -> Iterator[Result]:
    """Fold decoded events in one process."""
    for overlay, make, bare, min_rate in _SUBJECTS:
        events = _decoded(make(Random(7)))  # noqa: S311 - any events will do
        works: dict[str, Callable[[], object]] = {"fold": _folding(overlay, events)}
        if bare is not None:
            works["bare"] = lambda bare=bare, events=events: bare(events)  # type: ignore[misc]
        times = time_all(works, rounds=rounds, batch_sec=0)
        us = best_us(times, "fold") / _EVENTS
        rate = round(1e6 / us)
        yield Result(
            f"fold {overlay.name}", round(us, 2), "events/s", rate, f">= {min_rate}", rate >= min_rate
        )
        if bare is not None:
            factor = ratio(times, "fold", "bare")
            yield Result(
                f"fold {overlay.name}", round(us, 2), "a loop for it alone", round(factor, 2), "", None
            )
