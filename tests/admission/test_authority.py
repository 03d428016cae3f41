"""Whom the hub trusts and refuses: a fold of the control log (C-49, C-54, C-55)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.memory_hub import NOW
from tests.builders import cap_token, verify_key
from tests.expect import refused
from veen.admission.authority import Authority
from veen.core.crypto.hash import sha256
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.control_record import (
    ControlRecord,
    RevocationRecord,
    Target,
    TrustRecord,
    decode_control,
)

TOKEN = cap_token()
CLIENT = verify_key("client")
ISSUER = verify_key("issuer")


def trust(issuer: str, *, trusted: bool = True) -> TrustRecord:
    return TrustRecord(issuer_pk=verify_key(issuer), trusted=trusted)


def revoke(kind: Target, target: bytes, ts: int = NOW, ttl: int | None = None) -> RevocationRecord:
    return RevocationRecord(target_kind=kind.value, target=target, ts=ts, ttl=ttl)


def is_trusted(authority: Authority, issuer: str) -> bool:
    try:
        authority.verify_issuer(cap_token(issuer=issuer))
    except ProtocolError:
        return False
    return True


# --- issuers ------------------------------------------------------------------------------------------------


def test_nobody_is_trusted_unless_named() -> None:
    assert not is_trusted(Authority(), "issuer")
    assert not is_trusted(Authority.of([verify_key("other")]), "issuer")
    assert is_trusted(Authority.of([ISSUER]), "issuer")


def test_who_is_refused_learns_what_the_operator_has_to_run() -> None:
    with refused(Detail.CAP_INVALID, field="issuer_pk", code=Code.CAP) as caught:
        Authority().verify_issuer(TOKEN)
    assert f"veen hub trust add {ISSUER.hex()} --data-dir DIR" in caught.value.message
    assert caught.value.fields["actual"] == ISSUER


def test_the_log_adds_and_removes_issuers() -> None:
    authority = Authority.of([])
    for trusted in (True, False, True, True, False):
        authority = authority.after([trust("issuer", trusted=trusted)])
        assert is_trusted(authority, "issuer") == trusted
        assert not is_trusted(authority, "other")


def test_the_log_does_not_remove_a_configured_issuer() -> None:
    records = [trust("issuer", trusted=False), trust("issuer"), trust("issuer", trusted=False)]
    authority = Authority.of([ISSUER]).after(records)
    assert is_trusted(authority, "issuer")
    assert authority.trusted == {ISSUER}


def test_to_trust_all_is_asked_for_and_ends_for_no_record() -> None:
    assert is_trusted(Authority.of([], trust_all=True).after([trust("issuer", trusted=False)]), "issuer")


# --- revocations --------------------------------------------------------------------------------------------

TARGETS = [
    (Target.CLIENT_ID, CLIENT, Code.AUTH, "client_id"),
    (Target.AUTH_REF, TOKEN.auth_ref, Code.CAP, "auth_ref"),
    (Target.CAP_TOKEN, sha256(TOKEN.encode()), Code.CAP, "auth_ref"),
]


@pytest.mark.parametrize(("kind", "target", "code", "field"), TARGETS)
def test_a_revocation_holds_from_its_time_on(kind: Target, target: bytes, code: Code, field: str) -> None:
    authority = Authority().after([revoke(kind, target)])
    for hub_ts in (0, NOW - 1):
        authority.verify_not_revoked(CLIENT, TOKEN, hub_ts)
    for hub_ts in (NOW, NOW + 1, 2**64 - 1):
        with refused(Detail.REVOKED, field=field, code=code):
            authority.verify_not_revoked(CLIENT, TOKEN, hub_ts)


@pytest.mark.parametrize(("kind", "target", "code", "field"), TARGETS)
def test_a_revocation_for_a_while_ends(kind: Target, target: bytes, code: Code, field: str) -> None:
    authority = Authority().after([revoke(kind, target, ttl=10)])
    for hub_ts in (NOW, NOW + 9):
        with refused(Detail.REVOKED, field=field, code=code):
            authority.verify_not_revoked(CLIENT, TOKEN, hub_ts)
    for hub_ts in (NOW - 1, NOW + 10):
        authority.verify_not_revoked(CLIENT, TOKEN, hub_ts)


def test_a_revocation_of_no_time_never_holds() -> None:
    Authority().after([revoke(Target.CLIENT_ID, CLIENT, ttl=0)]).verify_not_revoked(CLIENT, None, NOW)


def test_a_later_record_does_not_shorten_an_earlier_one() -> None:
    records = [revoke(Target.CLIENT_ID, CLIENT), revoke(Target.CLIENT_ID, CLIENT, ttl=1)]
    for order in (records, records[::-1]):
        with refused(Detail.REVOKED):
            Authority().after(order).verify_not_revoked(CLIENT, None, NOW + 100)


def test_windows_of_one_target_add_up() -> None:
    authority = Authority().after(
        [revoke(Target.CLIENT_ID, CLIENT, NOW, 5), revoke(Target.CLIENT_ID, CLIENT, NOW + 10, 5)]
    )
    held = []
    for hub_ts in range(NOW - 2, NOW + 20):
        try:
            authority.verify_not_revoked(CLIENT, None, hub_ts)
        except ProtocolError:
            held.append(hub_ts - NOW)
    assert held == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


def test_only_what_is_named_is_revoked() -> None:
    renewed = cap_token(links=2)
    others = [
        revoke(Target.CLIENT_ID, verify_key("other")),
        revoke(Target.AUTH_REF, renewed.auth_ref),
        revoke(Target.CAP_TOKEN, sha256(renewed.encode())),
        # the right bytes as the wrong kind (C-55)
        revoke(Target.CLIENT_ID, TOKEN.auth_ref),
        revoke(Target.CAP_TOKEN, TOKEN.auth_ref),
        revoke(Target.AUTH_REF, sha256(TOKEN.encode())),
        revoke(Target.AUTH_REF, CLIENT),
    ]
    Authority().after(others).verify_not_revoked(CLIENT, TOKEN, NOW)


def test_a_message_without_token_is_refused_by_its_client_alone() -> None:
    Authority().after([revoke(Target.AUTH_REF, TOKEN.auth_ref)]).verify_not_revoked(CLIENT, None, NOW)
    with refused(Detail.REVOKED, code=Code.AUTH):
        Authority().after([revoke(Target.CLIENT_ID, CLIENT)]).verify_not_revoked(CLIENT, None, NOW)


# --- the fold -----------------------------------------------------------------------------------------------

RECORDS = st.lists(
    st.builds(trust, st.sampled_from(["issuer", "other", "third"]), trusted=st.booleans())
    | st.builds(
        revoke,
        st.sampled_from(list(Target)),
        st.sampled_from([CLIENT, TOKEN.auth_ref, sha256(TOKEN.encode())]),
        st.integers(0, 20),
        st.none() | st.integers(0, 20),
    ),
    max_size=12,
)


def answers(authority: Authority) -> list[bool]:
    given = [is_trusted(authority, issuer) for issuer in ("issuer", "other", "third")]
    for hub_ts in range(42):
        for token in (None, TOKEN):
            try:
                authority.verify_not_revoked(CLIENT, token, hub_ts)
            except ProtocolError:
                given.append(False)
            else:
                given.append(True)
    return given


@given(RECORDS, st.integers(0, 12))
def test_the_same_records_in_the_same_order_give_the_same_answers(
    records: list[ControlRecord], cut: int
) -> None:
    start = Authority.of([verify_key("third")])
    whole = start.after(records)
    in_parts = start.after(records[:cut]).after(records[cut:])
    from_bytes = start.after(decode_control(record.encode()) for record in records)
    assert whole == in_parts == from_bytes
    assert answers(whole) == answers(in_parts) == answers(from_bytes)
    assert start == Authority.of([verify_key("third")]), "a fold leaves what it began with"


@given(RECORDS)
def test_the_last_word_on_an_issuer_counts(records: list[ControlRecord]) -> None:
    authority = Authority.of([verify_key("third")]).after(records)
    last = {record.issuer_pk: record.trusted for record in records if isinstance(record, TrustRecord)}
    for issuer in ("issuer", "other"):
        assert is_trusted(authority, issuer) == last.get(verify_key(issuer), False)
    assert is_trusted(authority, "third")
