"""The ledger of paid operations: each moves an amount from one account to another (PAID lines)."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Final

from veen.core.crypto.hash import U64_MAX
from veen.core.encoding.field_types import B32, TEXT, UINT, hex_from_json
from veen.core.encoding.shape import Field
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError, ParameterError
from veen.overlays.event import Event
from veen.overlays.monoid import MIN, SUM, Monoid
from veen.overlays.overlay import Cell, Key, Lowered, Overlay, Tables
from veen.overlays.schema import ANY, OrNull, Schema

PAID: Final = Schema(
    "paid.operation.v1",
    Field("operation_type", TEXT),
    # Required, but may be null (PAID-003).
    Field("operation_args", OrNull(ANY)),
    Field("payer_account", B32),
    Field("payee_account", B32),
    Field("amount", UINT),
    # Encoders always write it; decoders may have a default for its absence (PAID-002).
    Field("currency_code", TEXT, optional=True),
    Field("operation_reference", B32, optional=True),
    Field("parent_operation_id", B32, optional=True),
    Field("ttl_seconds", UINT, optional=True),
    Field("metadata", ANY, optional=True),
    nulls=True,
)


class PaidLedger(Overlay):
    """Balances of accounts, in each currency; they may be negative, unless that is forbidden."""

    # The currency of operations without one; if None, those do not count.
    default_currency: str | None = None
    # An operation that its payer cannot pay does not count at all (PAID-005).
    forbid_negative: bool = False
    # Accounts that may be negative all the same: money originates there, since all balances start at zero.
    issuers: frozenset[bytes] = frozenset()
    # Account -> the account that replaced it by recovery (E2E-011).
    remap: Mapping[bytes, bytes] = field(default_factory=dict)

    name: ClassVar[str] = "paid.ledger"
    about: ClassVar[str] = "The ledger of paid operations: what each account has, in each currency."
    schemas: ClassVar[tuple[Schema, ...]] = (PAID,)
    tables: ClassVar[Mapping[str, Monoid]] = {
        # (currency, account) -> balance.
        "balances": SUM,
        # Known currencies, each with its first position.
        "currencies": MIN,
    }
    state_class: ClassVar[str] = "wallet.ledger"
    grouped: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Reject a remap with a cycle."""
        for account in self.remap:
            seen = {account}
            while account in self.remap:
                account = self.remap[account]  # noqa: PLW2901 - on to the next
                if account in seen:
                    raise ParameterError(f"account {account.hex()} is remapped to itself")
                seen.add(account)

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Apply both sides of an operation, or neither."""
        body = event.body
        currency = body.get("currency_code")
        if currency is None:
            currency = self.default_currency
        if currency is None:
            return Lowered((), (("OP.CURRENCY_MISSING", "no currency is given, and none is configured"),))
        payer, payee, amount = body["payer_account"], body["payee_account"], body["amount"]
        if self.remap:
            payer, payee = self.account(payer), self.account(payee)
        if payer == payee:  # a valid operation without effect, never rejected (PAID-014)
            cells: list[Cell] = [("balances", (currency, payer), 0)]
        else:
            key = (currency, payer)
            strict = self.forbid_negative and payer not in self.issuers
            if strict and (before.get("balances", key) or 0) < amount:
                text = f"account {payer.hex()} has less than {amount} {currency}"
                return Lowered((), (("OP.NEGATIVE_BALANCE", text),))
            cells = [("balances", key, -amount), ("balances", (currency, payee), amount)]
        if before.get("currencies", currency) is None:
            cells.append(("currencies", currency, (event.position,)))
        return Lowered(cells, _stale(event))

    def group(self, event: Event) -> Key:
        """Return the currency: payments depend on each other only within it."""
        currency: Key = event.body.get("currency_code") or self.default_currency or ""
        return currency

    def account(self, account: bytes) -> bytes:
        """Return the account that replaced an account, or the account itself."""
        while account in self.remap:
            account = self.remap[account]
        return account

    def parse_key(self, text: str) -> Key:
        """Parse CURRENCY:ACCOUNT, the account in hex."""
        currency, _, account = text.rpartition(":")
        return (currency, hex_from_json(account))

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the balance of an account in a currency."""
        balance: int | None = tables.get("balances", key)
        return balance

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the balances of each currency."""
        return {
            currency: {account.hex(): balance for account, balance in accounts.items()}
            for currency, accounts in self.balances(tables).items()
        }

    def balances(self, tables: Tables) -> dict[str, dict[bytes, int]]:
        """Return the balance of each account in each currency."""
        balances: dict[str, dict[bytes, int]] = {}
        for key, balance in tables.items("balances"):
            assert isinstance(key, tuple)
            currency, account = key
            balances.setdefault(currency, {})[account] = balance
        return balances

    def serialized(self, tables: Tables) -> Any:
        """Return the balances of each currency."""
        return {
            currency: {account: _writable(balance) for account, balance in accounts.items()}
            for currency, accounts in self.balances(tables).items()
        }

    def serialized_key(self, tables: Tables, key: Key) -> Mapping[str, int]:
        """Return the balances of one account, in each currency in which it was used."""
        balances = {
            str(currency): tables.get("balances", (currency, key))
            for currency, _ in tables.items("currencies")
        }
        return {currency: _writable(balance) for currency, balance in balances.items() if balance is not None}


def _stale(event: Event) -> tuple[tuple[str, str], ...]:
    """Report an operation that was accepted after its expiry; it counts all the same (PAID-012).

    With ``ttl_seconds`` alone the log has no expiry time: the writer sets ``expires_at`` as well.
    """
    expires_at = event.record.expires_at
    if expires_at is None or event.record.hub_ts <= expires_at:
        return ()
    text = f"accepted at {event.record.hub_ts}, after its expiry at {expires_at}; it counts"
    return (("OP.STALE", text),)


def _writable(balance: int) -> int:
    if not -U64_MAX <= balance <= U64_MAX:
        raise InvalidBodyError("OP.OVERFLOW", "a balance exceeds 64 bits and cannot be encoded")
    return balance
