"""Ids of overlays, and states that events fold to."""

from collections.abc import Iterator

from vectors.generators.fixed import ht
from vectors.generators.scenario import Fields, Json, Scenario
from veen.core.objects import labels
from veen.overlays.builtin.crdt import COUNTER, LWW, ORSET
from veen.overlays.operations.paid_ledger import PAID
from veen.overlays.schema import Schema
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.schemas import wallet_id, wallet_stream

_ALICE, _BOB = ht("vector", b"alice"), ht("vector", b"bob")
_T0 = 1_700_000_000


def _event(seq: int, schema: Schema, /, client_id: bytes = _ALICE, **values: Json) -> Fields:
    return {
        "stream_seq": seq,
        "client_id": client_id,
        "client_seq": seq,
        "hub_ts": _T0 + seq,
        "schema": schema.schema_id,
        "body": schema.encode(schema.make(**values)),
    }


def ids() -> Scenario:
    """Return ids that are derived from other ids."""
    s = Scenario("overlay/ids", "Ids of wallets, transfers, approvals and operations, each one Ht.")
    s.ok("operation of a message", "overlay_ids", msg_id=bytes(range(0x10, 0x30)))
    s.ok("wallet by realm name", "overlay_ids", realm="realm-x", ctx_id=bytes([0x22]) * 32, currency="JPY")
    s.ok("wallet by realm id", "overlay_ids", realm_id=_BOB, ctx_id=_ALICE, currency="EUR")
    s.ok("an empty currency", "overlay_ids", realm_id=_BOB, ctx_id=_ALICE, currency="")
    s.ok("stream of a wallet", "overlay_ids", wallet_id=_ALICE)
    s.ok("transfer", "overlay_ids", label=_BOB, client_id=_ALICE, client_seq=1)
    s.ok("transfer with a large number", "overlay_ids", label=_BOB, client_id=_ALICE, client_seq=2**64 - 1)
    s.ok(
        "approval",
        "overlay_ids",
        wallet_id=_ALICE,
        to_wallet_id=_BOB,
        amount=7,
        ts=_T0,
        transfer_id=ht("vector", b"transfer"),
    )
    for name in ("wallet.open.v1", "rpc.v1", "paid.operation.v1", "my.own.v1"):
        s.ok(f"schema {name}", "overlay_ids", name=name)
    return s


def registers() -> Scenario:
    """Return folds of registers."""
    s = Scenario("overlay/lww", "Of each key the value with the greatest (ts, epoch, stream_seq) (C-112).")
    order = [(1, b"k", 2, b"B"), (2, b"k", 1, b"A"), (3, b"k", 2, b"C"), (4, b"other", 0, b"")]
    events = [_event(seq, LWW, key=key, ts=ts, value=value) for seq, key, ts, value in order]
    s.ok("no events", "fold", overlay="crdt.lww", events=[])
    s.ok("the greatest time, then the last", "fold", overlay="crdt.lww", events=events)
    s.ok("a position", "fold", overlay="crdt.lww", events=events, upto=2)
    s.ok("an event given twice is one", "fold", overlay="crdt.lww", events=[*events, events[0]])
    other = {**events[0], "stream_seq": 5, "client_seq": 5, "schema": ht("vector", b"schema"), "body": b""}
    s.ok("another schema passes through", "fold", overlay="crdt.lww", events=[*events, other])
    late = {**_event(1, LWW, client_id=_BOB, key=b"k", ts=2, value=b"D"), "epoch": 7}
    s.ok("a position in the last epoch", "fold", overlay="crdt.lww", events=[*events, late], upto=1)
    s.ok("a later epoch is later", "fold", overlay="crdt.lww", events=[*events, late])
    copy = {**events[0], "stream_seq": 5, "client_id": _BOB, "client_seq": 1, "parent_id": _id(events[0])}
    s.ok("a bridge's copy is no event", "fold", overlay="crdt.lww", events=[*events, copy], bridges=[_BOB])
    return s


def _id(event: Fields) -> bytes:
    return ht("veen/conformance-event", event["client_id"] + event["client_seq"].to_bytes(8, "big"))


def sets() -> Scenario:
    """Return folds of sets."""
    s = Scenario("overlay/orset", "An element is in the set while one of its additions is in no tomb.")
    one, two, three = (ht("vector", b"%d" % nth) for nth in range(3))
    events = [
        _event(1, ORSET, id=one, elem=b"a"),
        _event(2, ORSET, id=two, elem=b"a"),
        _event(3, ORSET, tomb=(one,)),
        _event(4, ORSET, tomb=(three,)),
        _event(5, ORSET, id=three, elem=b"b"),
        _event(6, ORSET, tomb=(two,)),
        _event(7, ORSET, tomb=()),
    ]
    for upto, name in (
        (2, "two additions"),
        (3, "one is left"),
        (5, "a tomb before its addition"),
        (7, "none"),
    ):
        s.ok(name, "fold", overlay="crdt.orset", events=events, upto=upto)
    return s


def counters() -> Scenario:
    """Return folds of counters."""
    s = Scenario("overlay/gcnt", "The sum of each shard, and of all.")
    steps = [(1, _ALICE, 40), (2, _BOB, 1), (3, _ALICE, 2), (4, _BOB, 0)]
    events = [_event(seq, COUNTER, shard=shard, delta=delta) for seq, shard, delta in steps]
    s.ok("two shards", "fold", overlay="crdt.gcnt", events=events)
    most = [_event(seq, COUNTER, shard=shard, delta=2**64 - 1) for seq, shard in ((1, _ALICE), (2, _BOB))]
    s.ok("a total beyond 64 bits", "fold", overlay="crdt.gcnt", events=most)
    return s


def ledgers() -> Scenario:
    """Return folds of paid operations."""
    s = Scenario("overlay/paid", "Each operation debits the payer and credits the payee (PAID-004).")
    order = [
        (1, _ALICE, _BOB, 5, "EUR"),
        (2, _BOB, _ALICE, 2, "EUR"),
        (3, _ALICE, _BOB, 1, "JPY"),
        (4, _BOB, _BOB, 9, "EUR"),
    ]
    events = [
        _event(
            seq,
            PAID,
            operation_type="test.v1",
            operation_args=None,
            payer_account=payer,
            payee_account=payee,
            amount=amount,
            currency_code=currency,
        )
        for seq, payer, payee, amount, currency in order
    ]
    s.ok("two currencies, and a payment to oneself", "fold", overlay="paid.ledger", events=events)
    s.ok("a position", "fold", overlay="paid.ledger", events=events, upto=1)
    return s


_REALM = ht("vector", b"realm")
_WALLETS = {ctx: wallet_id(_REALM, ctx, "EUR") for ctx in (_ALICE, _BOB)}
_MINE, _HIS = _WALLETS.values()


def _opened(seq: int, ctx: bytes) -> Fields:
    named: Fields = {"wallet_id": _WALLETS[ctx], "realm_id": _REALM, "ctx_id": ctx, "currency": "EUR"}
    return _event(seq, wal.OPEN, **named, created_at=_T0)


def _paid(seq: int, source: bytes, amount: int, name: bytes) -> Fields:
    return _event(
        seq,
        wal.TRANSFER,
        wallet_id=source,
        to_wallet_id=_HIS,
        amount=amount,
        ts=_T0,
        transfer_id=ht("vector", name),
    )


def wallets() -> Scenario:
    """Return folds of wallets, in a shared stream and in the stream of each."""
    s = Scenario(
        "overlay/wallets",
        "In a wallet's own stream, Ht(wallet/stream, wallet_id), there is no other, and no incoming transfer "
        "is applied: it is pending (C-132, C-160).",
    )
    events = [
        _opened(1, _ALICE),
        _opened(2, _BOB),
        _event(3, wal.DEPOSIT, wallet_id=_MINE, amount=100, ts=_T0),
        _paid(4, _MINE, 30, b"transfer"),
        _event(5, wal.DEPOSIT, wallet_id=_HIS, amount=5, ts=_T0),
        _event(6, wal.WITHDRAW, wallet_id=_HIS, amount=4, ts=_T0),
    ]
    shared, mine, his = labels.stream_id("wallet/main"), wallet_stream(_MINE), wallet_stream(_HIS)

    def fold(name: str, stream: bytes | None, listed: list[Fields], **more: Json) -> None:
        named: Fields = {} if stream is None else {"stream_id": stream}
        s.ok(name, "fold", overlay="wallet", events=listed, **named, **more)

    fold("a stream that both share", shared, events)
    fold("a stream that is not named is nobody's own", None, events)
    fold("the own stream of who is paid", his, events)
    fold("the own stream of who pays", mine, events)
    made_up = [_opened(1, _BOB), _paid(2, ht("vector", b"nobody"), 2**64 - 1, b"out of nothing")]
    fold("a credit out of nothing", his, made_up)
    early = [_paid(1, _MINE, 30, b"transfer"), _opened(2, _BOB), _paid(3, _MINE, 30, b"transfer")]
    fold("a credit before the wallet is opened", his, early, upto=1)
    fold("opened after that, and the credit said again", his, early)
    copy = {**_paid(3, _MINE, 30, b"transfer"), "client_id": _BOB, "parent_id": _id(early[0])}
    again = [early[0], _opened(2, _BOB), copy, _paid(4, _MINE, 31, b"transfer")]
    fold("a copy of it, and another body under its id", his, again, bridges=[_BOB])
    later = [
        {**_opened(1, _BOB), "epoch": 3},
        {**_paid(2, _MINE, 30, b"transfer"), "epoch": 4, "stream_seq": 1},
    ]
    fold("in a later epoch it is the same stream", his, later)
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield all scenarios of this module."""
    yield from (ids(), registers(), sets(), counters(), ledgers(), wallets())
