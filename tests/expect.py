"""Refusals as tests state them: which rule, which field, and that the refusal itself can travel."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from veen.core.errors import CborError, Code, Detail, Fault, ProtocolError
from veen.core.objects.error_envelope import ErrorEnvelope

#: ERR-012: the keys that a program may rely on, and no others.
STABLE_KEYS = {"field", "expected", "actual", "max_allowed", "label", "stream_seq"}

ANY = "any field"


def check_can_travel(error: ProtocolError) -> None:
    """Fail if an error could not be sent to a peer: its fields must fit the error envelope."""
    assert set(error.fields) <= STABLE_KEYS
    envelope = ErrorEnvelope.of(error)
    assert ErrorEnvelope.decode(envelope.encode()) == envelope


@contextmanager
def refused(
    detail: Detail, *, field: str | None = ANY, code: Code | None = None
) -> Iterator[pytest.ExceptionInfo[ProtocolError]]:
    """Expect a refusal by the rule ``detail``, of this ``field`` if one is given (None: of no field)."""
    with pytest.raises(ProtocolError) as caught:
        yield caught
    error = caught.value
    assert error.detail == detail, str(error)
    if field is not ANY:
        assert error.fields.get("field") == field, str(error)
    if code is not None:
        assert error.code == code, str(error)
    check_can_travel(error)


@contextmanager
def faulty(fault: Fault, *, offset: int | None = None, field: str | None = ANY) -> Iterator[None]:
    """Expect bytes or JSON to be refused for one fault of the encoding, at ``offset`` if it is given."""
    with refused(Detail.CBOR_INVALID, field=field) as caught:
        yield
    error = caught.value
    assert isinstance(error, CborError)
    assert error.fault == fault, str(error)
    if offset is not None:
        assert error.offset == offset, str(error)
