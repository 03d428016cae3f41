"""Interpreting a stream: its entries, checked and opened, folded by an overlay."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from veen.client.client import Client, ReadOptions
from veen.client.reading import Message
from veen.client.sending import Draft
from veen.core.shapes import Raw
from veen.core.types import JsonValue, Label, LeafHash
from veen.overlays.events import Record, Report
from veen.overlays.folding import Annotator, hash_state, memory_of
from veen.overlays.overlay import Key, Overlay, Tables
from veen.overlays.schema import Schema


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a label was read: what a state holds for."""

    epoch: int
    label: Label
    upto_seq: int
    mmr_root: bytes


@dataclass(frozen=True, slots=True)
class Interpretation:
    """The state of a stream, by an overlay, at a position."""

    overlay: Overlay
    stream: str
    tables: Tables
    #: What became of the records (veen.overlays.events.Outcome).
    counts: dict[str, int]
    #: What is wrong with events, in their order.
    reports: list[Report]
    #: One for each label; none if the stream has no entries.
    reached: list[Reached]
    #: Whether entries may still come before some that were read (OVR-012).
    provisional: bool = False

    def view(self, now: int | None = None) -> JsonValue:
        """Return the whole state."""
        return self.overlay.view(self.tables, now)

    def view_key(self, key: Key, now: int | None = None) -> JsonValue:
        """Return the state of one key."""
        return self.overlay.view_key(self.tables, key, now)

    def state_hash(self) -> bytes:
        """Return the hash of the state."""
        return hash_state(self.overlay, self.tables)


def record_of(message: Message) -> Record:
    """Return what a fold may see of an entry (C-105)."""
    msg, receipt, header = message.msg, message.receipt, message.header
    return Record(
        stream_seq=receipt.stream_seq,
        msg_id=receipt.leaf_hash,
        client_id=msg.client_id,
        client_seq=msg.client_seq,
        hub_ts=receipt.hub_ts,
        schema=None if header is None else header.schema,
        body=message.raw_body(),
        epoch=message.epoch,
        parent_id=None if header is None else header.parent_id,
        auth_ref=msg.auth_ref,
        cap_ref=None if header is None else header.cap_ref,
        expires_at=None if header is None else header.expires_at,
    )


def read_records(client: Client, stream: str, options: ReadOptions) -> Iterator[tuple[Record, Reached]]:
    """Yield the entries of a stream, with the place that each has reached."""
    for message in client.stream(stream, options=options):
        receipt = message.receipt
        yield (
            record_of(message),
            Reached(message.epoch, receipt.label, receipt.stream_seq, receipt.mmr_root),
        )


def interpret(
    client: Client,
    overlay: Overlay,
    stream: str,
    *,
    upto: int | None = None,
    epoch: int | None = None,
    bridges: frozenset[bytes] = frozenset(),
    progress: Callable[[int], None] | None = None,
) -> Interpretation:
    """Fold a stream up to a position: number ``upto`` of an epoch, of the last one if none is named."""
    head = memory_of(overlay)
    annotator = Annotator(overlay, head, bridges)
    counts: dict[str, int] = {}
    reports: list[Report] = []
    reached: dict[int, Reached] = {}
    for record, place in read_records(client, stream, ReadOptions(to_seq=upto, epoch=epoch)):
        item = annotator.annotate(record)
        counts[item.outcome.value] = counts.get(item.outcome.value, 0) + 1
        reports += item.reports
        reached[place.epoch] = place
        if progress is not None:
            progress(1)
    return Interpretation(overlay, stream, head, counts, reports, list(reached.values()))


def typed(
    schema: Schema, body: Raw, *, parent_id: LeafHash | None = None, expires_at: int | None = None
) -> Draft:
    """Return a message with a body of a schema, to be sent."""
    return Draft(
        None,
        schema=schema.schema_id,
        parent_id=parent_id,
        expires_at=expires_at,
        encoded=schema.encode(body),
    )
