"""The ledger of paid operations, and its body as it was published."""

from random import Random
from typing import Any

import pytest

from tests.overlays.logs import BRIDGE, STREAM, T0, Log, ident
from veen.core.crypto.hash import U64_MAX
from veen.overlays.engine import Fold, MemoryTables, fold, state_hash
from veen.overlays.errors import InvalidBodyError, ParameterError
from veen.overlays.event import Event, operation_id
from veen.overlays.operations.paid_ledger import PAID, PaidLedger

A, B, C = (ident("account", nth) for nth in "abc")

#: A body that was published, with what it says in JSON; without metadata.
PUBLISHED_JSON: dict[str, Any] = {
    "operation_type": "ledger.transfer.v1",
    "operation_args": {"tags": ["priority", "external"], "memo": "test payment"},
    "payer_account": "00112233445566778899aabbccddeeff" * 2,
    "payee_account": "ffeeddccbbaa99887766554433221100" * 2,
    "amount": 1000000,
    "currency_code": "USD",
    "operation_reference": "aa" * 32,
    "parent_operation_id": "bb" * 32,
    "ttl_seconds": 3600,
}
PUBLISHED = bytes.fromhex(
    "a96e6f7065726174696f6e5f74797065726c65646765722e7472616e736665722e76316e6f7065726174696f6e5f61726773a264"
    "6d656d6f6c74657374207061796d656e74647461677382687072696f726974796865787465726e616c6d70617965725f6163636f"
    "756e74582000112233445566778899aabbccddeeff00112233445566778899aabbccddeeff6d70617965655f6163636f756e7458"
    "20ffeeddccbbaa99887766554433221100ffeeddccbbaa9988776655443322110066616d6f756e741a000f42406d63757272656e"
    "63795f636f646563555344736f7065726174696f6e5f7265666572656e63655820aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "aaaaaaaaaaaaaaaaaaaaaaaaaa73706172656e745f6f7065726174696f6e5f69645820bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb6b74746c5f7365636f6e6473190e10"
)


class Ledger(Log):
    """Operations, written one by one."""

    def __init__(self) -> None:
        super().__init__(Random(1))

    def pay(
        self, payer: bytes, payee: bytes, amount: int, currency: str | None = "EUR", **more: object
    ) -> None:
        """Append an operation."""
        body = PAID.make(
            operation_type="x",
            operation_args=None,
            payer_account=payer,
            payee_account=payee,
            amount=amount,
            currency_code=currency,
        )
        self.add(PAID, PAID.encode(body), **more)

    def folded(self, **parameters: Any) -> tuple[PaidLedger, MemoryTables, list[str]]:
        """Return the overlay, its tables and what is wrong."""
        overlay = PaidLedger(**parameters)
        summary = fold(overlay, self.records, STREAM, frozenset({BRIDGE}))
        return overlay, Fold(overlay).tables_of(summary), [report.code for report in summary.reports]

    def balances(self, **parameters: Any) -> dict[str, dict[bytes, int]]:
        """Return the balances."""
        overlay, tables, _ = self.folded(**parameters)
        return overlay.balances(tables)


def test_the_published_body_is_read_and_written() -> None:
    body = PAID.decode(PUBLISHED)
    assert PAID.encode(body) == PUBLISHED
    assert PAID.to_json(body) == PUBLISHED_JSON
    made = PAID.encode(PAID.from_json(PUBLISHED_JSON))
    # What is made here says metadata: null in addition, as all operations write what is absent (OVR-020).
    assert made == b"\xaa" + PUBLISHED[1:] + b"\x68metadata\xf6"
    assert PAID.to_json(PAID.decode(made)) == PUBLISHED_JSON


def test_the_published_id_of_an_operation() -> None:
    leaf = bytes(range(0x10, 0x30))
    expected = "0b291b5d828323fb4427604f8875c0e97f8a14f2f05d08edba7fdfdae37a95dc"
    assert operation_id(leaf).hex() == expected
    record = Log(Random(1)).add(PAID, PUBLISHED, msg_id=ident("a copy"))
    event = Event(record, PAID, PAID.decode(PUBLISHED), leaf, STREAM)
    assert event.operation_id.hex() == expected, "a copy has the id of what it is a copy of"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"amount": -1}, "BODY.NEGATIVE"),
        ({"amount": "1"}, "BODY.TYPE"),
        ({"payer_account": "00"}, "BODY.FIELD_SIZE"),
        ({"payer_account": None}, "BODY.TYPE"),
        ({"operation_type": None}, "BODY.TYPE"),
        ({"operation_args": {"a": 1.5}}, "BODY.FLOAT"),
        ({"unknown": 1}, "BODY.UNKNOWN_KEY"),
    ],
)
def test_what_is_no_operation(change: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidBodyError) as caught:
        PAID.from_json({**PUBLISHED_JSON, **change})
    assert caught.value.code == code


def test_arguments_are_there_and_may_be_null() -> None:
    without = {name: item for name, item in PUBLISHED_JSON.items() if name != "operation_args"}
    with pytest.raises(InvalidBodyError) as caught:
        PAID.from_json(without)
    assert caught.value.code == "BODY.MISSING_KEY"
    assert PAID.from_json({**without, "operation_args": None})["operation_args"] is None


def test_both_sides_or_neither() -> None:
    log = Ledger()
    log.pay(A, B, 10)
    log.pay(B, C, 4)
    assert log.balances() == {"EUR": {A: -10, B: 6, C: 4}}
    assert log.balances(forbid_negative=True) == {}
    assert log.folded(forbid_negative=True)[2] == ["OP.NEGATIVE_BALANCE"] * 2
    issued = {"forbid_negative": True, "issuers": frozenset({A})}
    assert log.balances(**issued) == {"EUR": {A: -10, B: 6, C: 4}}
    log.pay(B, C, 7)
    assert log.balances(**issued)["EUR"][C] == 4
    assert log.folded(**issued)[2] == ["OP.NEGATIVE_BALANCE"]
    log.records.pop()
    log.pay(A, A, 5)
    assert log.balances(forbid_negative=True) == {"EUR": {A: 0}}, "with oneself it is never refused"
    assert log.balances()["EUR"][A] == -10


def test_every_currency_adds_up_to_nothing() -> None:
    log = Ledger()
    rng = Random(4)
    for _ in range(200):
        payer, payee = rng.choices((A, B, C), k=2)
        log.pay(payer, payee, rng.randrange(9), rng.choice(("EUR", "JPY")))
    assert [sum(accounts.values()) for accounts in log.balances().values()] == [0, 0]


def test_currencies_are_never_mixed_and_one_may_be_meant() -> None:
    log = Ledger()
    log.pay(A, B, 1, "EUR")
    log.pay(A, B, 2, "JPY")
    log.pay(A, B, 4, None)
    assert log.balances() == {"EUR": {A: -1, B: 1}, "JPY": {A: -2, B: 2}}
    assert log.folded()[2] == ["OP.CURRENCY_MISSING"]
    assert log.balances(default_currency="JPY")["JPY"] == {A: -6, B: 6}
    assert log.folded(default_currency="JPY")[2] == []


def test_copies_of_a_bridge_count_once_and_answers_are_no_copies() -> None:
    log = Ledger()
    log.pay(A, B, 1)
    first = log.records[0].msg_id
    log.pay(A, B, 1, client_id=BRIDGE, parent_id=first)
    assert log.balances()["EUR"][B] == 1
    log.pay(A, B, 1, parent_id=first)
    assert log.balances()["EUR"][B] == 2, "a parent from anybody else is what it answers"


def test_accounts_become_others() -> None:
    log = Ledger()
    log.pay(A, B, 10)
    log.pay(C, A, 3)
    assert log.balances(remap={A: B, B: C}) == {"EUR": {C: 0}}
    assert log.balances(remap={A: ident("new")})["EUR"] == {ident("new"): -7, B: 10, C: -3}
    with pytest.raises(ParameterError):
        PaidLedger(remap={A: B, B: A})


def test_late_operations_count_and_are_told() -> None:
    log = Ledger()
    log.pay(A, B, 1, expires_at=T0)
    log.pay(A, B, 1, expires_at=T0 + 1000)
    assert log.folded()[2] == ["OP.STALE"]
    assert log.balances()["EUR"][B] == 2


def test_the_state_of_one_account_is_hashed_alone() -> None:
    log = Ledger()
    log.pay(A, B, 300, "EUR")
    log.pay(B, A, 5, "JPY")
    log.pay(A, C, 1, "USD")
    overlay, tables, _ = log.folded()
    assert overlay.serialized_key(tables, B) == {"EUR": 300, "JPY": -5}
    assert state_hash("wallet.ledger", overlay.serialized_key(tables, B)) == state_hash(
        "wallet.ledger", {"JPY": -5, "EUR": 300}
    )
    assert overlay.serialized_key(tables, ident("nobody")) == {}
    assert overlay.view_key(tables, overlay.parse_key(f"EUR:{B.hex()}")) == 300


def test_what_is_too_much_can_not_be_written() -> None:
    log = Ledger()
    log.pay(A, B, U64_MAX)
    log.pay(A, B, 1)
    overlay, tables, _ = log.folded()
    assert overlay.balances(tables)["EUR"][B] == U64_MAX + 1
    with pytest.raises(InvalidBodyError) as caught:
        overlay.serialized(tables)
    assert caught.value.code == "OP.OVERFLOW"
