"""Rows 1 and 2: of the bytes of a request alone, before anything in them is read."""

from dataclasses import dataclass

from veen.admission.stages import Sized
from veen.core.encoding.field_types import hex_from_json
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import SUBMIT_ENVELOPE_BYTES, Limits
from veen.core.objects.proof_of_work import PowCookie, verify_challenge


@dataclass(frozen=True, slots=True)
class PowRules:
    """How much work a request must show, and the key of the challenges that the hub hands out."""

    difficulty: int
    challenge_key: bytes


def check_size(size: int, limits: Limits) -> None:
    """Reject a request of too many bytes; also before it has arrived, by its Content-Length."""
    # 1 SIZE_PREFILTER
    most = limits.max_submit_bytes
    if size > most:
        raise ProtocolError(
            Detail.SIZE_PREFILTER, f"request of {size} bytes exceeds {most}", actual=size, max_allowed=most
        )


def sized(body: bytes, limits: Limits, *, bare: bool = False) -> Sized:
    """Check the size of a request, where no proof of work belongs to it alone.

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
    """Check the proof of work of a request, of whatever size it may be."""
    if cookie is None:
        raise ProtocolError(
            Detail.PREFILTER_REJECT,
            f"this hub requires {rules.difficulty} bits of proof of work in the header VEEN-PoW; "
            "see 'veen pow solve'",
            expected=rules.difficulty,
        )
    try:
        shown = PowCookie.decode(hex_from_json(cookie))
    except ProtocolError as error:
        raise ProtocolError(
            Detail.PREFILTER_REJECT, f"VEEN-PoW is not a cookie: {error.message}", field="VEEN-PoW"
        ) from error
    shown.verify(rules.difficulty)
    verify_challenge(shown.challenge, request=body, key=rules.challenge_key, now=now)
