"""The identity file of a hub (001 section 8.4)."""

from collections.abc import Iterator

from vectors.generators import fixed, raw
from vectors.generators.fixed import HUB_ID, HUB_PK, ROUTING_KEY, ZERO_32, h, ht
from vectors.generators.scenario import CBOR_INVALID, FIELD_SIZE, VALUE, VERSION, Failure, Scenario

_NEXT = fixed.key(fixed.OTHER_HUB_SEED).public_key
# Two keys that became valid at the same time, in the order of their bytes.
_LOW, _HIGH = sorted((HUB_PK, _NEXT))


def _key(
    hub_pk: bytes, valid_from: int, valid_until: int | None = None, key_id: bytes | None = None
) -> bytes:
    pairs = [(1, raw.bstr(key_id or h(hub_pk)[:16])), (2, raw.bstr(hub_pk)), (3, raw.uint(valid_from))]
    return raw.keyed(*pairs, *([] if valid_until is None else [(4, raw.uint(valid_until))]))


def _identity(*keys: bytes, hub_id: bytes = HUB_ID, ver: int = 1, control: bytes | None = None) -> bytes:
    pairs = [
        (1, raw.uint(ver)),
        (2, raw.bstr(hub_id)),
        (3, raw.array(*keys)),
        (4, raw.tstr("pinned")),
        (5, raw.bstr(ROUTING_KEY)),
    ]
    return raw.keyed(*pairs, *([] if control is None else [(6, raw.bstr(control))]))


def identities() -> Scenario:
    """Return hub identities."""
    s = Scenario(
        "identity/hub_identity",
        "hub_id is that of the first key; keys ascend by valid_from, then by bytes; key_id is 16 bytes "
        "of H(hub_pk).",
    )
    low_id = ht("veen/hub-id", _LOW)
    s.round_trip("one key", "hub_identity", _identity(_key(HUB_PK, 0)))
    s.round_trip("one key with an end", "hub_identity", _identity(_key(HUB_PK, 100, 101)))
    s.round_trip("rotated", "hub_identity", _identity(_key(HUB_PK, 0, 200), _key(_NEXT, 100)))
    s.round_trip(
        "two keys from the same second",
        "hub_identity",
        _identity(_key(_LOW, 5), _key(_HIGH, 5), hub_id=low_id),
    )
    s.round_trip("with a control key", "hub_identity", _identity(_key(HUB_PK, 0), control=fixed.READER_PK))
    s.ok("what hub-identity.sig signs", "ht", tag="veen/hub-identity", data=_identity(_key(HUB_PK, 0)))
    return s


def refused() -> Scenario:
    """Return invalid identities."""
    s = Scenario(
        "identity/refused",
        "An identity with no key, keys out of order, or ids that are not theirs is refused.",
    )
    one = _key(HUB_PK, 0)
    high_id = ht("veen/hub-id", _HIGH)
    known = raw.split_map(_identity(one))
    cases: tuple[tuple[str, Failure, bytes], ...] = (
        ("no key", VALUE, _identity()),
        ("hub_id of another key", VALUE, _identity(one, hub_id=ht("veen/hub-id", _NEXT))),
        ("hub_id of the newest key", VALUE, _identity(one, _key(_NEXT, 1), hub_id=ht("veen/hub-id", _NEXT))),
        ("key_id of another key", VALUE, _identity(_key(HUB_PK, 0, key_id=h(_NEXT)[:16]))),
        ("newest key first", VALUE, _identity(_key(_NEXT, 1), one, hub_id=ht("veen/hub-id", _NEXT))),
        ("same second, keys not by bytes", VALUE, _identity(_key(_HIGH, 5), _key(_LOW, 5), hub_id=high_id)),
        ("a key twice", VALUE, _identity(one, one)),
        ("a key twice, at two times", VALUE, _identity(one, _key(HUB_PK, 9))),
        ("ends when it starts", VALUE, _identity(_key(HUB_PK, 7, 7))),
        ("ends before it starts", VALUE, _identity(_key(HUB_PK, 7, 6))),
        ("key_id of 15 bytes", FIELD_SIZE, _identity(_key(HUB_PK, 0, key_id=h(HUB_PK)[:15]))),
        ("key_id of 32 bytes", FIELD_SIZE, _identity(_key(HUB_PK, 0, key_id=h(HUB_PK)))),
        ("hub_pk of 31 bytes", FIELD_SIZE, _identity(_key(HUB_PK[:31], 0))),
        ("control key of 31 bytes", FIELD_SIZE, _identity(one, control=bytes(31))),
        ("version 2", VERSION, _identity(one, ver=2)),
        ("version 2 and no key", VERSION, _identity(ver=2)),
        ("valid_until null", CBOR_INVALID, _identity(b"\xa4" + one[1:] + b"\x04" + raw.NULL)),
        ("unknown key of a hub key", CBOR_INVALID, _identity(b"\xa4" + one[1:] + b"\x05\x00")),
        ("unknown key", CBOR_INVALID, raw.mapping(*known, (raw.uint(7), raw.uint(0)))),
        ("anchoring missing", CBOR_INVALID, raw.mapping(*known[:3], known[4])),
        ("routing_key missing", CBOR_INVALID, raw.mapping(*known[:4])),
        ("routing_key null", CBOR_INVALID, raw.mapping(*known[:4], (raw.uint(5), raw.NULL))),
        ("control key null", CBOR_INVALID, raw.mapping(*known, (raw.uint(6), raw.NULL))),
        ("keys as a map", CBOR_INVALID, raw.mapping(*known[:2], (raw.uint(3), one), *known[3:])),
        ("text keys", CBOR_INVALID, raw.mapping((raw.tstr("hub_id"), raw.bstr(ZERO_32)))),
    )
    for name, failure, data in cases:
        s.refuses(name, failure, "hub_identity", data)
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield identities()
    yield refused()
