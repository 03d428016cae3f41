"""The payload header: what only readers see (001 section 4.5)."""

from dataclasses import dataclass
from typing import ClassVar

from veen.core.errors import Detail, ProtocolError
from veen.core.kinds import B32, UINT
from veen.core.shapes import Field, MapShape
from veen.core.types import AuthRef, LeafHash, SchemaId
from veen.core.wire import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadHeader(Wire):
    """The encrypted header of a message: its schema and what it refers to."""

    SHAPE: ClassVar = MapShape(
        "payload_hdr",
        Field("schema", B32, key=1),
        Field("parent_id", B32, key=2, optional=True),
        Field("att_root", B32, key=3, optional=True),
        Field("cap_ref", B32, key=4, optional=True),
        Field("expires_at", UINT, key=5, optional=True),
    )

    schema: SchemaId
    parent_id: LeafHash | None = None
    att_root: bytes | None = None
    cap_ref: AuthRef | None = None
    expires_at: int | None = None

    def verify_cap_ref(self, auth_ref: AuthRef | None) -> None:
        """Check that a capability named inside is the one the message was admitted under (HDR-007)."""
        if self.cap_ref is not None and self.cap_ref != auth_ref:
            raise ProtocolError(
                Detail.AUTH_REF, "cap_ref is not the auth_ref of the message", field="cap_ref"
            )
