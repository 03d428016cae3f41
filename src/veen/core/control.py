"""Records of the control log: what an operator or an admin decided, and admission goes by (C-107).

Each is stored in the message's place of an entry under the hub's control label, so it has a receipt and a
place in time, and every decision of admission can be made again from files.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from veen.core import cbor
from veen.core.errors import Detail, ProtocolError
from veen.core.kinds import B32, BOOL, TEXT, UINT, VER, constant
from veen.core.shapes import Field, MapShape
from veen.core.types import LeafHash, VerifyKey
from veen.core.wire import Wire


class Target(StrEnum):
    """What a revocation names (C-55)."""

    CLIENT_ID = "client-id"
    AUTH_REF = "auth-ref"
    CAP_TOKEN = "cap-token"  # noqa: S105 - a kind of target


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord(Wire):
    """Tokens of an issuer count from here on, or no longer do (C-49)."""

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
    """A client or a token is refused from a time on, for a while or for good (C-54)."""

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
    #: The admin message that asked for it, if one did.
    origin: LeafHash | None = None
    kind: str = KIND

    def _validate(self) -> None:
        if self.target_kind not in set(Target):
            raise ProtocolError(
                Detail.VALUE, f"unknown kind of target {self.target_kind!r}", field="target_kind"
            )

    def holds_at(self, hub_ts: int) -> bool:
        """Tell whether a message of this time is revoked."""
        return self.ts <= hub_ts and (self.ttl is None or hub_ts < self.ts + self.ttl)


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
