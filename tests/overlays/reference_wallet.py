"""Wallets and the paid ledger, event by event, straight from the rules: no summaries, nothing joined.

Each reference keeps its verdicts as well: (number in the stream, code).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

import cbor2

from tests.overlays.reference_decoder import bodies
from veen.overlays.event import Record

U64 = 2**64 - 1
#: Fields in their order, with what they are; a question mark: may be absent or null.
_FIELDS: dict[str, str] = {
    "wallet.open.v1": "wallet_id:b32 realm_id:b32 ctx_id:b32 currency:text created_at:uint",
    "wallet.close.v1": "wallet_id:b32 ts:uint",
    "wallet.deposit.v1": "wallet_id:b32 amount:uint ts:uint ref:bytes?",
    "wallet.withdraw.v1": "wallet_id:b32 amount:uint ts:uint ref:bytes?",
    "wallet.transfer.v1": "wallet_id:b32 to_wallet_id:b32 amount:uint ts:uint transfer_id:b32 metadata:map?",
    "wallet.adjust.v1": "wallet_id:b32 delta:int ts:uint reason:text ref:bytes?",
    "wallet.limit.v1": "wallet_id:b32 daily_limit:limit ts:uint",
    "wallet.freeze.v1": "wallet_id:b32 ts:uint reason:text?",
    "wallet.unfreeze.v1": "wallet_id:b32 ts:uint reason:text?",
    "paid.operation.v1": (
        "operation_type:text operation_args:any payer_account:b32 payee_account:b32 amount:uint "
        "currency_code:text? operation_reference:b32? parent_operation_id:b32? ttl_seconds:uint? "
        "metadata:any?"
    ),
}
_KINDS: dict[str, Callable[[Any], bool]] = {
    "b32": lambda item: isinstance(item, bytes) and len(item) == 32,
    "bytes": lambda item: isinstance(item, bytes),
    "text": lambda item: isinstance(item, str),
    "uint": lambda item: type(item) is int and 0 <= item <= U64,
    "int": lambda item: type(item) is int and -U64 <= item <= U64,
    "limit": lambda item: item is None or (type(item) is int and 0 <= item <= U64),
    "map": lambda item: isinstance(item, dict),
    "any": lambda _: True,
}


def _schema_ids(prefix: str) -> dict[bytes, str]:
    """Return the schemas of a family; those of operations are hashed behind a prefix."""
    hashed = "veen/schema:" if prefix == "paid." else ""
    names = [name for name in _FIELDS if name.startswith(prefix)]
    return {sha256((hashed + name).encode()).digest(): name for name in names}


def _is_body(name: str, body: Any) -> bool:
    if not isinstance(body, dict):
        return False
    left = list(body)
    for item in _FIELDS[name].split():
        field, kind = item.rstrip("?").split(":")
        if left and left[0] == field:
            left.pop(0)
            value = body[field]
            absent = value is None and item.endswith("?")
            if not absent and not _KINDS[kind](value):
                return False
        elif not item.endswith("?"):
            return False
    return not left


def _events(records: Iterable[Record], prefix: str, *, by_parent: bool) -> Iterator[tuple[str, Any, Record]]:
    """Yield the events of a family: first occurrences whose bodies are what they should be."""
    for name, body, record, _ in bodies(records, _schema_ids(prefix), by_parent=by_parent):
        if _is_body(name, body):
            yield name, body, record


class Wallet:
    """The seven fields."""

    def __init__(self) -> None:
        self.exists = self.closed = self.frozen = False
        self.balance = self.pending = self.last_reset = 0
        self.limit: int | None = None
        self.opened: dict[str, Any] = {}
        #: Without rules: whether one would have been broken.
        self.broken = False

    def shown(self) -> dict[str, Any]:
        """Return the wallet as the overlay shows it."""
        return {
            "exists": self.exists,
            "closed": self.closed,
            "balance": self.balance,
            "frozen": self.frozen,
            "daily_limit": self.limit,
            "pending_daily_spent": self.pending,
            "last_limit_reset_ts": self.last_reset,
        }


class Wallets:
    """All wallets of a stream, by the rules; ``literal`` is without them."""

    def __init__(
        self,
        records: Iterable[Record],
        stream_id: bytes,
        *,
        literal: bool = False,
        forward_only: bool = False,
        unique_refs: bool = True,
    ) -> None:
        self.literal = literal
        self.forward_only = forward_only
        self.unique_refs = unique_refs
        self.wallets: dict[bytes, Wallet] = {}
        #: What was touched by an event that counts.
        self.known: dict[bytes, Wallet] = {}
        self.verdicts: list[tuple[int, str]] = []
        self.ignored: dict[bytes, int] = {}
        self._seen: set[tuple[object, ...]] = set()
        self._stream_id = stream_id
        #: The wallet that the stream is of alone, once it is opened.
        self._owner: bytes | None = None
        #: By wallet, transfer and body: what its owner is shown.
        self.pending: dict[tuple[bytes, bytes, bytes], dict[str, Any]] = {}
        for name, body, record in _events(records, "wallet.", by_parent=True):
            self._record = record
            getattr(self, name.split(".")[1])(body)

    def _has_this_stream(self, wallet: bytes) -> bool:
        return sha256(b"wallet/stream\x00" + wallet).digest() == self._stream_id

    def _is_strange(self, wallet: bytes) -> bool:
        """Tell, and say, that a wallet has no place in another one's stream."""
        if self.literal or self._owner in (None, wallet):
            return False
        self._say("WRONG_STREAM")
        return True

    def _wallet(self, wallet: bytes) -> Wallet:
        return self.wallets.setdefault(wallet, Wallet())

    def _say(self, code: str) -> None:
        self.verdicts.append((self._record.stream_seq, f"WAL.{code}"))

    def _counts(self, wallet: bytes) -> None:
        self.known[wallet] = self._wallet(wallet)

    def open(self, body: dict[str, Any]) -> None:
        data = body["realm_id"] + body["ctx_id"] + body["currency"].encode("ascii", "replace")
        if sha256(b"wallet/id\x00" + data).digest() != body["wallet_id"]:
            self._say("ID_MISMATCH")
            return
        if self._is_strange(body["wallet_id"]):
            return
        wallet = self._wallet(body["wallet_id"])
        if self.literal:
            self._counts(body["wallet_id"])
        if wallet.exists:
            if wallet.opened["created_at"] != body["created_at"] and not self.literal:
                self._say("REOPENED")
            return
        wallet.__init__()  # type: ignore[misc] # everything from before is forgotten
        wallet.exists, wallet.last_reset = True, body["created_at"]
        wallet.opened = {
            "currency": body["currency"],
            "realm_id": body["realm_id"].hex(),
            "ctx_id": body["ctx_id"].hex(),
            "created_at": body["created_at"],
        }
        self._counts(body["wallet_id"])
        if self._has_this_stream(body["wallet_id"]):
            self._owner = body["wallet_id"]

    def close(self, body: dict[str, Any]) -> None:
        wallet = self._existing(body["wallet_id"])
        if wallet is not None:
            wallet.closed = True

    def _existing(self, key: bytes) -> Wallet | None:
        if self._is_strange(key):
            return None
        wallet = self._wallet(key)
        if wallet.exists or self.literal:
            self._counts(key)
        if not wallet.exists:
            if not self.literal:
                self._say("NOT_FOUND")
            return None
        return wallet

    def freeze(self, body: dict[str, Any]) -> None:
        wallet = self._existing(body["wallet_id"])
        if wallet is not None:
            wallet.frozen = True

    def unfreeze(self, body: dict[str, Any]) -> None:
        wallet = self._existing(body["wallet_id"])
        if wallet is not None:
            wallet.frozen = False

    def limit(self, body: dict[str, Any]) -> None:
        if self._is_strange(body["wallet_id"]):
            return
        wallet = self._wallet(body["wallet_id"])
        self._counts(body["wallet_id"])
        wallet.limit = body["daily_limit"]
        if wallet.limit is not None and wallet.last_reset == 0:
            wallet.last_reset = body["ts"]

    def deposit(self, body: dict[str, Any]) -> None:
        if not self._is_strange(body["wallet_id"]):
            self._credit(body["wallet_id"], body["amount"])

    def adjust(self, body: dict[str, Any]) -> None:
        if not self._is_strange(body["wallet_id"]):
            self._credit(body["wallet_id"], body["delta"])

    def _credit(self, key: bytes, amount: int) -> str:
        wallet = self._wallet(key)
        why = ""
        if not wallet.exists:
            why = "NOT_FOUND"
        elif wallet.closed:
            why = "CLOSED"
        elif not self.literal and wallet.balance + amount < 0:
            why = "NEGATIVE_ADJUST"
        elif not self.literal and wallet.balance + amount > U64:
            why = "OVERFLOW"
        if self.literal or not why:
            self._counts(key)
        if not why:
            wallet.balance += amount
            wallet.broken = wallet.broken or not 0 <= wallet.balance <= U64
        elif not self.literal:
            self._say(why)
        return why

    def withdraw(self, body: dict[str, Any]) -> None:
        if self._is_strange(body["wallet_id"]):
            return
        ref = body.get("ref")
        if ref is not None and self.unique_refs:
            if ("ref", body["wallet_id"], ref) in self._seen:
                self._say("DUPLICATE")
                return
            self._seen.add(("ref", body["wallet_id"], ref))
        self._debit(body["wallet_id"], body["amount"], body["ts"])

    def _needs_reset(self, wallet: Wallet, ts: int) -> bool:
        before, now = wallet.last_reset // 86400, ts // 86400
        return now > before if self.forward_only else now != before

    def _debit(self, key: bytes, amount: int, ts: int, *, to_itself: bool = False) -> str:
        wallet = self._wallet(key)
        spent = 0 if self._needs_reset(wallet, ts) else wallet.pending
        why = ""
        if to_itself and not self.literal:
            why = "SELF_TRANSFER"
        elif not wallet.exists:
            why = "NOT_FOUND"
        elif wallet.closed:
            why = "CLOSED"
        elif wallet.frozen:
            why = "FROZEN"
        elif not self.literal and wallet.limit is not None and spent + amount > wallet.limit:
            why = "DAILY_LIMIT_EXCEEDED"
        elif not self.literal and wallet.balance < amount:
            why = "INSUFFICIENT_FUNDS"
        if self.literal or not why:
            self._counts(key)
        if why:
            if not self.literal:
                self._say(why)
            return why
        wallet.balance -= amount
        wallet.broken = wallet.broken or wallet.balance < 0
        if wallet.limit is not None:
            if ts // 86400 < wallet.last_reset // 86400 and not self.literal:
                self._say("TS_REGRESSION")
            if self._needs_reset(wallet, ts):
                wallet.pending, wallet.last_reset = 0, ts
            wallet.pending += amount
            wallet.broken = wallet.broken or wallet.pending > wallet.limit
        return ""

    def _waits(self, body: dict[str, Any]) -> None:
        """Put down a credit whose debit nobody can see here."""
        self._say("UNBACKED_CREDIT")
        record, target = self._record, body["to_wallet_id"]
        shown = {
            "transfer_id": body["transfer_id"].hex(),
            "from": body["wallet_id"].hex(),
            "amount": body["amount"],
            "ts": body["ts"],
            "epoch": record.epoch,
            "stream_seq": record.stream_seq,
            "msg_id": record.msg_id.hex(),
        }
        self.pending.setdefault((target, body["transfer_id"], record.body), shown)

    def transfer(self, body: dict[str, Any]) -> None:
        source, target, once = body["wallet_id"], body["to_wallet_id"], body["transfer_id"]
        if source != target and self._has_this_stream(target):
            self._waits(body)
            return
        if self._is_strange(source):
            return
        out, into = ("out", source, once), ("in", target, once)
        elsewhere = not self.literal and self._owner is not None and source != target
        if elsewhere:  # the credit is in another stream, and nothing of it is known here
            if out in self._seen:
                self._say("DUPLICATE")
            else:
                self._seen.add(out)
                self._debit(source, body["amount"], body["ts"])
            return
        if out in self._seen or (into in self._seen and not self.literal):
            # Whose money comes or has come under this name: it does not move again, not even out.
            self._say("DUPLICATE")
            why = "DUPLICATE"
            self._seen.add(out)
        else:
            self._seen.add(out)
            why = self._debit(source, body["amount"], body["ts"], to_itself=source == target)
            if why and self.literal:
                self.ignored[source] = self.ignored.get(source, 0) + 1
        if self.literal:
            if source != target:
                if into in self._seen:
                    self._say("DUPLICATE")
                else:
                    self._seen.add(into)
                    self._credit(target, body["amount"])
            return
        if why:
            if into not in self._seen:
                self._say("UNBACKED")  # and the one who is paid has not seen it
            return
        self._seen.add(into)
        self._credit(target, body["amount"])


def shown_wallets(made: Wallets) -> Any:
    """Return all wallets as the overlay shows them."""
    found: dict[str, Any] = {}
    waiting = {key for key, _, _ in made.pending}
    for key in sorted({*made.known, *waiting}):
        wallet = made.known.get(key, Wallet())
        pending = [
            {**item, "currency": wallet.opened.get("currency")}
            for (whose, _, _), item in made.pending.items()
            if whose == key
        ]
        found[key.hex()] = {**wallet.shown(), **wallet.opened, "pending": pending}
    return found


def wallet(records: Iterable[Record], stream_id: bytes) -> Any:
    """Return the wallets of a log."""
    return shown_wallets(Wallets(records, stream_id))


def literal(records: Iterable[Record], stream_id: bytes) -> Any:
    """Return all wallets read literally, and whether a rule was broken."""
    made = Wallets(records, stream_id, literal=True)
    return {
        key.hex(): {
            **made.known[key].shown(),
            "broken": made.known[key].broken,
            "ignored_transfers": made.ignored.get(key, 0),
        }
        for key in sorted(made.known, key=cbor2.dumps)
    }


class Ledger:
    """The paid ledger."""

    def __init__(
        self,
        records: Iterable[Record],
        *,
        default: str | None = None,
        strict: bool = False,
        issuers: frozenset[bytes] = frozenset(),
        remap: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.balances: dict[tuple[str, bytes], int] = {}
        self.verdicts: list[tuple[int, str]] = []
        become = remap or {}
        for _, body, record in _events(records, "paid.", by_parent=False):
            code = default if body.get("currency_code") is None else body["currency_code"]
            if code is None:
                self.verdicts.append((record.stream_seq, "OP.CURRENCY_MISSING"))
                continue
            payer, payee, amount = body["payer_account"], body["payee_account"], body["amount"]
            payer, payee = become.get(payer, payer), become.get(payee, payee)
            owes = self.balances.get((code, payer), 0) < amount
            if strict and payer != payee and payer not in issuers and owes:
                self.verdicts.append((record.stream_seq, "OP.NEGATIVE_BALANCE"))
                continue
            for account, change in ((payer, -amount), (payee, amount)):
                self.balances[code, account] = self.balances.get((code, account), 0) + change
            if record.expires_at is not None and record.hub_ts > record.expires_at:
                self.verdicts.append((record.stream_seq, "OP.STALE"))


def shown(made: Ledger) -> Any:
    """Return the ledger as the overlay shows it."""
    found: dict[str, dict[str, int]] = {}
    for code, account in sorted(made.balances, key=cbor2.dumps):
        found.setdefault(code, {})[account.hex()] = made.balances[code, account]
    return found


def paid(records: Iterable[Record]) -> Any:
    """Return the ledger of a log."""
    return shown(Ledger(records))


WALLET_REFERENCES: dict[str, Callable[[Iterable[Record]], Any]] = {"paid.ledger": paid}
#: Those to which it matters which stream it is.
STREAM_REFERENCES: dict[str, Callable[[Iterable[Record], bytes], Any]] = {
    "wallet": wallet,
    "wallet.literal": literal,
}
