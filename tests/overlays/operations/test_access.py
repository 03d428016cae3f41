"""Permissions: what a grant gives, until when, and what a revoke takes back."""

from typing import Any

import pytest

from tests.overlays.logs import T0, WRITERS, ident
from tests.overlays.operation_log import Operations, op_id
from veen.core.crypto.ed25519 import SigningKey
from veen.core.objects.capability import CapToken, Rate
from veen.core.types import StreamId, VerifyKey
from veen.overlays.operations.access import SKEW_SEC, Access
from veen.overlays.operations.delegation import KnownToken
from veen.overlays.operations.schemas import GRANT, REVOKE

ISSUER = SigningKey.from_seed(ident("issuer"))
ADMIN = bytes(ISSUER.public_key)
ANNE, BERT = WRITERS[:2]
S1, S2 = StreamId(ident("s1")), StreamId(ident("s2"))


class Permissions(Operations):
    """Grants and revokes."""

    def grant(self, subject: bytes = ANNE, by: bytes = ADMIN, **more: Any) -> Any:
        """Append a grant."""
        values: dict[str, Any] = {"allowed_stream_ids": (S1,), "expiry_time": T0 + 100, **more}
        return self.op(GRANT, by, subject_identity=subject, **values)

    def revoke(self, subject: bytes = ANNE, target: bytes | None = None, by: bytes = ADMIN) -> Any:
        """Append a revoke."""
        return self.op(REVOKE, by, subject_identity=subject, target_capability_reference=target)

    def effective(
        self, subject: bytes = ANNE, now: int | None = T0, overlay: Access | None = None
    ) -> list[int]:
        """Return the places of the grants that count."""
        overlay = overlay or Access()
        return [grant.position[1] for grant in overlay.effective(self.fold(overlay)[0], subject, now)]


@pytest.fixture
def log() -> Permissions:
    return Permissions()


def _token(ttl: int = 100, **more: Any) -> CapToken:
    return CapToken.mint(ISSUER, VerifyKey(ANNE), stream_ids=[S1], ttl=ttl, **more)


def test_a_grant_counts_until_its_time_is_over(log: Permissions) -> None:
    log.grant()
    assert log.effective(now=T0 + 99) == [1]
    assert log.effective(now=T0 + 100) == []
    assert log.effective(now=None) == [1], "without a time nothing is over"
    assert log.effective(BERT) == []


def test_a_revoke_ends_what_was_before_it_and_nothing_after(log: Permissions) -> None:
    log.grant()
    log.grant(BERT)
    log.revoke()
    log.grant(expiry_time=T0 + 50)
    assert log.effective() == [4]
    assert log.effective(BERT) == [2]


def test_a_revoke_may_name_one_operation(log: Permissions) -> None:
    first = log.grant()
    log.grant(expiry_time=T0 + 50)
    log.revoke(target=op_id(first))
    assert log.effective() == [2]


def test_a_revoke_of_a_target_is_about_its_subject_only(log: Permissions) -> None:
    first = log.grant()
    log.revoke(BERT, target=op_id(first))
    assert log.effective() == [1]


def test_a_revoke_may_name_the_token_of_a_grant(log: Permissions) -> None:
    token = _token()
    access = Access(tokens=(KnownToken(token, T0),))
    log.grant()
    log.grant(allowed_stream_ids=(S1, S2))
    assert [grant.auth_ref for grant in access.grants(log.fold(access)[0], ANNE)] == [token.auth_ref, None]
    log.revoke(target=token.auth_ref)
    assert log.effective(overlay=access) == [2]
    assert log.effective() == [1, 2], "without the tokens the link is not known"


@pytest.mark.parametrize(
    ("known", "values"),
    [
        (KnownToken(_token(), T0), {"expiry_time": T0 + 100 + SKEW_SEC + 1}),
        (KnownToken(_token(), T0), {"subject": BERT}),
        (KnownToken(_token(), T0), {"by": BERT}),
        (KnownToken(_token(), T0), {"maximum_rate_per_second": 3}),
        (KnownToken(_token(rate=Rate(per_sec=3, burst=4)), T0), {"maximum_rate_per_second": 3}),
    ],
)
def test_a_token_of_something_else_is_not_the_grants(
    log: Permissions, known: KnownToken, values: Any
) -> None:
    access = Access(tokens=(known,))
    log.grant(**values)
    (grant,) = access.grants(log.fold(access)[0], values.get("subject", ANNE))
    assert grant.auth_ref is None


def test_the_token_with_the_nearest_end_is_the_grants(log: Permissions) -> None:
    rate = Rate(per_sec=3, burst=3)
    near, far = _token(95, rate=rate), _token(200, rate=rate)
    access = Access(tokens=(KnownToken(far, T0), KnownToken(near, T0)))
    log.grant(maximum_rate_per_second=3)
    (grant,) = access.grants(log.fold(access)[0], ANNE)
    assert grant.auth_ref == near.auth_ref


def test_only_issuers_change_permissions(log: Permissions) -> None:
    access = Access(issuers=frozenset({ADMIN}))
    log.grant(by=BERT)
    log.grant()
    log.revoke(by=BERT)
    assert log.effective(overlay=access) == [2]
    assert log.codes(access) == [(1, "OP.UNAUTHORIZED_ISSUER"), (3, "OP.UNAUTHORIZED_ISSUER")]


def test_a_currency_without_an_amount_is_ignored(log: Permissions) -> None:
    log.grant(currency_code="EUR")
    log.grant(currency_code="EUR", maximum_amount=5)
    assert log.codes(Access()) == [(1, "OP.GRANT_CURRENCY")]
    one, two = Access().grants(log.fold(Access())[0], ANNE)
    assert (one.body["currency_code"], two.body["currency_code"]) == (None, "EUR")


def test_what_one_began_with_counts_until_it_is_taken_back(log: Permissions) -> None:
    token = _token(10)
    access = Access(bootstrap=(KnownToken(token, T0),))

    def held(now: int) -> Any:
        found = access.view_key(log.fold(access)[0], ANNE, now)
        return found["bootstrap"] if isinstance(found, dict) else None

    assert held(T0 + 10) == [token.auth_ref.hex()]
    assert held(T0 + 11) is None
    log.revoke(target=ident("another"))
    assert held(T0) == [token.auth_ref.hex()]
    log.revoke(target=token.auth_ref)
    assert held(T0) is None


def test_the_view_of_a_subject(log: Permissions) -> None:
    log.grant(allowed_stream_ids=(S1, S2), reason="hired")
    log.grant(allowed_stream_ids=(S2,), expiry_time=T0 + 5)
    access = Access()
    tables = log.fold(access)[0]
    key = access.parse_key(ANNE.hex())
    found: Any = access.view_key(tables, key, T0 + 5)
    assert [row["effective"] for row in found["grants"]] == [True, False]
    assert found["streams"] == sorted([S1.hex(), S2.hex()])
    assert found["grants"][0]["reason"] == "hired"
    assert access.view_key(tables, BERT) is None
    for bad in ("no hex", "ab", ANNE.hex() + "00"):
        with pytest.raises(ValueError, match=r".+"):
            access.parse_key(bad)


def test_the_state_has_no_times_in_it(log: Permissions) -> None:
    log.grant()
    log.grant(BERT)
    log.revoke(BERT)
    access = Access()
    found = access.serialized(log.fold(access)[0])
    assert [len(grants) for grants in found.values()] == ([1, 0] if ANNE < BERT else [0, 1])
