"""Permissions: grants and revocations (ACC lines)."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple

from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.encoding.shape import Fields
from veen.core.objects.capability import Rate
from veen.core.types import JsonValue
from veen.overlays.event import Event, operation_id
from veen.overlays.monoid import MAX, Monoid, Position
from veen.overlays.operations.delegation import KnownToken
from veen.overlays.operations.schemas import GRANT, REVOKE, normal, operation_body
from veen.overlays.overlay import (
    Key,
    Lowered,
    Overlay,
    Tables,
    appended,
    sequence,
    sequence_keys,
    sequence_tables,
)
from veen.overlays.schema import Schema

# The times of a token and of its grant come from two clocks.
SKEW_SEC: Final = 600


class Grant(NamedTuple):
    """A grant of the log."""

    canonical_id: bytes
    position: Position
    issuer: bytes
    body: Fields
    # The token that was minted for it, if that token is known.
    auth_ref: bytes | None

    @property
    def operation_id(self) -> bytes:
        """The id by which a revocation may name it."""
        return operation_id(self.canonical_id)


class Access(Overlay):
    """Grants and revocations of each subject."""

    name: ClassVar[str] = "access"
    version: ClassVar[int] = 2
    about: ClassVar[str] = "Permissions: grants that are neither revoked nor expired."
    schemas: ClassVar[tuple[Schema, ...]] = (GRANT, REVOKE)
    tables: ClassVar[Mapping[str, Monoid]] = {**sequence_tables("grants"), "revokes": MAX}
    state_class: ClassVar[str] = "access"
    grouped: ClassVar[bool] = True

    # Keys that may change permissions; if empty, every key (ACC-008).
    issuers: frozenset[bytes] = frozenset()
    # Tokens that hubs know, to match them with grants (ACC-005).
    tokens: tuple[KnownToken, ...] = ()
    # Tokens that were valid before any grant (ACC-009).
    bootstrap: tuple[KnownToken, ...] = ()

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Apply a grant or a revocation by an authorized key."""
        body, record = event.body, event.record
        if self.issuers and record.client_id not in self.issuers:
            text = "the sender may not change permissions: issuers are configured"
            return Lowered((), (("OP.UNAUTHORIZED_ISSUER", text),))
        subject = body["subject_identity"]
        if event.schema is REVOKE:
            target = body.get("target_capability_reference")
            key = (subject,) if target is None else (subject, target)
            return Lowered((("revokes", key, (event.position,)),))
        reports, data = [], operation_body(event)
        if body.get("currency_code") is not None and body.get("maximum_amount") is None:  # ACC-010
            data = normal(GRANT, {**body, "currency_code": None})
            reports.append(("OP.GRANT_CURRENCY", "currency_code without maximum_amount is ignored"))
        entry = (event.position, event.canonical_id, record.client_id, data)
        return Lowered(appended(before, "grants", subject, entry), reports)

    def group(self, event: Event) -> Key:
        """Return the subject."""
        subject: Key = event.body["subject_identity"]
        return subject

    def grants(self, tables: Tables, subject: Key) -> list[Grant]:
        """Return all grants of a subject, in log order."""
        grants: list[Grant] = []
        for place, one, issuer, data in sequence(tables, "grants", subject):
            body = GRANT.decode(data)
            grants.append(Grant(one, place, issuer, body, self._auth_ref(issuer, body)))
        return grants

    @cached_property
    def _by_bounds(self) -> Mapping[tuple[Any, ...], list[KnownToken]]:
        by_bounds: dict[tuple[Any, ...], list[KnownToken]] = {}
        for known in self.tokens:
            token = known.token
            bounds = (token.issuer_pk, token.subject_pk, token.allow.stream_ids, token.allow.rate)
            by_bounds.setdefault(bounds, []).append(known)
        return by_bounds

    def _auth_ref(self, issuer: bytes, body: Fields) -> bytes | None:
        """Return the token of a grant: same issuer, subject, streams and rate, and the same lifetime."""
        near = [
            (abs(known.expires_at - body["expiry_time"]), bytes(known.token.auth_ref))
            for known in self._by_bounds.get((issuer, *bounds_of(body)), ())
        ]
        return min((one for one in near if one[0] <= SKEW_SEC), default=(0, None))[1]

    def effective(self, tables: Tables, subject: Key, now: int | None = None) -> list[Grant]:
        """Return the grants of a subject that are in effect; without ``now``, expired ones included."""
        ended = _Ended(tables, subject)
        return [
            grant
            for grant in self.grants(tables, subject)
            if (now is None or now < grant.body["expiry_time"])  # ACC-003
            and not ended.after(grant.position, grant.operation_id, grant.auth_ref)
        ]

    def _bootstrapped(self, tables: Tables, subject: Key, now: int | None) -> Iterator[KnownToken]:
        ended = _Ended(tables, subject)
        for known in self.bootstrap:
            if known.token.subject_pk != subject or (now is not None and now > known.expires_at):
                continue
            if not ended.after(None, known.token.auth_ref):
                yield known

    def parse_key(self, text: str) -> Key:
        """Parse a subject: hex."""
        return parse_hex32(text)

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:
        """Return the permissions of a subject, and its history of grants."""
        grants = self.grants(tables, key)
        held = list(self._bootstrapped(tables, key, now))
        if not grants and not held:
            return None
        counting = {grant.canonical_id for grant in self.effective(tables, key, now)}
        streams = {
            *(one for grant in grants if grant.canonical_id in counting for one in _streams(grant.body)),
            *(one for known in held for one in known.token.allow.stream_ids),
        }
        rows: list[JsonValue] = [_shown(grant, effective=grant.canonical_id in counting) for grant in grants]
        return {
            "streams": [one.hex() for one in sorted(streams)],
            "grants": rows,
            "bootstrap": [known.token.auth_ref.hex() for known in held],
        }

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:
        """Return the permissions of every subject."""
        began = (bytes(known.token.subject_pk) for known in self.bootstrap)
        subjects = {*sequence_keys(tables, "grants"), *began}
        return {one.hex(): self.view_key(tables, one, now) for one in sorted(subjects)}

    def serialized(self, tables: Tables) -> Mapping[bytes, Any]:
        """Return the grants of each subject that were not revoked."""
        return {
            subject: [
                [grant.operation_id, normal(GRANT, grant.body)] for grant in self.effective(tables, subject)
            ]
            for subject in sequence_keys(tables, "grants")
        }


class _Ended:
    """The revocations of a subject."""

    def __init__(self, tables: Tables, subject: Key) -> None:
        self._tables = tables
        self._subject = subject

    def after(self, position: Position | None, *names: bytes | None) -> bool:
        """Whether a permission was revoked after a position: all of the subject's, or one by a name."""
        keys = [(self._subject,), *((self._subject, name) for name in names if name is not None)]
        revokes = (self._tables.get("revokes", key) for key in keys)
        return any(one is not None and (position is None or one[0] > position) for one in revokes)


def _streams(body: Fields) -> tuple[bytes, ...]:
    return tuple(sorted(set(body["allowed_stream_ids"])))


def bounds_of(body: Fields) -> tuple[bytes, tuple[bytes, ...], Rate | None]:
    """Return subject, streams and rate of the token that a grant is minted as (ACC-004, ACC-005)."""
    per_sec, burst = body.get("maximum_rate_per_second"), body.get("maximum_burst")
    rate = None if per_sec is None else Rate(per_sec=per_sec, burst=per_sec if burst is None else burst)
    return body["subject_identity"], _streams(body), rate


def _shown(grant: Grant, *, effective: bool) -> JsonValue:
    return {
        "operation_id": grant.operation_id.hex(),
        "msg_id": grant.canonical_id.hex(),
        "stream_seq": grant.position[1],
        "issuer": grant.issuer.hex(),
        "auth_ref": None if grant.auth_ref is None else grant.auth_ref.hex(),
        "effective": effective,
        **GRANT.to_json(grant.body),
    }
