"""Wallets, one event after the other: opening, deposits, withdrawals and transfers."""

from hashlib import sha256
from typing import Any

from tests.reference.basics import Fields, Json, ht, unhexed

SCHEMAS = {
    sha256(f"wallet.{name}.v1".encode()).digest(): name
    for name in ("open", "deposit", "withdraw", "transfer")
}


class Wallets:
    """The wallets of a stream."""

    def __init__(self, stream_id: bytes) -> None:
        self._stream_id = stream_id
        self._owner: bytes | None = None
        self._opened: dict[bytes, Fields] = {}
        self._balances: dict[bytes, int] = {}
        self._pending: dict[tuple[bytes, bytes], Fields] = {}
        self._seen: set[tuple[str, bytes, bytes]] = set()
        self.rejected: list[Fields] = []

    def add(self, event: Fields, body: Any) -> None:
        """Judge an event."""
        for code in self._judged(SCHEMAS[unhexed(event["schema"])], event, body):
            self.rejected.append({"stream_seq": event["stream_seq"], "code": f"WAL.{code}"})

    def _is_own(self, wallet: bytes) -> bool:
        return ht("wallet/stream", wallet) == self._stream_id

    def _judged(self, name: str, event: Fields, body: Any) -> list[str]:
        wallet = body["wallet_id"]
        if name == "transfer" and self._is_own(body["to_wallet_id"]) and wallet != body["to_wallet_id"]:
            self._pending.setdefault(
                (body["to_wallet_id"], unhexed(event["body"])), {"event": event, "body": body}
            )
            return ["UNBACKED_CREDIT"]
        if self._owner not in (None, wallet):
            return ["WRONG_STREAM"]
        if name == "open":
            self._opened[wallet] = body
            self._balances[wallet] = 0
            self._owner = wallet if self._is_own(wallet) else None
            return []
        if name == "transfer":
            return self._transfer(body)
        change = body["amount"] if name == "deposit" else -body["amount"]
        why = self._refused(wallet, change)
        if not why:
            self._balances[wallet] += change
        return why

    def _refused(self, wallet: bytes, change: int) -> list[str]:
        if wallet not in self._opened:
            return ["NOT_FOUND"]
        return ["INSUFFICIENT_FUNDS"] if self._balances[wallet] + change < 0 else []

    def _transfer(self, body: Any) -> list[str]:
        source, target, once = body["wallet_id"], body["to_wallet_id"], body["transfer_id"]
        is_repeated = ("out", source, once) in self._seen or ("in", target, once) in self._seen
        why = ["DUPLICATE"] if is_repeated else self._refused(source, -body["amount"])
        self._seen.add(("out", source, once))
        if why:
            return why if is_repeated or self._owner is not None else [*why, "UNBACKED"]
        self._balances[source] -= body["amount"]
        if self._owner is None:
            self._seen.add(("in", target, once))
            why = self._refused(target, body["amount"])
            if not why:
                self._balances[target] += body["amount"]
        return why

    def shown(self) -> Json:
        """Return the state for people."""
        found = {}
        for wallet in sorted({*self._opened, *(target for target, _ in self._pending)}):
            opened = self._opened.get(wallet)
            names = ("exists", "closed", "balance", "frozen", "daily_limit", "pending_daily_spent")
            fields = dict(zip((*names, "last_limit_reset_ts"), self._seven(wallet), strict=True))
            if opened is not None:
                fields |= {
                    "currency": opened["currency"],
                    "realm_id": opened["realm_id"].hex(),
                    "ctx_id": opened["ctx_id"].hex(),
                    "created_at": opened["created_at"],
                }
            fields["pending"] = [
                self._waiting(item["event"], item["body"], None if opened is None else opened["currency"])
                for (target, _), item in self._pending.items()
                if target == wallet
            ]
            found[wallet.hex()] = fields
        return found

    def _waiting(self, event: Fields, body: Any, currency: str | None) -> Fields:
        own = unhexed(event["client_id"]) + event["client_seq"].to_bytes(8, "big")
        return {
            "transfer_id": body["transfer_id"].hex(),
            "from": body["wallet_id"].hex(),
            "amount": body["amount"],
            "currency": currency,
            "ts": body["ts"],
            "epoch": event.get("epoch", 0),
            "stream_seq": event["stream_seq"],
            "msg_id": ht("veen/conformance-event", own).hex(),
        }

    def _seven(self, wallet: bytes) -> list[Any]:
        opened = self._opened.get(wallet)
        if opened is None:
            return [False, False, 0, False, None, 0, 0]
        return [True, False, self._balances[wallet], False, None, 0, opened["created_at"]]

    def serialized(self) -> Any:
        """Return the state as it is hashed: nothing that is pending is part of it."""
        return {wallet: self._seven(wallet) for wallet in self._opened}
