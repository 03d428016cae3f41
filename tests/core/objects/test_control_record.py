"""Records of the control log: what they say, and which are refused."""

from dataclasses import replace

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import rawcbor as raw
from tests.builders import digest, revocation_body, revocation_record, trust_record, verify_key
from tests.expect import faulty, refused
from veen.core.crypto.hash import sha256
from veen.core.errors import Detail, Fault, ProtocolError
from veen.core.objects.control_record import (
    REVOCATION_SCHEMA,
    RevocationBody,
    RevocationRecord,
    Target,
    TrustRecord,
    decode_control,
)
from veen.core.types import LeafHash, VerifyKey

RECORDS = [
    trust_record(),
    trust_record(trusted=False, note="left the project"),
    revocation_record(),
    revocation_record(ttl=60, reason="lost", origin="admin"),
    *(revocation_record(target_kind=kind) for kind in Target),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda item: item.SHAPE.name)
def test_a_record_of_any_kind_is_read_back(record: TrustRecord | RevocationRecord) -> None:
    found = decode_control(record.encode())
    assert type(found) is type(record)
    assert found == record
    assert found.encode() == record.encode()


def test_trust_is_a_map_by_numbers() -> None:
    assert cbor2.loads(trust_record().encode()) == {1: 1, 2: "trust", 3: verify_key("issuer"), 4: True}
    assert cbor2.loads(trust_record(trusted=False, note="why").encode())[5] == "why"


def test_a_revocation_is_a_map_by_numbers() -> None:
    record = revocation_record(ttl=60, reason="lost", origin="admin")
    assert cbor2.loads(record.encode()) == {
        1: 1,
        2: "revoke",
        3: "client-id",
        4: digest("target"),
        5: 1_000,
        6: 60,
        7: "lost",
        8: digest("admin"),
    }


def test_kinds_of_targets_are_those_of_the_protocol() -> None:
    assert {str(kind) for kind in Target} == {"client-id", "auth-ref", "cap-token"}
    for unknown in ("", "client", "CLIENT-ID", "hub"):
        with refused(Detail.VALUE, field="target_kind"):
            revocation_record(target_kind=unknown)


def test_a_record_has_its_own_kind() -> None:
    for record, other in ((trust_record(), "revoke"), (revocation_record(), "trust"), (trust_record(), "")):
        with pytest.raises(ProtocolError):
            replace(record, kind=other)
    with pytest.raises(ProtocolError):
        TrustRecord.decode(revocation_record().encode())
    with pytest.raises(ProtocolError):
        RevocationRecord.decode(trust_record().encode())


def test_keys_and_targets_have_32_bytes() -> None:
    with refused(Detail.FIELD_SIZE, field="issuer_pk"):
        TrustRecord(issuer_pk=VerifyKey(bytes(31)), trusted=True)
    with refused(Detail.FIELD_SIZE, field="target"):
        replace(revocation_record(), target=bytes(33))


# --- when it holds ------------------------------------------------------------------------------------------


def test_a_revocation_holds_from_its_time_on_for_its_while() -> None:
    for_good, for_a_while = revocation_record(), revocation_record(ttl=60)
    assert [for_good.holds_at(at) for at in (0, 999, 1_000, 2**64 - 1)] == [False, False, True, True]
    assert [for_a_while.holds_at(at) for at in (999, 1_000, 1_059, 1_060)] == [False, True, True, False]


def test_a_while_of_nothing_holds_never() -> None:
    assert not any(revocation_record(ttl=0).holds_at(at) for at in (999, 1_000, 1_001))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_the_longest_while_has_no_end_that_overflows(ts: int, ttl: int, now: int) -> None:
    record = replace(revocation_record(ttl=ttl), ts=ts)
    assert record.holds_at(now) == (now in range(ts, ts + ttl))


# --- what is no record --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        raw.mapping([]),
        raw.mapping([(raw.uint(1), raw.uint(1))]),
        raw.mapping([(raw.uint(1), raw.uint(1)), (raw.uint(2), raw.tstr("grant"))]),
        raw.mapping([(raw.uint(1), raw.uint(1)), (raw.uint(2), raw.uint(7))]),
        raw.array([raw.uint(1), raw.tstr("trust")]),
        raw.uint(2),
        raw.tstr("trust"),
    ],
    ids=["empty", "no-kind", "unknown-kind", "number", "array", "uint", "text"],
)
def test_a_record_of_no_known_kind_is_refused(data: bytes) -> None:
    with refused(Detail.VALUE, field="kind") as caught:
        decode_control(data)
    assert "newer release" in caught.value.message


@pytest.mark.parametrize("record", RECORDS[:4], ids=lambda item: item.SHAPE.name)
def test_what_is_wrong_in_a_record_is_named(record: TrustRecord | RevocationRecord) -> None:
    data = record.encode()
    with faulty(Fault.TRUNCATED):
        decode_control(data[:-1])
    with faulty(Fault.TRAILING):
        decode_control(data + b"\x00")
    with faulty(Fault.UNKNOWN_KEY):
        decode_control(raw.mapping([*raw.pairs(data), (raw.uint(9), raw.uint(0))]))
    with faulty(Fault.MISSING_KEY):
        decode_control(raw.without_pair(data, 4))


@given(st.binary(max_size=40))
def test_garbage_is_refused_with_our_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_control(data)


# --- what an admin sends ------------------------------------------------------------------------------------


def test_a_body_is_a_map_by_names_in_their_order() -> None:
    body = revocation_body(ttl=60, reason="lost")
    fields = cbor2.loads(body.encode())
    assert list(fields) == ["kind", "target", "reason", "ts", "ttl"]
    assert fields == {
        "kind": "client-id",
        "target": digest("target"),
        "reason": "lost",
        "ts": 1_000,
        "ttl": 60,
    }
    assert list(cbor2.loads(revocation_body().encode())) == ["kind", "target", "ts"]
    assert sha256(b"veen.revocation.v1") == REVOCATION_SCHEMA


def test_a_body_becomes_the_record_of_its_message() -> None:
    origin = LeafHash(digest("admin"))
    assert revocation_body(ttl=60, reason="lost").record(origin) == revocation_record(
        ttl=60, reason="lost", origin="admin"
    )
    assert revocation_body().record() == revocation_record()


def test_what_is_wrong_in_a_body_is_named() -> None:
    data = revocation_body(ttl=60).encode()
    pairs = raw.pairs(data)
    with refused(Detail.VALUE, field="kind"):
        revocation_body(kind="hub")
    with refused(Detail.FIELD_SIZE, field="target"):
        replace(revocation_body(), target=bytes(31))
    with faulty(Fault.UNKNOWN_KEY):
        RevocationBody.decode(raw.mapping([*pairs, (raw.tstr("until"), raw.uint(0))]))
    with faulty(Fault.KEY_ORDER):
        RevocationBody.decode(raw.mapping(pairs[::-1]))
    with faulty(Fault.MISSING_KEY):
        RevocationBody.decode(raw.mapping(pairs[:2]))
    with faulty(Fault.TRAILING):
        RevocationBody.decode(data + b"\x00")
