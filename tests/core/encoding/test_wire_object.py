"""Wire objects: one value, one byte string, one JSON form; and the order in which faults are found."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from itertools import product
from typing import Any

import pytest

from tests import rawcbor as raw
from tests.builders import (
    cap_token,
    checkpoint_response,
    context,
    digest,
    inclusion_proof,
    msg,
    rate,
    receipt,
    some_label,
    stream_request,
    stream_response,
    submit_request,
    unsigned,
)
from tests.examples import every_wire_object
from tests.expect import faulty, refused
from veen.core.api import data_plane
from veen.core.encoding.wire_object import Wire, decode_sequence, encode_sequence
from veen.core.errors import CborError, Code, Detail, Fault, ProtocolError
from veen.core.limits import Limits
from veen.core.objects.capability import Allow, CapToken
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, JsonValue, Label, NodeHash, StreamId

EXAMPLES = every_wire_object()


# --- one value, one encoding --------------------------------------------------------------------------------


@pytest.mark.parametrize("item", EXAMPLES, ids=lambda item: item.SHAPE.name)
def test_bytes_and_json_give_the_object_back(item: Wire) -> None:
    decoded = type(item).decode(item.encode())
    assert decoded == item
    assert decoded.encode() == item.encode()
    parsed = type(item).from_json(item.to_json())
    assert parsed == item
    assert parsed.encode() == item.encode()
    assert decoded.to_json() == item.to_json()
    if item.SHAPE.name != "error":  # it holds a mapping, and nobody keeps errors in sets
        assert hash(decoded) == hash(item)


@pytest.mark.parametrize("item", EXAMPLES, ids=lambda item: item.SHAPE.name)
def test_an_object_can_not_be_changed(item: Wire) -> None:
    before = item.encode()
    for field in item.SHAPE.fields:
        if field.name != "ver":
            with pytest.raises(FrozenInstanceError):
                setattr(item, field.name, None)
            value = getattr(item, field.name)
            assert not isinstance(value, list | dict | set | bytearray)
    assert "_encoded" not in repr(item)
    assert item.encode() == before


def test_a_changed_copy_has_an_encoding_of_its_own() -> None:
    first = receipt()
    first.encode()
    second = replace(first, hub_ts=first.hub_ts + 1)
    assert second.encode() != first.encode()
    assert Receipt.decode(second.encode()) == second != first


def test_a_nested_object_keeps_its_exact_bytes() -> None:
    message = msg()
    response = data_plane.StreamResponse.decode(stream_response().encode())
    assert data_plane.SubmitRequest.decode(submit_request(message).encode()).msg.encode() == message.encode()
    for item in response.items:
        assert Msg.decode(item.msg.encode()) == item.msg
        item.msg.verify()


# --- constructors validate ----------------------------------------------------------------------------------


def test_a_constructor_refuses_wrong_lengths_and_names_the_field() -> None:
    with refused(Detail.FIELD_SIZE, field="label") as caught:
        replace(receipt(), label=Label(bytes(31)))
    assert caught.value.fields == {"field": "label", "expected": 32, "actual": 31}
    with refused(Detail.FIELD_SIZE, field="hub_sig"):
        replace(receipt(), hub_sig=unsigned(63))
    with refused(Detail.FIELD_SIZE, field="auth_ref"):
        replace(msg(), auth_ref=AuthRef(b"short"))
    with refused(Detail.FIELD_SIZE, field="peaks_after"):
        replace(inclusion_proof(), peaks_after=(NodeHash(bytes(33)),))


def test_a_constructor_refuses_numbers_that_have_no_encoding() -> None:
    for number in (-1, 2**64):
        with refused(Detail.VALUE):
            replace(receipt(), hub_ts=number)
    assert replace(receipt(), hub_ts=2**64 - 1).hub_ts == 2**64 - 1


WRONG_TYPES: list[Callable[[Any], object]] = [
    lambda wrong: replace(receipt(), hub_ts=wrong),
    lambda wrong: replace(receipt(), label=wrong),
    lambda wrong: replace(stream_request(), with_receipts=wrong),
    lambda wrong: data_plane.SubmitRequest(msg=wrong),
    lambda wrong: Allow(stream_ids=wrong, ttl=1),
    lambda wrong: replace(stream_response(), items=(wrong,)),
]


@pytest.mark.parametrize("make", WRONG_TYPES)
@pytest.mark.parametrize("wrong", [1.5, "1", [1], bytearray(32)])
def test_a_wrong_python_type_is_a_type_error(make: Callable[[Any], object], wrong: Any) -> None:
    with pytest.raises(TypeError):
        make(wrong)


def test_a_list_is_not_a_tuple_because_it_could_change_under_the_encoding() -> None:
    wrong: Any = [StreamId(digest("a"))]
    with pytest.raises(TypeError):
        Allow(stream_ids=wrong, ttl=1)


# --- phases: a CBOR fault anywhere, then a size anywhere, then a version anywhere ---------------------------

CBOR, SIZE, VERSION = "cbor", "size", "version"
ROW = {CBOR: Detail.CBOR_INVALID, SIZE: Detail.FIELD_SIZE, VERSION: Detail.VERSION}
Defects = dict[str, str]


def bad_array(data: bytes, defect: str | None, *, fixed: int, number: int) -> bytes:
    """Return an array with a defect: ``fixed`` is the place of a fixed-size field, ``number`` of a number."""
    if defect == CBOR:
        return raw.with_element(data, number, b"\x20")
    if defect == SIZE:
        return raw.with_element(data, fixed, raw.bstr(bytes(5)))
    if defect == VERSION:
        return raw.with_element(data, 0, raw.uint(2))
    return data


def bad_map(data: bytes, defect: str | None, *, fixed: int) -> bytes:
    if defect == CBOR:
        return raw.mapping([*raw.pairs(data), (raw.uint(99), raw.uint(0))])
    if defect == SIZE:
        return raw.with_pair(data, fixed, raw.bstr(bytes(33)))
    if defect == VERSION:
        return raw.with_pair(data, 1, raw.uint(0))
    return data


def bad_msg(defect: str | None) -> bytes:
    return bad_array(msg().encode(), defect, fixed=9, number=4)


def stream_response_with(defects: Defects) -> bytes:
    """Return a page with defects by place: in itself, a message, a receipt, the proof."""
    good = stream_response(2)
    first = raw.with_pair(good.items[0].encode(), 2, bad_msg(defects.get("items.msg")))
    bad_receipt = bad_array(receipt(stream_seq=2).encode(), defects.get("items.receipt"), fixed=3, number=5)
    second = raw.with_pair(good.items[1].encode(), 3, bad_receipt)
    assert good.mmr_proof is not None
    proof = bad_map(good.mmr_proof.encode(), defects.get("mmr_proof"), fixed=2)
    data = raw.with_pair(good.encode(), 5, raw.array([first, second]))
    return bad_map(raw.with_pair(data, 7, proof), defects.get(""), fixed=2)


def submit_request_with(defects: Defects) -> bytes:
    data = raw.with_pair(submit_request().encode(), 2, bad_msg(defects.get("msg")))
    defect = defects.get("")
    return bad_map(data, defect, fixed=0) if defect != SIZE else data


def checkpoint_response_with(defects: Defects) -> bytes:
    good = checkpoint_response()
    inner = bad_array(good.checkpoint.encode(), defects.get("checkpoint"), fixed=4, number=5)
    return bad_map(raw.with_pair(good.encode(), 2, inner), defects.get(""), fixed=0)


def cap_token_with(defects: Defects) -> bytes:
    token = cap_token(rate=rate())
    allow = token.allow.encode()
    if defects.get("allow") == CBOR:
        allow = raw.with_pair(allow, 9, raw.uint(0))
    if defects.get("allow") == SIZE:
        allow = raw.with_pair(allow, 1, raw.array([raw.bstr(bytes(31))]))
    return bad_map(raw.with_pair(token.encode(), 4, allow), defects.get(""), fixed=2)


BUILDS: list[tuple[type[Wire], Callable[[Defects], bytes], tuple[str, ...]]] = [
    (data_plane.StreamResponse, stream_response_with, ("", "items.msg", "items.receipt", "mmr_proof")),
    (data_plane.SubmitRequest, submit_request_with, ("", "msg")),
    (data_plane.CheckpointResponse, checkpoint_response_with, ("", "checkpoint")),
    (CapToken, cap_token_with, ("", "allow")),
]


def has(cls: type[Wire], place: str, defect: str) -> bool:
    """Tell whether the builds above know this defect at this place."""
    without_size = {(data_plane.SubmitRequest, ""), (data_plane.CheckpointResponse, "")}
    without_version = {(CapToken, "allow")}
    return (defect, (cls, place)) not in {
        *((SIZE, where) for where in without_size),
        *((VERSION, where) for where in without_version),
    }


@pytest.mark.parametrize(("cls", "build", "places"), BUILDS, ids=[cls.__name__ for cls, _, _ in BUILDS])
def test_of_two_defects_the_earlier_row_decides_wherever_they_are(
    cls: type[Wire], build: Callable[[Defects], bytes], places: tuple[str, ...]
) -> None:
    order = [CBOR, SIZE, VERSION]
    cases = [(place, defect) for place, defect in product(places, order) if has(cls, place, defect)]
    for (place_a, defect_a), (place_b, defect_b) in product(cases, cases):
        if place_a == place_b and defect_a != defect_b:
            continue
        with refused(ROW[min(defect_a, defect_b, key=order.index)]):
            cls.decode(build({place_a: defect_a, place_b: defect_b}))


@pytest.mark.parametrize(("cls", "build", "places"), BUILDS, ids=[cls.__name__ for cls, _, _ in BUILDS])
def test_sizes_and_versions_name_their_field_by_its_path(
    cls: type[Wire], build: Callable[[Defects], bytes], places: tuple[str, ...]
) -> None:
    sized = {"items.msg": "sig", "msg": "sig", "items.receipt": "leaf_hash", "checkpoint": "mmr_root"}
    sized |= {"mmr_proof": "leaf_hash", "allow": "stream_ids"}
    sized[""] = {data_plane.StreamResponse: "label", CapToken: "issuer_pk"}.get(cls, "")
    for place, (defect, names) in product(places, ((SIZE, sized), (VERSION, dict.fromkeys(places, "ver")))):
        if has(cls, place, defect):
            field = f"{place}.{names[place]}".lstrip(".")
            with refused(ROW[defect], field=field):
                cls.decode(build({place: defect}))


def test_json_is_judged_in_the_same_order() -> None:
    form: Any = submit_request().to_json()
    wrong_version = {**form, "ver": 2}
    wrong_size = {**wrong_version, "msg": [*form["msg"][:9], "00"]}
    wrong_form = {**wrong_size, "msg": [*wrong_size["msg"][:4], -1, *wrong_size["msg"][5:]]}
    with refused(Detail.VERSION, field="ver"):
        data_plane.SubmitRequest.from_json(wrong_version)
    with refused(Detail.FIELD_SIZE, field="msg.sig"):
        data_plane.SubmitRequest.from_json(wrong_size)
    with faulty(Fault.NEGATIVE, field="msg.client_seq"):
        data_plane.SubmitRequest.from_json(wrong_form)


def test_values_are_judged_last_and_named_by_their_path() -> None:
    token = cap_token().encode()
    empty = raw.with_pair(cap_token().allow.encode(), 1, b"\x80")
    with refused(Detail.CAP_INVALID, field="allow.stream_ids"):
        CapToken.decode(raw.with_pair(token, 4, empty))
    with refused(Detail.VERSION, field="ver"):
        CapToken.decode(raw.with_pair(raw.with_pair(token, 4, empty), 1, raw.uint(3)))
    zero = raw.with_element(receipt().encode(), 2, raw.uint(0))
    with refused(Detail.VALUE, field="receipt.stream_seq"):
        data_plane.SubmitResponse.decode(raw.with_pair(raw.mapping([(raw.uint(1), raw.uint(1))]), 2, zero))


# --- sizes of whole objects ---------------------------------------------------------------------------------


def test_a_message_over_the_limit_is_refused_in_every_way_to_receive_it() -> None:
    small = Limits(max_msg_bytes=600)
    fits = msg(ciphertext=bytes(600 - 210))  # 212 less two: a short length head
    over = msg(ciphertext=bytes(600 - 209))
    assert (len(fits.encode()), len(over.encode())) == (600, 601)
    page = replace(stream_response(1, full=False), items=(data_plane.StreamItem(stream_seq=1, msg=fits),))
    assert Msg.decode(fits.encode(), small) == fits
    assert Msg.from_json(fits.to_json(), small) == fits
    assert decode_sequence(fits.encode(), Msg, small) == [fits]
    assert data_plane.StreamResponse.decode(page.encode(), small) == page
    assert data_plane.SubmitRequest.decode(submit_request(fits).encode(), small).msg == fits

    page = replace(page, items=(data_plane.StreamItem(stream_seq=1, msg=over),))
    for receive in (
        lambda: Msg.decode(over.encode(), small),
        lambda: Msg.from_json(over.to_json(), small),
        lambda: decode_sequence(over.encode(), Msg, small),
        lambda: data_plane.StreamResponse.decode(page.encode(), small),
        lambda: data_plane.StreamResponse.from_json(page.to_json(), small),
        lambda: data_plane.SubmitRequest.decode(submit_request(over).encode(), small),
        lambda: data_plane.SubmitRequest.from_json(submit_request(over).to_json(), small),
    ):
        with pytest.raises(ProtocolError, match="exceeds") as caught:
            receive()
        assert caught.value.code == Code.SIZE


def test_a_token_over_the_limit_is_refused_in_every_way_to_receive_it() -> None:
    token = cap_token(links=3)
    exact = Limits(max_cap_bytes=len(token.encode()))
    less = Limits(max_cap_bytes=len(token.encode()) - 1)
    assert CapToken.decode(token.encode(), exact) == CapToken.from_json(token.to_json(), exact) == token
    with refused(Detail.FIELD_SIZE):
        CapToken.decode(token.encode(), less)
    with refused(Detail.FIELD_SIZE):
        CapToken.from_json(token.to_json(), less)


# --- JSON ---------------------------------------------------------------------------------------------------


def test_the_json_form_of_an_array_is_an_array_and_bytes_are_hex() -> None:
    item = receipt(stream_seq=7, hub_ts=9)
    assert item.to_json() == [
        1,
        item.label.hex(),
        7,
        item.leaf_hash.hex(),
        item.mmr_root.hex(),
        9,
        item.hub_sig.hex(),
    ]


def test_the_json_form_of_a_map_has_the_names_of_its_fields() -> None:
    request = stream_request(from_seq=3, cursor=4, with_receipts=True)
    form: JsonValue = {
        "ver": 1,
        "label": some_label().hex(),
        "from_seq": 3,
        "cursor": 4,
        "with_receipts": True,
    }
    assert request.to_json() == form
    assert isinstance(form, dict)
    assert data_plane.StreamRequest.from_json(dict(reversed(form.items()))) == request


def test_json_of_the_wrong_shape_is_refused() -> None:
    request: Any = submit_request().to_json()
    array: Any = receipt().to_json()
    not_objects: list[JsonValue] = [None, [], "{}", 1, True]
    for wrong in not_objects:
        with faulty(Fault.TYPE):
            data_plane.SubmitRequest.from_json(wrong)
    not_arrays: list[JsonValue] = [None, {}, "[]", 1]
    for wrong in not_arrays:
        with faulty(Fault.TYPE):
            Receipt.from_json(wrong)
    with faulty(Fault.UNKNOWN_KEY):
        data_plane.SubmitRequest.from_json({**request, "extra": 1})
    with faulty(Fault.UNKNOWN_KEY):
        data_plane.SubmitRequest.from_json({**request, "Msg": request["msg"]})
    with faulty(Fault.MISSING_KEY, field="msg"):
        data_plane.SubmitRequest.from_json({"ver": 1})
    with faulty(Fault.MISSING_KEY, field="ver"):
        data_plane.SubmitRequest.from_json({"msg": request["msg"]})
    for arity in (array[:6], [*array, 1], []):
        with faulty(Fault.ARITY):
            Receipt.from_json(arity)
    with faulty(Fault.EMPTY, field="witness_sigs"):
        Checkpoint.from_json([1, *["00" * 32] * 2, 1, "00" * 32, 0, "00" * 64, []])


def test_only_the_auth_ref_of_a_message_may_be_null_in_json() -> None:
    form: Any = msg(context(auth_ref=cap_token().auth_ref)).to_json()
    for index in range(10):
        changed = [*form[:index], None, *form[index + 1 :]]
        if index == 6:
            assert Msg.from_json(changed).auth_ref is None
        else:
            with faulty(Fault.TYPE):
                Msg.from_json(changed)


# --- sequences ----------------------------------------------------------------------------------------------


def test_a_sequence_is_its_objects_one_after_the_other() -> None:
    receipts = [receipt(stream_seq=number) for number in (1, 2, 300)]
    data = encode_sequence(receipts)
    assert data == b"".join(item.encode() for item in receipts)
    assert decode_sequence(data, Receipt) == receipts
    assert [item.encode() for item in decode_sequence(data, Receipt)] == [item.encode() for item in receipts]
    assert decode_sequence(b"", Receipt) == []


def test_a_sequence_that_is_cut_off_or_holds_something_else_is_refused() -> None:
    data = encode_sequence([receipt(), receipt()])
    with faulty(Fault.TRUNCATED):
        decode_sequence(data[:-1], Receipt)
    with pytest.raises(CborError):
        decode_sequence(data + b"\x00", Receipt)
    with faulty(Fault.ARITY):
        decode_sequence(data + msg().encode(), Receipt)
    with refused(Detail.FIELD_SIZE, field="label"):
        decode_sequence(data + raw.with_element(receipt().encode(), 1, raw.bstr(b"")), Receipt)
    with refused(Detail.VERSION):
        decode_sequence(data + raw.with_element(receipt().encode(), 0, raw.uint(2)), Receipt)
    with refused(Detail.VALUE):
        decode_sequence(data + raw.with_element(receipt().encode(), 2, raw.uint(0)), Receipt)
