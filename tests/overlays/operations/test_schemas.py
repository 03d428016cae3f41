"""Schemas of the operation profiles: their order, their two forms of absence, and what they refuse."""

from hashlib import sha256
from random import Random
from typing import Any

import cbor2
import pytest

from tests.overlays.histories_operations import OPERATION_HISTORIES, OPERATION_PARAMETERS
from tests.overlays.logs import STREAM, ident
from tests.overlays.reference_operations import FIELDS, schema_id
from veen.overlays import registry
from veen.overlays.engine import fold
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Event, Record, operation_id
from veen.overlays.operations.schemas import DELEGATED, SCHEMAS, normal, operation_body
from veen.overlays.report_codes import CODES
from veen.overlays.schema import Schema

X = ident("x")
#: Of each schema a body with nothing that may be left out.
LEAST: dict[str, dict[str, Any]] = {
    "access.grant.v1": {"subject_identity": X, "allowed_stream_ids": (X,), "expiry_time": 5},
    "access.revoke.v1": {"subject_identity": X},
    "delegated.execution.v1": {
        "principal_identity": X,
        "agent_identity": X,
        "delegation_chain": (X,),
        "operation_schema": X,
        "operation_body": b"\xa2\x61z\x01\x61a\x02",
    },
    "agreement.definition.v1": {"agreement_id": X, "version": 1, "terms_hash": X, "parties": (X,)},
    "agreement.confirmation.v1": {
        "agreement_id": X,
        "version": 1,
        "party_identity": X,
        "decision": "accept",
    },
    "data.publication.v1": {
        "publication_id": X,
        "publisher_identity": X,
        "content_root": X,
        "content_class": "c",
        "version": "1",
    },
    "state.checkpoint.v1": {
        "state_id": X,
        "upto_stream_seq": 1,
        "mmr_root": X,
        "state_hash": X,
        "state_class": "c",
    },
    "recovery.request.v1": {"target_identity": X, "requested_new_identity": X},
    "recovery.approval.v1": {
        "target_identity": X,
        "requested_new_identity": X,
        "approver_identity": X,
        "decision": "approve",
    },
    "recovery.execution.v1": {"target_identity": X, "new_identity": X, "approval_references": ()},
    "query.audit.v1": {"requester_identity": X, "resource_identifier": "r", "resource_class": "c"},
    "federation.mirror.v1": {
        "source_hub_identifier": "h",
        "source_label": X,
        "source_stream_seq": 1,
        "source_leaf_hash": X,
        "source_receipt_root": X,
        "target_label": X,
    },
}


def _record(schema: Schema, body: Any) -> Record:
    return Record(1, X, X, 1, 1, schema.schema_id, schema.encode(body))


@pytest.fixture(params=sorted(SCHEMAS))
def schema(request: pytest.FixtureRequest) -> Schema:
    return SCHEMAS[request.param]


def test_there_are_twelve_and_the_paid_one() -> None:
    assert set(SCHEMAS) == set(LEAST) == set(FIELDS) - {"crdt.lww.v1"}
    assert {*SCHEMAS, "paid.operation.v1"} <= set(registry.schemas())


def test_the_id_is_hashed_under_a_prefix(schema: Schema) -> None:
    assert schema.schema_id == schema_id(schema.name)


def test_fields_are_in_their_order_and_absent_ones_null(schema: Schema) -> None:
    data = schema.encode(schema.make(**LEAST[schema.name]))
    body = cbor2.loads(data)
    assert list(body) == FIELDS[schema.name].split()
    assert {name for name, value in body.items() if value is None} == set(body) - set(LEAST[schema.name])
    assert schema.encode(schema.decode(data)) == data


def test_absent_fields_may_be_left_out_and_say_the_same(schema: Schema) -> None:
    full = schema.decode(schema.encode(schema.make(**LEAST[schema.name])))
    short = schema.decode(schema.encode({name: full[name] for name in full if full[name] is not None}))
    assert len(short) < len(full)
    assert normal(schema, short) == normal(schema, full)
    events = [Event(_record(schema, body), schema, body, X, STREAM) for body in (short, full)]
    assert {operation_body(event) for event in events} == {normal(schema, full)}
    assert schema.to_json(short) == schema.to_json(full)


def test_what_is_needed_may_be_neither_missing_nor_null(schema: Schema) -> None:
    full = cbor2.loads(schema.encode(schema.make(**LEAST[schema.name])))
    for name in LEAST[schema.name]:
        for bad in ({**full, name: None}, {key: full[key] for key in full if key != name}):
            if schema is DELEGATED and name == "operation_body" and bad.get(name, 1) is None:
                continue  # null is an operation body like any other
            with pytest.raises(InvalidBodyError):
                schema.decode(cbor2.dumps(bad))


def test_another_key_order_or_type_is_refused(schema: Schema) -> None:
    full = cbor2.loads(schema.encode(schema.make(**LEAST[schema.name])))
    first = next(iter(full))
    bad = [
        {**full, "more": 1},
        dict(reversed(full.items())),
        {**full, first: True},
        {**full, first: 1.5},
        list(full.values()),
    ]
    for body in bad:
        with pytest.raises(InvalidBodyError):
            schema.decode(cbor2.dumps(body))


def test_json_and_back(schema: Schema) -> None:
    body = schema.make(**LEAST[schema.name])
    if schema is DELEGATED:  # of an unknown schema, bytes and order are not known
        body["operation_body"] = b"\xa1\x61a\x02"
    assert schema.from_json(schema.to_json(body)) == body


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("access.grant.v1", {"allowed_stream_ids": ()}, "OP.GRANT_STREAMS"),
        ("access.grant.v1", {"maximum_burst": 3}, "OP.GRANT_BURST"),
        ("delegated.execution.v1", {"delegation_chain": ()}, "OP.DELEGATION_EMPTY"),
        ("delegated.execution.v1", {"operation_schema": DELEGATED.schema_id}, "OP.DELEGATION_NESTED"),
        ("agreement.definition.v1", {"parties": ()}, "OP.AGREEMENT_PARTIES"),
        ("agreement.definition.v1", {"parties": (X, X)}, "OP.AGREEMENT_PARTIES"),
        ("federation.mirror.v1", {"source_stream_seq": 0}, "OP.MIRROR_SEQ"),
    ],
)
def test_what_holds_between_fields(name: str, change: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidBodyError) as made:
        SCHEMAS[name].make(**{**LEAST[name], **change})
    assert made.value.code == code
    body = cbor2.loads(SCHEMAS[name].encode(SCHEMAS[name].make(**LEAST[name])))
    with pytest.raises(InvalidBodyError) as read:
        SCHEMAS[name].decode(cbor2.dumps({**body, **{key: _plain(value) for key, value in change.items()}}))
    assert read.value.code == code


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_a_carried_body_keeps_the_order_of_its_schema() -> None:
    body = DELEGATED.decode(DELEGATED.encode(DELEGATED.make(**LEAST[DELEGATED.name])))
    assert body["operation_body"] == b"\xa2\x61z\x01\x61a\x02"
    for bad in (b"", b"\xff", b"\xf9\x3c\x00", b"\x18\x05"):
        data = DELEGATED.encode(DELEGATED.make(**LEAST[DELEGATED.name]))
        with pytest.raises(InvalidBodyError):
            DELEGATED.decode(data.replace(b"\xa2\x61z\x01\x61a\x02", bad))


def test_the_id_of_an_operation() -> None:
    assert operation_id(X) == sha256(b"veen/operation-id\x00" + X).digest()


def test_the_random_histories_reach_every_verdict() -> None:
    """What no history does, the laws do not cover."""
    found = set()
    for name, history in OPERATION_HISTORIES.items():
        overlay = registry.overlay_class(name)(**OPERATION_PARAMETERS.get(name, {}))
        for seed in range(12):
            found |= {report.code for report in fold(overlay, history(Random(seed), 200), STREAM).reports}
    in_one_body = {"OP.GRANT_STREAMS", "OP.GRANT_BURST", "OP.DELEGATION_EMPTY", "OP.DELEGATION_NESTED"}
    in_one_body |= {"OP.AGREEMENT_PARTIES", "OP.MIRROR_SEQ", "OP.CONTENT_EMPTY", "OP.CONTENT_NAMES"}
    of_payments = {"OP.CURRENCY_MISSING", "OP.NEGATIVE_BALANCE", "OP.OVERFLOW", "OP.STALE"}
    without_policy = {"OP.RECOVERY_NO_POLICY"}
    wanted = {code for code in CODES if code.startswith("OP.")}
    assert wanted - in_one_body - of_payments - without_policy <= found


def test_decoding_is_total(schema: Schema) -> None:
    """Whatever the bytes are, they are a body or a named refusal; and a body has one encoding."""
    rng = Random(schema.name)
    good = schema.encode(schema.make(**LEAST[schema.name]))
    bodies, codes = 0, set()
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[place] = rng.randrange(256)
                case 1:
                    del data[place : place + rng.randrange(1, 9)]
                case _:
                    data[place:place] = rng.choice(
                        [b"\x81", b"\xa1", b"\xf6", b"\xff", b"\x00"]
                    ) * rng.randrange(1, 40)
            if not data:
                break
        try:
            body = schema.decode(bytes(data))
        except InvalidBodyError as error:
            codes.add(error.code)
        else:
            bodies += 1
            assert schema.encode(body) == data
    assert bodies, "some changes are still bodies"
    assert codes <= set(CODES)
