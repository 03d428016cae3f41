"""Pauses between attempts."""

import pytest

from veen.stdx.backoff import backoff_sec


def test_pauses_double_up_to_the_cap() -> None:
    assert [backoff_sec(n, first_sec=0.5, cap_sec=3.0) for n in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_any_number_of_failures_has_a_pause() -> None:
    assert backoff_sec(10**9, first_sec=0.2, cap_sec=30.0) == 30.0
    assert backoff_sec(1, first_sec=2.0, cap_sec=1.0) == 1.0


def test_nothing_has_failed_yet() -> None:
    with pytest.raises(ValueError, match="after a failure"):
        backoff_sec(0, first_sec=1.0, cap_sec=2.0)
