"""Invalid MSG: lengths inside the ciphertext, signatures, and which of several faults is named."""

from collections.abc import Iterator
from itertools import combinations

from nacl.bindings import (
    crypto_sign_ed25519ph_final_create,
    crypto_sign_ed25519ph_state,
    crypto_sign_ed25519ph_update,
    crypto_sign_seed_keypair,
)

from vectors.generators import fixed, raw, samples
from vectors.generators.fixed import ZERO_32, h, ht, u32
from vectors.generators.scenario import (
    CBOR_INVALID,
    CT_HASH,
    FIELD_SIZE,
    SIG_INVALID,
    VERSION,
    Failure,
    Scenario,
)

_POSITION = {
    "ver": 0,
    "profile_id": 1,
    "label": 2,
    "client_id": 3,
    "client_seq": 4,
    "prev_ack": 5,
    "auth_ref": 6,
    "ct_hash": 7,
    "ciphertext": 8,
    "sig": 9,
}


def _changed(**fields: bytes) -> bytes:
    """Return the sample MSG with some encoded fields replaced, but not signed again."""
    items = raw.split(samples.MSG)
    for name, item in fields.items():
        items[_POSITION[name]] = item
    return raw.array(*items)


def envelope_lengths() -> Scenario:
    """Return ciphertexts whose inner lengths are wrong."""
    s = Scenario(
        "ciphertext/lengths",
        "A ciphertext has 40 bytes and what its two lengths announce, within the limits, before it is "
        "opened.",
    )
    enc = bytes(32)
    for name, ciphertext in (
        ("both lengths zero", enc + u32(0) + u32(0)),
        ("header and body of one byte", enc + u32(1) + u32(1) + b"ab"),
        ("zeros behind", enc + u32(1) + u32(1) + b"ab" + bytes(100)),
        ("a non-zero byte behind is for the reader and the hub", enc + u32(0) + u32(0) + b"\x01"),
    ):
        s.round_trip(name, "msg", samples.signed(ciphertext))
    for name, ciphertext in (
        ("empty", b""),
        ("39 bytes", bytes(39)),
        ("header one byte short", enc + u32(2) + u32(0) + b"a"),
        ("body one byte short", enc + u32(1) + u32(2) + b"ab"),
        ("header far too long", enc + u32(2**32 - 1) + u32(0)),
        ("body far too long", enc + u32(0) + u32(2**32 - 1)),
        ("header one above the limit", enc + u32(16_385) + u32(0)),
        ("body one above the limit", enc + u32(0) + u32(1_048_321)),
    ):
        s.refuses(name, FIELD_SIZE, "msg", samples.signed(ciphertext))
    return s


def altered() -> Scenario:
    """Return messages that were changed after signing."""
    s = Scenario("msg/altered", "Whatever of a MSG is changed after signing, it does not verify.")
    other = fixed.key(fixed.OTHER_CLIENT_SEED).public_key
    flipped = samples.CIPHERTEXT[:-1] + bytes((samples.CIPHERTEXT[-1] ^ 1,))
    sig = raw.split(samples.MSG)[9][2:]
    s.ok("unchanged", "verify_msg", msg=samples.MSG)
    cases: tuple[tuple[str, Failure, bytes], ...] = (
        ("profile_id", SIG_INVALID, _changed(profile_id=raw.bstr(ZERO_32))),
        ("label", SIG_INVALID, _changed(label=raw.bstr(ZERO_32))),
        ("client_id", SIG_INVALID, _changed(client_id=raw.bstr(other))),
        ("client_seq", SIG_INVALID, _changed(client_seq=raw.uint(2))),
        ("prev_ack", SIG_INVALID, _changed(prev_ack=raw.uint(1))),
        ("auth_ref from null to zeros", SIG_INVALID, _changed(auth_ref=raw.bstr(ZERO_32))),
        ("ct_hash", CT_HASH, _changed(ct_hash=raw.bstr(ZERO_32))),
        ("ciphertext", CT_HASH, _changed(ciphertext=raw.bstr(flipped))),
        ("padding", CT_HASH, _changed(ciphertext=raw.bstr(samples.CIPHERTEXT + b"\x00"))),
        ("ciphertext and its hash", SIG_INVALID,
         _changed(ciphertext=raw.bstr(flipped), ct_hash=raw.bstr(h(flipped)))),
        ("first bit of sig", SIG_INVALID, _changed(sig=raw.bstr(bytes((sig[0] ^ 1,)) + sig[1:]))),
        ("last bit of sig", SIG_INVALID, _changed(sig=raw.bstr(sig[:-1] + bytes((sig[-1] ^ 128,))))),
        ("halves of sig swapped", SIG_INVALID, _changed(sig=raw.bstr(sig[32:] + sig[:32]))),
        ("sig all zeros", SIG_INVALID, _changed(sig=raw.bstr(bytes(64)))),
        ("sig of another message", SIG_INVALID,
         _changed(sig=raw.split(samples.signed(samples.CIPHERTEXT, client_seq=2))[9])),
        ("sig by another client", SIG_INVALID,
         _changed(sig=raw.split(samples.signed(samples.CIPHERTEXT, seed=fixed.OTHER_CLIENT_SEED))[9])),
    )  # fmt: skip
    for name, failure, msg in cases:
        s.fails(name, failure, "verify_msg", msg=msg)
    return s


def _prehashed(seed: bytes, message: bytes) -> bytes:
    """Return an Ed25519ph signature."""
    _, secret = crypto_sign_seed_keypair(seed)
    state = crypto_sign_ed25519ph_state()
    crypto_sign_ed25519ph_update(state, message)
    signature: bytes = crypto_sign_ed25519ph_final_create(state, secret)
    return signature


def signed_otherwise() -> Scenario:
    """Return messages whose signature covers other bytes than it should."""
    s = Scenario(
        "msg/signed_otherwise",
        'sig is plain Ed25519 over Ht("veen/sig", array of nine fields): no other tag, array or scheme '
        "verifies.",
    )
    items = raw.split(samples.MSG)
    nine = raw.array(*items[:9])
    without_ref = raw.array(*items[:6], *items[7:9])
    named = raw.mapping(*((raw.tstr(name), items[index]) for name, index in _POSITION.items() if index < 9))
    signer = fixed.key(fixed.CLIENT_SEED)
    digest = ht("veen/sig", nine)
    as_receipt = samples.receipt(seed=fixed.CLIENT_SEED)
    for name, sig in (
        ("the array itself, not hashed", signer.sign(nine)),
        ("a plain hash without a tag", signer.sign(h(nine))),
        ("a tag without the zero byte", signer.sign(h(b"veen/sig" + nine))),
        ("the older tag", signer.sign(ht("vesn/sig", nine))),
        ("the tag of another object", signer.sign(ht("veen/cap-link", nine))),
        ("the nine fields under a head of ten", signer.sign(ht("veen/sig", b"\x8a" + nine[1:]))),
        ("ten fields with an empty sig", signer.sign(ht("veen/sig", raw.array(*items[:9], raw.bstr(b""))))),
        ("ten fields with a null sig", signer.sign(ht("veen/sig", raw.array(*items[:9], raw.NULL)))),
        ("eight fields, auth_ref left out", signer.sign(ht("veen/sig", without_ref))),
        ("a map with names", signer.sign(ht("veen/sig", named))),
        ("the digest in hex", signer.sign(digest.hex().encode())),
        ("the prehashed variant of Ed25519", _prehashed(fixed.CLIENT_SEED, digest)),
        ("the leaf", signer.sign(samples.LEAF)),
        ("a receipt by the same key", raw.split(as_receipt)[6][2:]),
    ):
        s.fails(name, SIG_INVALID, "verify_msg", msg=_changed(sig=raw.bstr(sig)))
    return s


# Rows of the admission table that a MSG alone can break, in their order, with one way to break each.
_FAULTS: tuple[tuple[str, Failure, dict[str, bytes]], ...] = (
    ("long head (row 3)", CBOR_INVALID, {"prev_ack": raw.uint(0, 1)}),
    ("short label (row 4)", FIELD_SIZE, {"label": raw.bstr(bytes(31))}),
    ("version 2 (row 5)", VERSION, {"ver": raw.uint(2)}),
    ("wrong ct_hash (row 7)", CT_HASH, {"ct_hash": raw.bstr(ZERO_32)}),
    ("wrong sig (row 9)", SIG_INVALID, {"sig": raw.bstr(bytes(64))}),
)


def first_failure() -> Scenario:
    """Return messages with several faults."""
    s = Scenario(
        "msg/first_failure",
        "Of several faults the first row of the admission table is named, wherever it sits in the message.",
    )
    for name, failure, fields in _FAULTS:
        s.fails(name, failure, "verify_msg", msg=_changed(**fields))
    for first, second in combinations(_FAULTS, 2):
        s.fails(f"{second[0]} and {first[0]}", first[1], "verify_msg", msg=_changed(**(second[2] | first[2])))
    everything: dict[str, bytes] = {}
    for _, _, fields in _FAULTS:
        everything |= fields
    s.fails("all of them", CBOR_INVALID, "verify_msg", msg=_changed(**everything))
    s.fails(
        "a fault of encoding in the last field, a size in the first",
        CBOR_INVALID,
        "verify_msg",
        msg=_changed(profile_id=raw.bstr(b""), sig=raw.bstr(bytes(64), 2)),
    )
    s.fails(
        "a byte behind a message of version 2",
        CBOR_INVALID,
        "verify_msg",
        msg=_changed(ver=raw.uint(2)) + b"\x00",
    )
    s.fails(
        "a short ciphertext in a message of version 2",
        FIELD_SIZE,
        "verify_msg",
        msg=_changed(ver=raw.uint(2), ciphertext=raw.bstr(bytes(39))),
    )
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield envelope_lengths()
    yield altered()
    yield signed_otherwise()
    yield first_failure()
