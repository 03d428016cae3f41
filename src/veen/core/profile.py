"""The cryptographic profile and its id (001 section 3.2; decision C-02)."""

from dataclasses import dataclass
from typing import ClassVar

from veen.core.crypto.hash import tagged_hash
from veen.core.encoding.field_types import UINT, constant
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Wire
from veen.core.types import ProfileId


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Wire):
    """A profile: two numbers to choose and one fixed set of algorithms. There are no defaults."""

    SHAPE: ClassVar = MapShape(
        "profile",
        Field("aead", constant("xchacha20poly1305"), key=1),
        Field("kdf", constant("hkdf-sha256"), key=2),
        Field("sig", constant("ed25519"), key=3),
        Field("dh", constant("x25519"), key=4),
        Field("hpke_suite", constant("X25519-HKDF-SHA256-CHACHA20POLY1305"), key=5),
        Field("epoch_sec", UINT, key=6),
        Field("pad_block", UINT, key=7),
        Field("mmr_hash", constant("sha256"), key=8),
    )

    epoch_sec: int
    pad_block: int
    aead: str = "xchacha20poly1305"
    kdf: str = "hkdf-sha256"
    sig: str = "ed25519"
    dh: str = "x25519"
    hpke_suite: str = "X25519-HKDF-SHA256-CHACHA20POLY1305"
    mmr_hash: str = "sha256"

    @property
    def profile_id(self) -> ProfileId:
        """The id that every message carries."""
        return ProfileId(tagged_hash("veen/profile", self.encode()))
