"""Wallets for programs: a message for each event, the client's own wallets, and the verdicts on events."""

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

# The stream that wallets share.
MAIN_STREAM = "wallet/main"


def own_context(client: Client) -> bytes:
    """Return the context of a client's own wallets: its identity, which survives key rotation."""
    return bytes(client.session.secrets.identity.public_key)


def own_wallet(client: Client, currency: str, realm: RealmId | None = None) -> bytes:
    """Return the id of a client's own wallet in a currency."""
    return wallet_id(labels.realm_id() if realm is None else realm, own_context(client), currency)


def own_wallets(client: Client, tables: Tables, realm: RealmId | None = None) -> dict[bytes, str]:
    """Return a client's own wallets in a stream, with their currencies."""
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
    """Return the message of an event other than a transfer; ``values`` are the other fields of its schema."""
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
    """Return the message of a transfer whose id is derived from its sequence number (WAL-054)."""

    def encoded(context: MsgContext) -> bytes:
        id_ = transfer_id(context.label, context.client_id, context.client_seq)
        return wal.TRANSFER.encode({**body, "transfer_id": id_})

    return Draft(None, schema=wal.TRANSFER.schema_id, encoded=encoded)


def transfer_of(sent: Sent) -> bytes:
    """Return the id of a sent transfer, derived from its sequence number."""
    return transfer_id(sent.msg.label, sent.msg.client_id, sent.msg.client_seq)


# --- verdicts -----------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """A report on an event: an error, or a code that only informs."""

    code: str
    detail: str

    @property
    def counts(self) -> bool:
        """Whether the event counts nevertheless."""
        return self.code in TOLD


class _Head:
    """The tables of an overlay at the end of a log; others, which only a running fold has, are empty."""

    def __init__(self, tables: Tables, names: Iterable[str]) -> None:
        self._tables = tables
        self._names = frozenset(names)

    def get(self, table: str, key: Key) -> Any:  # noqa: ANN401 - of its kind
        """Return the summary of a key."""
        return self._tables.get(table, key) if table in self._names else None

    def items(self, table: str) -> Iterable[tuple[Key, Any]]:
        """Yield the items of a table."""
        return self._tables.items(table)


def foresee(state: FoldedState, schema: Schema, body: Fields) -> list[Verdict]:
    """Predict the reports on an event if it came next; only the log decides."""
    overlay = state.overlay
    record = Record(2**64 - 1, ZERO_32, ZERO_32, 0, 0, schema.schema_id, b"", epoch=2**64 - 1)
    event_ = Event(record, schema, body, ZERO_32, labels.stream_id(state.stream))
    lowered = overlay.lower(event_, _Head(state.tables, overlay.tables))
    return [Verdict(code, detail) for code, detail in lowered.reports]


def judged(client: Client, overlay: Wallets, stream: str, sent: Sent) -> list[Verdict]:
    """Return the reports on an event that was sent, according to the log."""
    state = interpret(client, overlay, stream, since=sent.position, upto=sent.position, epoch=sent.epoch)
    return [Verdict(report.code, report.detail) for report in state.reports]
