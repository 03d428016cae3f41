"""The bounds of a capability at admission: subject, scope, time and rate (decisions C-31, C-46 to C-52).

Everything here is a function of the token, the log and the assigned hub_ts, so every decision can be
replayed from the log alone.
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from veen.core import labels
from veen.core.captoken import CapToken, Rate
from veen.core.errors import Detail, ProtocolError
from veen.core.hashing import U64_MAX
from veen.core.limits import Limits
from veen.core.types import Label, RoutingKey, StreamId, VerifyKey


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
    """Check that the token was given to this client: anyone can read an auth_ref (C-50)."""
    if not hmac.compare_digest(token.subject_pk, client_id):
        raise ProtocolError(Detail.AUTH_REF, "the token was given to another client", field="client_id")


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
    """Return the rate in force: the token's, clamped to the registry's, which also stands in for none."""
    asked = token.allow.rate
    highest = Rate(per_sec=limits.max_cap_rate_per_sec, burst=limits.max_cap_rate_burst)
    if asked is None:
        return highest
    return Rate(per_sec=min(asked.per_sec, highest.per_sec), burst=min(asked.burst, highest.burst))


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
        """Return the bucket after one accepted message, or refuse the message (row 14)."""
        available = self._available(rate, hub_ts)
        if available < 1:
            raise ProtocolError(Detail.CAP_RATE, "the rate of the token is used up", max_allowed=rate.per_sec)
        return Bucket(available - 1, hub_ts)

    def spend(self, rate: Rate, hub_ts: int, count: int) -> "Bucket":
        """Return the bucket after messages that were accepted at one time, when the log is read back."""
        return Bucket(max(0, self._available(rate, hub_ts) - count), hub_ts)

    def _available(self, rate: Rate, hub_ts: int) -> int:
        return min(rate.burst, self.tokens + rate.per_sec * (hub_ts - self.last_ts))
