"""Every accepted object of the vectors, damaged: one bit flipped anywhere, or cut off anywhere.

A damaged object is refused with the library's own error, or it is another valid object: unequal, and with the
damaged bytes as its one encoding. Nothing else may come out of a decoder.
"""

import json
from typing import Any

import pytest

from tests.vectors import files
from veen.conformance.adapter import answer
from veen.conformance.operations import TYPES
from veen.core.errors import ProtocolError


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_a_flipped_bit_is_refused_or_is_another_object(kind: str) -> None:
    decode = TYPES[kind][0]
    for encoded in files.accepted_objects()[kind]:
        original = decode(encoded)
        refused = 0
        for bit in range(8 * len(encoded)):
            flipped = bytearray(encoded)
            flipped[bit // 8] ^= 1 << bit % 8
            damaged = bytes(flipped)
            try:
                other = decode(damaged)
            except ProtocolError:
                refused += 1
                continue
            assert other != original
            assert other.encode() == damaged
        assert refused, "no flip at all was noticed"


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_a_truncated_object_is_refused(kind: str) -> None:
    decode = TYPES[kind][0]
    for encoded in files.accepted_objects()[kind]:
        for end in range(len(encoded)):
            with pytest.raises(ProtocolError):
                decode(encoded[:end])


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_a_byte_behind_an_object_is_refused(kind: str) -> None:
    decode = TYPES[kind][0]
    for encoded in files.accepted_objects()[kind]:
        for byte in (0x00, 0x80, 0xF6, 0xFF):
            with pytest.raises(ProtocolError):
                decode(encoded + bytes((byte,)))


_QUERIES = frozenset({"receipt_request", "proof_request", "checkpoint_request", "stream_request"})
_RECEIPTS = frozenset({"submit_response", "receipt_response"})
#: Types whose objects can be taken for each other: the path of the request tells them apart.
SAME_FORM = dict.fromkeys(_QUERIES, _QUERIES) | dict.fromkeys(_RECEIPTS, _RECEIPTS)
#: Files that are a bare list or table are alike as long as they are empty: their names tell them apart.
for _empty in ({"peaks", "checkpoint_binding"}, {"checkpoint_index", "hub_key_map"}):
    SAME_FORM |= dict.fromkeys(_empty, frozenset(_empty))


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_an_object_of_one_type_is_not_another(kind: str) -> None:
    """Types that share a form are few, and known."""
    decode = TYPES[kind][0]
    alike = set()
    for other, objects in files.accepted_objects().items():
        for encoded in objects:
            try:
                assert decode(encoded).encode() == encoded
            except ProtocolError:
                continue
            alike.add(other)
    assert alike == SAME_FORM.get(kind, {kind})


def _first_accepted(op: str) -> dict[str, Any]:
    found = next(
        case["request"] for case in files.all_cases() if case["request"]["op"] == op and case["expect"]["ok"]
    )
    return dict(found)


@pytest.mark.parametrize(
    ("op", "field"),
    [
        ("verify_msg", "msg"),
        ("verify_receipt", "receipt"),
        ("verify_receipt", "hub_pk"),
        ("verify_checkpoint", "checkpoint"),
        ("cap_verify", "token"),
        ("mmr_verify", "proof"),
        ("mmr_verify", "root"),
        ("mmr_verify", "leaf"),
        ("mmr_verify_consistency", "proof"),
        ("mmr_verify_consistency", "new_root"),
    ],
)
def test_nothing_that_proves_survives_a_flipped_bit(op: str, field: str) -> None:
    request = _first_accepted(op)
    whole = bytes.fromhex(request[field])
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        given = answer(json.dumps(request | {field: flipped.hex()}).encode())
        assert not given["ok"], f"bit {bit} of {field}"
        assert str(given["code"]).startswith("E."), given


def test_no_bit_of_an_entry_can_change_unseen() -> None:
    """The hash does not cover the header, so every field of the header is compared with something."""
    decode = TYPES["entry"][0]
    encoded = min(files.accepted_objects()["entry"], key=len)
    for bit in range(8 * len(encoded)):
        flipped = bytearray(encoded)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError):
            decode(bytes(flipped))
