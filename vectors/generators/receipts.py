"""RECEIPT and CHECKPOINT: what a hub and its witnesses sign (001 sections 4.3 and 4.4)."""

from collections.abc import Iterator

from vectors.generators import fixed, raw, samples
from vectors.generators.fixed import U64_MAX, WITNESS_SEEDS, ZERO_32, h, ht, u64
from vectors.generators.scenario import CBOR_INVALID, FIELD_SIZE, SIG_INVALID, VALUE, Fields, Json, Scenario


def _trace(encoded: bytes) -> Fields:
    """Return the signed part of a receipt or checkpoint: the array of its first six fields."""
    unsigned = raw.array(*raw.split(encoded)[:6])
    return {"signed": unsigned, "signing_digest": ht("veen/sig", unsigned)}


def receipts() -> Scenario:
    """Return signed receipts."""
    s = Scenario(
        "receipt/sign", "hub_sig covers the array of the first six fields; a receipt has at most 188 bytes."
    )
    cases: tuple[tuple[str, Fields], ...] = (
        ("first entry", {}),
        ("later entry", {"stream_seq": 300, "mmr_root": samples.root(11)}),
        ("largest numbers, 188 bytes", {"stream_seq": U64_MAX, "hub_ts": U64_MAX}),
        ("hub_ts 0", {"hub_ts": 0}),
    )
    for name, changes in cases:
        encoded = samples.receipt(**changes)
        s.ok(name, "sign_receipt", intermediate=_trace(encoded), **samples.receipt_request(**changes))
        s.ok(f"{name}, verified", "verify_receipt", receipt=encoded, hub_pk=fixed.HUB_PK)
        s.round_trip(f"{name}, decoded", "receipt", encoded)
    published = {
        "label": bytes([0x21]) * 32,
        "stream_seq": 5,
        "leaf_hash": bytes([0x22]) * 32,
        "mmr_root": bytes([0x23]) * 32,
        "hub_ts": 1_700_000_999,
    }
    encoded = samples.receipt(**published)
    s.ok(
        "published signing digest",
        "sign_receipt",
        intermediate=_trace(encoded),
        **samples.receipt_request(**published),
    )
    s.fails("stream_seq 0", VALUE, "sign_receipt", **samples.receipt_request(stream_seq=0))
    for name in ("label", "leaf_hash", "mmr_root"):
        request = samples.receipt_request(**{name: bytes(31)})
        s.fails(f"{name} of 31 bytes", FIELD_SIZE, "sign_receipt", **request)
    return s


def receipts_refused() -> Scenario:
    """Return receipts that do not verify."""
    s = Scenario(
        "receipt/refused", "A receipt verifies under its hub's key, unchanged, signed in the one way."
    )
    items, signer = raw.split(samples.RECEIPT), fixed.key(fixed.HUB_SEED)
    six, sig = raw.array(*items[:6]), items[6][2:]

    def fails(name: str, receipt: bytes, hub_pk: bytes = fixed.HUB_PK) -> None:
        s.fails(name, SIG_INVALID, "verify_receipt", receipt=receipt, hub_pk=hub_pk)

    def signed(name: str, other: bytes) -> None:
        fails(name, raw.array(*items[:6], raw.bstr(other)))

    fails("under the key of another hub", samples.RECEIPT, fixed.key(fixed.OTHER_HUB_SEED).public_key)
    fails("under the client's key", samples.RECEIPT, fixed.CLIENT_ID)
    for index, item in (
        (1, raw.bstr(ZERO_32)),
        (2, raw.uint(2)),
        (3, raw.bstr(ZERO_32)),
        (4, raw.bstr(ZERO_32)),
        (5, raw.uint(fixed.HUB_TS + 1)),
    ):
        fails(f"field {index} changed", raw.replaced(items, index, item))
    signed("first bit of hub_sig", bytes((sig[0] ^ 1,)) + sig[1:])
    signed("hub_sig all zeros", bytes(64))
    signed("the array itself signed, not hashed", signer.sign(six))
    signed("the older tag", signer.sign(ht("vesn/sig", six)))
    signed("a tag without the zero byte", signer.sign(h(b"veen/sig" + six)))
    signed("the six fields under a head of seven", signer.sign(ht("veen/sig", b"\x87" + six[1:])))
    signed("seven fields with a null signature", signer.sign(ht("veen/sig", raw.array(*items[:6], raw.NULL))))
    signed("only the root signed", signer.sign(samples.LEAF))
    signed("a checkpoint's signature", raw.split(samples.checkpoint())[6][2:])
    s.refuses("stream_seq 0", VALUE, "receipt", raw.replaced(items, 2, raw.uint(0)))
    s.fails(
        "stream_seq 0, verified",
        VALUE,
        "verify_receipt",
        receipt=raw.replaced(items, 2, raw.uint(0)),
        hub_pk=fixed.HUB_PK,
    )
    return s


def checkpoints() -> Scenario:
    """Return signed checkpoints."""
    s = Scenario(
        "checkpoint/sign",
        "Hub and witnesses sign the array of the first six fields, so witnesses can be added later; "
        "none trims the array.",
    )
    next_label = ht("veen/label", fixed.ROUTING_KEY + fixed.STREAM_ID + u64(1))
    cases: tuple[tuple[str, Fields], ...] = (
        ("epoch 0", {}),
        ("rotation to epoch 1", {"label_curr": next_label, "epoch": 1}),
        ("largest numbers, 188 bytes", {"upto_seq": U64_MAX, "epoch": U64_MAX}),
        ("one witness", {"witness_seeds": WITNESS_SEEDS[:1]}),
        ("three witnesses", {"witness_seeds": WITNESS_SEEDS}),
        ("three witnesses in another order", {"witness_seeds": WITNESS_SEEDS[::-1]}),
    )
    keys = [fixed.key(seed).public_key for seed in WITNESS_SEEDS]
    for name, changes in cases:
        encoded = samples.checkpoint(**changes)
        s.ok(name, "sign_checkpoint", intermediate=_trace(encoded), **samples.checkpoint_request(**changes))
        s.ok(
            f"{name}, verified",
            "verify_checkpoint",
            checkpoint=encoded,
            hub_pk=fixed.HUB_PK,
            witness_pks=keys,
        )
        s.round_trip(f"{name}, decoded", "checkpoint", encoded)
    published: dict[str, Json] = {
        "seed": bytes([0x55]) * 32,
        "label_prev": bytes([0x11]) * 32,
        "label_curr": bytes([0x22]) * 32,
        "upto_seq": 42,
        "mmr_root": bytes([0x33]) * 32,
        "epoch": 77,
    }
    encoded = samples.checkpoint(**published)
    s.ok(
        "published",
        "sign_checkpoint",
        intermediate=_trace(encoded),
        **samples.checkpoint_request(**published),
    )
    s.fails("upto_seq 0", VALUE, "sign_checkpoint", **samples.checkpoint_request(upto_seq=0))
    s.refuses(
        "upto_seq 0, decoded",
        VALUE,
        "checkpoint",
        raw.replaced(raw.split(samples.checkpoint()), 3, raw.uint(0)),
    )
    for name in ("label_prev", "label_curr", "mmr_root"):
        request = samples.checkpoint_request(**{name: bytes(33)})
        s.fails(f"{name} of 33 bytes", FIELD_SIZE, "sign_checkpoint", **request)
    return s


def witnesses() -> Scenario:
    """Return checkpoints with valid and invalid witness signatures."""
    s = Scenario(
        "checkpoint/witnesses",
        "Known witnesses that signed are named in order of their keys, each once; unknown signatures "
        "are passed over.",
    )
    keys = [fixed.key(seed).public_key for seed in WITNESS_SEEDS]
    three = samples.checkpoint(witness_seeds=WITNESS_SEEDS)
    items = raw.split(samples.checkpoint())
    digest = ht("veen/sig", raw.array(*items[:6]))
    first = fixed.key(WITNESS_SEEDS[0])
    sig = raw.bstr(first.sign(digest))
    with_hub_sig = ht("veen/sig", raw.array(*items[:7]))

    def verified(name: str, checkpoint: bytes, *known: bytes) -> None:
        s.ok(name, "verify_checkpoint", checkpoint=checkpoint, hub_pk=fixed.HUB_PK, witness_pks=list(known))

    def with_sigs(*sigs: bytes) -> bytes:
        return raw.array(*items, raw.array(*sigs))

    verified("all known", three, *keys)
    verified("asked in another order", three, *keys[::-1])
    verified("one known", three, keys[1])
    verified("a key asked twice counts once", three, keys[0], keys[0])
    verified("none known", three)
    verified("a stranger among the known", three, fixed.CLIENT_ID, *keys)
    verified("no witness signed", samples.checkpoint(), *keys)
    verified("the same signature twice counts once", with_sigs(sig, sig), *keys)
    verified("a signature of zeros beside a good one", with_sigs(raw.bstr(bytes(64)), sig), *keys)
    verified("the hub as its own witness", with_sigs(items[6]), fixed.HUB_PK, *keys)
    verified(
        "a witness that signed hub_sig too does not count",
        with_sigs(raw.bstr(first.sign(with_hub_sig))),
        *keys,
    )
    verified(
        "a witness that signed the root only does not count",
        with_sigs(raw.bstr(first.sign(samples.root(11)))),
        *keys,
    )
    verified(
        "a witness of another checkpoint does not count",
        with_sigs(
            raw.split(raw.split(samples.checkpoint(upto_seq=10, witness_seeds=WITNESS_SEEDS[:1]))[7])[0]
        ),
        *keys,
    )
    return s


def checkpoints_refused() -> Scenario:
    """Return checkpoints that do not verify."""
    s = Scenario(
        "checkpoint/refused",
        "A checkpoint verifies under its hub's key, unchanged; witnesses do not replace it.",
    )
    items, signer = raw.split(samples.checkpoint()), fixed.key(fixed.HUB_SEED)
    six, sig = raw.array(*items[:6]), items[6][2:]

    def fails(name: str, checkpoint: bytes, hub_pk: bytes = fixed.HUB_PK) -> None:
        s.fails(name, SIG_INVALID, "verify_checkpoint", checkpoint=checkpoint, hub_pk=hub_pk, witness_pks=[])

    def signed(name: str, other: bytes) -> None:
        fails(name, raw.array(*items[:6], raw.bstr(other)))

    fails("under the key of another hub", samples.checkpoint(), fixed.key(fixed.OTHER_HUB_SEED).public_key)
    for index, item in (
        (1, raw.bstr(ZERO_32)),
        (2, raw.bstr(ZERO_32)),
        (3, raw.uint(12)),
        (4, raw.bstr(ZERO_32)),
        (5, raw.uint(1)),
    ):
        fails(f"field {index} changed", raw.replaced(items, index, item))
    one = samples.checkpoint(witness_seeds=WITNESS_SEEDS[:1])
    witnessed = raw.split(one)
    with_list = ht("veen/sig", raw.array(*items[:6], witnessed[7]))
    fails(
        "hub_sig that covers the witnesses",
        raw.array(*items[:6], raw.bstr(signer.sign(with_list)), witnessed[7]),
    )
    fails("only the witness signed", raw.array(*items[:6], raw.bstr(bytes(64)), witnessed[7]))
    fails("under the witness's key", one, fixed.key(WITNESS_SEEDS[0]).public_key)
    signed("first bit of hub_sig", bytes((sig[0] ^ 1,)) + sig[1:])
    signed("the array itself signed, not hashed", signer.sign(six))
    signed("the older tag", signer.sign(ht("vesn/sig", six)))
    signed("seven fields with a null signature", signer.sign(ht("veen/sig", raw.array(*items[:6], raw.NULL))))
    signed("a receipt's signature", raw.split(samples.RECEIPT)[6][2:])
    s.refuses("an empty list of witnesses", CBOR_INVALID, "checkpoint", raw.array(*items, raw.array()))
    s.refuses("null for witnesses", CBOR_INVALID, "checkpoint", raw.array(*items, raw.NULL))
    s.refuses("a witness not in a list", CBOR_INVALID, "checkpoint", raw.array(*items, items[6]))
    s.refuses("a null among witnesses", CBOR_INVALID, "checkpoint", raw.array(*items, raw.array(raw.NULL)))
    short = raw.array(*items, raw.array(raw.bstr(bytes(63))))
    s.refuses("a witness of 63 bytes", FIELD_SIZE, "checkpoint", short)
    return s


def domains() -> Scenario:
    """Return arrays that share a tag and cannot be mistaken for each other."""
    s = Scenario(
        "checkpoint/domains",
        "MSG, RECEIPT and CHECKPOINT share a tag; the third field tells the last two apart, the count "
        "tells MSG apart.",
    )
    receipt, checkpoint = raw.split(samples.RECEIPT), raw.split(samples.checkpoint())
    s.refuses("a receipt is no checkpoint", CBOR_INVALID, "checkpoint", raw.array(*receipt))
    s.refuses("a checkpoint is no receipt", CBOR_INVALID, "receipt", raw.array(*checkpoint))
    s.refuses("a receipt is no message", CBOR_INVALID, "msg", raw.array(*receipt))
    s.refuses("a message is no receipt", CBOR_INVALID, "receipt", samples.MSG)
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield receipts()
    yield receipts_refused()
    yield checkpoints()
    yield witnesses()
    yield checkpoints_refused()
    yield domains()
