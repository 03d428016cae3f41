"""One verification for everybody: what is accepted at the edges is what the plain RFC 8032 verifier accepts.

The plain verifier checks the cofactorless equation over canonical points with S below the group order; VEEN
refuses public keys of small order on top of that (see vectors/generators/signatures.py).
"""

from itertools import product
from typing import Any

import pytest

from tests.reference import rfc8032
from tests.vectors import files
from vectors.generators import edwards as ed
from veen.core.crypto import ed25519
from veen.core.errors import ProtocolError
from veen.core.types import VerifyKey


def accepts(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        ed25519.verify(VerifyKey(key), message, signature)
    except ProtocolError:
        return False
    return True


@pytest.mark.parametrize(
    "vector", files.data("speccheck.json")["vectors"], ids=lambda vector: vector["about"]
)
def test_published_edge_cases(vector: dict[str, Any]) -> None:
    key, message, signature = (bytes.fromhex(vector[name]) for name in ("public_key", "message", "signature"))
    assert rfc8032.verify(key, message, signature) is vector["valid"]
    assert accepts(key, message, signature) is vector["valid"]


def _encodings() -> dict[str, tuple[bytes, int, int]]:
    """Return encodings of points with what is known of them: (bytes, part in the large group, small part)."""
    secret = ed.scalar(b"a key of these tests")
    known = {}
    for part in range(8):
        small = ed.times(part, ed.TORSION)
        known[f"small {part}"] = ed.encode(small), 0, part
        known[f"mixed {part}"] = ed.encode(ed.add(ed.times(secret, ed.BASE), small)), secret, part
    sign = 1 << 255
    for name, number, part in (
        ("identity with a sign", 1 | sign, 0),
        ("identity as p + 1", ed.P + 1, 0),
        ("identity as p + 1 with a sign", ed.P + 1 | sign, 0),
        ("order 2 with a sign", ed.P - 1 | sign, 4),
        ("order 4 as p", ed.P, 2),
        ("order 4 as p with a sign", ed.P | sign, 6),
        ("not on the curve", 2, 0),
        ("not canonical", ed.P + 3, 0),
        ("largest", 2**256 - 1, 0),
    ):
        known[name] = number.to_bytes(32, "little"), 0, part
    return known


ENCODINGS = _encodings()


@pytest.mark.parametrize("key_name", ENCODINGS)
def test_keys_and_r_of_every_kind(key_name: str) -> None:
    """S is chosen so that the large parts of R and key agree: the small parts decide, or nothing helps."""
    key, secret, _ = ENCODINGS[key_name]
    verdicts = set()
    for (r, nonce, _), number in product(ENCODINGS.values(), range(3)):
        message = bytes([number]) * 32
        s = (nonce + ed.challenge(r, key, message) * secret) % ed.L
        signature = ed.joined(r, s)
        verdict = accepts(key, message, signature)
        assert verdict is rfc8032.verify(key, message, signature)
        verdicts.add(verdict)
    assert verdicts == ({True, False} if key_name.startswith("mixed") else {False})


def test_the_equation_alone_would_accept_keys_of_small_order() -> None:
    identity = ed.encode(ed.IDENTITY)
    anybody = ed.joined(identity, 0)
    assert rfc8032.equation_holds(identity, b"any message", anybody)
    assert not accepts(identity, b"any message", anybody)


@pytest.mark.parametrize("extra", range(1, 15))
def test_s_above_the_order(extra: int) -> None:
    key = ed25519.SigningKey.from_seed(bytes(32))
    signature = key.sign(b"message")
    s = int.from_bytes(signature[32:], "little") + extra * ed.L
    larger = ed.joined(signature[:32], s)
    assert accepts(key.public_key, b"message", signature)
    assert not accepts(key.public_key, b"message", larger)
    assert not rfc8032.verify(key.public_key, b"message", larger)


def test_every_bit_of_a_signature_and_of_its_key_counts() -> None:
    key = ed25519.SigningKey.from_seed(bytes([7]) * 32)
    whole = key.public_key + key.sign(b"message")
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not accepts(bytes(flipped[:32]), b"message", bytes(flipped[32:]))
