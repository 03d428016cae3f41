"""Pauses between attempts."""

import os

from veen.client.retry import Retry


def test_pauses_double_up_to_a_bound() -> None:
    retry = Retry(base_sec=0.2, cap_sec=30.0)
    most = [retry.pause(failures, None, lambda size: b"\xff" * size).seconds for failures in range(1, 12)]
    assert most == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]


def test_who_never_stops_trying() -> None:
    assert 0 < Retry().pause(1_000_000, None, os.urandom).seconds <= Retry().cap_sec
