"""Records of the log, and what they decode to: a typed event, a rejection with a code, or an unknown schema.

A fold may see what the log authenticates, and nothing else (C-105): no clock, no network, no other fold.

An event's identity is the one whose key signed it, or one that the key acts for.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from veen.core.crypto.hash import tagged_hash
from veen.core.encoding.shape import Fields
from veen.core.types import LeafHash, StreamId
from veen.overlays.errors import InvalidBodyError
from veen.overlays.monoid import Position
from veen.overlays.schema import Schema


class Record(NamedTuple):
    """An entry of a log, decrypted.

    Attributes:
        schema: None if it could not be decrypted, since it is sealed for another reader.
    """

    stream_seq: int
    msg_id: bytes
    client_id: bytes
    client_seq: int
    hub_ts: int
    schema: bytes | None
    body: bytes
    epoch: int = 0
    parent_id: bytes | None = None
    auth_ref: bytes | None = None
    cap_ref: bytes | None = None
    expires_at: int | None = None


class Event(NamedTuple):
    """A record whose body matches its schema.

    Attributes:
        canonical_id: The id of this message, or of the original that it is a copy of (OVR-014).
        stream_id: The stream that contains it: its label follows from that, in every epoch (C-132).
    """

    record: Record
    schema: Schema
    body: Fields
    canonical_id: bytes
    stream_id: StreamId

    @property
    def name(self) -> str:
        """The name of its schema."""
        return self.schema.name

    @property
    def position(self) -> Position:
        """Its position in the stream."""
        record = self.record
        return (record.epoch, record.stream_seq, record.msg_id)

    @property
    def operation_id(self) -> bytes:
        """The id by which other operations refer to it."""
        return operation_id(self.canonical_id)


def operation_id(msg_id: LeafHash | bytes) -> bytes:
    """Return the id of the operation that a message carries (OPP-001)."""
    return tagged_hash("veen/operation-id", msg_id)


class Outcome(StrEnum):
    """How a record was classified."""

    EVENT = "events"
    # A copy of an earlier event.
    DUPLICATE = "duplicates"
    # Its body does not match its schema.
    REJECTED = "rejected"
    # Its schema is not one that this overlay reads.
    UNKNOWN = "unknown"
    # Sealed for another reader.
    UNREADABLE = "unreadable"


class Report(NamedTuple):
    """What is wrong with an event, for auditors (OVR-030)."""

    epoch: int
    stream_seq: int
    canonical_id: bytes
    code: str
    detail: str


class Decoder:
    """Decodes the bodies of some schemas; total."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        self._by_id: Mapping[bytes, Schema] = {schema.schema_id: schema for schema in schemas}

    def schema_of(self, record: Record) -> Schema | None:
        """Return the schema of a record, if it is one of these."""
        return None if record.schema is None else self._by_id.get(record.schema)

    def decode(self, record: Record, schema: Schema) -> Fields:
        """Decode the body of a record; raises InvalidBodyError."""
        if record.cap_ref is not None and record.cap_ref != record.auth_ref:  # OPP-005
            raise InvalidBodyError("BODY.CAP_REF", "cap_ref is not the auth_ref of the message")
        return schema.decode(record.body)


# Keys of clients -> the identity that each acts for: devices of the identity layer.
Devices = Mapping[bytes, bytes]


def speaks_for(client_id: bytes, identity: bytes, devices: Devices) -> bool:
    """Whether a message of this client counts as a statement of an identity (AGR-011, REC-011)."""
    return identity in (client_id, devices.get(client_id))
