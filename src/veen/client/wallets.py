"""Wallets for programs: messages for each event, one's own wallet, and what the log will say of an event."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from veen.client.client import Client
from veen.client.fold.interpret import FoldedState, interpret, typed
from veen.client.models import Draft, Sent
from veen.core.crypto.hash import ZERO_32
from veen.core.encoding.shape import Fields
from veen.core.objects import labels
from veen.core.objects.msg import MsgContext
from veen.core.types import RealmId
from veen.overlays.event import Event, Record
from veen.overlays.overlay import Key, Tables
from veen.overlays.schema import Schema
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.overlay import TOLD, Wallets
from veen.overlays.wallet.schemas import transfer_id, wallet_id

#: The stream of wallets that share one.
MAIN_STREAM = "wallet/main"


def own_context(client: Client) -> bytes:
    """Return the context that a client's own wallets are of: its identity, which outlives its keys."""
    return bytes(client.session.secrets.identity.public_key)


def own_wallet(client: Client, currency: str, realm: RealmId | None = None) -> bytes:
    """Return the id of a client's own wallet in a currency."""
    return wallet_id(labels.realm_id() if realm is None else realm, own_context(client), currency)


def own_wallets(client: Client, tables: Tables, realm: RealmId | None = None) -> dict[bytes, str]:
    """Return the wallets of a stream that are a client's own, with their currencies."""
    mine = (labels.realm_id() if realm is None else realm, own_context(client))
    return {
        key: currency
        for key, (_, of_realm, ctx, currency, _) in tables.items("opened")
        if (of_realm, ctx) == mine and isinstance(key, bytes)
    }


# --- messages -----------------------------------------------------------------------------------------------


def opening(realm: RealmId, ctx: bytes, currency: str, created_at: int) -> Draft:
    """Return the message that opens a wallet."""
    body = wal.OPEN.make(
        wallet_id=wallet_id(realm, ctx, currency),
        realm_id=realm,
        ctx_id=ctx,
        currency=currency,
        created_at=created_at,
    )
    return typed(wal.OPEN, body)


def event(schema: Schema, wallet: bytes, ts: int, **values: Any) -> Draft:  # noqa: ANN401 - of its fields
    """Return the message of any other event but a transfer: its schema says what it takes."""
    return typed(schema, schema.make(wallet_id=wallet, ts=ts, **values))


def transfer(source: bytes, target: bytes, amount: int, ts: int, metadata: Fields | None = None) -> Draft:
    """Return the message of a transfer."""
    return named_by_place(
        wal.TRANSFER.make(
            wallet_id=source,
            to_wallet_id=target,
            amount=amount,
            ts=ts,
            transfer_id=ZERO_32,
            metadata=metadata,
        )
    )


def named_by_place(body: Fields) -> Draft:
    """Return the message of a transfer whose id follows from its place in the client's sequence (WAL-054)."""

    def encoded(context: MsgContext) -> bytes:
        name = transfer_id(context.label, context.client_id, context.client_seq)
        return wal.TRANSFER.encode({**body, "transfer_id": name})

    return Draft(None, schema=wal.TRANSFER.schema_id, encoded=encoded)


def transfer_of(sent: Sent) -> bytes:
    """Return the id of a transfer that was sent without one of its own."""
    return transfer_id(sent.msg.label, sent.msg.client_id, sent.msg.client_seq)


# --- verdicts -----------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """What the log says of an event; it counts if there is no code, or one that only informs."""

    code: str
    detail: str

    @property
    def counts(self) -> bool:
        """Whether the event counts all the same."""
        return self.code in TOLD


class _Head:
    """Tables at the end of a log; what only the log itself keeps is not foreseen."""

    def __init__(self, tables: Tables, names: Iterable[str]) -> None:
        self._tables = tables
        self._names = frozenset(names)

    def get(self, table: str, key: Key) -> Any:  # noqa: ANN401 - of its kind
        """Return the summary of a key."""
        return self._tables.get(table, key) if table in self._names else None

    def items(self, table: str) -> Iterable[tuple[Key, Any]]:
        """Yield what is in a table."""
        return self._tables.items(table)


def foresee(state: FoldedState, schema: Schema, body: Fields) -> list[Verdict]:
    """Return what would be said of an event that came next; the log is the judge, not this."""
    overlay = state.overlay
    record = Record(2**64 - 1, ZERO_32, ZERO_32, 0, 0, schema.schema_id, b"", epoch=2**64 - 1)
    event_ = Event(record, schema, body, ZERO_32, labels.stream_id(state.stream))
    found = overlay.lower(event_, _Head(state.tables, overlay.tables))
    return [Verdict(code, detail) for code, detail in found.reports]


def judged(client: Client, overlay: Wallets, stream: str, sent: Sent) -> list[Verdict]:
    """Return what the log says of an event that was sent."""
    state = interpret(client, overlay, stream, since=sent.position, upto=sent.position, epoch=sent.epoch)
    return [Verdict(report.code, report.detail) for report in state.reports]
