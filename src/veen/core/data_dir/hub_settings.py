"""The hub's files beside its log: their names, and the settings made at its first start."""

from dataclasses import dataclass
from typing import ClassVar, Final

from veen.core.encoding.field_types import BOOL, UINT, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.profile import Profile

SETTINGS: Final = "hub-settings.cbor"
# Secret: any process that has it can act as the hub.
SECRETS: Final = "hub-secrets.cbor"
IDENTITY: Final = "hub-identity.cbor"
IDENTITY_JSON: Final = "hub-identity.json"
IDENTITY_SIG: Final = "hub-identity.sig"
# Signature and identity in one file, while their two separate files are being written.
PENDING: Final = "hub-identity.next"
KEY_MAP: Final = "hub-key-map.cbor"
BINDING: Final = "checkpoint-binding.cbor"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRule(Wire):
    """Whether messages needed a token before a time."""

    SHAPE: ClassVar = MapShape("earlier_rule", Field("until", UINT, key=1), Field("require_cap", BOOL, key=2))

    until: int
    require_cap: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings(Wire):
    """hub-settings.cbor: what was decided at the first start and stays with the directory (C-39, C-51)."""

    SHAPE: ClassVar = MapShape(
        "hub_settings",
        Field("ver", VER, key=1),
        Field("epoch_sec", UINT, key=2),
        Field("pad_blocks", ListOf(UINT, may_be_empty=False), key=3),
        Field("require_cap", BOOL, key=4),
        Field("earlier", ListOf(Nested(EarlierRule), may_be_empty=False), key=5, optional=True),
    )

    epoch_sec: int
    # Of the profiles that the hub serves; it proposes the first.
    pad_blocks: tuple[int, ...]
    require_cap: bool
    # Earlier rules, oldest first, so that earlier decisions can be reproduced.
    earlier: tuple[EarlierRule, ...] | None = None

    def _validate(self) -> None:
        if len(set(self.pad_blocks)) != len(self.pad_blocks):
            raise ProtocolError(Detail.VALUE, "a profile must not be listed twice", field="pad_blocks")

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles that the hub serves."""
        return tuple(Profile(epoch_sec=self.epoch_sec, pad_block=block) for block in self.pad_blocks)

    def require_cap_at(self, hub_ts: int) -> bool:
        """Report whether a message of this time needed a token."""
        for rule in self.earlier or ():
            if hub_ts == rule.until:
                return False  # both rules held in this second, and one of them accepts it
            if hub_ts < rule.until:
                return rule.require_cap
        return self.require_cap
