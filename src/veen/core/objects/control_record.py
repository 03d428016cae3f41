"""Records of the control log: decisions of operators and admins that admission applies (C-107).

Each is stored in place of the message of an entry under the hub's control label, so it has a receipt and a
position in time, and every decision of admission can be reproduced from files. An admin sends the body of a
message, sealed to the hub's control key; the hub turns it into a record.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from veen.core.crypto.hash import tagged_hash
from veen.core.encoding import cbor
from veen.core.encoding.field_types import B32, BOOL, TEXT, UINT, VER, constant
from veen.core.encoding.shape import Field, MapShape, NamedShape
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.objects import labels
from veen.core.types import LeafHash, VerifyKey

# The schema of messages that revoke, and the stream for them in deployments without realms.
REVOCATION_SCHEMA: Final = labels.schema_id("veen.revocation.v1")
REVOCATION_STREAM: Final = labels.revocation_stream(labels.realm_id())


def control_leaf(record: bytes) -> LeafHash:
    """Return the leaf of a record in the control log; its frame has the record in place of a message."""
    return LeafHash(tagged_hash("veen/control-record", record))


class Target(StrEnum):
    """What a revocation names (C-55)."""

    CLIENT_ID = "client-id"
    AUTH_REF = "auth-ref"
    CAP_TOKEN = "cap-token"  # noqa: S105 - a kind of target


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord(Wire):
    """An issuer is trusted from here on, or no longer (C-49)."""

    KIND: ClassVar = "trust"
    SHAPE: ClassVar = MapShape(
        "trust_record",
        Field("ver", VER, key=1),
        Field("kind", constant(KIND), key=2),
        Field("issuer_pk", B32, key=3),
        Field("trusted", BOOL, key=4),
        Field("note", TEXT, key=5, optional=True),
    )

    issuer_pk: VerifyKey
    trusted: bool
    note: str | None = None
    kind: str = KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationRecord(Wire):
    """A client or a token is revoked from a time on, for a period or permanently (C-54)."""

    KIND: ClassVar = "revoke"
    SHAPE: ClassVar = MapShape(
        "revocation_record",
        Field("ver", VER, key=1),
        Field("kind", constant(KIND), key=2),
        Field("target_kind", TEXT, key=3),
        Field("target", B32, key=4),
        Field("ts", UINT, key=5),
        Field("ttl", UINT, key=6, optional=True),
        Field("reason", TEXT, key=7, optional=True),
        Field("origin", B32, key=8, optional=True),
    )

    target_kind: str
    target: bytes
    ts: int
    ttl: int | None = None
    reason: str | None = None
    # The admin message that requested it, if any.
    origin: LeafHash | None = None
    kind: str = KIND

    def _validate(self) -> None:
        _check_kind(self.target_kind, "target_kind")

    def holds_at(self, hub_ts: int) -> bool:
        """Report whether a message of this time is revoked."""
        return self.ts <= hub_ts and (self.ttl is None or hub_ts < self.ts + self.ttl)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationBody(Wire):
    """The body of an admin's message on the revocation stream (KEX1-006)."""

    SHAPE: ClassVar = NamedShape(
        "revocation",
        Field("kind", TEXT),
        Field("target", B32),
        Field("reason", TEXT, optional=True),
        Field("ts", UINT),
        Field("ttl", UINT, optional=True),
    )

    kind: str
    # A client_id, an auth_ref, or the hash of a whole token, by kind (C-55).
    target: bytes
    ts: int
    reason: str | None = None
    ttl: int | None = None

    def _validate(self) -> None:
        _check_kind(self.kind, "kind")

    def record(self, origin: LeafHash | None = None) -> RevocationRecord:
        """Return the record for the control log; ``origin`` is the message that contained this body."""
        return RevocationRecord(
            target_kind=self.kind,
            target=self.target,
            ts=self.ts,
            ttl=self.ttl,
            reason=self.reason,
            origin=origin,
        )


def _check_kind(kind: str, field: str) -> None:
    if kind not in set(Target):
        raise ProtocolError(Detail.VALUE, f"unknown kind of target {kind!r}", field=field)


ControlRecord = TrustRecord | RevocationRecord

_KINDS: Final[dict[str, type[TrustRecord] | type[RevocationRecord]]] = {
    cls.KIND: cls for cls in (TrustRecord, RevocationRecord)
}


def decode_control(data: bytes) -> ControlRecord:
    """Decode a record of any kind."""
    pairs = cbor.decode(data)
    kind = pairs.get(2) if isinstance(pairs, dict) else None
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ProtocolError(
            Detail.VALUE, f"control record of unknown kind {kind!r}; a newer release wrote it", field="kind"
        )
    return cls.decode(data)
