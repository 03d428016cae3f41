"""A stream of wallets that tests write, event by event."""

from random import Random
from typing import Any

from tests.overlays.histories_wallet import REALM, WALLETS
from tests.overlays.logs import STREAM, T0, Log, ident
from veen.core.types import StreamId
from veen.overlays.engine import Fold, MemoryTables, fold
from veen.overlays.event import Record
from veen.overlays.schema import Schema
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.effects import State
from veen.overlays.wallet.overlay import Wallets, pending_of


class Book(Log):
    """A stream of wallets, written event by event."""

    def __init__(self, *opened: bytes, stream_id: StreamId = STREAM) -> None:
        super().__init__(Random(b"".join(opened)))
        self.stream_id = stream_id
        for wallet in opened:
            self.open(wallet)

    def open(self, wallet: bytes, created_at: int = T0) -> None:
        """Open a wallet."""
        ctx, currency, _ = next(item for item in WALLETS if item[2] == wallet)
        fields: dict[str, Any] = {"realm_id": REALM, "ctx_id": ctx, "currency": currency}
        self.event(wal.OPEN, wallet_id=wallet, **fields, created_at=created_at)

    def put(self, schema: Schema, wallet: bytes, ts: int = T0, **values: object) -> Record:
        """Append an event of a wallet."""
        body = schema.make(wallet_id=wallet, ts=ts, **values)
        return self.add(schema, schema.encode(body))

    def pay(self, source: bytes, target: bytes, amount: int, name: object, ts: int = T0) -> Record:
        """Append a transfer."""
        return self.put(
            wal.TRANSFER, source, ts, to_wallet_id=target, amount=amount, transfer_id=ident("xfer", name)
        )

    def folded(self, **parameters: Any) -> tuple[MemoryTables, list[str]]:
        """Return the tables and the verdicts."""
        overlay = Wallets(**parameters)
        summary = fold(overlay, self.records, self.stream_id)
        return Fold(overlay).tables_of(summary), [report.code for report in summary.reports]

    def state(self, wallet: bytes, **parameters: Any) -> State:
        """Return the state of a wallet."""
        return Wallets().state(self.folded(**parameters)[0], wallet)

    def pending(self, wallet: bytes) -> list[tuple[bytes, int]]:
        """Return from whom a wallet waits for how much."""
        return [(item.source, item.amount) for item in pending_of(self.folded()[0], wallet)]

    def verdicts(self, **parameters: Any) -> list[str]:
        """Return what is wrong."""
        return self.folded(**parameters)[1]
