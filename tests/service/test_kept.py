"""What is costly is done once at a time, and what is used is kept."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.hub.process import TIMEOUT
from tests.service.world import until
from veen.service.kept import Kept


class Costly:
    """Something that ends when it is told to, and counts how often it was begun."""

    def __init__(self) -> None:
        self.begun, self.may_end = 0, threading.Event()

    def __call__(self) -> str:
        self.begun += 1
        assert self.may_end.wait(TIMEOUT)
        return "found"


def test_of_many_who_ask_at_once_one_finds_it_out_and_others_do_not_wait() -> None:
    kept: Kept[str, str] = Kept(2)
    costly = Costly()
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(kept.get, "one", costly) for _ in range(7)]
        until(lambda: costly.begun, "the first")
        assert kept.get("other", lambda: "at once") == "at once"
        costly.may_end.set()
        assert [item.result(TIMEOUT) for item in asked] == ["found"] * 7
    assert costly.begun == 1


def test_a_failure_is_not_kept() -> None:
    kept: Kept[str, int] = Kept(2)
    with pytest.raises(ZeroDivisionError):
        kept.get("one", lambda: 1 // 0)
    assert kept.get("one", lambda: 1) == 1


def test_those_that_are_used_stay() -> None:
    kept: Kept[str, int] = Kept(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a", lambda: 0) == 1
    kept.put("c", 3)
    assert [kept.get(name, lambda: 0) for name in ("a", "c", "b")] == [1, 3, 0]
