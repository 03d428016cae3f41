"""Layouts: every object has the one of the protocol, and every deviation in its bytes is found and named."""

from collections.abc import Iterator

import pytest

from tests import rawcbor as raw
from tests.builders import (
    checkpoint,
    full_error_envelope,
    identity,
    msg,
    profile,
    receipt,
    stream_request,
)
from tests.examples import every_wire_object
from tests.expect import check_can_travel, faulty, refused
from veen.core.api import data_plane
from veen.core.encoding.field_types import UINT
from veen.core.encoding.shape import ArrayShape, Field, MapShape, NamedShape
from veen.core.encoding.wire_object import Wire
from veen.core.errors import CborError, Code, Detail, Fault, ProtocolError
from veen.core.merkle.inclusion import STEP_SHAPE

# --- the layouts, written out -------------------------------------------------------------------------------

#: Arrays: the fields in order; a question mark means that the field may be absent.
ARRAYS = {
    "MSG": "ver profile_id label client_id client_seq prev_ack auth_ref ct_hash ciphertext sig",
    "RECEIPT": "ver label stream_seq leaf_hash mmr_root hub_ts hub_sig",
    "CHECKPOINT": "ver label_prev label_curr upto_seq mmr_root epoch hub_sig witness_sigs?",
    "chunk_summary": "label start_seq end_seq mmr_root_end entry_count total_bytes entry_hashes_root",
    "chunk_range": "start_seq end_seq",
    "indexed_checkpoint": "mmr_root chunk_range peaks_ref",
    "bound_checkpoint": "label epoch upto_seq hub_id key_id mmr_root",
}
#: Maps: the fields by their keys, from 1.
MAPS = {
    "profile": "aead kdf sig dh hpke_suite epoch_sec pad_block mmr_hash",
    "payload_hdr": "schema parent_id? att_root? cap_ref? expires_at?",
    "mmr_proof": "ver leaf_hash path peaks_after",
    "step": "dir sib",
    "consistency_proof": "ver old_peaks siblings new_peaks",
    "cap_token": "ver issuer_pk subject_pk allow sig_chain",
    "allow": "stream_ids ttl rate?",
    "rate": "per_sec burst",
    "error": "ver code message detail? retry_after? request_id?",
    "hub_key": "key_id hub_pk valid_from valid_until?",
    "hub_identity": "ver hub_id hub_keys anchoring routing_key control_pk? parent?",
    "submit_request": "ver msg",
    "submit_response": "ver receipt server_version?",
    "stream_request": "ver label from_seq to_seq? max_items? cursor? with_receipts? with_mmr_proof?",
    "stream_response": "ver label from_seq to_seq? items next_cursor? mmr_proof? server_version?",
    "stream_item": "stream_seq msg receipt?",
    "receipt_request": "ver label stream_seq",
    "proof_request": "ver label stream_seq",
    "proof_response": "ver mmr_proof server_version?",
    "checkpoint_request": "ver label upto_seq",
    "checkpoint_response": "ver checkpoint server_version?",
    "trust_record": "ver kind issuer_pk trusted note?",
    "revocation_record": "ver kind target_kind target ts ttl? reason? origin?",
}
#: Maps by names, in this order.
NAMED = {"pow_cookie": "challenge nonce difficulty", "revocation": "kind target reason? ts ttl?"}


def layout(shape: ArrayShape | MapShape) -> str:
    return " ".join(field.name + "?" * field.optional for field in shape.fields)


def test_every_object_has_the_layout_of_the_protocol() -> None:
    shapes = {item.SHAPE.name: item.SHAPE for item in every_wire_object()}
    assert {name: layout(shape) for name, shape in shapes.items() if isinstance(shape, ArrayShape)} == ARRAYS
    named = {name: layout(shape) for name, shape in shapes.items() if isinstance(shape, NamedShape)}
    assert named == NAMED
    maps = {
        name: shape
        for name, shape in shapes.items()
        if isinstance(shape, MapShape) and not isinstance(shape, NamedShape)
    }
    maps[STEP_SHAPE.name] = STEP_SHAPE
    assert {name: layout(shape) for name, shape in maps.items()} == MAPS
    for shape in maps.values():
        assert [field.key for field in shape.fields] == list(range(1, len(shape.fields) + 1))


def test_a_shape_that_could_not_be_canonical_can_not_be_declared() -> None:
    with pytest.raises(AssertionError):
        MapShape("unordered", Field("b", UINT, key=2), Field("a", UINT, key=1))
    with pytest.raises(AssertionError):
        MapShape("repeated", Field("a", UINT, key=1), Field("b", UINT, key=1))
    with pytest.raises(AssertionError):
        ArrayShape("gap", Field("a", UINT, optional=True), Field("b", UINT))


# --- every deviation, in every object, at every place -------------------------------------------------------

#: One example of every type and of every optional part; queries are decoded as the objects that they are.
EXAMPLES = every_wire_object()
OBJECTS = [pytest.param(item, id=f"{item.SHAPE.name}-{len(item.encode())}") for item in EXAMPLES]


def check_fault(item: Wire, data: bytes, fault: Fault) -> None:
    """Fail unless decoding ``data`` as an object of the same type stops at this fault."""
    with pytest.raises(ProtocolError) as caught:
        type(item).decode(data)
    error = caught.value
    assert error.detail == Detail.CBOR_INVALID, f"{error}: {data.hex()}"
    check_can_travel(error)
    if error.code == Code.BAD_REQUEST:  # a query renames the finding; what it found is the same
        with pytest.raises(CborError) as caught_inside:
            item.SHAPE.read(data, 0)
        error = caught_inside.value
    else:
        assert error.code == Code.FORMAT
    assert isinstance(error, CborError)
    assert error.fault == fault, f"{error}: {data.hex()}"


def items_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, major type) of every item in an encoding, nested ones and map keys too."""
    for start in raw.heads(data):
        yield start, raw.skip(data, start), data[start] >> 5


@pytest.mark.parametrize("item", OBJECTS)
def test_every_proper_prefix_is_truncated(item: Wire) -> None:
    data = item.encode()
    for length in range(len(data)):
        check_fault(item, data[:length], Fault.TRUNCATED)


@pytest.mark.parametrize("item", OBJECTS)
def test_a_byte_too_many_is_refused(item: Wire) -> None:
    for extra in (b"\x00", b"\xf6", b"\xff"):
        with refused(Detail.CBOR_INVALID) as caught:
            type(item).decode(item.encode() + extra)
        assert caught.value.message == f"{Fault.TRAILING} at byte {len(item.encode())}"


@pytest.mark.parametrize("item", OBJECTS)
def test_no_head_may_be_longer_than_needed(item: Wire) -> None:
    data = item.encode()
    for start in raw.heads(data):
        major, argument, content = raw.read_head(data, start)
        if major == raw.SIMPLE:
            continue
        for width in (1, 2, 4, 8):
            longer = raw.head(major, argument, width) if argument < 1 << 8 * width else b""
            if len(longer) > content - start:
                check_fault(item, data[:start] + longer + data[content:], Fault.NON_MINIMAL)


@pytest.mark.parametrize("item", OBJECTS)
def test_no_item_may_have_an_indefinite_length_or_a_reserved_head(item: Wire) -> None:
    data = item.encode()
    for start, end, major in items_of(data):
        if major == raw.SIMPLE:
            continue
        content = raw.read_head(data, start)[2]
        indefinite = bytes((major << 5 | 31,)) + data[content:end] + b"\xff"
        check_fault(item, data[:start] + indefinite + data[end:], Fault.INDEFINITE)
        for info in (28, 29, 30):
            check_fault(item, data[:start] + bytes((major << 5 | info,)) + data[content:], Fault.RESERVED)


@pytest.mark.parametrize("item", OBJECTS)
def test_no_item_may_be_tagged(item: Wire) -> None:
    data = item.encode()
    for start in raw.heads(data):
        for tag in (b"\xc0", b"\xd8\x18"):
            check_fault(item, data[:start] + tag + data[start:], Fault.TAG)


#: What may stand nowhere in any object.
NOWHERE = {
    "20": Fault.NEGATIVE,
    "3903e7": Fault.NEGATIVE,
    "f7": Fault.SIMPLE,
    "e5": Fault.SIMPLE,
    "f8ff": Fault.SIMPLE,
    "f97e00": Fault.FLOAT,
    "fa00000000": Fault.FLOAT,
    "fb0000000000000000": Fault.FLOAT,
    "ff": Fault.INDEFINITE,
}


@pytest.mark.parametrize("item", OBJECTS)
def test_values_outside_the_data_model_are_refused_at_every_place(item: Wire) -> None:
    data = item.encode()
    for start, end, _ in items_of(data):
        for wrong, fault in NOWHERE.items():
            check_fault(item, data[:start] + bytes.fromhex(wrong) + data[end:], fault)


def auth_refs(data: bytes) -> set[int]:
    """Return where the items stand that may be null: the seventh of each array of ten, which only MSG is."""
    found = set()
    for start in raw.heads(data):
        if data[start] == 0x8A:
            pos = start + 1
            for _ in range(6):
                pos = raw.skip(data, pos)
            found.add(pos)
    return found


@pytest.mark.parametrize("item", OBJECTS)
def test_null_and_bool_are_refused_wherever_no_field_is_typed_so(item: Wire) -> None:
    data = item.encode()
    for start, end, major in items_of(data):
        before, after = data[:start], data[end:]
        if start in auth_refs(data):
            type(item).decode(before + raw.NULL + after)
        else:
            check_fault(item, before + raw.NULL + after, Fault.NULL)
        if major != raw.SIMPLE or data[start] == raw.NULL[0]:  # all but the two bools of a stream request
            check_fault(item, before + raw.TRUE + after, Fault.BOOL)
            check_fault(item, before + raw.FALSE + after, Fault.BOOL)


@pytest.mark.parametrize("item", OBJECTS)
def test_an_item_of_another_type_is_refused_at_every_place(item: Wire) -> None:
    data = item.encode()
    for start, end, major in items_of(data):
        other = b"\x00" if major in (raw.ARRAY, raw.MAP) else b"\x80"
        check_fault(item, data[:start] + other + data[end:], Fault.TYPE)
        swapped = {raw.ARRAY: b"\xa0", raw.MAP: b"\x80"}.get(major, b"\xa0")
        check_fault(item, data[:start] + swapped + data[end:], Fault.TYPE)


@pytest.mark.parametrize("item", OBJECTS)
def test_text_must_be_utf_8(item: Wire) -> None:
    data = item.encode()
    for start, end, major in items_of(data):
        content = raw.read_head(data, start)[2]
        if major == raw.TEXT and content < end:
            check_fault(item, data[: end - 1] + b"\xff" + data[end:], Fault.UTF8)


@pytest.mark.parametrize("item", [item for item in EXAMPLES if isinstance(item.SHAPE, ArrayShape)])
def test_an_array_has_its_number_of_elements(item: Wire) -> None:
    parts = raw.elements(item.encode())
    required = sum(not field.optional for field in item.SHAPE.fields)
    for wrong in (parts[: required - 1], parts[:1], [], [*parts, raw.uint(0), raw.uint(0)]):
        check_fault(item, raw.array(wrong), Fault.ARITY)
    if len(parts) == len(item.SHAPE.fields):
        check_fault(item, raw.array([*parts, raw.NULL]), Fault.ARITY)


def is_numbered(item: Wire) -> bool:
    return isinstance(item.SHAPE, MapShape) and not isinstance(item.SHAPE, NamedShape)


@pytest.mark.parametrize("item", [item for item in EXAMPLES if is_numbered(item)])
def test_a_map_has_its_keys_in_order_each_once_and_no_others(item: Wire) -> None:
    pairs = raw.pairs(item.encode())
    for unknown in (0, len(item.SHAPE.fields) + 1, 2**64 - 1):
        added = sorted([*pairs, (raw.uint(unknown), raw.uint(0))])
        check_fault(item, raw.mapping(added), Fault.UNKNOWN_KEY)
    for index, (key, value) in enumerate(pairs):
        others = [*pairs[:index], *pairs[index + 1 :]]
        check_fault(item, raw.mapping([*pairs[:index], (key, value), *pairs[index:]]), Fault.DUPLICATE_KEY)
        check_fault(item, raw.mapping([*others, (raw.tstr("x"), value)]), Fault.TYPE)
        if index:
            swapped = [*pairs[: index - 1], pairs[index], pairs[index - 1], *pairs[index + 1 :]]
            check_fault(item, raw.mapping(swapped), Fault.KEY_ORDER)
        field = item.SHAPE.fields[raw.read_head(key, 0)[1] - 1]
        if not field.optional:
            check_fault(item, raw.mapping(others), Fault.MISSING_KEY)
        else:
            type(item).decode(raw.mapping(others))


@pytest.mark.parametrize("item", [item for item in EXAMPLES if isinstance(item.SHAPE, NamedShape)])
def test_a_map_by_names_has_them_in_their_order_each_once_and_no_others(item: Wire) -> None:
    pairs = raw.pairs(item.encode())
    there = [field for field in item.SHAPE.fields if getattr(item, field.name) is not None]
    assert [key for key, _ in pairs] == [raw.tstr(field.name) for field in there]
    for place in range(len(pairs) + 1):
        for unknown in ("", "Nonce", "zzz"):
            added = [*pairs[:place], (raw.tstr(unknown), raw.uint(0)), *pairs[place:]]
            check_fault(item, raw.mapping(added), Fault.UNKNOWN_KEY)
    for index, (key, value) in enumerate(pairs):
        others = [*pairs[:index], *pairs[index + 1 :]]
        if not there[index].optional:
            check_fault(item, raw.mapping(others), Fault.MISSING_KEY)
        check_fault(item, raw.mapping([*pairs[:index], (key, value), *pairs[index:]]), Fault.DUPLICATE_KEY)
        check_fault(item, raw.mapping([*others, (raw.uint(index), value)]), Fault.TYPE)
        if index:
            swapped = [*pairs[: index - 1], pairs[index], pairs[index - 1], *pairs[index + 1 :]]
            check_fault(item, raw.mapping(swapped), Fault.KEY_ORDER)
    assert json_keys(item) == [field.name for field in there]


def json_keys(item: Wire) -> list[str]:
    form = item.to_json()
    assert isinstance(form, dict)
    required = {field.name for field in item.SHAPE.fields if not field.optional}
    for name in form.keys() & required:
        with faulty(Fault.MISSING_KEY, field=name):
            type(item).from_json({key: value for key, value in form.items() if key != name})
    with faulty(Fault.UNKNOWN_KEY):
        type(item).from_json({**form, "another": 1})
    return list(form)


def test_names_that_may_be_absent_are_left_out() -> None:
    shape = NamedShape("named", Field("b", UINT), Field("a", UINT, optional=True), Field("c", UINT))
    small = raw.mapping([(raw.tstr("b"), raw.uint(1)), (raw.tstr("c"), raw.uint(3))])
    full = raw.mapping([(raw.tstr(name), raw.uint(nth)) for nth, name in enumerate("bac")])
    for data, content in ((small, {"b": 1, "c": 3}), (full, {"b": 0, "a": 1, "c": 2})):
        assert shape.read(data, 0) == (content, len(data))
        assert shape.write(content) == data
        assert shape.to_json(content) == content
        assert shape.from_json(content) == content  # type: ignore[arg-type]


def test_the_documents_older_forms_are_refused() -> None:
    by_name = [(raw.tstr("ver"), raw.uint(1)), (raw.tstr("label"), raw.bstr(bytes(32)))]
    for item in (msg(), receipt(), checkpoint(), profile()):
        with faulty(Fault.TYPE):
            type(item).decode(raw.mapping(by_name))


# --- where it is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "path", "encoded", "field"),
    [
        (msg(), (4,), raw.NULL, "client_seq"),
        (receipt(), (6,), raw.uint(0), "hub_sig"),
        (checkpoint(witnesses=("w",)), (7,), raw.NULL, "witness_sigs"),
        (identity(), (5, 0, 3), raw.tstr("x"), "hub_keys.hub_pk"),
        (data_plane.SubmitRequest(msg=msg()), (3, 5), raw.TRUE, "msg.prev_ack"),
    ],
)
def test_a_fault_names_its_field_by_its_path(
    item: Wire, path: tuple[int, ...], encoded: bytes, field: str
) -> None:
    with faulty(Fault.NULL if encoded == raw.NULL else _fault_of(encoded), field=field):
        type(item).decode(_replaced(item.encode(), path, encoded))


def _fault_of(encoded: bytes) -> Fault:
    return Fault.BOOL if encoded == raw.TRUE else Fault.TYPE


def _replaced(data: bytes, path: tuple[int, ...], encoded: bytes) -> bytes:
    """Return ``data`` with the element at ``path`` replaced; a map's are its keys and values in turn."""
    if not path:
        return encoded
    major, argument, _ = raw.read_head(data, 0)
    parts = raw.elements(data)
    parts[path[0]] = _replaced(parts[path[0]], path[1:], encoded)
    return raw.head(major, argument) + b"".join(parts)


def test_a_missing_field_is_named() -> None:
    with faulty(Fault.MISSING_KEY, field="mmr_hash"):
        type(profile()).decode(raw.without_pair(profile().encode(), 8))
    with pytest.raises(ProtocolError) as caught:
        data_plane.StreamRequest.decode(raw.without_pair(stream_request().encode(), 2))
    assert (caught.value.code, caught.value.fields) == (Code.BAD_REQUEST, {"field": "label"})
    with faulty(Fault.MISSING_KEY, field="message"):
        type(full_error_envelope()).from_json({"ver": 1, "code": "E.SIZE"})
