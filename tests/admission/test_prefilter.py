"""Rows 1 and 2: the size of a request, and the work it shows (C-12, C-65)."""

import pytest

from tests.admission.memory_hub import LIMITS, NOW, POW, worked
from tests.builders import digest
from tests.expect import refused
from veen.admission.prefilter import PowRules, check_size, prefilter
from veen.core.crypto.hash import sha256, u64be
from veen.core.errors import Code, Detail
from veen.core.objects.proof_of_work import PowCookie, issue_challenge, solve, zero_bits

BODY = b"a request"


def filtered(cookie: str | None, *, body: bytes = BODY, now: int = NOW, rules: PowRules | None = POW) -> None:
    assert prefilter(body, LIMITS, rules, cookie, now) == body


def solved(challenge: bytes, difficulty: int = POW.difficulty) -> PowCookie:
    cookie = solve(challenge, difficulty, range(1 << 20))
    assert cookie is not None
    return cookie


# --- size ---------------------------------------------------------------------------------------------------


def test_a_request_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    most = LIMITS.max_msg_bytes + 4
    check_size(0, LIMITS)
    check_size(most, LIMITS)
    filtered(None, body=bytes(most), rules=None)
    for too_large in (most + 1, 1 << 40):
        with refused(Detail.SIZE_PREFILTER, code=Code.SIZE) as caught:
            check_size(too_large, LIMITS)
        assert caught.value.fields == {"actual": too_large, "max_allowed": most}
    with refused(Detail.SIZE_PREFILTER):
        filtered(None, body=bytes(most + 1), rules=None)


# --- work ---------------------------------------------------------------------------------------------------


def test_a_hub_that_asks_for_no_work_looks_at_no_cookie() -> None:
    filtered(None, rules=None)
    filtered("not a cookie", rules=None)


def test_work_for_this_request_passes_at_any_time() -> None:
    for now in (0, NOW, 2**63):
        filtered(worked(BODY), now=now)


def test_work_for_another_request_does_not_pass() -> None:
    with refused(Detail.PREFILTER_REJECT, field="challenge", code=Code.AUTH):
        filtered(worked(BODY + b"!"))


def test_more_work_than_was_asked_for_passes() -> None:
    filtered(worked(BODY, POW.difficulty + 4))


def test_a_missing_cookie_is_refused_with_the_difficulty_and_what_to_run() -> None:
    with refused(Detail.PREFILTER_REJECT, code=Code.AUTH) as caught:
        filtered(None)
    assert caught.value.fields == {"expected": POW.difficulty}
    assert "veen pow solve" in caught.value.message


def test_too_little_work_is_refused() -> None:
    with refused(Detail.PREFILTER_REJECT, field="difficulty") as caught:
        filtered(worked(BODY, POW.difficulty - 1))
    assert caught.value.fields == {"field": "difficulty", "expected": 4, "actual": 3}


def test_a_cookie_that_states_less_than_was_asked_for_is_refused_whatever_its_nonce_shows() -> None:
    nonce = solved(sha256(BODY), 8).nonce
    with refused(Detail.PREFILTER_REJECT, field="difficulty"):
        filtered(PowCookie(challenge=sha256(BODY), nonce=nonce, difficulty=3).encode().hex())


def test_a_cookie_that_states_more_than_its_nonce_shows_is_refused_even_if_that_would_do() -> None:
    nonce = solved(sha256(BODY)).nonce
    bits = zero_bits(sha256(BODY), nonce)
    for stated in (bits + 1, 255, 2**64 - 1):
        with refused(Detail.PREFILTER_REJECT, field="nonce") as caught:
            filtered(PowCookie(challenge=sha256(BODY), nonce=nonce, difficulty=stated).encode().hex())
        assert caught.value.fields == {"field": "nonce", "expected": stated, "actual": bits}


def test_work_for_a_challenge_of_the_hub_passes_until_it_expires() -> None:
    cookie = solved(issue_challenge(POW.challenge_key, NOW)).encode().hex()
    filtered(cookie, now=NOW - 1)
    filtered(cookie, now=NOW)
    filtered(cookie, body=b"any other request")
    with refused(Detail.PREFILTER_REJECT, field="challenge") as caught:
        filtered(cookie, now=NOW + 1)
    assert caught.value.fields == {"field": "challenge", "expected": NOW, "actual": NOW + 1}


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\0",
        u64be(NOW + 99),
        bytes(40),
        issue_challenge(digest("another key"), NOW + 99),
        u64be(NOW + 99) + issue_challenge(POW.challenge_key, NOW)[8:],
        issue_challenge(POW.challenge_key, NOW) + b"\0",
        issue_challenge(POW.challenge_key, NOW)[:-1],
        sha256(BODY)[:-1],
    ],
    ids=["empty", "short", "no mac", "zeros", "other key", "expiry moved", "longer", "cut", "part of a hash"],
)
def test_a_challenge_that_the_hub_did_not_hand_out_is_refused(challenge: bytes) -> None:
    with refused(Detail.PREFILTER_REJECT, field="challenge", code=Code.AUTH):
        filtered(solved(challenge).encode().hex())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: "",
        lambda _: "zz",
        lambda _: "é",
        str.upper,
        lambda good: good + " ",
        lambda good: good[:-1],
        lambda good: good[:-2],
        lambda good: good + "00",
        lambda _: b"\xa0".hex(),
        lambda _: (b"\x9f" * 10_000).hex(),
    ],
    ids=["empty", "letters", "not ASCII", "upper", "space", "odd", "cut", "trailing", "no fields", "deep"],
)
def test_a_header_that_is_no_cookie_is_refused_by_its_name(spoil: object) -> None:
    assert callable(spoil)
    with refused(Detail.PREFILTER_REJECT, field="VEEN-PoW", code=Code.AUTH):
        filtered(spoil(worked(BODY)))
