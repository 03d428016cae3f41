"""Rows 1 and 2: checks of the raw bytes of a request, before any of them are parsed."""

from dataclasses import dataclass

from veen.admission.stages import Sized
from veen.core.encoding.field_types import hex_from_json
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import SUBMIT_ENVELOPE_BYTES, Limits
from veen.core.objects.proof_of_work import PowCookie, verify_challenge
from veen.stdx.grammar import counted


@dataclass(frozen=True, slots=True)
class PowRules:
    """How much work a request must show, and the key of the challenges that the hub issues."""

    difficulty: int
    challenge_key: bytes


def check_size(size: int, limits: Limits) -> None:
    """Reject a request that is too large; also before it has arrived, by its Content-Length."""
    # 1 SIZE_PREFILTER
    limit = limits.max_submit_bytes
    if size > limit:
        raise ProtocolError(
            Detail.SIZE_PREFILTER, f"request of {size} bytes exceeds {limit}", actual=size, max_allowed=limit
        )


def sized(body: bytes, limits: Limits, *, bare: bool = False) -> Sized:
    """Check the size of a request that has no proof of work of its own.

    A ``bare`` message has no envelope, and is measured as if it had: the bound is on the message (C-12).
    """
    check_size(len(body) + (SUBMIT_ENVELOPE_BYTES if bare else 0), limits)
    return Sized(body)


def prefilter(
    body: bytes, limits: Limits, rules: PowRules | None, cookie: str | None, now: int, *, bare: bool = False
) -> Sized:
    """Check size and proof of work; ``cookie`` is the header VEEN-PoW, ``now`` the time of receipt."""
    request = sized(body, limits, bare=bare)
    # 2 PREFILTER_REJECT
    if rules is not None:
        check_work(body, rules, cookie, now)
    return request


def check_work(body: bytes, rules: PowRules, cookie: str | None, now: int) -> None:
    """Check the proof of work of a request of any size."""
    if cookie is None:
        raise ProtocolError(
            Detail.PREFILTER_REJECT,
            f"this hub requires {counted(rules.difficulty, 'bit')} of proof of work in the header VEEN-PoW; "
            "see 'veen pow solve'",
            expected=rules.difficulty,
        )
    try:
        proof = PowCookie.decode(hex_from_json(cookie))
    except ProtocolError as error:
        raise ProtocolError(
            Detail.PREFILTER_REJECT, f"VEEN-PoW is not a cookie: {error.message}", field="VEEN-PoW"
        ) from error
    proof.verify(rules.difficulty)
    verify_challenge(proof.challenge, request=body, key=rules.challenge_key, now=now)
