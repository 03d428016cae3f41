"""One way to sign and one to verify, also where implementations disagree (decision C-101)."""

from hashlib import sha512
from itertools import count

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from tests import edwards
from tests.builders import digest, signing_key
from tests.expect import refused
from veen.core.crypto.ed25519 import SigningKey, verify
from veen.core.errors import Detail
from veen.core.types import VerifyKey

#: RFC 8032 section 7.1: seed, public key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
            "d25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
            "387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
]

SEED = digest("seed")
MESSAGE = b"message"
TORSION = edwards.torsion_points()


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC_8032)
def test_the_vectors_of_rfc_8032(seed: str, public: str, message: str, signature: str) -> None:
    key = SigningKey.from_seed(bytes.fromhex(seed))
    assert key.public_key.hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    verify(key.public_key, bytes.fromhex(message), bytes.fromhex(signature))


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
def test_another_implementation_makes_and_accepts_the_same_signatures(seed: bytes, message: bytes) -> None:
    ours, theirs = SigningKey.from_seed(seed), Ed25519PrivateKey.from_private_bytes(seed)
    signature = ours.sign(message)
    assert theirs.sign(message) == signature
    assert theirs.public_key().public_bytes_raw() == ours.public_key
    verify(ours.public_key, message, signature)


def test_every_changed_bit_of_a_signature_is_refused() -> None:
    key = signing_key()
    signature = key.sign(MESSAGE)
    for bit in range(512):
        changed = (int.from_bytes(signature, "big") ^ 1 << bit).to_bytes(64, "big")
        with refused(Detail.SIG_INVALID):
            verify(key.public_key, MESSAGE, changed)


def test_another_message_or_key_is_refused() -> None:
    key = signing_key()
    signature = key.sign(MESSAGE)
    with refused(Detail.SIG_INVALID):
        verify(key.public_key, MESSAGE + b"\x00", signature)
    with refused(Detail.SIG_INVALID):
        verify(key.public_key, b"", signature)
    with refused(Detail.SIG_INVALID):
        verify(signing_key("other").public_key, MESSAGE, signature)


def test_a_short_signature_does_not_borrow_from_the_message() -> None:
    key = signing_key()
    signature = key.sign(MESSAGE)
    for cut in (0, 1, 32, 63):
        with refused(Detail.SIG_INVALID):
            verify(key.public_key, signature[cut:] + MESSAGE, signature[:cut])
    with refused(Detail.SIG_INVALID):
        verify(key.public_key, MESSAGE[1:], signature + MESSAGE[:1])


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    key = signing_key()
    wrong = VerifyKey((key.public_key + key.public_key)[:size])
    with refused(Detail.SIG_INVALID):
        verify(wrong, MESSAGE, key.sign(MESSAGE))


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_seed_has_32_bytes(size: int) -> None:
    with refused(Detail.FIELD_SIZE, field="seed"):
        SigningKey.from_seed(bytes(size))


def test_the_secret_is_never_shown() -> None:
    key = SigningKey.from_seed(SEED)
    shown = f"{key!r} {key}"
    for secret in (SEED, key._secret):
        assert secret.hex() not in shown
        assert repr(secret)[2:-1] not in shown


# --- where implementations disagree -------------------------------------------------------------------------


def accepted_by_openssl(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def signed_by_hand(
    key: edwards.Point, scalar: int, r_point: edwards.Point, r: int, message: bytes
) -> tuple[VerifyKey, bytes]:
    """Return key and signature with S = r + k * scalar, whatever the two points really are."""
    public, r_bytes = key.encode(), r_point.encode()
    k = edwards.challenge(r_bytes, public, message)
    return VerifyKey(public), edwards.signature(r_bytes, (r + k * scalar) % edwards.ORDER)


def test_the_arithmetic_of_this_test_is_that_of_the_curve() -> None:
    scalar = edwards.secret_scalar(SEED)
    public = scalar * edwards.BASE
    assert public.encode() == SigningKey.from_seed(SEED).public_key
    key, signature = signed_by_hand(public, scalar, 5 * edwards.BASE, 5, MESSAGE)
    verify(key, MESSAGE, signature)
    assert edwards.ORDER * edwards.BASE == edwards.IDENTITY
    assert len(set(TORSION)) == 8
    assert all(8 * point == edwards.IDENTITY for point in TORSION)


def test_s_must_be_below_the_group_order() -> None:
    key = SigningKey.from_seed(SEED)
    signature = key.sign(MESSAGE)
    s = int.from_bytes(signature[32:], "little")
    for factor in range(1, 16):
        if (larger := s + factor * edwards.ORDER) < 1 << 256:
            with refused(Detail.SIG_INVALID):
                verify(key.public_key, MESSAGE, edwards.signature(signature[:32], larger))


@pytest.mark.parametrize("point", TORSION)
def test_a_public_key_of_small_order_is_refused(point: edwards.Point) -> None:
    # Under such a key anybody can sign: S = r fits whenever k times the key vanishes.
    for number in range(64):
        message = number.to_bytes(2, "big")
        key, signature = signed_by_hand(point, 0, number * edwards.BASE, number, message)
        with refused(Detail.SIG_INVALID):
            verify(key, message, signature)
        key, signature = signed_by_hand(point, 0, -(number % 8 * point), 0, message)
        with refused(Detail.SIG_INVALID):
            verify(key, message, signature)


def test_a_public_key_of_small_order_in_a_longer_encoding_is_refused() -> None:
    sign_bit = 1 << 255
    encodings = [edwards.P, edwards.P + 1, edwards.P - 1, 0, 1]
    for y in [*encodings, *(y | sign_bit for y in encodings)]:
        key = VerifyKey(y.to_bytes(32, "little"))
        for number in range(32):
            message = bytes((number,))
            for r_point, r in ((edwards.IDENTITY, 0), (7 * edwards.BASE, 7)):
                with refused(Detail.SIG_INVALID):
                    verify(key, message, edwards.signature(r_point.encode(), r))


@pytest.mark.parametrize("index", range(1, 8))
def test_the_equation_is_the_one_without_the_cofactor(index: int) -> None:
    """A key with a part of small order: valid only where that part cancels out, not eight times over."""
    scalar = edwards.secret_scalar(SEED)
    mixed = scalar * edwards.BASE + TORSION[index]
    verdicts = set()
    for number in range(64):
        message = bytes((number,))
        key, signature = signed_by_hand(mixed, scalar, 3 * edwards.BASE, 3, message)
        k = edwards.challenge(signature[:32], key, message)
        valid = k % edwards.ORDER * TORSION[index] == edwards.IDENTITY
        assert valid == accepted_by_openssl(key, message, signature)
        if valid:
            verify(key, message, signature)
        else:
            with refused(Detail.SIG_INVALID):
                verify(key, message, signature)
        verdicts.add(valid)
    assert verdicts == {True, False}


def test_a_small_r_is_valid_when_the_equation_holds() -> None:
    """Two libraries disagree here; all hubs must not, so RFC 8032 decides."""
    scalar = edwards.secret_scalar(SEED)
    key, signature = signed_by_hand(scalar * edwards.BASE, scalar, edwards.IDENTITY, 0, MESSAGE)
    assert accepted_by_openssl(key, MESSAGE, signature)
    verify(key, MESSAGE, signature)
    with refused(Detail.SIG_INVALID):
        verify(key, MESSAGE + b"!", signature)


@pytest.mark.parametrize("index", range(1, 8))
def test_every_small_r_is_valid_when_the_equation_holds(index: int) -> None:
    scalar = edwards.secret_scalar(SEED)
    mixed = scalar * edwards.BASE + TORSION[1]
    for number in count():
        message = number.to_bytes(2, "big")
        key, signature = signed_by_hand(mixed, scalar, TORSION[index], 0, message)
        k = edwards.challenge(signature[:32], key, message)
        if TORSION[index] + k * TORSION[1] == edwards.IDENTITY:
            verify(key, message, signature)
            break
        with refused(Detail.SIG_INVALID):
            verify(key, message, signature)


def test_a_small_r_with_a_small_or_impossible_key_is_refused() -> None:
    r = edwards.IDENTITY.encode()
    not_a_point = next(y for y in count(2) if not on_curve(y)).to_bytes(32, "little")
    beyond_p = (edwards.P + 3).to_bytes(32, "little")
    for key in (not_a_point, beyond_p, *(point.encode() for point in TORSION)):
        with refused(Detail.SIG_INVALID):
            verify(VerifyKey(key), MESSAGE, edwards.signature(r, 0))


def on_curve(y: int) -> bool:
    try:
        edwards.with_y(y)
    except ValueError:
        return False
    return True


def test_points_in_a_longer_encoding_are_refused() -> None:
    """R = identity, written with y = p + 1 or with the sign bit of a zero x: the same point, other bytes."""
    scalar = edwards.secret_scalar(SEED)
    public = (scalar * edwards.BASE).encode()
    for r in ((edwards.P + 1).to_bytes(32, "little"), (1 | 1 << 255).to_bytes(32, "little")):
        k = int.from_bytes(sha512(r + public + MESSAGE).digest(), "little") % edwards.ORDER
        with refused(Detail.SIG_INVALID):
            verify(VerifyKey(public), MESSAGE, edwards.signature(r, k * scalar % edwards.ORDER))
