"""The curve of Ed25519 in plain arithmetic: slow, and able to make what no library would (RFC 8032, 5.1).

For signatures at the edge of the rules only; nothing here is constant-time.
"""

from dataclasses import dataclass
from hashlib import sha512

P = 2**255 - 19
#: The order of the base point.
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
_SQRT_MINUS_1 = pow(2, (P - 1) // 4, P)


@dataclass(frozen=True)
class Point:
    """A point in affine coordinates."""

    x: int
    y: int

    def __add__(self, other: "Point") -> "Point":
        product = D * self.x * other.x * self.y * other.y % P
        x = (self.x * other.y + self.y * other.x) * pow(1 + product, -1, P)
        y = (self.y * other.y + self.x * other.x) * pow(1 - product, -1, P)
        return Point(x % P, y % P)

    def __neg__(self) -> "Point":
        return Point(-self.x % P, self.y)

    def __rmul__(self, factor: int) -> "Point":
        result, power = IDENTITY, self
        while factor:
            if factor & 1:
                result += power
            power += power
            factor >>= 1
        return result

    def encode(self) -> bytes:
        return (self.y | (self.x & 1) << 255).to_bytes(32, "little")


IDENTITY = Point(0, 1)


def with_y(y: int, sign: int = 0) -> Point:
    """Return the point with this y; ValueError if there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * _SQRT_MINUS_1 % P
    if x * x % P != square:
        raise ValueError(y)
    return Point(-x % P if x & 1 != sign else x, y)


BASE = with_y(4 * pow(5, -1, P) % P)


def torsion_points() -> list[Point]:
    """Return the eight points of small order, beginning with the identity."""
    y = 2
    while True:
        try:
            generator = ORDER * with_y(y)
        except ValueError:
            pass
        else:
            if 4 * generator != IDENTITY:
                return [factor * generator for factor in range(8)]
        y += 1


def secret_scalar(seed: bytes) -> int:
    """Return the secret scalar of a seed."""
    digest = bytearray(sha512(seed).digest()[:32])
    digest[0] &= 248
    digest[31] = digest[31] & 127 | 64
    return int.from_bytes(digest, "little")


def challenge(r: bytes, key: bytes, message: bytes) -> int:
    """Return k = SHA-512(R || A || M) mod L."""
    return int.from_bytes(sha512(r + key + message).digest(), "little") % ORDER


def signature(r: bytes, s: int) -> bytes:
    return r + s.to_bytes(32, "little")
