"""The secrets of a hub. Log and identity may be copied anywhere; these stay: whoever has them is the hub."""

from dataclasses import dataclass
from typing import ClassVar, Final

from veen.core import hubfiles
from veen.core.kinds import B32, VER, ListOf
from veen.core.shapes import Field, MapShape
from veen.core.wire import Wire

SECRETS: Final = hubfiles.SECRETS


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSecrets(Wire):
    """hub-secrets.cbor. Readable by the hub's user only; never copied, logged or sent."""

    SHAPE: ClassVar = MapShape(
        "hub_secrets",
        Field("ver", VER, key=1),
        Field("seeds", ListOf(B32, may_be_empty=False), key=2),
        Field("control_sk", B32, key=3),
        Field("pow_key", B32, key=4),
    )

    #: Of the signing keys, oldest first; all are kept, so that checkpoints of old epochs can still be made.
    seeds: tuple[bytes, ...]
    #: X25519: admin messages are sealed to it (C-107).
    control_sk: bytes
    #: Of the challenges for proof of work (C-65).
    pow_key: bytes

    def __repr__(self) -> str:
        """Say nothing that could end up in a log."""
        return f"HubSecrets({len(self.seeds)} keys)"
