"""Steps about wallets: ids, rules, summaries, copies, and transfers over a hub."""

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any, Final

from veen.client.client import Client
from veen.client.fold.interpret import interpret
from veen.client.models import Draft, Sent
from veen.client.send import send_draft
from veen.client.wallets import event, judged, opening, own_context, own_wallet, transfer, transfer_of
from veen.core.objects import labels
from veen.overlays.engine import Annotated, Fold, Summary, annotate, fold
from veen.overlays.event import Record, operation_id
from veen.overlays.operations.paid_ledger import PAID, PaidLedger
from veen.overlays.schema import Schema
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.effects import State
from veen.overlays.wallet.literal import LiteralWallets
from veen.overlays.wallet.overlay import Wallets, pending_of
from veen.overlays.wallet.schemas import (
    DAY,
    approval_hash,
    needs_reset,
    transfer_id,
    wallet_id,
    wallet_stream,
)
from veen.selftest.context import Context
from veen.selftest.step import Needs, check, equal, step

if TYPE_CHECKING:
    from veen.overlays.overlay import Overlay

_LOGS: Final = 20
_LENGTH: Final = 150
_T: Final = 1_700_000_000
_REALM: Final = labels.realm_id("realm-x")
_COUNTING: Final = bytes(range(32))
_WALLETS: Final = [wallet_id(_REALM, bytes([nth]) * 32, "JPY") for nth in range(3)]
_BRIDGE: Final = b"b" * 32
_SHARED: Final = labels.stream_id("wallet/selftest")
# Computed by hand, from the formulas.
_PUBLISHED: Final = {
    "wallet": "e8699924c6a4a5d088b2fe8efd0b9f652190e83da85f84f8d42becc0400a64cd",
    "stream of a wallet": "d28b211bb167c0ff745302308f7fb8601ee29130a82b9e8c2d3bde0eb295a4bf",
    "operation": "0b291b5d828323fb4427604f8875c0e97f8a14f2f05d08edba7fdfdae37a95dc",
    "transfer": "929f68acb07637df2047cfb29e4875d7517427be5910afa58435efcf74e21374",
    "approval": "17ccf396aaea26ee293408bf11e672003035396a7e1b2104c96509c382c73428",
    "schema of a transfer": "5350cf85e6e0438ed34db22694c3f142903719135aed659f2401fcbaff983911",
}


@step(Needs.NONE)
def wallet_names(ctx: Context) -> str:  # noqa: ARG001 - ids do not depend on the seed
    """Ids of wallets, streams, transfers and approvals, and day numbers, are as published."""
    wallet = wallet_id(_REALM, b"\x22" * 32, "JPY")
    ids = {
        "wallet": wallet,
        "stream of a wallet": wallet_stream(wallet),
        "operation": operation_id(bytes(range(0x10, 0x30))),
        "transfer": transfer_id(_COUNTING, _COUNTING[::-1], 7),
        "approval": approval_hash(_COUNTING, wallet, 5, _T, _COUNTING[::-1]),
        "schema of a transfer": wal.TRANSFER.schema_id,
    }
    for name, value in ids.items():
        equal(value.hex(), _PUBLISHED[name], f"id of {name}")
    for last, now, expected in ((0, _T, True), (_T, _T + 3600, False), (_T, _T + DAY, True)):
        equal(needs_reset(last, now), expected, f"a new day from {last} to {now}")
    return f"{len(ids)} names, 3 days"


# --- random logs --------------------------------------------------------------------------------------------


def _bodies(random: Random) -> Iterator[tuple[Schema, dict[str, Any]]]:
    """Yield events forever; wallets are opened early, and rules are violated often."""
    while True:
        wallet = random.choice(_WALLETS)
        ts = random.choice((0, _T, _T + 60, _T + DAY, _T - DAY))
        odd = random.random() < 0.1
        amount = random.choice((0, 60, 2**63)) if odd else random.randrange(40)
        pick = random.randrange(14)
        if pick < 2:
            nth = _WALLETS.index(wallet)
            fields = {"realm_id": bytes(_REALM), "ctx_id": bytes([nth]) * 32, "currency": "JPY"}
            yield wal.OPEN, {"wallet_id": wallet, **fields, "created_at": ts}
        elif pick < 5:
            yield wal.DEPOSIT, {"wallet_id": wallet, "amount": amount, "ts": ts}
        elif pick < 7:
            yield wal.WITHDRAW, {"wallet_id": wallet, "amount": amount, "ts": ts}
        elif pick < 10:
            named = {"to_wallet_id": random.choice(_WALLETS), "amount": amount, "ts": ts}
            yield wal.TRANSFER, {"wallet_id": wallet, **named, "transfer_id": random.randbytes(1) * 32}
        elif pick == 10:
            delta = random.randrange(-30, 30)
            yield wal.ADJUST, {"wallet_id": wallet, "delta": delta, "ts": ts, "reason": "x"}
        elif pick == 11:
            yield wal.LIMIT, {"wallet_id": wallet, "daily_limit": random.choice((None, 20, 50)), "ts": ts}
        elif pick == 12:
            yield random.choice((wal.FREEZE, wal.UNFREEZE)), {"wallet_id": wallet, "ts": ts}
        elif random.random() < 0.1:
            yield wal.CLOSE, {"wallet_id": wallet, "ts": ts}


def _record(seq: int, schema: Schema, body: dict[str, Any], random: Random) -> Record:
    return Record(
        stream_seq=seq,
        msg_id=random.randbytes(32),
        client_id=b"w" * 32,
        client_seq=seq,
        hub_ts=_T + seq,
        schema=schema.schema_id,
        body=schema.encode(schema.make(**body)),
    )


def _log(random: Random, length: int = _LENGTH) -> tuple[list[Record], list[tuple[str, dict[str, Any]]]]:
    """Return a log, and the names and bodies of its events."""
    pairs = [pair for pair, _ in zip(_bodies(random), range(length), strict=False)]
    records = [_record(seq, schema, body, random) for seq, (schema, body) in enumerate(pairs, 1)]
    return records, [(schema.name, body) for schema, body in pairs]


def _paid_log(random: Random) -> list[Record]:
    records = []
    for seq in range(1, _LENGTH + 1):
        payer, payee = random.choices(_WALLETS, k=2)
        body = {"operation_type": "x", "operation_args": None, "payer_account": payer, "payee_account": payee}
        more = {"amount": random.randrange(50), "currency_code": random.choice(("EUR", "JPY"))}
        records.append(_record(seq, PAID, {**body, **more}, random))
    return records


# --- event by event -----------------------------------------------------------------------------------------


class _Sequential:
    """The rules, applied event by event, without summaries; ``own`` is the wallet that owns the stream."""

    def __init__(self, own: bytes | None = None) -> None:
        self.states = dict.fromkeys(_WALLETS, State())
        self._own = own
        self._seen: set[tuple[str, bytes, bytes]] = set()

    def _is_alone(self) -> bool:
        return self._own is not None and self.states[self._own].exists

    def add(self, name: str, body: dict[str, Any]) -> None:
        """Apply an event, if it is valid."""
        wallet = body["wallet_id"]
        state = self.states[wallet]
        if self._is_alone() and wallet != self._own:
            return
        match name.split(".")[1]:
            case "open" if not state.exists:
                state = State(exists=True, last_limit_reset_ts=body["created_at"])
            case "close" if state.exists:
                state = state._replace(closed=True)
            case "freeze" | "unfreeze" as kind if state.exists:
                state = state._replace(frozen=kind == "freeze")
            case "limit":
                state = state._replace(daily_limit=body["daily_limit"])
                if body["daily_limit"] is not None and not state.last_limit_reset_ts:
                    state = state._replace(last_limit_reset_ts=body["ts"])
            case "deposit":
                state = self._given(state, body["amount"]) or state
            case "adjust":
                state = self._given(state, body["delta"]) or state
            case "withdraw":
                state = self._taken(state, body["amount"], body["ts"]) or state
            case "transfer":
                self._transfer(body)
                return
        self.states[wallet] = state

    def _transfer(self, body: dict[str, Any]) -> None:
        source, target, name = body["wallet_id"], body["to_wallet_id"], body["transfer_id"]
        if target == self._own != source:
            return
        out, into = ("out", source, name), ("in", target, name)
        is_fresh = not self._seen & ({out} if self._is_alone() else {out, into})
        self._seen.add(out)
        paid = self._taken(self.states[source], body["amount"], body["ts"])
        if paid is None or not is_fresh or source == target:
            return
        self.states[source] = paid
        if self._is_alone():
            return
        self._seen.add(into)
        credited = self._given(self.states[target], body["amount"])
        if credited is not None:
            self.states[target] = credited

    def _given(self, state: State, amount: int) -> State | None:
        balance = state.balance + amount
        if not state.exists or state.closed or not 0 <= balance < 2**64:
            return None
        return state._replace(balance=balance)

    def _taken(self, state: State, amount: int, ts: int) -> State | None:
        if not state.exists or state.closed or state.frozen or amount > state.balance:
            return None
        after = state._replace(balance=state.balance - amount)
        if state.daily_limit is None:
            return after
        if ts // 86400 != state.last_limit_reset_ts // 86400:
            after = after._replace(pending_daily_spent=0, last_limit_reset_ts=ts)
        after = after._replace(pending_daily_spent=after.pending_daily_spent + amount)
        return after if after.pending_daily_spent <= state.daily_limit else None


@step(Needs.NONE)
def wallet_fold(ctx: Context) -> str:
    """A wallet is the result of its events in order; an event that breaks a rule does not count."""
    refused = 0
    for nth in range(_LOGS):
        records, bodies = _log(ctx.random)
        own = _WALLETS[0] if nth % 2 else None
        by_hand = _Sequential(own)
        for name, body in bodies:
            by_hand.add(name, body)
        overlay = Wallets()
        summary = fold(overlay, records, _SHARED if own is None else wallet_stream(own))
        tables = Fold(overlay).tables_of(summary)
        for wallet, state in by_hand.states.items():
            equal(overlay.state(tables, wallet), state, "state of a wallet")
        refused += len(summary.reports)
    check(refused > _LOGS, "no event broke a rule; choose another seed")
    return f"{_LOGS} logs of {_LENGTH} events, {refused} rejections"


@step(Needs.NONE)
def paid_ledger(ctx: Context) -> str:
    """The ledger of paid operations balances; if debts are forbidden, only issuers have them."""
    refused = 0
    for strict in (False, True):
        for _ in range(_LOGS // 4):
            records = _paid_log(ctx.random)
            by_hand: dict[tuple[str, bytes], int] = {}
            for record in records:
                body = PAID.decode(record.body)
                code, payer, payee = body["currency_code"], body["payer_account"], body["payee_account"]
                may_owe = not strict or payer in (payee, _WALLETS[0])
                if not may_owe and by_hand.get((code, payer), 0) < body["amount"]:
                    refused += 1
                    continue
                by_hand[code, payer] = by_hand.get((code, payer), 0) - body["amount"]
                by_hand[code, payee] = by_hand.get((code, payee), 0) + body["amount"]
            overlay = PaidLedger(forbid_negative=strict, issuers=frozenset(_WALLETS[:1]))
            balances = overlay.balances(Fold(overlay).tables_of(fold(overlay, records, _SHARED)))
            folded = {(code, key): value for code, all_ in balances.items() for key, value in all_.items()}
            equal(folded, by_hand, "balances")
            equal([sum(each.values()) for each in balances.values()], [0] * len(balances), "all together")
    check(refused, "no debt occurred; choose another seed")
    return f"{_LOGS // 2} logs of {_LENGTH} operations, {refused} debts rejected"


@step(Needs.NONE)
def wallet_merge(ctx: Context) -> str:
    """However a log is divided, the summaries of its parts merge to the same bytes."""
    joined = 0
    overlays: tuple[Overlay, ...] = (Wallets(), LiteralWallets(), PaidLedger(forbid_negative=True))
    for overlay in overlays:
        for _ in range(_LOGS // 4):
            paid = isinstance(overlay, PaidLedger)
            log = _paid_log(ctx.random) if paid else _log(ctx.random)[0]
            items = list(annotate(overlay, log, ctx.random.choice((_SHARED, wallet_stream(_WALLETS[0])))))
            folding = Fold(overlay)
            whole = folding.encode(_tree(folding, items, None))
            for _ in range(4):
                tree = folding.encode(_tree(folding, items, ctx.random))
                equal(tree, whole, f"summary of {overlay.name}, merged in another way")
                reencoded = folding.encode(folding.decode(tree))
                equal(reencoded, whole, f"summary of {overlay.name}, encoded and decoded")
                joined += 1
    return f"{joined} ways to merge, {len(overlays)} folds"


def _tree(folding: Fold, items: list[Annotated], random: Random | None) -> Summary:
    """Merge from left to right, or in random groups."""
    if random is None or len(items) < 2:
        summary = folding.empty()
        for item in items:
            folding.step(summary, item)
        return summary
    cut = random.randrange(1, len(items))
    return folding.merge(_tree(folding, items[:cut], random), _tree(folding, items[cut:], random))


@step(Needs.NONE)
def wallet_copies(ctx: Context) -> str:
    """Copies of a log by a bridge give the same state, also if they arrive twice or come back."""
    overlay = Wallets()
    folding = Fold(overlay)
    for _ in range(_LOGS // 4):
        records, _ = _log(ctx.random)
        expected = folding.state_hash(fold(overlay, records, _SHARED))
        away = list(_copies(records, ctx.random))
        back = list(_copies(away, ctx.random))
        for name, log in (
            ("elsewhere", away),
            ("elsewhere, twice", away + list(_copies(records, ctx.random))),
            ("here, followed by copies", records + away),
            ("here, followed by copies of copies", records + away + back),
        ):
            numbered = [record._replace(stream_seq=seq) for seq, record in enumerate(log, 1)]
            state_hash = folding.state_hash(fold(overlay, numbered, _SHARED, frozenset({_BRIDGE})))
            equal(state_hash, expected, f"state {name}")
    return f"{_LOGS // 4} logs, copied four ways"


def _copies(records: list[Record], random: Random) -> Iterator[Record]:
    for record in records:
        yield record._replace(msg_id=random.randbytes(32), client_id=_BRIDGE, parent_id=record.msg_id)


# --- over a hub ---------------------------------------------------------------------------------------------


@step()
def wallet_flow(ctx: Context) -> str:
    """Money moves once, overdrafts do not count, and all readers compute the same balances."""
    client, stream = ctx.client(), ctx.name("wallet")
    realm, now = labels.realm_id(), ctx.clock()
    mine, other = own_wallet(client, "EUR"), wallet_id(realm, b"o" * 32, "EUR")
    _sent(client, stream, opening(realm, own_context(client), "EUR", now))
    _sent(client, stream, opening(realm, b"o" * 32, "EUR", now))
    _sent(client, stream, event(wal.DEPOSIT, mine, now, amount=100))
    _sent(client, stream, event(wal.LIMIT, mine, now, daily_limit=60))
    paid = _sent(client, stream, transfer(mine, other, 40, now))
    over = _sent(client, stream, transfer(mine, other, 21, now))
    same = {"to_wallet_id": other, "amount": 40, "transfer_id": transfer_of(paid)}
    twice = _sent(client, stream, event(wal.TRANSFER, mine, now, **same))
    overlay = Wallets()
    verdicts: list[tuple[Sent, list[str]]] = [
        (paid, []),
        (over, ["WAL.DAILY_LIMIT_EXCEEDED", "WAL.UNBACKED"]),
        (twice, ["WAL.DUPLICATE"]),
    ]
    for sent, expected in verdicts:
        codes = [verdict.code for verdict in judged(client, overlay, stream, sent)]
        equal(codes, expected, f"verdicts on entry {sent.position}")
    state = interpret(client, overlay, stream)
    fresh = interpret(client, overlay, stream, cached=False)
    equal(overlay.state(state.tables, mine)[2:6], (60, False, 60, 40), "the wallet of the payer")
    equal(overlay.state(state.tables, other).balance, 40, "balance of the payee")
    equal(state.hash, fresh.hash, "the state from the cache, and from the beginning")
    _credit_from_nowhere(ctx, client, other)
    return "one payment, one over the limit, one repeated, one that was never paid"


def _credit_from_nowhere(ctx: Context, client: Client, other: bytes) -> None:
    """Check that a transfer into a wallet's own stream has no effect, as its debit is in another one."""
    realm, now = labels.realm_id(ctx.name("realm")), ctx.clock()
    mine = own_wallet(client, "EUR", realm)
    stream = wallet_stream(mine).hex()
    _sent(client, stream, opening(realm, own_context(client), "EUR", now))
    _sent(client, stream, event(wal.DEPOSIT, mine, now, amount=5))
    made_up = _sent(client, stream, transfer(other, mine, 1000, now))
    codes = [verdict.code for verdict in judged(client, Wallets(), stream, made_up)]
    equal(codes, ["WAL.UNBACKED_CREDIT"], "verdicts on a credit without a known debit")
    tables = interpret(client, Wallets(), stream).tables
    equal(Wallets().state(tables, mine).balance, 5, "balance of a wallet with its own stream")
    equal([item.amount for item in pending_of(tables, mine)], [1000], "credits that are pending")


def _sent(client: Client, stream: str, draft: Draft) -> Sent:
    return send_draft(client, stream, draft)


STEPS: Final = (wallet_names, wallet_fold, paid_ledger, wallet_merge, wallet_copies, wallet_flow)
