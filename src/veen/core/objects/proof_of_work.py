"""Proof of work: a gate that costs the sender a little and the hub almost nothing (decision C-65).

A cookie shows that its sender has searched for a nonce. It is bound to one request, or to a challenge
that the hub issued; the hub stores neither, so the gate is stateless.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from veen.core.crypto.hash import sha256, tag_prefix, u64be
from veen.core.encoding.field_types import BYTES, UINT
from veen.core.encoding.shape import Field, NamedShape
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Detail, ProtocolError
from veen.stdx.grammar import counted

_POW_TAG: Final = tag_prefix("veen/pow")
_CHALLENGE_TAG: Final = b"veen/pow-challenge"
_EXPIRY_BYTES: Final = 8
_HASH_BITS: Final = 256
# More than is feasible: a hub that requires this much serves no client.
MAX_DIFFICULTY: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PowCookie(Wire):
    """The proof of a sender: the challenge, the nonce it found, and the difficulty it worked for."""

    SHAPE: ClassVar = NamedShape(
        "pow_cookie", Field("challenge", BYTES), Field("nonce", UINT), Field("difficulty", UINT)
    )

    challenge: bytes
    nonce: int
    difficulty: int

    def verify(self, difficulty: int) -> None:
        """Check that at least this much work was done."""
        if self.difficulty < difficulty:
            raise ProtocolError(
                Detail.PREFILTER_REJECT,
                f"the proof of work has difficulty {self.difficulty}, but {difficulty} is required",
                field="difficulty",
                expected=difficulty,
                actual=self.difficulty,
            )
        bits = zero_bits(self.challenge, self.nonce)
        if bits < self.difficulty:  # even if they suffice: a cookie with a false claim is invalid
            raise ProtocolError(
                Detail.PREFILTER_REJECT,
                f"the nonce has {counted(bits, 'zero bit')}, but the cookie claims {self.difficulty}",
                field="nonce",
                expected=self.difficulty,
                actual=bits,
            )


def zero_bits(challenge: bytes, nonce: int) -> int:
    """Return how many zero bits the hash of a nonce begins with."""
    return _HASH_BITS - int.from_bytes(sha256(_POW_TAG + challenge + u64be(nonce)), "big").bit_length()


def solve(challenge: bytes, difficulty: int, nonces: Iterable[int]) -> PowCookie | None:
    """Search these nonces; about 2^difficulty must be tried."""
    for nonce in nonces:
        if zero_bits(challenge, nonce) >= difficulty:
            return PowCookie(challenge=challenge, nonce=nonce, difficulty=difficulty)
    return None


def issue_challenge(key: bytes, expiry: int) -> bytes:
    """Return a challenge that only the holder of the key can create, valid until a time."""
    stamp = u64be(expiry)
    return stamp + hmac.digest(key, _CHALLENGE_TAG + stamp, "sha256")


def verify_challenge(challenge: bytes, *, request: bytes, key: bytes, now: int) -> None:
    """Check that a challenge is bound to this request, or was issued here and has not expired."""
    if hmac.compare_digest(challenge, sha256(request)):
        return
    expiry = int.from_bytes(challenge[:_EXPIRY_BYTES], "big")
    if not hmac.compare_digest(challenge, issue_challenge(key, expiry)):
        raise ProtocolError(
            Detail.PREFILTER_REJECT,
            "the challenge is neither the request's hash nor issued by this hub",
            field="challenge",
        )
    if now > expiry:
        raise ProtocolError(
            Detail.PREFILTER_REJECT,
            f"the challenge expired at {expiry}",
            field="challenge",
            expected=expiry,
            actual=now,
        )
