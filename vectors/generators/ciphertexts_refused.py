"""Ciphertexts that must not open (001 section 4.2)."""

from collections.abc import Iterator

from vectors.generators import fixed, raw, samples
from vectors.generators.fixed import ZERO_32, ht, u32, u64
from vectors.generators.hpke_steps import Context, Setup, join, xchacha
from vectors.generators.scenario import (
    BODY_AEAD,
    CBOR_INVALID,
    CT_HASH,
    CT_PADDING,
    DH_ZERO,
    FIELD_SIZE,
    HDR_AEAD,
    Failure,
    Fields,
    Scenario,
    ask,
)

_CONTEXT = Context(fixed.PROFILE_ID, fixed.LABEL, fixed.CLIENT_ID)
_HEADER = raw.keyed((1, raw.bstr(fixed.SCHEMA)))
_BODY = b"hello"

# X25519 points of small order, and their other encodings below 2^256: every agreement with them is zero.
_SMALL_ORDER_POINTS = (
    ("0", bytes(32)),
    ("1", b"\x01" + bytes(31)),
    ("of order 8, first", bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")),
    ("of order 8, second", bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157")),
    ("p - 1", b"\xec" + b"\xff" * 30 + b"\x7f"),
    ("p", b"\xed" + b"\xff" * 30 + b"\x7f"),
    ("p + 1", b"\xee" + b"\xff" * 30 + b"\x7f"),
)


def _opens(s: Scenario, name: str, failure: Failure, msg: bytes, *, pad_block: int = 0) -> None:
    s.fails(name, failure, "open", recipient_sk=fixed.READER_SK, msg=msg, pad_block=pad_block)


def _setup(info: bytes = b"") -> Setup:
    return Setup.sender(fixed.READER_PK, fixed.EPHEMERAL_SK, info)


def _sealed_body(setup: Setup) -> bytes:
    return xchacha(setup.export(b"veen/body-k"), _CONTEXT.body_nonce, _CONTEXT.aad, _BODY)


def wrong_context() -> Scenario:
    """Return ciphertexts under fields that they were not sealed with."""
    s = Scenario(
        "ciphertext/wrong_context", "A ciphertext opens only under the very fields it was sealed with."
    )
    changes: tuple[tuple[str, Fields], ...] = (
        ("label", {"label": ZERO_32}),
        ("profile_id", {"profile_id": ZERO_32}),
        ("client_id", {"seed": fixed.OTHER_CLIENT_SEED}),
        ("client_seq", {"client_seq": 2}),
        ("prev_ack", {"prev_ack": 1}),
        ("auth_ref", {"auth_ref": fixed.AUTH_REF}),
    )
    s.ok("as sealed", "open", recipient_sk=fixed.READER_SK, msg=samples.MSG, pad_block=0)
    for name, changed in changes:
        _opens(s, f"another {name}", HDR_AEAD, samples.signed(samples.CIPHERTEXT, **changed))
    for name, field in (("label", ZERO_32), ("client_id", fixed.HUB_PK)):
        request = samples.seal_request() | {name: field}
        sealed = bytes.fromhex(ask("seal", **request)["ciphertext"])
        _opens(s, f"sealed for another {name}", HDR_AEAD, samples.signed(sealed))
    return s


def wrong_key() -> Scenario:
    """Return keys that do not open, and keys of small order."""
    s = Scenario(
        "ciphertext/wrong_key",
        "Only the reader opens; an agreement that gives the all-zero secret is refused on both sides "
        "(RFC 9180 7.1.4).",
    )
    s.fails(
        "another reader", HDR_AEAD, "open", recipient_sk=fixed.OTHER_READER_SK, msg=samples.MSG, pad_block=0
    )
    for name, point in _SMALL_ORDER_POINTS:
        s.fails(f"sealed to point {name}", DH_ZERO, "seal", **samples.seal_request(recipient_pk=point))
        _opens(s, f"enc is point {name}", DH_ZERO, samples.signed(point + samples.CIPHERTEXT[32:]))
    for size in (0, 31, 33):
        request = samples.seal_request(recipient_pk=bytes(size))
        s.fails(f"recipient key of {size} bytes", FIELD_SIZE, "seal", **request)
        request = samples.seal_request(ephemeral_sk=bytes(size))
        s.fails(f"ephemeral key of {size} bytes", FIELD_SIZE, "seal", **request)
    return s


def tampered() -> Scenario:
    """Return ciphertexts that were changed and signed again."""
    s = Scenario(
        "ciphertext/tampered", "A changed ciphertext does not open, even if its sender signs the change."
    )
    setup = _setup()
    header, body = setup.seal(_CONTEXT.aad, _HEADER), _sealed_body(setup)

    def flip(data: bytes, index: int) -> bytes:
        return data[:index] + bytes((data[index] ^ 1,)) + data[index + 1 :]

    for name, failure, ciphertext in (
        ("enc", HDR_AEAD, join(flip(setup.enc, 0), header, body)),
        ("first byte of the header", HDR_AEAD, join(setup.enc, flip(header, 0), body)),
        ("tag of the header", HDR_AEAD, join(setup.enc, flip(header, len(header) - 1), body)),
        ("first byte of the body", BODY_AEAD, join(setup.enc, header, flip(body, 0))),
        ("tag of the body", BODY_AEAD, join(setup.enc, header, flip(body, len(body) - 1))),
        ("header cut", HDR_AEAD, join(setup.enc, header[:-1], body)),
        ("header of 15 bytes", HDR_AEAD, join(setup.enc, header[:15], body)),
        ("no header", HDR_AEAD, join(setup.enc, b"", body)),
        ("body cut", BODY_AEAD, join(setup.enc, header, body[:-1])),
        ("body of 15 bytes", BODY_AEAD, join(setup.enc, header, body[:15])),
        ("no body", BODY_AEAD, join(setup.enc, header, b"")),
        ("header and body exchanged", HDR_AEAD, join(setup.enc, body, header)),
        ("a zero moved from the padding into the body", BODY_AEAD, join(setup.enc, header, body + b"\x00")),
        (
            "one byte moved from the body to the header",
            HDR_AEAD,
            join(setup.enc, header + body[:1], body[1:]),
        ),
        ("nothing but a frame", HDR_AEAD, join(setup.enc, b"", b"")),
    ):
        _opens(s, name, failure, samples.signed(ciphertext))
    return s


def sealed_otherwise() -> Scenario:
    """Return ciphertexts by other rules, including older ones."""
    s = Scenario(
        "ciphertext/sealed_otherwise",
        "One setup a message, empty info, first seal, aad on header and body, exported keys: other ways "
        "do not open.",
    )
    setup, aad, nonce = _setup(), _CONTEXT.aad, _CONTEXT.body_nonce
    header, body, key = setup.seal(aad, _HEADER), _sealed_body(setup), setup.export(b"veen/body-k")
    with_info = _setup(b"veen")
    legacy_aad = fixed.h(b"veen/aad" + _CONTEXT.aad_preimage)
    swapped = ht("veen/nonce", fixed.LABEL + u64(1) + fixed.CLIENT_ID + u64(0))[:24]
    older = ht("vesn/nonce", fixed.LABEL + u64(0) + fixed.CLIENT_ID + u64(1))[:24]
    for name, failure, sealed_header, sealed_body in (
        ("empty aad, as older documents had it", HDR_AEAD, setup.seal(b"", _HEADER),
         xchacha(key, nonce, b"", _BODY)),
        ("empty aad for the body", BODY_AEAD, header, xchacha(key, nonce, b"", _BODY)),
        ("aad not hashed", HDR_AEAD, setup.seal(_CONTEXT.aad_preimage, _HEADER), body),
        ("aad without the zero byte of the tag", HDR_AEAD, setup.seal(legacy_aad, _HEADER), body),
        ("second seal of the context", HDR_AEAD, setup.seal(aad, _HEADER, seq=1), body),
        ("an info string", HDR_AEAD, with_info.seal(aad, _HEADER), _sealed_body(with_info)),
        ("body key of the older tag", BODY_AEAD, header,
         xchacha(setup.export(b"vesn/body-k"), nonce, aad, _BODY)),
        ("body key of an attachment", BODY_AEAD, header,
         xchacha(setup.export(b"veen/att-k" + u64(0)), nonce, aad, _BODY)),
        ("body under the header's key", BODY_AEAD, header, xchacha(setup.key, nonce, aad, _BODY)),
        ("body in the HPKE context", BODY_AEAD, header, setup.seal(aad, _BODY, seq=1)),
        ("numbers of the nonce exchanged", BODY_AEAD, header, xchacha(key, swapped, aad, _BODY)),
        ("nonce of the older tag", BODY_AEAD, header, xchacha(key, older, aad, _BODY)),
        ("nonce of zeros", BODY_AEAD, header, xchacha(key, bytes(24), aad, _BODY)),
    ):  # fmt: skip
        _opens(s, name, failure, samples.signed(join(setup.enc, sealed_header, sealed_body)))
    return s


def header_inside() -> Scenario:
    """Return correctly sealed bytes that are not a header."""
    s = Scenario(
        "ciphertext/header_inside",
        "What a header holds is judged after opening, by the rules of its encoding.",
    )
    setup = _setup()
    schema = raw.bstr(fixed.SCHEMA)
    for name, failure, header in (
        ("empty", CBOR_INVALID, b""),
        ("no schema", CBOR_INVALID, raw.keyed((5, raw.uint(1)))),
        ("unknown key", CBOR_INVALID, raw.keyed((1, schema), (6, raw.uint(1)))),
        ("null", CBOR_INVALID, raw.keyed((1, schema), (2, raw.NULL))),
        ("text keys", CBOR_INVALID, raw.mapping((raw.tstr("schema"), schema))),
        ("a byte behind", CBOR_INVALID, _HEADER + b"\x00"),
        ("long head", CBOR_INVALID, raw.mapping((raw.uint(1, 1), schema))),
        ("schema of 31 bytes", FIELD_SIZE, raw.keyed((1, raw.bstr(bytes(31))))),
    ):
        sealed = join(setup.enc, setup.seal(_CONTEXT.aad, header), _sealed_body(setup))
        _opens(s, name, failure, samples.signed(sealed))
    return s


def padding_refused() -> Scenario:
    """Return invalid padding."""
    s = Scenario(
        "ciphertext/padding_refused",
        "Non-zero padding, and a length that is no multiple of pad_block, are refused before opening.",
    )
    plain, enc = samples.CIPHERTEXT, bytes([0xAA]) * 32
    for name, ciphertext, pad_block in (
        ("one non-zero byte", plain + b"\x01", 0),
        ("a non-zero byte after zeros", plain + bytes(9) + b"\x80", 0),
        ("a non-zero byte before zeros", plain + b"\x01" + bytes(9), 0),
        ("no multiple", plain, 256),
        ("one byte too many", plain + bytes(257 - len(plain)), 256),
        ("one byte too few", plain + bytes(255 - len(plain)), 256),
        ("a multiple of another block", plain + bytes(256 - len(plain)), 1024),
        ("a multiple with a non-zero byte", plain + bytes(255 - len(plain)) + b"\x01", 256),
        ("published: non-zero padding", enc + u32(1) + u32(1) + bytes.fromhex("0c0d000100"), 0),
        ("published: pad block mismatch", enc + u32(1) + u32(1) + bytes.fromhex("112200"), 4),
    ):
        _opens(s, name, CT_PADDING, samples.signed(ciphertext), pad_block=pad_block)
    parsed = enc + u32(2) + u32(3) + bytes.fromhex("0102030405")
    s.ok("published: no padding, header 0102, body 030405", "sign_msg", **samples.sign_request(parsed))
    _opens(s, "published: no padding, which is no real ciphertext", HDR_AEAD, samples.signed(parsed))
    return s


def first_failure() -> Scenario:
    """Return messages with several faults, opened."""
    s = Scenario(
        "ciphertext/first_failure",
        "Opening names the first fault too: padding, hash of ciphertext, then keys.",
    )
    bad_padding = samples.signed(samples.CIPHERTEXT + b"\x01")
    items = raw.split(bad_padding)
    bad_both = raw.replaced(items, 7, raw.bstr(ZERO_32))
    good = raw.split(samples.MSG)
    bad_hash = raw.replaced(good, 7, raw.bstr(ZERO_32))
    _opens(s, "padding", CT_PADDING, bad_padding)
    _opens(s, "hash", CT_HASH, bad_hash)
    _opens(s, "padding and hash", CT_PADDING, bad_both)
    s.fails("hash and key", CT_HASH, "open", recipient_sk=fixed.OTHER_READER_SK, msg=bad_hash, pad_block=0)
    s.fails(
        "padding and key",
        CT_PADDING,
        "open",
        recipient_sk=fixed.OTHER_READER_SK,
        msg=bad_padding,
        pad_block=0,
    )
    zero_enc = samples.signed(bytes(32) + samples.CIPHERTEXT[32:] + b"\x01")
    _opens(s, "padding and small order", CT_PADDING, zero_enc)
    _opens(s, "encoding and all else", CBOR_INVALID, bad_both + b"\x00")
    return s


def seal_refused() -> Scenario:
    """Return requests to seal that must fail."""
    s = Scenario("ciphertext/seal_refused", "A sender refuses a header that no reader would accept.")
    schema = {"schema": fixed.SCHEMA}
    cases: tuple[tuple[str, Failure, Fields], ...] = (
        ("no schema", CBOR_INVALID, {}),
        ("schema of 31 bytes", FIELD_SIZE, {"schema": bytes(31)}),
        ("unknown field", CBOR_INVALID, schema | {"ttl": 1}),
        ("null field", CBOR_INVALID, schema | {"cap_ref": None}),
        ("expires_at as text", CBOR_INVALID, schema | {"expires_at": "1"}),
    )
    for name, failure, hdr in cases:
        s.fails(name, failure, "seal", **samples.seal_request(hdr=hdr))
    for name in ("label", "client_id", "auth_ref"):
        for size in (31, 33):
            request = samples.seal_request() | {name: bytes(size)}
            s.fails(f"{name} of {size} bytes", FIELD_SIZE, "seal", **request)
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield wrong_context()
    yield wrong_key()
    yield tampered()
    yield sealed_otherwise()
    yield header_inside()
    yield padding_refused()
    yield first_failure()
    yield seal_refused()
