"""Hosts that are this machine."""

import pytest

from veen.stdx.loopback import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "::1", "[::1]"])
def test_these_are_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "[::]", "10.0.0.1", "localhost.example", "a.localhost", "127"])
def test_these_may_be_others(host: str) -> None:
    assert not is_loopback(host)
