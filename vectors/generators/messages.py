"""MSG: signing, leaves, and facts that older publications fixed (001 sections 4.1 and 4.2)."""

from collections.abc import Iterator

from vectors.generators import fixed, raw, samples
from vectors.generators.fixed import U64_MAX, h, ht, u64
from vectors.generators.scenario import FIELD_SIZE, Fields, Json, Scenario


def trace(msg: bytes) -> Fields:
    """Return the intermediate values between the fields of a MSG and its signature and leaf."""
    items = raw.split(msg)
    content = [item[2:] for item in items]
    leaf_preimage = content[2] + content[1] + content[7] + content[3] + u64(_uint(items[4]))
    unsigned = raw.array(*items[:9])
    return {
        "ct_hash": content[7],
        "signed": unsigned,
        "signing_digest": ht("veen/sig", unsigned),
        "sig": content[9],
        "leaf_preimage": leaf_preimage,
    }


def _uint(encoded: bytes) -> int:
    return encoded[0] if len(encoded) == 1 else int.from_bytes(encoded[1:], "big")


def _signs(s: Scenario, name: str, ciphertext: bytes, **changes: Json) -> None:
    """Add a MSG that is signed, verified, decoded and encoded."""
    fields = samples.sign_request(ciphertext, **changes)
    msg = samples.signed(ciphertext, **changes)
    s.ok(name, "sign_msg", intermediate=trace(msg), **fields)
    s.ok(f"{name}, verified", "verify_msg", msg=msg)
    s.round_trip(f"{name}, decoded", "msg", msg)


def signing() -> Scenario:
    """Return signed messages."""
    s = Scenario(
        "msg/sign",
        "sig covers the array of the first nine fields, leaf_hash joins five of them; auth_ref is null "
        "or 32 bytes.",
    )
    _signs(s, "without auth_ref", samples.CIPHERTEXT)
    with_ref = bytes.fromhex(samples.seal(auth_ref=fixed.AUTH_REF)["ciphertext"])
    _signs(s, "with auth_ref", with_ref, auth_ref=fixed.AUTH_REF)
    for number in (23, 24, 255, 256, 65_536, 2**32, U64_MAX):
        changes = {"client_seq": number, "prev_ack": number - 1}
        sealed = bytes.fromhex(samples.seal(**changes)["ciphertext"])
        _signs(s, f"client_seq {number}", sealed, **changes)
    _signs(s, "the shortest ciphertext", bytes(40))
    _signs(s, "client_seq 0 is for admission to refuse", samples.CIPHERTEXT, client_seq=0)
    return s


def leaves() -> Scenario:
    """Return leaves that differ by one field."""
    s = Scenario(
        "msg/leaf",
        "leaf_hash changes with label, profile, ciphertext, client and client_seq, not with others.",
    )
    base = samples.CIPHERTEXT
    changes: tuple[tuple[str, Fields], ...] = (
        ("base", {}),
        ("another label", {"label": h(b"another label")}),
        ("another profile", {"profile_id": h(b"another profile")}),
        ("another ciphertext", {"ciphertext": base + b"\x00"}),
        ("another client", {"seed": fixed.OTHER_CLIENT_SEED}),
        ("another client_seq", {"client_seq": 2}),
        ("another prev_ack, same leaf", {"prev_ack": 9}),
        ("another auth_ref, same leaf", {"auth_ref": fixed.AUTH_REF}),
    )
    for name, changed in changes:
        s.ok(name, "sign_msg", **samples.sign_request(base) | changed)
    return s


def published() -> Scenario:
    """Return values that were published before these vectors."""
    label, profile, client = bytes([1]) * 32, bytes([2]) * 32, bytes([4]) * 32
    s = Scenario(
        "msg/published", "Published facts: a leaf, a body nonce, a signing digest, the width of fields."
    )
    s.ok("leaf_hash", "ht", tag="veen/leaf", data=label + profile + bytes([3]) * 32 + client + u64(7))
    nonce = bytes([2]) * 32 + u64(4) + bytes([3]) * 32 + u64(9)
    s.ok("body nonce: the first 24 bytes", "ht", tag="veen/nonce", data=nonce)
    signer = fixed.key(bytes([0x42]) * 32)
    unsigned = raw.array(
        raw.uint(1),
        raw.bstr(bytes([1]) * 32),
        raw.bstr(bytes([2]) * 32),
        raw.bstr(signer.public_key),
        raw.uint(5),
        raw.uint(3),
        raw.NULL,
        raw.bstr(bytes([0xAA]) * 32),
        raw.bstr(b"\x10\x20"),
    )
    s.ok("client of seed 42", "public_keys", seed=bytes([0x42]) * 32)
    s.ok("signing digest", "ht", tag="veen/sig", data=unsigned)
    whole = raw.array(*raw.split(unsigned), raw.bstr(signer.sign(ht("veen/sig", unsigned))))
    s.refuses("its ciphertext of two bytes is no ciphertext", FIELD_SIZE, "msg", whole)
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield signing()
    yield leaves()
    yield published()
