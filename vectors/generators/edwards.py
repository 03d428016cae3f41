"""The curve of Ed25519 in plain integers, slow and readable: for signatures that no signer would produce."""

from hashlib import sha512
from typing import Final

P: Final = 2**255 - 19
# Order of the base point.
L: Final = 2**252 + 27742317777372353535851937790883648493
_D: Final = -121665 * pow(121666, -1, P) % P
_ROOT: Final = pow(2, (P - 1) // 4, P)

Point = tuple[int, int]
IDENTITY: Final[Point] = (0, 1)


def _x(y: int, sign: int) -> int:
    square = (y * y - 1) * pow(_D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * _ROOT % P
    assert (x * x - square) % P == 0, "not a point of the curve"
    return P - x if x & 1 != sign else x


BASE: Final[Point] = (_x(4 * pow(5, -1, P) % P, 0), 4 * pow(5, -1, P) % P)
# A point of order 8; its multiples are all eight points of small order.
TORSION: Final[Point] = (
    _x(0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7, 0),
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
)


def add(a: Point, b: Point) -> Point:
    """Return the sum of two points."""
    (x1, y1), (x2, y2) = a, b
    k = _D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P


def times(number: int, point: Point) -> Point:
    """Return a multiple of a point."""
    total = IDENTITY
    while number:
        if number & 1:
            total = add(total, point)
        point, number = add(point, point), number >> 1
    return total


def encode(point: Point) -> bytes:
    """Return the 32 bytes of a point."""
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def scalar(seed: bytes) -> int:
    """Return the secret scalar of a seed (RFC 8032 section 5.1.5)."""
    number = int.from_bytes(sha512(seed).digest()[:32], "little")
    return (number & ((1 << 254) - 8)) | 1 << 254


def challenge(r: bytes, key: bytes, message: bytes) -> int:
    """Return the number to which R, key and message are hashed."""
    return int.from_bytes(sha512(r + key + message).digest(), "little") % L


def joined(r: bytes, s: int) -> bytes:
    """Return the signature of its two halves."""
    return r + s.to_bytes(32, "little")


assert times(8, TORSION) == IDENTITY != times(4, TORSION)
assert times(L, BASE) == IDENTITY
