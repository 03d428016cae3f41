"""Files beside the chunks and beside the identity (001 sections 4.8.3 and 8.4)."""

from collections.abc import Iterator

from vectors.generators import fixed, raw
from vectors.generators.fixed import HUB_ID, HUB_PK, LABEL, U64_MAX, h, leaves
from vectors.generators.samples import root
from vectors.generators.scenario import CBOR_INVALID, FIELD_SIZE, VALUE, Failure, Scenario

_NEXT = fixed.key(fixed.OTHER_HUB_SEED).public_key
Cases = tuple[tuple[str, Failure, bytes], ...]


def peaks() -> Scenario:
    """Return peaks files."""
    s = Scenario("artifacts/peaks", "A peaks file is the bare array of peaks by increasing height.")
    made = [bytes.fromhex(peak) for peak in s.ok("peaks of 7", "mmr_root", leaves=leaves(7))["peaks"]]
    hashes = [raw.bstr(peak) for peak in made]
    s.round_trip("after 7 entries", "peaks", raw.array(*hashes))
    s.round_trip("after 4 entries", "peaks", raw.array(hashes[-1]))
    s.round_trip("before the first entry", "peaks", raw.array())
    cases: Cases = (
        ("peak of 31 bytes", FIELD_SIZE, raw.array(*hashes[:2], raw.bstr(bytes(31)))),
        ("65 peaks", FIELD_SIZE, raw.array(*([hashes[0]] * 65))),
        ("null", CBOR_INVALID, raw.array(hashes[0], raw.NULL)),
        ("a map", CBOR_INVALID, raw.keyed((1, hashes[0]))),
        ("indefinite length", CBOR_INVALID, b"\x9f" + hashes[0] + raw.BREAK),
        ("a byte behind", CBOR_INVALID, raw.array(*hashes) + b"\x00"),
    )
    for name, failure, data in cases:
        s.refuses(name, failure, "peaks", data)
    return s


def _parts(number: int, start: int, end: int) -> list[bytes]:
    return [
        raw.bstr(root(number)),
        raw.array(raw.uint(start), raw.uint(end)),
        raw.tstr(_peaks_file(end)),
    ]


def _peaks_file(upto: int) -> str:
    return f"peaks-{LABEL.hex()}-{upto:020}.cbor"


def _indexed(number: int, start: int, end: int) -> bytes:
    return raw.array(*_parts(number, start, end))


def checkpoint_index() -> Scenario:
    """Return checkpoint indexes."""
    s = Scenario(
        "artifacts/checkpoint_index",
        "The index of a label maps upto_seq to root, chunk range and peaks file, ascending.",
    )
    first, second = _indexed(3, 1, 100), _indexed(4, 101, 300)
    short_root = raw.array(raw.bstr(bytes(31)), *_parts(3, 1, 100)[1:])
    kind = "checkpoint_index"
    s.round_trip("empty", kind, raw.keyed())
    s.round_trip("two checkpoints", kind, raw.keyed((100, first), (300, second)))
    s.round_trip("the last number", kind, raw.keyed((U64_MAX, _indexed(5, U64_MAX, U64_MAX))))
    cases: Cases = (
        ("checkpoint of nothing", VALUE, raw.keyed((0, first))),
        ("range from 0", VALUE, raw.keyed((100, _indexed(3, 0, 100)))),
        ("range ends before it starts", VALUE, raw.keyed((100, _indexed(3, 101, 100)))),
        ("root of 31 bytes", FIELD_SIZE, raw.keyed((100, short_root))),
        (
            "root of 31 bytes, then a float",
            CBOR_INVALID,
            raw.keyed((100, short_root), (300, b"\xf9\x00\x00")),
        ),
        ("descending", CBOR_INVALID, raw.keyed((300, second), (100, first))),
        ("twice the same", CBOR_INVALID, raw.keyed((100, first), (100, first))),
        ("text key", CBOR_INVALID, raw.mapping((raw.tstr("100"), first))),
        ("long head of a key", CBOR_INVALID, raw.mapping((raw.uint(100, width=2), first))),
        ("two elements", CBOR_INVALID, raw.keyed((100, raw.array(*_parts(3, 1, 100)[:2])))),
        ("a byte behind", CBOR_INVALID, raw.keyed((100, first)) + b"\x00"),
    )
    for name, failure, data in cases:
        s.refuses(name, failure, kind, data)
    for name in ("0100", "+100", "1e2", "18446744073709551616", ""):
        value = {name: [root(3), [1, 100], _peaks_file(100)]}
        s.fails(f"JSON name {name!r}", CBOR_INVALID, "encode", type=kind, value=value)
    return s


def key_map() -> Scenario:
    """Return key maps."""
    s = Scenario("identity/key_map", "hub-key-map maps key_id, 16 bytes of H(hub_pk), to hub_pk, ascending.")
    low, high = sorted((h(pk)[:16], pk) for pk in (HUB_PK, _NEXT))

    def pair(name: bytes, pk: bytes) -> tuple[bytes, bytes]:
        return raw.bstr(name), raw.bstr(pk)

    s.round_trip("empty", "hub_key_map", raw.mapping())
    s.round_trip("one key", "hub_key_map", raw.mapping(pair(*low)))
    s.round_trip("two keys", "hub_key_map", raw.mapping(pair(*low), pair(*high)))
    cases: Cases = (
        ("key_id of another key", VALUE, raw.mapping(pair(low[0], high[1]))),
        ("key_id of 15 bytes", FIELD_SIZE, raw.mapping(pair(low[0][:15], low[1]))),
        ("hub_pk of 33 bytes", FIELD_SIZE, raw.mapping(pair(low[0], low[1] + b"\x00"))),
        ("descending", CBOR_INVALID, raw.mapping(pair(*high), pair(*low))),
        ("twice the same", CBOR_INVALID, raw.mapping(pair(*low), pair(*low))),
        ("integer key", CBOR_INVALID, raw.keyed((1, raw.bstr(HUB_PK)))),
        ("an array", CBOR_INVALID, raw.array(*pair(*low))),
        ("a byte behind", CBOR_INVALID, raw.mapping(pair(*low)) + b"\x00"),
    )
    for name, failure, data in cases:
        s.refuses(name, failure, "hub_key_map", data)
    return s


def _bound(label: bytes = LABEL, epoch: int = 0, upto: int = 9, key_id: bytes = h(HUB_PK)[:16]) -> bytes:
    return raw.array(
        raw.bstr(label),
        raw.uint(epoch),
        raw.uint(upto),
        raw.bstr(HUB_ID),
        raw.bstr(key_id),
        raw.bstr(root(6)),
    )


def binding() -> Scenario:
    """Return checkpoint bindings."""
    s = Scenario(
        "identity/checkpoint_binding",
        "checkpoint-binding is an array of lines, ascending by label, epoch and upto_seq, each once.",
    )
    kind = "checkpoint_binding"
    low, high = sorted((LABEL, fixed.ht("veen/label", LABEL)))
    s.round_trip("empty", kind, raw.array())
    s.round_trip("one line", kind, raw.array(_bound()))
    lines = [_bound(low, 0, 9), _bound(low, 0, 300), _bound(low, 1, 2), _bound(high, 0, 1)]
    s.round_trip("by label, epoch, upto_seq", kind, raw.array(*lines))
    cases: Cases = (
        ("labels descend", CBOR_INVALID, raw.array(_bound(high), _bound(low))),
        ("epochs descend", CBOR_INVALID, raw.array(_bound(epoch=1), _bound(epoch=0))),
        ("upto_seq descends", CBOR_INVALID, raw.array(_bound(upto=9), _bound(upto=8))),
        ("a line twice", CBOR_INVALID, raw.array(_bound(), _bound())),
        ("key_id of 32 bytes", FIELD_SIZE, raw.array(_bound(key_id=h(HUB_PK)))),
        ("key_id of 32 bytes, then no line", CBOR_INVALID, raw.array(_bound(key_id=h(HUB_PK)), raw.uint(0))),
        ("a map", CBOR_INVALID, raw.keyed((1, _bound()))),
        ("a byte behind", CBOR_INVALID, raw.array(_bound()) + b"\x00"),
    )
    for name, failure, data in cases:
        s.refuses(name, failure, kind, data)
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield peaks()
    yield checkpoint_index()
    yield key_map()
    yield binding()
