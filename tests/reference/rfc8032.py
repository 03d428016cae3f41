"""Ed25519 after RFC 8032 in plain integers, with the cofactorless equation; slow, and only for tests.

Points are (X, Y, Z, T) with x = X/Z, y = Y/Z, x*y = T/Z.
"""

from hashlib import sha512

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
SQRT_MINUS_1 = pow(2, (P - 1) // 4, P)

Point = tuple[int, int, int, int]
IDENTITY: Point = (0, 1, 1, 0)


def add(a: Point, b: Point) -> Point:
    p = (a[1] - a[0]) * (b[1] - b[0]) % P
    q = (a[1] + a[0]) * (b[1] + b[0]) % P
    r = 2 * a[3] * b[3] * D % P
    s = 2 * a[2] * b[2] % P
    e, f, g, k = q - p, s - r, s + r, q + p
    return e * f % P, g * k % P, f * g % P, e * k % P


def times(number: int, point: Point) -> Point:
    total = IDENTITY
    while number:
        if number & 1:
            total = add(total, point)
        point = add(point, point)
        number >>= 1
    return total


def equal(a: Point, b: Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def decode(data: bytes) -> Point | None:
    """Decode a point (section 5.1.3); None if the bytes are not the canonical encoding of one."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if len(data) != 32 or y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    if square == 0:
        return None if sign else (0, y, 1, 0)
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * SQRT_MINUS_1 % P
    if (x * x - square) % P:
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


_BASE_Y = (4 * pow(5, -1, P) % P).to_bytes(32, "little")
_base = decode(_BASE_Y)
assert _base is not None
BASE: Point = _base


def has_small_order(point: Point) -> bool:
    return equal(times(8, point), IDENTITY)


def equation_holds(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Check S < L and [S]B = R + [k]A over canonical points, without any look at small orders."""
    a, r = decode(public_key), decode(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or a is None or r is None or s >= L:
        return False
    k = int.from_bytes(sha512(signature[:32] + public_key + message).digest(), "little") % L
    return equal(times(s, BASE), add(r, times(k, a)))


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Verify as VEEN does: the equation, and a public key that is not of small order."""
    a = decode(public_key)
    return a is not None and not has_small_order(a) and equation_holds(public_key, message, signature)
