"""Ciphertexts that open: sealing step by step, padding, headers (001 sections 4.2 and 4.5)."""

from collections.abc import Iterator

from vectors.generators import fixed, raw, samples
from vectors.generators.fixed import HUB_TS, ZERO_32, h, ht, u64
from vectors.generators.hpke_steps import Context, steps
from vectors.generators.messages import trace
from vectors.generators.scenario import Fields, Json, Scenario, ask


def seal_and_open(s: Scenario, name: str, **changes: Json) -> bytes:
    """Add a body that is sealed, signed and opened; return the MSG."""
    request = samples.seal_request(**changes)
    profile = ask("profile_id", epoch_sec=request["epoch_sec"], pad_block=request["pad_block"])
    profile_id = bytes.fromhex(profile["profile_id"])
    context = Context(
        profile_id,
        request["label"],
        request["client_id"],
        request["client_seq"],
        request["prev_ack"],
        request["auth_ref"],
    )
    header = bytes.fromhex(ask("encode", type="payload_hdr", value=request["hdr"])["data"])
    between = steps(context, request["recipient_pk"], request["ephemeral_sk"], header, request["body"])
    sealed = s.ok(f"{name}: seal", "seal", intermediate={"profile_id": profile_id, **between}, **request)
    ciphertext = bytes.fromhex(sealed["ciphertext"])
    assert ciphertext[40:].startswith(between["sealed_header"] + between["sealed_body"])
    signing = samples.sign_request(
        ciphertext,
        profile_id=profile_id,
        label=request["label"],
        client_seq=request["client_seq"],
        prev_ack=request["prev_ack"],
        auth_ref=request["auth_ref"],
    )
    msg = bytes.fromhex(ask("sign_msg", **signing)["msg"])
    s.ok(f"{name}: sign", "sign_msg", intermediate=trace(msg), **signing)
    s.ok(f"{name}: open", "open", recipient_sk=fixed.READER_SK, msg=msg, pad_block=request["pad_block"])
    return msg


def gate() -> Scenario:
    """Return the first message of an empty label, from its label to its log entry."""
    s = Scenario(
        "ciphertext/gate",
        "The whole way of one message: epoch_sec 0, routing key of zeros, stream test, first of its "
        "client, empty body.",
    )
    s.ok("stream", "stream_id", name="test")
    s.ok("schema", "schema_id", name="chat.v1")
    s.ok("profile", "profile_id", epoch_sec=0, pad_block=0)
    label = ht("veen/label", ZERO_32 + h(b"test") + u64(0))
    s.ok("label", "label", routing_key=ZERO_32, stream_id=h(b"test"), epoch=0)
    msg = seal_and_open(s, "message", label=label, body=b"")
    leaf = bytes.fromhex(s.ok("verify", "verify_msg", msg=msg)["leaf_hash"])
    root = bytes.fromhex(s.ok("root", "mmr_root", leaves=[leaf])["roots"][0])
    request = samples.receipt_request(label=label, leaf_hash=leaf, mmr_root=root)
    receipt = bytes.fromhex(s.ok("receipt", "sign_receipt", **request)["receipt"])
    s.ok("receipt verified", "verify_receipt", receipt=receipt, hub_pk=fixed.HUB_PK)
    proof = s.ok("proof", "mmr_proof", leaves=[leaf], seq=1, size=1)["proof"]
    s.ok("proof verified", "mmr_verify", proof=proof, root=root, leaf=leaf, seq=1, size=1)
    entry = s.ok("entry", "entry", msg=msg, receipt=receipt)["entry"]
    s.round_trip("entry decoded", "entry", bytes.fromhex(entry))
    return s


def contexts() -> Scenario:
    """Return messages in several contexts."""
    s = Scenario(
        "ciphertext/contexts", "Header and body are bound to profile, label, client, both numbers, auth_ref."
    )
    seal_and_open(s, "first message")
    seal_and_open(s, "later message", client_seq=300, prev_ack=70_000)
    seal_and_open(s, "with auth_ref", auth_ref=fixed.AUTH_REF)
    seal_and_open(s, "with an auth_ref of zeros, which has the aad of none", auth_ref=ZERO_32)
    seal_and_open(s, "in epochs of an hour", epoch_sec=3600)
    seal_and_open(s, "largest numbers", client_seq=fixed.U64_MAX, prev_ack=fixed.U64_MAX)
    seal_and_open(s, "with another ephemeral key", ephemeral_sk=bytes([0x62]) * 32)
    return s


def headers() -> Scenario:
    """Return every field of a payload header, sealed."""
    s = Scenario("ciphertext/headers", "Each optional field of the payload header travels when it is there.")
    schema: Fields = {"schema": fixed.SCHEMA}
    seal_and_open(s, "only schema", hdr=schema)
    seal_and_open(s, "parent_id", hdr=schema | {"parent_id": samples.LEAF})
    empty_root = ht("veen/att-root", b"")
    seal_and_open(s, "att_root of no attachments", hdr=schema | {"att_root": empty_root})
    seal_and_open(s, "att_root of attachments that are not at hand", hdr=schema | {"att_root": h(b"att")})
    seal_and_open(s, "cap_ref", hdr=schema | {"cap_ref": fixed.AUTH_REF}, auth_ref=fixed.AUTH_REF)
    seal_and_open(s, "expires_at", hdr=schema | {"expires_at": HUB_TS})
    everything = {
        "parent_id": samples.LEAF,
        "att_root": empty_root,
        "cap_ref": fixed.AUTH_REF,
        "expires_at": fixed.U64_MAX,
    }
    seal_and_open(s, "all of them", hdr=schema | everything, auth_ref=fixed.AUTH_REF)
    return s


def payload_headers() -> Scenario:
    """Return plaintext headers."""
    s = Scenario("payload_hdr/published", "A header holds what is there and nothing for what is not.")
    published = raw.keyed(
        (1, raw.bstr(bytes([0x10]) * 32)), (3, raw.bstr(bytes([0x11]) * 32)), (5, raw.uint(42))
    )
    s.round_trip("schema, att_root and expires_at", "payload_hdr", published)
    s.round_trip("the smallest, 36 bytes", "payload_hdr", raw.keyed((1, raw.bstr(fixed.SCHEMA))))
    large = (*raw.split_map(samples.full_header())[:4], (raw.uint(5), raw.uint(fixed.U64_MAX)))
    s.round_trip("the largest, 151 bytes", "payload_hdr", raw.mapping(*large))
    return s


def padding() -> Scenario:
    """Return padded ciphertexts."""
    s = Scenario(
        "ciphertext/padding",
        "Zeros follow up to a multiple of pad_block; a reader takes more blocks, and zeros where "
        "pad_block is 0.",
    )
    overhead = 40 + 36 + 16 + 16  # the frame, the smallest header and its tag, the body's tag
    for pad_block, size, what in (
        (256, 0, "an empty body fills one block"),
        (256, 256 - overhead, "a body that needs no padding"),
        (256, 256 - overhead + 1, "one byte more starts a block"),
        (1024, 5, "a large block"),
        (1, 5, "a block of one"),
        (7, 5, "a block of seven"),
        (0, 5, "no padding"),
    ):
        seal_and_open(
            s, f"{what} (pad_block {pad_block})", pad_block=pad_block, body=bytes(range(256))[:size]
        )
    plain = samples.CIPHERTEXT
    s.ok(
        "zeros where pad_block is 0",
        "open",
        recipient_sk=fixed.READER_SK,
        msg=samples.signed(plain + bytes(3)),
        pad_block=0,
    )
    profile_id = bytes.fromhex(ask("profile_id", epoch_sec=0, pad_block=256)["profile_id"])
    padded = bytes.fromhex(samples.seal(pad_block=256)["ciphertext"])
    for blocks in (1, 2):
        msg = samples.signed(padded + bytes(256 * blocks), profile_id=profile_id)
        s.ok(f"{blocks} blocks too many", "open", recipient_sk=fixed.READER_SK, msg=msg, pad_block=256)
    return s


def bodies() -> Scenario:
    """Return bodies of several sizes."""
    s = Scenario("ciphertext/bodies", "A body is any bytes; its ciphertext is 16 bytes longer.")
    for size in (1, 16, 63, 64, 65, 255):
        seal_and_open(s, f"{size} bytes", body=bytes((7 * index + size) % 256 for index in range(size)))
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield gate()
    yield contexts()
    yield headers()
    yield payload_headers()
    yield padding()
    yield bodies()
