"""Entries of a stream as folds see them."""

from collections.abc import Iterator
from dataclasses import dataclass

from veen.client.client import Client, ReadOptions
from veen.client.reading import Message, list_epochs
from veen.core.types import Label
from veen.overlays.events import Record


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a label was read: what a state holds for."""

    epoch: int
    label: Label
    upto_seq: int
    mmr_root: bytes


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


def stream_epochs(client: Client, stream: str) -> list[int]:
    """Return the epochs in which a stream has entries; 0 alone where labels do not change."""
    session = client.session
    return client.run(list_epochs(session, stream, 0)) if session.profiles[0].epoch_sec else [0]


def read_records(client: Client, stream: str, options: ReadOptions) -> Iterator[tuple[Record, Reached]]:
    """Yield the entries of a stream, with the place that each has reached."""
    for message in client.stream(stream, options=options):
        receipt = message.receipt
        yield (
            record_of(message),
            Reached(message.epoch, receipt.label, receipt.stream_seq, receipt.mmr_root),
        )
