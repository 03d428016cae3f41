"""Proof of work: what a cookie shows, and which challenges count."""

import hashlib
import hmac
from itertools import count

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expect import refused
from veen.core.crypto.hash import sha256
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.proof_of_work import PowCookie, issue_challenge, solve, verify_challenge, zero_bits

KEY = b"k" * 32
REQUEST = b"a request"


def cookie(challenge: bytes = b"challenge", difficulty: int = 6) -> PowCookie:
    found = solve(challenge, difficulty, count())
    assert found is not None
    return found


# --- the cookie ---------------------------------------------------------------------------------------------


def test_a_cookie_is_a_map_by_names() -> None:
    made = PowCookie(challenge=b"\x01\x02", nonce=300, difficulty=20)
    assert made.encode().hex() == (
        "a3"
        "696368616c6c656e6765420102"  # challenge
        "656e6f6e636519012c"  # nonce
        "6a646966666963756c747914"  # difficulty
    )
    assert cbor2.loads(made.encode()) == {"challenge": b"\x01\x02", "nonce": 300, "difficulty": 20}
    assert made.to_json() == {"challenge": "0102", "nonce": 300, "difficulty": 20}


def test_zero_bits_are_those_of_the_tagged_hash() -> None:
    for nonce in range(300):
        digest = hashlib.sha256(b"veen/pow\x00" + b"challenge" + nonce.to_bytes(8, "big")).digest()
        bits = "".join(f"{byte:08b}" for byte in digest)
        assert zero_bits(b"challenge", nonce) == len(bits) - len(bits.lstrip("0"))


def test_the_first_nonce_that_will_do_is_found() -> None:
    for difficulty in range(9):
        found = cookie(difficulty=difficulty)
        assert (found.challenge, found.difficulty) == (b"challenge", difficulty)
        assert zero_bits(b"challenge", found.nonce) >= difficulty
        assert all(zero_bits(b"challenge", nonce) < difficulty for nonce in range(found.nonce))
        found.verify(difficulty)
        found.verify(0)


def test_a_search_may_find_nothing() -> None:
    assert solve(b"challenge", 0, ()) is None
    assert solve(b"challenge", 200, range(100)) is None


def test_less_work_than_asked_for_is_refused() -> None:
    found = cookie(difficulty=6)
    with refused(Detail.PREFILTER_REJECT, field="difficulty") as caught:
        found.verify(7)
    assert (caught.value.fields["expected"], caught.value.fields["actual"]) == (7, 6)


def test_a_cookie_that_claims_more_than_it_has_is_refused() -> None:
    nonce = next(nonce for nonce in count() if zero_bits(b"challenge", nonce) == 5)
    PowCookie(challenge=b"challenge", nonce=nonce, difficulty=5).verify(5)
    for claimed in (6, 256, 2**64 - 1):
        with refused(Detail.PREFILTER_REJECT, field="nonce"):
            PowCookie(challenge=b"challenge", nonce=nonce, difficulty=claimed).verify(5)


def test_work_counts_for_its_challenge_alone() -> None:
    found = cookie(difficulty=12)
    with refused(Detail.PREFILTER_REJECT, field="nonce"):
        PowCookie(challenge=b"another", nonce=found.nonce, difficulty=12).verify(12)


# --- challenges ---------------------------------------------------------------------------------------------


def check(challenge: bytes, *, now: int = 0, key: bytes = KEY) -> None:
    verify_challenge(challenge, request=REQUEST, key=key, now=now)


def test_a_challenge_is_a_time_and_a_mac_over_it() -> None:
    stamp = (500).to_bytes(8, "big")
    assert issue_challenge(KEY, 500) == stamp + hmac.digest(KEY, b"veen/pow-challenge" + stamp, "sha256")


def test_the_hash_of_the_request_needs_nothing_from_the_hub() -> None:
    check(sha256(REQUEST), now=2**64 - 1)
    with refused(Detail.PREFILTER_REJECT, field="challenge"):
        check(sha256(b"another request"))


def test_a_challenge_of_the_hub_counts_until_its_time() -> None:
    made = issue_challenge(KEY, 500)
    for now in (0, 499, 500):
        check(made, now=now)
    with refused(Detail.PREFILTER_REJECT, field="challenge") as caught:
        check(made, now=501)
    assert caught.value.fields["expected"] == 500


def test_a_challenge_of_another_key_is_refused() -> None:
    with refused(Detail.PREFILTER_REJECT, field="challenge"):
        check(issue_challenge(b"another", 500))


@given(st.binary(max_size=60))
def test_made_up_challenges_are_refused(challenge: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        check(challenge)
    assert caught.value.detail == Detail.PREFILTER_REJECT


@given(st.integers(0, 2**64 - 1), st.integers(0, 8 * 40 - 1))
def test_a_changed_bit_makes_it_nobodys(expiry: int, bit: int) -> None:
    made = issue_challenge(KEY, expiry)
    changed = (int.from_bytes(made, "big") ^ 1 << bit).to_bytes(len(made), "big")
    with pytest.raises(ProtocolError):
        check(changed)
    check(made, now=expiry)


def test_who_is_refused_is_told_the_code() -> None:
    with pytest.raises(ProtocolError) as caught:
        cookie().verify(60)
    assert caught.value.code in set(Code)
