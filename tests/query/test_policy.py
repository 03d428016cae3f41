"""Policies: who a token or a certificate belongs to, what they may read, and what is no policy."""

import hashlib
import tomllib
from typing import Any

import pytest

from veen.query.errors import STATUS, QueryError
from veen.query.policy import Policy, Principal, may_read

TOKEN, CERTIFICATE = "a token of alice", b"a certificate of bob"
POLICY = tomllib.loads(f"""
[principals.alice]
identity = "{"aa" * 32}"
scopes = ["record/app/*", "record/audit"]
token_sha256 = ["{hashlib.sha256(TOKEN.encode()).hexdigest()}", "{"00" * 32}"]

[principals.bob]
identity = "{"bb" * 32}"
scopes = ["*"]
auditor = true
certificate_sha256 = ["{hashlib.sha256(CERTIFICATE).hexdigest()}"]
""")


def test_tokens_and_certificates() -> None:
    policy = Policy.from_dict(POLICY)
    alice, bob = policy.principals
    assert alice == Principal("alice", b"\xaa" * 32, ("record/app/*", "record/audit"))
    assert (bob.name, bob.auditor) == ("bob", True)
    assert policy.by_token(TOKEN) == alice
    assert policy.by_certificate(CERTIFICATE) == bob
    for token in ("", TOKEN + " ", TOKEN.upper(), CERTIFICATE.decode(), "\ud800", "é", "00" * 32):
        assert policy.by_token(token) is None
    for certificate in (b"", TOKEN.encode(), CERTIFICATE + b"\x00"):
        assert policy.by_certificate(certificate) is None


READS = {
    "record/app/web": True,
    "record/app/web/deep": True,
    "record/audit": True,
    "record/app": False,
    "record/app/": False,
    "record/apps": False,
    "record/audit/x": False,
    "record": False,
    "": False,
    "record/app/*": True,  # a stream of that name is below record/app/ as any other
}


@pytest.mark.parametrize(("stream", "allowed"), READS.items())
def test_what_alice_may_read(stream: str, *, allowed: bool) -> None:
    alice, bob = Policy.from_dict(POLICY).principals
    assert may_read(alice, stream) == allowed
    assert may_read(bob, stream) == bool(stream)


GOOD: dict[str, Any] = {"identity": "cc" * 32, "scopes": ["record/x"]}
WRONG: dict[str, Any] = {
    "nothing": {},
    "a list": {"principals": []},
    "nobody": {"principals": {}},
    "another table": {"principals": {"a": GOOD}, "roles": {}},
    "no table": {"principals": {"a": "b"}},
    "unknown key": {"principals": {"a": GOOD | {"token": "secret"}}},
    "no identity": {"principals": {"a": {"scopes": ["x"]}}},
    "short identity": {"principals": {"a": GOOD | {"identity": "cc"}}},
    "upper case": {"principals": {"a": GOOD | {"identity": "CC" * 32}}},
    "no scopes": {"principals": {"a": {"identity": "cc" * 32}}},
    "empty scopes": {"principals": {"a": GOOD | {"scopes": []}}},
    "scopes a string": {"principals": {"a": GOOD | {"scopes": "*"}}},
    "empty scope": {"principals": {"a": GOOD | {"scopes": [""]}}},
    "star inside": {"principals": {"a": GOOD | {"scopes": ["record/*/x"]}}},
    "star after text": {"principals": {"a": GOOD | {"scopes": ["record/app*"]}}},
    "two stars": {"principals": {"a": GOOD | {"scopes": ["record/**"]}}},
    "auditor a string": {"principals": {"a": GOOD | {"auditor": "yes"}}},
    "tokens a string": {"principals": {"a": GOOD | {"token_sha256": "00" * 32}}},
    "a token itself": {"principals": {"a": GOOD | {"token_sha256": ["secret"]}}},
    "certificate": {"principals": {"a": GOOD | {"certificate_sha256": [1]}}},
    "one identity for two": {"principals": {"a": GOOD, "b": GOOD}},
    "one token for two": {
        "principals": {
            "a": GOOD | {"token_sha256": ["00" * 32]},
            "b": GOOD | {"identity": "dd" * 32, "token_sha256": ["00" * 32]},
        }
    },
    "one certificate twice": {"principals": {"a": GOOD | {"certificate_sha256": ["00" * 32] * 2}}},
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_what_is_no_policy(value: Any) -> None:
    with pytest.raises(ValueError, match=r"princip|same|policy") as caught:
        Policy.from_dict(value)
    assert "secret" not in str(caught.value)


def test_every_code_has_a_status() -> None:
    assert dict(STATUS) == {
        "invalid_json": 400,
        "invalid_query_descriptor": 400,
        "unsupported_version": 400,
        "unauthorized": 401,
        "forbidden": 403,
        "forbidden_scope": 403,
        "query_not_found": 404,
        "duplicate_query_id": 409,
        "result_not_ready": 409,
        "execution_failed": 500,
        "internal_error": 500,
        "cancelled": 500,
    }
    for code, status in STATUS.items():
        error = QueryError(code, "what is wrong")
        assert error.status == status
        assert str(error) == f"what is wrong [{code}]"
