"""Every field of every object, with a wrong type and a wrong size; and the forms of older documents."""

from collections.abc import Iterator
from dataclasses import dataclass

from vectors.generators import fixed, raw, samples
from vectors.generators.scenario import CBOR_INVALID, FIELD_SIZE, VERSION, Scenario


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object: its name, its type, and whether it may be absent."""

    name: str
    kind: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """An object by its fields, with one valid encoding that has them all."""

    kind: str
    title: str
    fields: tuple[Field, ...]
    encoded: bytes


def _layouts() -> tuple[Layout, ...]:
    b32, b64, uint, ver, items = "32 bytes", "64 bytes", "uint", "ver", "list"
    return (
        Layout("msg", "MSG", (
            Field("ver", ver), Field("profile_id", b32), Field("label", b32), Field("client_id", b32),
            Field("client_seq", uint), Field("prev_ack", uint), Field("auth_ref", "32 bytes or null"),
            Field("ct_hash", b32), Field("ciphertext", "bytes"), Field("sig", b64),
        ), samples.signed(samples.CIPHERTEXT, auth_ref=fixed.AUTH_REF)),
        Layout("receipt", "RECEIPT", (
            Field("ver", ver), Field("label", b32), Field("stream_seq", uint), Field("leaf_hash", b32),
            Field("mmr_root", b32), Field("hub_ts", uint), Field("hub_sig", b64),
        ), samples.RECEIPT),
        Layout("checkpoint", "CHECKPOINT", (
            Field("ver", ver), Field("label_prev", b32), Field("label_curr", b32), Field("upto_seq", uint),
            Field("mmr_root", b32), Field("epoch", uint), Field("hub_sig", b64),
            Field("witness_sigs", items, optional=True),
        ), samples.checkpoint(witness_seeds=fixed.WITNESS_SEEDS[:1])),
        Layout("payload_hdr", "payload header", (
            Field("schema", b32), Field("parent_id", b32, optional=True),
            Field("att_root", b32, optional=True), Field("cap_ref", b32, optional=True),
            Field("expires_at", uint, optional=True),
        ), samples.full_header()),
        Layout("mmr_proof", "inclusion proof", (
            Field("ver", ver), Field("leaf_hash", b32), Field("path", items), Field("peaks_after", items),
        ), samples.proof(3, 11)),
        Layout("consistency_proof", "consistency proof", (
            Field("ver", ver), Field("old_peaks", items), Field("siblings", items), Field("new_peaks", items),
        ), samples.consistency(6, 11)),
        Layout("cap_token", "capability token", (
            Field("ver", ver), Field("issuer_pk", b32), Field("subject_pk", b32), Field("allow", "map"),
            Field("sig_chain", items),
        ), samples.token(rate=[5, 10])),
    )  # fmt: skip


# Wrong values by type of the field; null is tried on all but the one that may be null.
_WRONG: dict[str, tuple[tuple[str, bytes], ...]] = {
    "ver": (("a text", raw.tstr("1")), ("a byte string", raw.bstr(b"\x01"))),
    "uint": (("a text", raw.tstr("1")), ("a byte string", raw.bstr(b"\x01"))),
    "32 bytes": (("a text", raw.tstr("a" * 32)), ("an integer", raw.uint(0)), ("an array", raw.array())),
    "32 bytes or null": (("a text", raw.tstr("a" * 32)), ("false", raw.FALSE), ("undefined", raw.UNDEFINED)),
    "64 bytes": (("a text", raw.tstr("a" * 64)), ("an integer", raw.uint(0)), ("an array", raw.array())),
    "bytes": (("a text", raw.tstr("a" * 40)), ("an integer", raw.uint(0)), ("an array", raw.array())),
    "list": (("a map", raw.mapping()), ("a byte string", raw.bstr(b"")), ("an integer", raw.uint(0))),
    "map": (("an array", raw.array()), ("a byte string", raw.bstr(b"")), ("an integer", raw.uint(0))),
}


def _values(layout: Layout) -> tuple[list[bytes], list[bytes]]:
    """Return the encoded keys (none for an array) and values of an object."""
    items = raw.split(layout.encoded)
    if layout.encoded[0] >> 5 == raw.MAP:
        return items[::2], items[1::2]
    return [], items


def _with(layout: Layout, index: int, item: bytes) -> bytes:
    keys, values = _values(layout)
    changed = [*values[:index], item, *values[index + 1 :]]
    return raw.mapping(*zip(keys, changed, strict=True)) if keys else raw.array(*changed)


def _fields(layout: Layout) -> Scenario:
    s = Scenario(
        f"{layout.kind}/fields",
        f"Each field of a {layout.title} has its type and size: wrong types are refused before wrong sizes.",
    )
    s.round_trip("all fields", layout.kind, layout.encoded)
    for index, field in enumerate(layout.fields):
        for name, item in _WRONG[field.kind]:
            s.refuses(f"{field.name} is {name}", CBOR_INVALID, layout.kind, _with(layout, index, item))
        if field.kind != "32 bytes or null":
            s.refuses(f"{field.name} is null", CBOR_INVALID, layout.kind, _with(layout, index, raw.NULL))
        if field.kind == "ver":
            for version in (0, 2, 255):
                data = _with(layout, index, raw.uint(version))
                s.refuses(f"{field.name} is {version}", VERSION, layout.kind, data)
        size = {"32 bytes": 32, "32 bytes or null": 32, "64 bytes": 64}.get(field.kind)
        for wrong in () if size is None else (0, size - 1, size + 1):
            data = _with(layout, index, raw.bstr(bytes(wrong)))
            s.refuses(f"{field.name} has {wrong} bytes", FIELD_SIZE, layout.kind, data)
    return s


def _shape(layout: Layout) -> Scenario:
    keys, values = _values(layout)
    what = "a map with unsigned keys" if keys else "an array"
    s = Scenario(
        f"{layout.kind}/shape", f"A {layout.title} is {what}; all its fields, no others, in their order."
    )

    def refuses(name: str, data: bytes) -> None:
        s.refuses(name, CBOR_INVALID, layout.kind, data)

    names = [field.name for field in layout.fields]
    refuses("a map with text keys", raw.mapping(*zip(map(raw.tstr, names), values, strict=True)))
    refuses("empty input", b"")
    refuses("an integer", raw.uint(1))
    refuses("wrapped in a byte string", raw.bstr(layout.encoded))
    refuses("a byte behind", layout.encoded + b"\x00")
    refuses("the last byte missing", layout.encoded[:-1])
    if keys:
        pairs = list(zip(keys, values, strict=True))
        refuses("an array of its values", raw.array(*values))
        refuses("unknown key", raw.mapping(*pairs, (raw.uint(len(pairs) + 1), raw.uint(0))))
        refuses("last key twice", raw.mapping(*pairs, pairs[-1]))
        refuses("first two keys swapped", raw.mapping(pairs[1], pairs[0], *pairs[2:]))
        for index, field in enumerate(layout.fields):
            rest = raw.mapping(*pairs[:index], *pairs[index + 1 :])
            if field.optional:
                s.round_trip(f"without {field.name}", layout.kind, rest)
            else:
                refuses(f"without {field.name}", rest)
    else:
        numbered = ((raw.uint(number), value) for number, value in enumerate(values, start=1))
        refuses("a map with integer keys", raw.mapping(*numbered))
        refuses("one element more", raw.array(*values, raw.uint(0)))
        refuses("one element more, null", raw.array(*values, raw.NULL))
        fewer = len(values) - 1
        if layout.fields[-1].optional:
            s.round_trip(f"{fewer} elements", layout.kind, raw.array(*values[:-1]))
            fewer -= 1
        refuses("one element less", raw.array(*values[:fewer]))
        refuses("no elements", raw.array())
    return s


def _legacy() -> Scenario:
    s = Scenario(
        "cbor/older_documents",
        "Objects in the encodings of older documents are refused: named maps, fields that have gone or come.",
    )
    msg = raw.split(samples.MSG)
    names = (
        "ver",
        "profile_id",
        "label",
        "client_id",
        "client_seq",
        "prev_ack",
        "auth_ref",
        "ct_hash",
        "ciphertext",
        "sig",
    )
    pairs = [(raw.tstr(name), value) for name, value in zip(names, msg, strict=True)]
    s.refuses("MSG as a named map", CBOR_INVALID, "msg", raw.mapping(*pairs))
    without = [pair for pair in pairs if pair[0] != raw.tstr("auth_ref")]
    s.refuses("MSG as a named map, absent auth_ref left out", CBOR_INVALID, "msg", raw.mapping(*without))
    s.refuses("MSG without auth_ref", CBOR_INVALID, "msg", raw.array(*msg[:6], *msg[7:]))
    s.refuses("MSG without profile_id", CBOR_INVALID, "msg", raw.array(*msg[:1], *msg[2:]))
    s.refuses(
        "checkpoint with null for no witnesses",
        CBOR_INVALID,
        "checkpoint",
        raw.array(*raw.split(samples.checkpoint()), raw.NULL),
    )
    s.refuses(
        "checkpoint with an empty list for no witnesses",
        CBOR_INVALID,
        "checkpoint",
        raw.array(*raw.split(samples.checkpoint()), raw.array()),
    )
    s.refuses(
        "error as {code, detail} with names",
        CBOR_INVALID,
        "error",
        raw.mapping((raw.tstr("code"), raw.tstr("E.DUP")), (raw.tstr("detail"), raw.tstr("again"))),
    )
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    for layout in _layouts():
        yield _fields(layout)
        yield _shape(layout)
    yield _legacy()
