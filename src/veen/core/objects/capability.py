"""Capability tokens: who may write where, how long and how fast (001 section 6; C-31, C-45 to C-52).

The checks at the end are what admission asks of a token: subject, scope, time and rate. Each is a function
of the token, the log and the assigned hub_ts, so every decision can be replayed from the log alone.
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from veen.core.crypto import ed25519
from veen.core.crypto.hash import U64_MAX, sha256, tag_prefix, tagged_hash
from veen.core.encoding.field_types import B32, B64, UINT, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import MAX_CAP_CHAIN, Limits
from veen.core.objects import labels
from veen.core.types import AuthRef, Label, RoutingKey, Signature, StreamId, VerifyKey

_LINK_TAG: Final = tag_prefix("veen/cap-link")
_FIRST_PREV: Final = bytes(ed25519.SIGNATURE_BYTES)
# A token without its chain is a map of its first four fields.
_SIGNED_MAP_HEAD: Final = b"\xa4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Wire):
    """A token bucket: refill per second, and its size."""

    SHAPE: ClassVar = MapShape("rate", Field("per_sec", UINT, key=1), Field("burst", UINT, key=2))

    per_sec: int
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow(Wire):
    """What a token allows: streams in ascending order, seconds from first use, and a rate."""

    SHAPE: ClassVar = MapShape(
        "allow",
        Field("stream_ids", ListOf(B32, max_length=lambda limits: limits.max_cap_stream_ids), key=1),
        Field("ttl", UINT, key=2),
        Field("rate", Nested(Rate), key=3, optional=True),
    )

    stream_ids: tuple[StreamId, ...]
    ttl: int
    rate: Rate | None = None

    def _validate(self) -> None:
        if not self.stream_ids:
            raise ProtocolError(
                Detail.CAP_INVALID, "a token must name at least one stream", field="stream_ids"
            )
        pairs = zip(self.stream_ids, self.stream_ids[1:], strict=False)
        if any(left >= right for left, right in pairs):
            raise ProtocolError(
                Detail.CAP_INVALID, "stream_ids must ascend without repetition", field="stream_ids"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapToken(Wire):
    """A capability: an issuer's signed grant to one subject key."""

    SHAPE: ClassVar = MapShape(
        "cap_token",
        Field("ver", VER, key=1),
        Field("issuer_pk", B32, key=2),
        Field("subject_pk", B32, key=3),
        Field("allow", Nested(Allow), key=4),
        Field("sig_chain", ListOf(B64, max_length=MAX_CAP_CHAIN), key=5),
    )

    issuer_pk: VerifyKey
    subject_pk: VerifyKey
    allow: Allow
    sig_chain: tuple[Signature, ...]

    def _validate(self) -> None:
        if not self.sig_chain:  # "all signatures verify" must not be true of none (C-49)
            raise ProtocolError(
                Detail.CAP_INVALID, "a token must have at least one signature", field="sig_chain"
            )

    @classmethod
    def max_bytes(cls, limits: Limits) -> int:
        """Return the maximum size of a token (C-56)."""
        return limits.max_cap_bytes

    @classmethod
    def mint(
        cls,
        issuer: ed25519.SigningKey,
        subject_pk: VerifyKey,
        *,
        stream_ids: Iterable[StreamId],
        ttl: int,
        rate: Rate | None = None,
    ) -> Self:
        """Mint a token with one link; equal inputs give equal bytes (CAP-017)."""
        allow = Allow(stream_ids=tuple(sorted(set(stream_ids))), ttl=ttl, rate=rate)
        token = cls(
            issuer_pk=issuer.public_key,
            subject_pk=subject_pk,
            allow=allow,
            sig_chain=(Signature(_FIRST_PREV),),
        )
        return replace(token, sig_chain=(issuer.sign(token._link_digest(_FIRST_PREV)),))

    def renew(self, issuer: ed25519.SigningKey) -> Self:
        """Return the token with one more link: a new auth_ref, so its time starts again (C-48)."""
        if issuer.public_key != self.issuer_pk:
            raise ProtocolError(Detail.CAP_INVALID, "only the issuer can renew a token", field="issuer_pk")
        if len(self.sig_chain) == MAX_CAP_CHAIN:
            raise ProtocolError(
                Detail.FIELD_SIZE,
                "a token can be renewed seven times; issue one with another ttl or subject key",
                field="sig_chain",
                max_allowed=MAX_CAP_CHAIN,
            )
        link = issuer.sign(self._link_digest(self.sig_chain[-1]))
        return replace(self, sig_chain=(*self.sig_chain, link))

    def _link_digest(self, prev_sig: bytes) -> bytes:
        """Return the digest that a link signs: of the token without its chain, and the link before (C-45)."""
        # Key 5 and the chain end the map: cutting them off and writing a shorter head is re-encoding.
        chain = b"\x05" + self.SHAPE.fields[-1].kind.write(self.sig_chain)
        unsigned = _SIGNED_MAP_HEAD + self.encode()[1 : -len(chain)]
        return sha256(_LINK_TAG + unsigned + prev_sig)

    def verify(self) -> None:
        """Check every link of the chain under the issuer's key (CAP-006, CAP-007; row 11)."""
        prev = _FIRST_PREV
        for number, link in enumerate(self.sig_chain, start=1):
            try:
                ed25519.verify(self.issuer_pk, self._link_digest(prev), link)
            except ProtocolError:
                raise ProtocolError(
                    Detail.CAP_INVALID, f"link {number} of the token does not verify", field="sig_chain"
                ) from None
            prev = link

    @property
    def auth_ref(self) -> AuthRef:
        """The reference that messages carry: a hash over the whole token, chain included."""
        return AuthRef(tagged_hash("veen/cap", self.encode()))


def verify_issuer(token: CapToken, trusted: Iterable[VerifyKey]) -> None:
    """Check that the token is from an issuer that this hub trusts (C-49)."""
    if token.issuer_pk not in set(trusted):
        raise ProtocolError(
            Detail.CAP_INVALID,
            "the issuer of the token is not trusted here",
            field="issuer_pk",
            actual=token.issuer_pk,
        )


def verify_subject(token: CapToken, client_id: VerifyKey) -> None:
    """Check that the token was issued to this client: an auth_ref is not secret (C-50)."""
    if not hmac.compare_digest(token.subject_pk, client_id):
        raise ProtocolError(Detail.AUTH_REF, "the token was issued to another client", field="client_id")


def candidate_labels(
    streams: Sequence[StreamId], routing: RoutingKey, epochs: Iterable[int]
) -> Mapping[Label, tuple[StreamId, int]]:
    """Return the labels of streams in these epochs, each with its stream and epoch (C-31)."""
    return {labels.label(routing, stream, epoch): (stream, epoch) for epoch in epochs for stream in streams}


def expires_at(token: CapToken, issued_at: int) -> int:
    """Return the last second in which the token is valid (CAP-010); never past 2^64 - 1."""
    return min(issued_at + token.allow.ttl, U64_MAX)


def verify_ttl(token: CapToken, issued_at: int, hub_ts: int) -> None:
    """Check that the token has not expired; its last second counts (row 13)."""
    last = expires_at(token, issued_at)
    if hub_ts > last:
        raise ProtocolError(Detail.CAP_TTL, f"the token expired at {last}", expected=last, actual=hub_ts)


def effective_rate(token: CapToken, limits: Limits) -> Rate:
    """Return the rate in force: the token's, clamped to the registry's, which is also the default."""
    requested = token.allow.rate
    highest = Rate(per_sec=limits.max_cap_rate_per_sec, burst=limits.max_cap_rate_burst)
    if requested is None:
        return highest
    return Rate(per_sec=min(requested.per_sec, highest.per_sec), burst=min(requested.burst, highest.burst))


@dataclass(frozen=True, slots=True)
class Bucket:
    """The token bucket of one auth_ref: integers only, a function of accepted receipts (C-52)."""

    tokens: int
    last_ts: int

    @classmethod
    def full(cls, rate: Rate, hub_ts: int) -> "Bucket":
        """Return the bucket at first use."""
        return cls(rate.burst, hub_ts)

    def take(self, rate: Rate, hub_ts: int) -> "Bucket":
        """Return the bucket after one accepted message, or reject the message (row 14)."""
        available = self._available(rate, hub_ts)
        if available < 1:
            raise ProtocolError(Detail.CAP_RATE, "the rate of the token is used up", max_allowed=rate.per_sec)
        return Bucket(available - 1, hub_ts)

    def spend(self, rate: Rate, hub_ts: int, count: int) -> "Bucket":
        """Return the bucket after messages that were accepted at one time, when the log is replayed."""
        return Bucket(max(0, self._available(rate, hub_ts) - count), hub_ts)

    def _available(self, rate: Rate, hub_ts: int) -> int:
        return min(rate.burst, self.tokens + rate.per_sec * (hub_ts - self.last_ts))
