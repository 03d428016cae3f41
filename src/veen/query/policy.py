"""Access policies: principals, their credentials, and what they may read (QRY-043, QRY-044).

A policy is a table ``principals``, by name::

    [principals.alice]
    identity = "…"                  # 64 hex digits: the client key that it acts for
    scopes = ["record/app/*"]       # names of streams; "/*" at the end is everything below; "*" alone is all
    auditor = false                 # true: sees the results of others, as far as its scopes allow
    token_sha256 = ["…"]            # hashes of bearer tokens
    certificate_sha256 = ["…"]      # hashes of client certificates (DER)

It does not contain the tokens themselves.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from veen.core.encoding.hexadecimal import is_hex32, parse_hex32

_KEYS: Final = frozenset({"identity", "scopes", "auditor", "token_sha256", "certificate_sha256"})


@dataclass(frozen=True, slots=True)
class Principal:
    """A user of the query service."""

    name: str
    identity: bytes
    scopes: tuple[str, ...]
    auditor: bool = False


def may_read(principal: Principal, stream: str) -> bool:
    """Whether a principal may read a stream."""
    return any(_covers(scope, stream) for scope in principal.scopes)


def _covers(scope: str, stream: str) -> bool:
    if not scope.endswith("*"):
        return scope == stream
    prefix = scope[:-1]
    return stream.startswith(prefix) and stream != prefix


@dataclass(frozen=True, slots=True)
class Policy:
    """All principals, by the hashes of their tokens and of their certificates."""

    principals: tuple[Principal, ...]
    tokens: tuple[tuple[bytes, Principal], ...]
    certificates: tuple[tuple[bytes, Principal], ...]

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Validate a policy that was read from TOML; ValueError says what is wrong with it."""
        unknown = sorted(set(value) - {"principals"})
        if unknown:
            raise ValueError(f"a policy contains principals only, not {unknown[0]!r}")
        tables = value.get("principals")
        if not isinstance(tables, Mapping) or not tables:
            raise ValueError("a policy must have at least one table [principals.NAME]")
        principals: list[Principal] = []
        tokens: list[tuple[bytes, Principal]] = []
        certificates: list[tuple[bytes, Principal]] = []
        for name, table in tables.items():
            principal = _principal(name, table)
            principals.append(principal)
            tokens += [(item, principal) for item in _hashes(name, table, "token_sha256")]
            certificates += [(item, principal) for item in _hashes(name, table, "certificate_sha256")]
        _once([principal.identity for principal in principals], "two principals have the same identity")
        _once([token for token, _ in tokens], "the same token_sha256 occurs twice")
        _once([item for item, _ in certificates], "the same certificate_sha256 occurs twice")
        return cls(tuple(principals), tuple(tokens), tuple(certificates))

    def by_token(self, token: str) -> Principal | None:
        """Return the principal with a bearer token, in constant time."""
        return _find(self.tokens, hashlib.sha256(token.encode(errors="surrogatepass")).digest())

    def by_certificate(self, der: bytes) -> Principal | None:
        """Return the principal with a client certificate."""
        return _find(self.certificates, hashlib.sha256(der).digest())


def _find(known: tuple[tuple[bytes, Principal], ...], digest: bytes) -> Principal | None:
    match = None
    for item, principal in known:  # no early exit: constant time
        if hmac.compare_digest(item, digest):
            match = principal
    return match


def _once(items: list[bytes], message: str) -> None:
    if len(set(items)) != len(items):
        raise ValueError(message)


def _principal(name: str, table: object) -> Principal:
    if not isinstance(table, Mapping):
        raise ValueError(f"principals.{name} must be a table")  # noqa: TRY004 - the policy is wrong, not the call
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise ValueError(
            f"principals.{name} has an unknown {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}"
        )
    identity, auditor = table.get("identity"), table.get("auditor", False)
    if not isinstance(identity, str) or not is_hex32(identity, lower=True):
        raise ValueError(f"principals.{name}.identity must be 64 lowercase hex digits")
    if not isinstance(auditor, bool):
        raise ValueError(f"principals.{name}.auditor must be true or false")  # noqa: TRY004
    return Principal(name, parse_hex32(identity), _scopes(name, table.get("scopes")), auditor)


def _scopes(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ValueError(f"principals.{name}.scopes must be a list of at least one stream name")
    for scope in value:
        if not scope or "*" in scope[:-1] or (scope.endswith("*") and scope != "*" and scope[-2] != "/"):
            raise ValueError(
                f'principals.{name}.scopes: {scope!r} is not a stream, a prefix that ends in "/*", or "*"'
            )
    return tuple(value)


def _hashes(name: str, table: Mapping[str, Any], key: str) -> list[bytes]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(
        isinstance(item, str) and is_hex32(item, lower=True) for item in value
    ):
        raise ValueError(f"principals.{name}.{key} must be a list of SHA-256 hashes in lowercase hex")
    return [parse_hex32(item) for item in value]
