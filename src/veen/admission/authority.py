"""Which issuers the hub trusts and what is revoked, according to the control log (C-49, C-54, C-107)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from veen.core.crypto.hash import sha256
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.capability import CapToken, verify_issuer
from veen.core.objects.control_record import ControlRecord, RevocationRecord, Target
from veen.core.types import VerifyKey

_Revoked = Mapping[tuple[str, bytes], tuple[RevocationRecord, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A fold of the control log: the same records in the same order give the same decisions."""

    # Issuers from the configuration; trusted whatever the log says.
    configured: frozenset[VerifyKey] = frozenset()
    # Trust any issuer: for tests and closed networks, only if configured explicitly (C-49).
    trust_all: bool = False
    # Trusted issuers, by configuration or log.
    trusted: frozenset[VerifyKey] = frozenset()
    revoked: _Revoked = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, issuers: Iterable[VerifyKey], *, trust_all: bool = False) -> "Authority":
        """Return the authority before any record."""
        configured = frozenset(issuers)
        return cls(configured=configured, trust_all=trust_all, trusted=configured)

    def after(self, records: Iterable[ControlRecord]) -> "Authority":
        """Return the authority after further records."""
        trusted, revoked = set(self.trusted), dict(self.revoked)
        for record in records:
            if isinstance(record, RevocationRecord):
                key = record.target_kind, record.target
                revoked[key] = (*revoked.get(key, ()), record)
            elif record.trusted:
                trusted.add(record.issuer_pk)
            elif record.issuer_pk not in self.configured:
                trusted.discard(record.issuer_pk)
        return replace(self, trusted=frozenset(trusted), revoked=MappingProxyType(revoked))

    def verify_issuer(self, token: CapToken) -> None:
        """Check that a token is from an issuer that this hub trusts (row 11)."""
        if self.trust_all:
            return
        try:
            verify_issuer(token, self.trusted)
        except ProtocolError as error:
            # Core does not know commands; a rejected client should learn here what would help.
            raise ProtocolError(
                error.detail,
                f"{error.message}; to trust it, the hub's operator runs "
                f"'veen hub trust add {token.issuer_pk.hex()} --data-dir DIR'",
                field="issuer_pk",
                actual=token.issuer_pk,
            ) from None

    def verify_not_revoked(self, client_id: VerifyKey, token: CapToken | None, hub_ts: int) -> None:
        """Check that neither client nor token is revoked at this time (row 12b)."""
        if not self.revoked:
            return
        if self._is_revoked(Target.CLIENT_ID, client_id, hub_ts):
            raise ProtocolError(Detail.REVOKED, "the client is revoked", field="client_id")
        if token is not None and self.revocation_of(token, hub_ts) is not None:
            raise ProtocolError(Detail.REVOKED, "the token is revoked", code=Code.CAP, field="auth_ref")

    def revocation_of(self, token: CapToken, hub_ts: int) -> RevocationRecord | None:
        """Return the record that revokes a token or its subject at this time, if any."""
        if not self.revoked:
            return None
        targets = (
            (Target.AUTH_REF, token.auth_ref),
            (Target.CAP_TOKEN, sha256(token.encode())),
            (Target.CLIENT_ID, token.subject_pk),
        )
        for kind, target in targets:
            for record in self.revoked.get((kind, target), ()):
                if record.holds_at(hub_ts):
                    return record
        return None

    def _is_revoked(self, kind: Target, target: bytes, hub_ts: int) -> bool:
        return any(record.holds_at(hub_ts) for record in self.revoked.get((kind, target), ()))
