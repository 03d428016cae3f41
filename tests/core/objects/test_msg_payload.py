"""The payload header: small, strict, and about the capability that the message was admitted under."""

import pytest

from tests import rawcbor as raw
from tests.builders import cap_token, full_payload_header, payload_header
from tests.expect import faulty, refused
from veen.core.errors import Code, Detail, Fault
from veen.core.objects.msg import PayloadHeader


def test_sizes() -> None:
    assert len(payload_header().encode()) == 36
    assert len(full_payload_header().encode()) == 151


def test_the_schema_is_required() -> None:
    with faulty(Fault.MISSING_KEY, field="schema"):
        PayloadHeader.decode(b"\xa0")
    with faulty(Fault.MISSING_KEY, field="schema"):
        PayloadHeader.decode(raw.without_pair(full_payload_header().encode(), 1))


@pytest.mark.parametrize("key", [2, 3, 4, 5])
def test_an_absent_field_is_left_out_and_never_null(key: int) -> None:
    name = PayloadHeader.SHAPE.fields[key - 1].name
    without = PayloadHeader.decode(raw.without_pair(full_payload_header().encode(), key))
    assert getattr(without, name) is None
    with faulty(Fault.NULL, field=name):
        PayloadHeader.decode(raw.with_pair(payload_header().encode(), key, raw.NULL))


@pytest.mark.parametrize("key", [1, 2, 3, 4])
def test_hashes_have_32_bytes(key: int) -> None:
    data = raw.with_pair(full_payload_header().encode(), key, raw.bstr(bytes(31)))
    with refused(Detail.FIELD_SIZE, field=PayloadHeader.SHAPE.fields[key - 1].name):
        PayloadHeader.decode(data)


def test_a_capability_named_inside_is_the_one_outside() -> None:
    mine, other = cap_token().auth_ref, cap_token(ttl=1).auth_ref
    header = payload_header(cap_ref=mine)
    header.verify_cap_ref(mine)
    with refused(Detail.AUTH_REF, field="cap_ref", code=Code.AUTH):
        header.verify_cap_ref(other)
    with refused(Detail.AUTH_REF, field="cap_ref"):
        header.verify_cap_ref(None)
    payload_header().verify_cap_ref(None)
    payload_header().verify_cap_ref(other)
