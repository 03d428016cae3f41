"""Histories of wallets and of paid operations, hostile ones among them."""

from random import Random
from typing import Any

from tests.overlays.logs import BRIDGE, T0, History, Log, ident, spoil
from veen.core.crypto.hash import U64_MAX
from veen.overlays.event import Record
from veen.overlays.operations.paid_ledger import PAID
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.schemas import DAY, wallet_id, wallet_stream

REALM = ident("realm")
CURRENCIES = ("EUR", "JPY")
#: (context, currency, id): few, so that events meet.
WALLETS = [
    (ident("ctx", nth), CURRENCIES[nth % 2], wallet_id(REALM, ident("ctx", nth), CURRENCIES[nth % 2]))
    for nth in range(5)
]
IDS = [wallet for _, _, wallet in WALLETS]
#: The own stream of the first of them, which is named more often than the others.
OWN_STREAM = wallet_stream(IDS[0])
_OFTEN = (3, 1, 1, 1, 1)
#: Zero, the first day, days before and after each other, the end of the numbers.
TIMES = (0, 1, DAY - 1, DAY, T0, T0 + 60, T0 + DAY, T0 + 2 * DAY, T0 - DAY, U64_MAX)
AMOUNTS = (0, 1, 5, 10, 20, 50, 99, U64_MAX - 5, U64_MAX)


def _time(rng: Random) -> int:
    return rng.choice(TIMES) if rng.random() < 0.3 else T0 + rng.randrange(3 * DAY)


def _some(rng: Random) -> bytes:
    return rng.choices(IDS, _OFTEN)[0]


class _Log(Log):
    """A log of wallets; ``huge``: with amounts of which two are more than a number holds."""

    def __init__(self, rng: Random, *, huge: bool) -> None:
        super().__init__(rng)
        self.huge = huge

    def amount(self) -> int:
        """Return some amount."""
        is_odd = self.rng.random() < 0.15
        return self.rng.choice(AMOUNTS if self.huge else AMOUNTS[:-2]) if is_odd else self.rng.randrange(60)


def _open(log: _Log) -> None:
    rng = log.rng
    ctx, currency, wallet = rng.choices(WALLETS, _OFTEN)[0]
    if rng.random() < 0.1:
        wallet = ident("another")  # not the id of these fields: must be refused
    body: dict[str, Any] = {
        "wallet_id": wallet,
        "realm_id": REALM,
        "ctx_id": ctx,
        "currency": currency,
        "created_at": rng.choice((0, T0, _time(rng))),
    }
    log.add(wal.OPEN, wal.OPEN.encode(body))


def _moves(log: _Log, wallet: bytes) -> None:
    rng = log.rng
    ref = ident("ref", rng.randrange(8))[: rng.randrange(4)] if rng.random() < 0.3 else None
    kind = rng.randrange(4)
    if kind == 0:
        log.event(wal.WITHDRAW, wallet_id=wallet, amount=log.amount(), ts=_time(rng), ref=ref)
    elif kind == 1:
        log.event(wal.DEPOSIT, wallet_id=wallet, amount=log.amount(), ts=_time(rng), ref=ref)
    elif kind == 2:
        delta = rng.choice((-1, 1)) * log.amount()
        log.event(wal.ADJUST, wallet_id=wallet, delta=delta, ts=_time(rng), reason="so", ref=ref)
    else:
        _transfer(log, wallet)


def _transfer(log: _Log, wallet: bytes) -> None:
    rng = log.rng
    other = _some(rng) if rng.random() < 0.9 else ident("nobody's")
    once = ident(rng.randrange(30)) if rng.random() < 0.3 else ident("transfer", rng.getrandbits(64))
    metadata = {"memo": "x", "n": [1, {"deep": 2}]} if rng.random() < 0.1 else None
    log.event(
        wal.TRANSFER,
        wallet_id=wallet,
        to_wallet_id=other,
        amount=log.amount(),
        ts=_time(rng),
        transfer_id=once,
        metadata=metadata,
    )


def _controls(log: _Log, wallet: bytes) -> None:
    rng = log.rng
    kind = rng.randrange(20)
    if kind == 0:
        log.event(wal.CLOSE, wallet_id=wallet, ts=_time(rng))
    elif kind < 5:
        log.event(wal.FREEZE, wallet_id=wallet, ts=_time(rng), reason=rng.choice((None, "why")))
    elif kind < 11:
        log.event(wal.UNFREEZE, wallet_id=wallet, ts=_time(rng))
    else:
        limit = rng.choice((None, 0, 30, 30, 80, 200, U64_MAX))
        log.event(wal.LIMIT, wallet_id=wallet, daily_limit=limit, ts=_time(rng))


def _again(log: _Log) -> None:
    """Append a message that says what another has said: it is no copy, and events have names of their own."""
    source = log.rng.choice(log.records)
    log.add(source.schema, source.body)


def _foreign_copy(log: _Log) -> None:
    """Append a copy of something that is not here."""
    rng = log.rng
    body = wal.DEPOSIT.encode(wal.DEPOSIT.make(wallet_id=rng.choice(IDS), amount=rng.randrange(50), ts=T0))
    log.add(wal.DEPOSIT, body, client_id=BRIDGE, parent_id=ident("elsewhere", rng.randrange(20)))


def wallet(rng: Random, count: int) -> list[Record]:
    """Every event at every time, with amounts up to the end of the numbers."""
    return _wallet(_Log(rng, huge=True), count)


def literal(rng: Random, count: int) -> list[Record]:
    """Return the same, with amounts that can be added up."""
    return _wallet(_Log(rng, huge=False), count)


def _wallet(log: _Log, count: int) -> list[Record]:
    rng = log.rng
    while len(log.records) < count:
        chance = rng.random()
        if chance < 0.15:
            spoil(log, wal.SCHEMAS, by_parent=True)
        elif chance < 0.19:
            _foreign_copy(log)
        elif chance < 0.28:
            _open(log)
        elif chance < 0.43:
            _controls(log, _some(rng))
        elif chance < 0.46 and log.records:
            _again(log)
        else:
            _moves(log, _some(rng))
    return log.records


ACCOUNTS = [ident("account", nth) for nth in range(4)]


def paid(rng: Random, count: int) -> list[Record]:
    """Operations in several currencies, without one, with oneself, copied by a bridge, and late ones."""
    log = Log(rng)
    while len(log.records) < count:
        if rng.random() < 0.2:
            spoil(log, (PAID,), by_parent=False)
            continue
        body: dict[str, Any] = PAID.make(
            operation_type="test",
            operation_args=rng.choice((None, {"a": [1, b"x"]}, "text", 7)),
            payer_account=rng.choice(ACCOUNTS),
            payee_account=rng.choice(ACCOUNTS),
            amount=rng.choice((0, 1, 30, 2**40, rng.randrange(100))),
            currency_code=rng.choice(("EUR", "EUR", "JPY", "", None)),
            ttl_seconds=rng.choice((None, 5)),
        )
        if rng.random() < 0.3:  # absent is the same as null
            body = {name: item for name, item in body.items() if item is not None or name == "operation_args"}
        log.add(PAID, PAID.encode(body), expires_at=rng.choice((None, T0 + 20)))
    return log.records


WALLET_HISTORIES: dict[str, History] = {"wallet": wallet, "wallet.literal": literal, "paid.ledger": paid}
