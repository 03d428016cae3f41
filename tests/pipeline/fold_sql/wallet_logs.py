"""Logs of many wallets, most of which never break a rule."""

from random import Random

from tests.overlays.logs import T0, Log, ident
from veen.core.crypto.hash import U64_MAX
from veen.overlays.event import Record
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.schemas import DAY, wallet_id

REALM = ident("realm")


class _Wallet:
    """A wallet, as its owner knows it who breaks no rule."""

    def __init__(self, log: Log, nth: int) -> None:
        self.ctx = ident("owner", nth)
        self.id = wallet_id(REALM, self.ctx, "EUR")
        self.log = log
        self.balance = 0
        self.frozen = False
        self.limit: int | None = None
        self.spent = 0
        self.day = 0

    def open(self, created_at: int) -> None:
        self.log.event(
            wal.OPEN,
            wallet_id=self.id,
            realm_id=REALM,
            ctx_id=self.ctx,
            currency="EUR",
            created_at=created_at,
        )
        self.day = created_at // DAY

    def most(self, ts: int) -> int:
        """Return how much it may spend."""
        if self.frozen:
            return -1
        if self.limit is None:
            return self.balance
        if ts // DAY < self.day:
            return -1
        spent = self.spent if ts // DAY == self.day else 0
        return min(self.balance, self.limit - spent)

    def spend(self, amount: int, ts: int) -> None:
        self.balance -= amount
        if self.limit is not None:
            self.spent = amount + (self.spent if ts // DAY == self.day else 0)
            self.day = ts // DAY


def many_wallets(rng: Random, count: int, *, wallets: int = 60, bad: float = 0.02) -> list[Record]:
    """Return a log of some wallets; a few of them (``bad``: how often in all) do what breaks rules."""
    log = Log(rng)
    owners = [_Wallet(log, nth) for nth in range(wallets)]
    for owner in owners:
        owner.open(T0 + rng.randrange(DAY))
    hostile = owners[: max(1, wallets // 20)]
    while len(log.records) < count:
        if rng.random() < bad:
            _breaks(log, rng.choice(hostile), rng.choice(owners))
        else:
            _plain(log, rng.choice(owners), rng.choice(owners))
    return log.records


def _plain(log: Log, owner: _Wallet, other: _Wallet) -> None:
    rng = log.rng
    ts = T0 + DAY + 60 * len(log.records)
    chance = rng.random()
    most = owner.most(ts)
    if chance < 0.4 or most < 1:
        if chance < 0.02:
            owner.frozen = not owner.frozen
            log.event(wal.FREEZE if owner.frozen else wal.UNFREEZE, wallet_id=owner.id, ts=ts)
            return
        amount = rng.randrange(100)
        owner.balance += amount
        log.event(wal.DEPOSIT, wallet_id=owner.id, amount=amount, ts=ts)
    elif chance < 0.45:
        owner.limit = rng.choice((None, 500, 2000, 10**9))
        if owner.limit is not None and ts // DAY == owner.day:
            owner.limit = max(owner.limit, owner.spent)
        log.event(wal.LIMIT, wallet_id=owner.id, daily_limit=owner.limit, ts=ts)
    elif chance < 0.5:
        delta = rng.randrange(-owner.balance, 50)
        owner.balance += delta
        log.event(wal.ADJUST, wallet_id=owner.id, delta=delta, ts=ts, reason="so")
    elif chance < 0.75 or other is owner:
        amount = rng.randrange(most + 1)
        owner.spend(amount, ts)
        ref = rng.choice((None, ident(len(log.records))))
        log.event(wal.WITHDRAW, wallet_id=owner.id, amount=amount, ts=ts, ref=ref)
    else:
        amount = rng.randrange(most + 1)
        owner.spend(amount, ts)
        other.balance += amount
        transfer(log, owner.id, other.id, amount, ts)


def transfer(log: Log, source: bytes, target: bytes, amount: int, ts: int, *, once: object = None) -> None:
    """Append a transfer."""
    log.event(
        wal.TRANSFER,
        wallet_id=source,
        to_wallet_id=target,
        amount=amount,
        ts=ts,
        transfer_id=ident("transfer", len(log.records) if once is None else once),
    )


def _breaks(log: Log, owner: _Wallet, other: _Wallet) -> None:
    rng = log.rng
    ts = T0 + DAY + 60 * len(log.records)
    kind = rng.randrange(9)
    if kind == 0:
        log.event(wal.WITHDRAW, wallet_id=owner.id, amount=rng.choice((10**6, U64_MAX)), ts=ts)
    elif kind == 1:
        log.event(
            wal.WITHDRAW,
            wallet_id=owner.id,
            amount=0,
            ts=rng.choice((0, 5, T0)),
            ref=rng.choice((None, b"again")),
        )
    elif kind < 5:  # nobody gets it
        transfer(log, owner.id, other.id, 10**5, ts)
    elif kind == 5:  # an id twice
        transfer(log, owner.id, other.id, 1, ts, once=rng.randrange(5))
    elif kind == 6:
        log.event(wal.DEPOSIT, wallet_id=owner.id, amount=U64_MAX, ts=ts)
    elif kind == 7:
        transfer(log, owner.id, rng.choice((owner.id, ident("nobody's"))), 1, ts)
    else:
        log.event(wal.LIMIT, wallet_id=owner.id, daily_limit=rng.choice((0, U64_MAX)), ts=0)
