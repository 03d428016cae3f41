"""The error tables, compared with plain ones that were written from the documents."""

import pickle

import pytest

from tests import rawcbor as raw
from tests.builders import msg, submit_request
from veen.client.errors import RejectedError, RpcError, RpcTimeoutError, rejection_of
from veen.core.api.data_plane import SubmitRequest
from veen.core.errors import (
    ADMISSION_TABLE,
    HTTP_STATUS,
    VERIFICATION_TABLE,
    CborError,
    Code,
    Detail,
    Fault,
    ProtocolError,
    Stage,
    VeenError,
)
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg
from veen.overlays.errors import InvalidBodyError
from veen.storage.errors import DamagedStoreError, PrunedEntryError

#: Admission, in its exact order: row, stage, code, detail, HTTP status.
ADMISSION = """
    1   prefilter   E.SIZE    SIZE_PREFILTER    413
    2   prefilter   E.AUTH    PREFILTER_REJECT  403
    3   structural  E.FORMAT  CBOR_INVALID      400
    4   structural  E.SIZE    FIELD_SIZE        413
    5   structural  E.FORMAT  VERSION           400
    6   structural  E.FORMAT  PROFILE           400
    6a  structural  E.FORMAT  CT_PADDING        400
    7   structural  E.FORMAT  CT_HASH           400
    8   structural  E.FORMAT  ATT_ROOT          400
    9   auth        E.SIG     SIG_INVALID       409
    10  auth        E.CAP     CAP_MISSING       403
    11  auth        E.CAP     CAP_INVALID       403
    12  auth        E.AUTH    AUTH_REF          403
    12a auth        E.AUTH    NOT_PRIMARY       403
    12b auth        E.AUTH    REVOKED           403
    12c auth        E.CAP     CLIENT_LIFETIME   403
    13  auth        E.TIME    CAP_TTL           400
    14  auth        E.RATE    CAP_RATE          429
    15  commit      E.SEQ     PREV_ACK          409
    16  commit      E.SEQ     DUPLICATE         409
    17  commit      E.SEQ     CLIENT_SEQ        409
    18  commit      E.TIME    EPOCH             400
"""

#: All other operations.
OPERATIONS = {
    "E.BAD_REQUEST": 400,
    "E.UNAUTHORIZED": 401,
    "E.FORBIDDEN": 403,
    "E.NOT_FOUND": 404,
    "E.CONFLICT": 409,
    "E.LIMIT": 413,
    "E.UNAVAILABLE": 503,
    "E.VERSION": 400,
}

ADMISSION_CODES = {"E.FORMAT", "E.SIZE", "E.SIG", "E.CAP", "E.AUTH", "E.RATE", "E.SEQ", "E.TIME"}

#: What readers and verifiers find.
VERIFICATION = """
    structural  E.FORMAT  VALUE
    structural  E.FORMAT  ENTRY_VERSION
    structural  E.FORMAT  ENTRY_FLAGS
    structural  E.FORMAT  ENTRY_LENGTH
    structural  E.FORMAT  ENTRY_HASH
    structural  E.FORMAT  ENTRY_RECEIPT
    verify      E.PROOF   LEAF_HASH
    verify      E.PROOF   PROOF_SEQ
    verify      E.PROOF   PROOF_PATH
    verify      E.PROOF   PROOF_PEAKS
    verify      E.PROOF   PROOF_ROOT
    verify      E.PROOF   CHECKPOINT_LABEL
    verify      E.PROOF   CHECKPOINT_ROOT
    verify      E.PROOF   KEY_INACTIVE
    open        E.OPEN    DH_ZERO
    open        E.OPEN    HDR_AEAD
    open        E.OPEN    BODY_AEAD
    open        E.OPEN    ATT_AEAD
"""


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def test_admission_is_the_table_of_the_documents() -> None:
    assert [
        [row.row, row.stage, row.code, row.detail, str(HTTP_STATUS[row.code])] for row in ADMISSION_TABLE
    ] == rows(ADMISSION)


def test_stages_follow_each_other_and_never_come_back() -> None:
    stages = [row.stage for row in ADMISSION_TABLE]
    order = [Stage.PREFILTER, Stage.STRUCTURAL, Stage.AUTH, Stage.COMMIT]
    assert stages == sorted(stages, key=order.index)


def test_readers_findings_are_another_table() -> None:
    assert [[row.stage, row.code, row.detail] for row in VERIFICATION_TABLE] == rows(VERIFICATION)


def test_every_detail_names_one_row_and_every_row_says_what_failed() -> None:
    both = ADMISSION_TABLE + VERIFICATION_TABLE
    assert sorted(row.detail for row in both) == sorted(Detail)
    assert len({row.row for row in both}) == len(both)
    assert all(row.failure for row in both)


def test_admission_has_eight_codes_and_none_of_the_older_ones() -> None:
    assert {row.code.value for row in ADMISSION_TABLE} == ADMISSION_CODES
    assert not {"E.PROFILE", "E.DUP"} & {code.value for code in Code}


def test_the_http_status_is_a_function_of_the_code_alone() -> None:
    of_admission = {row[2]: int(row[4]) for row in rows(ADMISSION)}
    assert {code.value: status for code, status in HTTP_STATUS.items()} == of_admission | OPERATIONS


def test_findings_of_readers_are_never_sent_by_a_hub() -> None:
    assert set(Code) - set(HTTP_STATUS) == {Code.PROOF, Code.OPEN}


# --- the exception ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ADMISSION_TABLE + VERIFICATION_TABLE, ids=lambda row: row.detail)
def test_an_error_takes_code_and_stage_from_its_row(row: object) -> None:
    assert isinstance(row, type(ADMISSION_TABLE[0]))
    error = ProtocolError(row.detail, "no", field="x", actual=1)
    assert (error.code, error.stage, error.detail) == (row.code, row.stage, row.detail)
    assert error.fields == {"field": "x", "actual": 1}
    assert str(error) == f"no [{row.code} {row.stage}/{row.detail}]"


def test_a_revoked_token_has_the_code_of_tokens() -> None:
    error = ProtocolError(Detail.REVOKED, "revoked", code=Code.CAP)
    assert (error.code, error.stage) == (Code.CAP, Stage.AUTH)


def test_the_family_of_other_operations_keeps_the_finding() -> None:
    error = ProtocolError(Detail.FIELD_SIZE, "too long", field="label", actual=33)
    renamed = error.in_request()
    assert (renamed.code, renamed.detail, renamed.stage) == (Code.BAD_REQUEST, Detail.FIELD_SIZE, error.stage)
    assert renamed.fields == error.fields
    assert renamed.message == "too long"


def test_a_field_is_prefixed_on_its_way_out_of_nested_objects() -> None:
    error = ProtocolError(Detail.FIELD_SIZE, "too long")
    for name in ("label", "msg", "items"):
        error.within(name)
    assert error.fields["field"] == "items.msg.label"


def test_one_tree_of_errors() -> None:
    error = CborError(Fault.TAG, 7)
    assert isinstance(error, ProtocolError)
    assert isinstance(error, VeenError)
    assert (error.code, error.stage, error.detail) == (Code.FORMAT, Stage.STRUCTURAL, Detail.CBOR_INVALID)
    assert (error.fault, error.offset) == (Fault.TAG, 7)
    assert str(error) == "tag at byte 7 [E.FORMAT structural/CBOR_INVALID]"


def test_errors_survive_the_way_to_another_process() -> None:
    wrong = raw.with_element(msg().encode(), 4, raw.NULL)
    data = raw.with_pair(submit_request().encode(), 2, wrong)
    with pytest.raises(CborError) as caught:
        SubmitRequest.decode(data)
    with pytest.raises(ProtocolError) as caught_size:
        Msg.decode(raw.with_element(msg().encode(), 2, raw.bstr(b"")))
    for error in (caught.value, caught_size.value):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert (again.code, again.stage, again.detail) == (error.code, error.stage, error.detail)
        assert again.fields == error.fields
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (copied.fault, copied.offset) == (Fault.NULL, caught.value.offset)


def test_any_error_survives_whatever_its_constructor_takes() -> None:
    for error in (
        InvalidBodyError("FIELD.RANGE", "too large"),
        DamagedStoreError("chunk", 7, "is cut"),
        RejectedError(ErrorEnvelope(code="E.RATE", message="later")),
        PrunedEntryError("entry 3 was pruned"),
        rejection_of(ErrorEnvelope.of(PrunedEntryError("entry 3 was pruned"))),
        RpcTimeoutError("no reply"),
        RpcError("app.closed", "on Sundays"),
    ):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
