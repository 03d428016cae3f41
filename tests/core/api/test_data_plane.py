"""Requests and responses: their exact bytes, and the code family of their faults."""

from dataclasses import replace
from typing import Any

import cbor2
import pytest

from tests import rawcbor as raw
from tests.builders import (
    checkpoint_request,
    checkpoint_response,
    digest,
    msg,
    proof_request,
    proof_response,
    receipt,
    receipt_request,
    some_label,
    stream_request,
    stream_response,
    submit_request,
    submit_response,
)
from tests.expect import faulty, refused
from veen.core.api import data_plane
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Code, Detail, Fault, Stage
from veen.core.limits import Limits
from veen.core.types import Label

QUERIES: list[Wire] = [stream_request(), receipt_request(), proof_request(), checkpoint_request()]


# --- the maps -----------------------------------------------------------------------------------------------


def test_a_submit_request_is_its_message_and_four_bytes() -> None:
    message = msg()
    assert submit_request(message).encode() == bytes.fromhex("a2010102") + message.encode()


def test_requests() -> None:
    label = some_label()
    full = stream_request(
        from_seq=1, to_seq=2, max_items=3, cursor=4, with_receipts=True, with_mmr_proof=False
    )
    assert cbor2.loads(full.encode()) == {1: 1, 2: label, 3: 1, 4: 2, 5: 3, 6: 4, 7: True, 8: False}
    assert cbor2.loads(stream_request().encode()) == {1: 1, 2: label, 3: 1}
    assert cbor2.loads(receipt_request(5).encode()) == {1: 1, 2: label, 3: 5}
    assert cbor2.loads(proof_request(6).encode()) == {1: 1, 2: label, 3: 6}
    assert cbor2.loads(checkpoint_request(7).encode()) == {1: 1, 2: label, 3: 7}


def test_responses_embed_their_objects() -> None:
    embedded = cbor2.loads(receipt().encode())
    assert cbor2.loads(submit_response().encode()) == {1: 1, 2: embedded}
    assert cbor2.loads(submit_response(server_version="0.0.1").encode()) == {1: 1, 2: embedded, 3: "0.0.1"}
    assert data_plane.ReceiptResponse is data_plane.SubmitResponse
    proof = proof_response()
    assert cbor2.loads(proof.encode()) == {1: 1, 2: cbor2.loads(proof.mmr_proof.encode())}
    checkpoint = checkpoint_response()
    assert cbor2.loads(checkpoint.encode()) == {1: 1, 2: cbor2.loads(checkpoint.checkpoint.encode())}


def test_a_page_has_its_items_and_one_proof() -> None:
    page = stream_response(2)
    content = cbor2.loads(page.encode())
    assert sorted(content) == list(range(1, 9))
    assert [item[1] for item in content[5]] == [1, 2]
    assert content[5][0][2] == cbor2.loads(msg().encode())
    assert content[6] == 3
    bare = cbor2.loads(stream_response(1, full=False).encode())
    assert sorted(bare) == [1, 2, 3, 5]
    assert sorted(bare[5][0]) == [1, 2]
    assert cbor2.loads(stream_response(0, full=False).encode())[5] == []


# --- submit: faults of the envelope have the codes of admission ---------------------------------------------


def test_a_fault_of_the_submit_envelope_is_one_of_admission() -> None:
    good = submit_request().encode()
    with refused(Detail.CBOR_INVALID, code=Code.FORMAT) as caught:
        data_plane.SubmitRequest.decode(raw.with_pair(good, 3, raw.uint(0)))
    assert caught.value.stage == Stage.STRUCTURAL
    with refused(Detail.CBOR_INVALID, code=Code.FORMAT):
        data_plane.SubmitRequest.decode(b"")
    with refused(Detail.VERSION, field="ver", code=Code.FORMAT):
        data_plane.SubmitRequest.decode(raw.with_pair(good, 1, raw.uint(2)))
    with refused(Detail.VERSION, field="msg.ver", code=Code.FORMAT):
        data_plane.SubmitRequest.decode(
            raw.with_pair(good, 2, raw.with_element(msg().encode(), 0, raw.uint(0)))
        )


def test_a_message_is_embedded_and_not_wrapped_in_a_byte_string() -> None:
    with faulty(Fault.TYPE, field="msg"):
        data_plane.SubmitRequest.decode(raw.with_pair(submit_request().encode(), 2, raw.bstr(msg().encode())))


def test_the_prefilter_lets_exactly_the_largest_message_pass() -> None:
    limits = Limits(max_msg_bytes=500)
    fits = submit_request(msg(ciphertext=bytes(500 - 210)))
    over = submit_request(msg(ciphertext=bytes(500 - 209)))
    assert len(fits.encode()) == 504
    assert data_plane.SubmitRequest.decode(fits.encode(), limits) == fits
    with refused(Detail.SIZE_PREFILTER, code=Code.SIZE) as caught:
        data_plane.SubmitRequest.decode(over.encode(), limits)
    assert caught.value.stage == Stage.PREFILTER
    assert caught.value.fields == {"actual": 505, "max_allowed": 504}


def test_the_prefilter_does_not_look_inside() -> None:
    with refused(Detail.SIZE_PREFILTER):
        data_plane.SubmitRequest.decode(b"\xff" * 505, Limits(max_msg_bytes=500))
    with refused(Detail.CBOR_INVALID):
        data_plane.SubmitRequest.decode(b"\xff" * 504, Limits(max_msg_bytes=500))


# --- all other requests: E.BAD_REQUEST, with the field ------------------------------------------------------


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.SHAPE.name)
def test_faults_of_other_requests_are_bad_requests_and_keep_what_was_found(query: Wire) -> None:
    good = query.encode()
    decode = type(query).decode
    cases = [
        (b"", Detail.CBOR_INVALID, None),
        (good + b"\x00", Detail.CBOR_INVALID, None),
        (raw.with_pair(good, 99, raw.uint(0)), Detail.CBOR_INVALID, None),
        (raw.without_pair(good, 2), Detail.CBOR_INVALID, "label"),
        (raw.with_pair(good, 3, raw.NULL), Detail.CBOR_INVALID, query.SHAPE.fields[2].name),
        (raw.with_pair(good, 2, raw.bstr(bytes(31))), Detail.FIELD_SIZE, "label"),
        (raw.with_pair(good, 1, raw.uint(2)), Detail.VERSION, "ver"),
    ]
    for data, detail, field in cases:
        with refused(detail, field=field, code=Code.BAD_REQUEST):
            decode(data)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.SHAPE.name)
def test_json_requests_have_the_same_family(query: Wire) -> None:
    form: Any = query.to_json()
    with refused(Detail.CBOR_INVALID, code=Code.BAD_REQUEST):
        type(query).from_json({**form, "extra": 1})
    with refused(Detail.CBOR_INVALID, field="label", code=Code.BAD_REQUEST):
        type(query).from_json({**form, "label": digest("x").hex().upper()})
    with refused(Detail.FIELD_SIZE, field="label", code=Code.BAD_REQUEST):
        type(query).from_json({**form, "label": ""})
    with refused(Detail.VERSION, field="ver", code=Code.BAD_REQUEST):
        type(query).from_json({**form, "ver": 0})


def test_an_absent_option_is_not_the_same_as_false() -> None:
    absent = data_plane.StreamRequest.decode(stream_request().encode())
    stated = data_plane.StreamRequest.decode(stream_request(with_receipts=False).encode())
    assert absent.with_receipts is None
    assert stated.with_receipts is False
    assert absent.encode() != stated.encode()


@pytest.mark.parametrize("key", [7, 8])
def test_options_are_true_or_false(key: int) -> None:
    for wrong in (raw.uint(0), raw.uint(1), raw.NULL, raw.UNDEFINED, raw.tstr("true")):
        with refused(Detail.CBOR_INVALID, code=Code.BAD_REQUEST):
            data_plane.StreamRequest.decode(raw.with_pair(stream_request().encode(), key, wrong))


def test_constructors_of_requests_validate_too() -> None:
    with refused(Detail.FIELD_SIZE, field="label"):
        replace(stream_request(), label=Label(b"short"))
    with refused(Detail.VALUE):
        replace(stream_request(), from_seq=-1)


# --- responses: a reader's own findings keep their codes ----------------------------------------------------


def test_faults_of_responses_are_not_bad_requests() -> None:
    with faulty(Fault.UNKNOWN_KEY):
        data_plane.SubmitResponse.decode(raw.with_pair(submit_response().encode(), 9, raw.uint(0)))
    with refused(Detail.VERSION, field="receipt.ver", code=Code.FORMAT):
        wrong = raw.with_element(receipt().encode(), 0, raw.uint(7))
        data_plane.SubmitResponse.decode(raw.with_pair(submit_response().encode(), 2, wrong))
