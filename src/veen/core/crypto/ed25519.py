"""Ed25519: the one way to sign and the one way to verify (decision C-101).

Accepts exactly what RFC 8032 accepts with the cofactorless equation, S below the group order and
canonical points, but rejects public keys of small order. libsodium verifies at twice the speed of
OpenSSL, with one difference: it also rejects a small-order R. Such signatures do not occur by accident,
but two hubs must not disagree on one, so OpenSSL decides that case.
"""

from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from veen.core.errors import Detail, ProtocolError
from veen.core.types import Signature, VerifyKey

SEED_BYTES: Final = 32
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

_P: Final = 2**255 - 19
_SIGN_BIT: Final = 1 << 255
# y of the eight points of small order: 1; -1; 0; and the two of the points of order 8.
_SMALL_ORDER_Y: Final = frozenset(
    {
        0,
        1,
        _P - 1,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
    }
)


def _y(point: bytes) -> int:
    """Return the encoded y of a point, without its sign bit."""
    return int.from_bytes(point, "little") & ~_SIGN_BIT


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A signing key, derived from a 32-byte seed; its repr does not show the secret."""

    public_key: VerifyKey
    _secret: bytes = field(repr=False)

    @classmethod
    def from_seed(cls, seed: bytes) -> "SigningKey":
        """Derive the key pair of a seed (RFC 8032 section 5.1.5)."""
        if len(seed) != SEED_BYTES:
            raise ProtocolError(
                Detail.FIELD_SIZE, f"a seed has {SEED_BYTES} bytes, not {len(seed)}", field="seed"
            )
        public, secret = crypto_sign_seed_keypair(seed)
        return cls(VerifyKey(public), secret)

    def sign(self, message: bytes) -> Signature:
        """Sign a message; equal messages have equal signatures."""
        return Signature(crypto_sign(message, self._secret)[:SIGNATURE_BYTES])


def verify(public_key: VerifyKey, message: bytes, signature: bytes) -> None:
    """Check a signature; raise SIG_INVALID if it is not valid."""
    # libsodium takes signature and message as one string and trusts the key's length: check both here.
    if len(public_key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        raise ProtocolError(Detail.SIG_INVALID, "signature or public key has a wrong length")
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        if not _valid_with_small_order_r(public_key, message, signature):
            raise ProtocolError(Detail.SIG_INVALID, "signature does not verify") from None


def is_valid(public_key: VerifyKey, message: bytes, signature: bytes) -> bool:
    """Report whether a signature is valid, for callers to which an invalid one is not an error."""
    try:
        verify(public_key, message, signature)
    except ProtocolError:
        return False
    return True


def _valid_with_small_order_r(public_key: bytes, message: bytes, signature: bytes) -> bool:
    if _y(signature[:32]) not in _SMALL_ORDER_Y:
        return False
    key_y = _y(public_key)
    if key_y >= _P or key_y in _SMALL_ORDER_Y:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):  # ValueError: not a point of the curve
        return False
    return True
