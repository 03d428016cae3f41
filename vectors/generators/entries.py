"""Framed log entries and chunk summaries (001 section 4.8)."""

from collections.abc import Iterator

from vectors.generators import fixed, raw, samples
from vectors.generators.fixed import LABEL, U64_MAX, ZERO_32, h, leaves, u32, u64
from vectors.generators.scenario import (
    CBOR_INVALID,
    ENTRY_FLAGS,
    ENTRY_HASH,
    ENTRY_LENGTH,
    ENTRY_RECEIPT,
    ENTRY_VERSION,
    FIELD_SIZE,
    SIG_INVALID,
    VALUE,
    VERSION,
    Failure,
    Fields,
    Json,
    Scenario,
    ask,
)


def _frame(msg: bytes = samples.MSG, receipt: bytes = samples.RECEIPT, **changes: bytes) -> bytes:
    """Return an entry, with some fields of its header replaced."""
    header = {
        "entry_ver": b"\x01",
        "flags": b"\x00",
        "label": LABEL,
        "stream_seq": u64(1),
        "msg_len": u32(len(msg)),
        "receipt_len": u32(len(receipt)),
        "entry_hash": h(b"veen/entry" + msg + receipt),
    }
    return b"".join((header | changes).values()) + msg + receipt


def frames() -> Scenario:
    """Return framed entries."""
    s = Scenario(
        "entry/frame",
        'An entry has a header of 82 bytes, a MSG and its RECEIPT; entry_hash is H("veen/entry" || MSG '
        "|| RECEIPT).",
    )
    later = samples.receipt(stream_seq=U64_MAX, hub_ts=U64_MAX)
    padded = samples.signed(bytes.fromhex(samples.seal(pad_block=256)["ciphertext"]))
    for name, msg, receipt in (
        ("first entry", samples.MSG, samples.RECEIPT),
        ("largest receipt", samples.MSG, later),
        ("padded message", padded, samples.RECEIPT),
    ):
        given = s.ok(name, "entry", msg=msg, receipt=receipt)
        s.round_trip(f"{name}, decoded", "entry", bytes.fromhex(given["entry"]))
    assert _frame() == samples.ENTRY
    s.ok("entry_hash", "h", data=b"veen/entry" + samples.MSG + samples.RECEIPT)
    return s


def refused() -> Scenario:
    """Return frames that must not decode."""
    s = Scenario(
        "entry/refused",
        "A frame is refused for its version, flags, lengths and hash, and if its receipt is another's.",
    )
    msg, receipt = samples.MSG, samples.RECEIPT
    with_separator = h(b"veen/entry\x00" + msg + receipt)
    items = raw.split(receipt)
    other_label = raw.replaced(items, 1, raw.bstr(ZERO_32))
    long_head = raw.replaced(items, 6, raw.bstr(bytes(64), 2))
    short_sig = raw.replaced(items, 6, raw.bstr(bytes(63)))
    good = _frame()
    cases: list[tuple[str, Failure, bytes]] = [
        ("version 0", ENTRY_VERSION, _frame(entry_ver=b"\x00")),
        ("version 2", ENTRY_VERSION, _frame(entry_ver=b"\x02")),
        *((f"flag {bit}", ENTRY_FLAGS, _frame(flags=bytes((1 << bit,)))) for bit in range(8)),
        ("empty", ENTRY_LENGTH, b""),
        ("header one byte short", ENTRY_LENGTH, _frame()[:81]),
        ("header alone", ENTRY_LENGTH, _frame()[:82]),
        ("last byte missing", ENTRY_LENGTH, _frame()[:-1]),
        ("a byte behind", ENTRY_LENGTH, _frame() + b"\x00"),
        ("two entries", ENTRY_LENGTH, _frame() * 2),
        ("msg_len one too large", ENTRY_LENGTH, _frame(msg_len=u32(len(msg) + 1))),
        ("msg_len one too small", ENTRY_HASH, _frame(msg_len=u32(len(msg) - 1))),
        ("receipt_len one too large", ENTRY_LENGTH, _frame(receipt_len=u32(len(receipt) + 1))),
        ("receipt_len one too small", ENTRY_HASH, _frame(receipt_len=u32(len(receipt) - 1))),
        ("receipt_len above any receipt", ENTRY_LENGTH, _frame(receipt_len=u32(189))),
        ("msg_len above any message", ENTRY_LENGTH, _frame(msg_len=u32(1_048_577))),
        ("largest lengths", ENTRY_LENGTH, _frame(msg_len=b"\xff" * 4, receipt_len=b"\xff" * 4)),
        ("entry_hash of zeros", ENTRY_HASH, _frame(entry_hash=ZERO_32)),
        ("entry_hash with a separator", ENTRY_HASH, _frame(entry_hash=with_separator)),
        ("entry_hash over the message only", ENTRY_HASH, _frame(entry_hash=h(b"veen/entry" + msg))),
        ("a bit of the message flipped", ENTRY_HASH, good[:100] + bytes((good[100] ^ 1,)) + good[101:]),
        ("last bit of the receipt flipped", ENTRY_HASH, good[:-1] + bytes((good[-1] ^ 1,))),
        ("another label in the header", ENTRY_RECEIPT, _frame(label=ZERO_32)),
        ("another stream_seq in the header", ENTRY_RECEIPT, _frame(stream_seq=u64(2))),
        ("another label in the receipt", ENTRY_RECEIPT, _frame(receipt=other_label)),
        ("another stream_seq in the receipt", ENTRY_RECEIPT, _frame(receipt=samples.receipt(stream_seq=2))),
        ("a receipt that is not canonical", CBOR_INVALID, _frame(receipt=long_head)),
        ("a receipt of version 2", VERSION, _frame(receipt=raw.replaced(items, 0, raw.uint(2)))),
        ("a receipt of entry 0", VALUE, _frame(receipt=raw.replaced(items, 2, raw.uint(0)))),
        ("a short signature in the receipt", FIELD_SIZE, _frame(receipt=short_sig)),
        ("no receipt", CBOR_INVALID, _frame(receipt=b"")),
        ("no message", CBOR_INVALID, _frame(msg=b"")),
        ("a message that is none", CBOR_INVALID, _frame(msg=b"\x00")),
        ("a message with a byte behind", CBOR_INVALID, _frame(msg=msg + b"\x00")),
        ("a message of version 2", VERSION, _frame(msg=raw.replaced(raw.split(msg), 0, raw.uint(2)))),
        ("receipt and message exchanged", ENTRY_LENGTH, _frame(msg=receipt, receipt=msg)),
        ("flags before lengths", ENTRY_FLAGS, _frame(flags=b"\x01", msg_len=b"\xff" * 4)),
        ("version before flags", ENTRY_VERSION, _frame(entry_ver=b"\x02", flags=b"\x01")),
        ("lengths before hash", ENTRY_LENGTH, _frame(entry_hash=ZERO_32)[:-1]),
        ("hash before receipt", ENTRY_HASH, _frame(entry_hash=ZERO_32, label=ZERO_32)),
    ]  # fmt: skip
    for name, failure, data in cases:
        s.refuses(name, failure, "entry", data)
    return s


def json_form() -> Scenario:
    """Return the JSON form of an entry with another header."""
    s = Scenario(
        "entry/json",
        "In JSON an entry has its header by name; a header that is not that of its objects is refused.",
    )
    value = ask("decode", type="entry", data=samples.ENTRY)["value"]
    s.ok("as decoded", "encode", type="entry", value=value)
    changes: tuple[tuple[str, Fields], ...] = (
        ("another stream_seq", {"stream_seq": 2}),
        ("another label", {"label": ZERO_32}),
        ("another entry_hash", {"entry_hash": ZERO_32}),
        ("a flag", {"flags": 1}),
        ("another msg_len", {"msg_len": 1}),
        ("another receipt_len", {"receipt_len": 1}),
        ("true for version 1", {"entry_ver": True}),
        ("false for no flags", {"flags": False}),
        ("a fraction for a whole number", {"stream_seq": 1.0}),
        ("an unknown name", {"note": ""}),
    )
    for name, changed in changes:
        s.fails(name, ENTRY_RECEIPT, "encode", type="entry", value=value | changed)
    for name, wrong in (("a list", []), ("null", None), ("no message", {"receipt": value["receipt"]})):
        s.fails(name, CBOR_INVALID, "encode", type="entry", value=wrong)
    return s


def frame_only() -> Scenario:
    """Return frames that are rejected before their objects are read."""
    s = Scenario("entry/parts_refused", "Only a well-formed MSG and RECEIPT are framed.")
    s.fails("no message", CBOR_INVALID, "entry", msg=b"", receipt=samples.RECEIPT)
    s.fails("no receipt", CBOR_INVALID, "entry", msg=samples.MSG, receipt=b"")
    s.fails("message and receipt exchanged", CBOR_INVALID, "entry", msg=samples.RECEIPT, receipt=samples.MSG)
    s.fails(
        "message with a byte behind",
        CBOR_INVALID,
        "entry",
        msg=samples.MSG + b"\x00",
        receipt=samples.RECEIPT,
    )
    return s


def summaries() -> Scenario:
    """Return chunk summaries."""
    s = Scenario(
        "artifacts/chunk_summary",
        "A summary is an array of seven; its range, its count and its roots describe a closed chunk.",
    )
    hashes = leaves(3)
    root = bytes.fromhex(s.ok("entry_hashes_root", "mmr_root", leaves=hashes)["roots"][-1])

    def items(start: int = 1, end: int = 3, count: int = 3) -> list[bytes]:
        return [
            raw.bstr(LABEL),
            raw.uint(start),
            raw.uint(end),
            raw.bstr(samples.root(11)),
            raw.uint(count),
            raw.uint(1234),
            raw.bstr(root),
        ]

    good = items()
    s.round_trip("entries 1 to 3", "chunk_summary", raw.array(*good))
    s.round_trip("one entry", "chunk_summary", raw.array(*items(7, 7, 1)))
    s.round_trip("largest range", "chunk_summary", raw.array(*items(1, U64_MAX, U64_MAX)))
    for name, failure, data in (
        ("starts at 0", VALUE, raw.array(*items(0, 3, 4))),
        ("ends before it starts", VALUE, raw.array(*items(3, 2, 0))),
        ("count too large", VALUE, raw.array(*items(1, 3, 4))),
        ("count too small", VALUE, raw.array(*items(1, 3, 2))),
        ("label of 31 bytes", FIELD_SIZE, raw.replaced(good, 0, raw.bstr(bytes(31)))),
        ("root of 33 bytes", FIELD_SIZE, raw.replaced(good, 6, raw.bstr(bytes(33)))),
        ("six elements", CBOR_INVALID, raw.array(*good[:6])),
        ("eight elements", CBOR_INVALID, raw.array(*good, raw.uint(0))),
        ("a map", CBOR_INVALID, raw.keyed(*enumerate(good, start=1))),
        ("null root", CBOR_INVALID, raw.replaced(good, 6, raw.NULL)),
        ("a byte behind", CBOR_INVALID, raw.array(*good) + b"\x00"),
    ):
        s.refuses(name, failure, "chunk_summary", data)
    return s


def signatures_inside() -> Scenario:
    """Return an entry whose objects do not verify: framing does not check signatures."""
    s = Scenario(
        "entry/signatures", "A frame decodes whatever its signatures are; they are verified on their own."
    )
    items = raw.split(samples.RECEIPT)
    unsigned = raw.replaced(items, 6, raw.bstr(bytes(64)))
    request: dict[str, Json] = {"msg": samples.MSG, "receipt": unsigned}
    given = s.ok("receipt without a signature", "entry", **request)
    s.decodes("it decodes", "entry", bytes.fromhex(given["entry"]))
    s.fails(
        "its receipt does not verify", SIG_INVALID, "verify_receipt", receipt=unsigned, hub_pk=fixed.HUB_PK
    )
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield frames()
    yield refused()
    yield json_form()
    yield frame_only()
    yield summaries()
    yield signatures_inside()
