"""The sample: by the formula, exactly at its bound, and about as large as was asked for."""

import hashlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.query.digest import sampled

RATES = st.decimals(min_value=Decimal("0.0001"), max_value=1, places=4)


def number(query_id: str, index: int) -> int:
    """Where a row falls, of 2^64 places."""
    data = b"veen/query-sample\x00" + query_id.encode() + index.to_bytes(8, "big")
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


@given(st.from_regex(r"[A-Za-z0-9._:-]{1,12}", fullmatch=True), st.integers(0, 2**64 - 1), RATES)
def test_the_formula(query_id: str, index: int, rate: Decimal) -> None:
    scaled = int(rate * 10_000) * 2**64 // 10_000
    assert bool(sampled(query_id, (index,), rate)) == (number(query_id, index) < scaled)


def test_a_sample_that_never_changes() -> None:
    """Computed with sha256sum: the rows whose hash begins below 1999999999999999."""
    assert sampled("q-1", range(46), Decimal("0.1")) == [16, 24, 26, 34, 41, 45]


def test_rate_one_is_everything_and_a_tiny_rate_nothing() -> None:
    assert sampled("q-1", range(100), Decimal(1)) == list(range(100))
    assert sampled("q-1", range(100), Decimal("1e-30")) == []


@pytest.mark.parametrize("offset", [0, 1])
def test_the_bound_itself_is_out(offset: int) -> None:
    """A rate of exactly k / 2^64 samples the numbers below k: one more, and the row is in."""
    numerator = (number("q-1", 7) + offset) * 5**64  # k / 2^64 = k * 5^64 / 10^64
    rate = Decimal((0, tuple(map(int, str(numerator))), -64))
    assert bool(sampled("q-1", (7,), rate)) == bool(offset)


def test_places_are_taken_as_they_are_given() -> None:
    every = sampled("q-1", range(500), Decimal("0.5"))
    assert sampled("q-1", range(250, 500), Decimal("0.5")) == [place for place in every if place >= 250]
    assert sampled("q-2", range(500), Decimal("0.5")) != every
    assert 200 < len(every) < 300
