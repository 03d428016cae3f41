"""Caches: what was used last is there and nothing else, and what is costly is computed once at a time."""

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hub.hub_process import TIMEOUT
from tests.query_service.service_process import until
from veen.stdx.lru import LruCache, SingleFlightCache

steps = st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 99)), max_size=60)


@given(steps, st.integers(1, 5))
def test_what_was_used_last_is_cached(calls: list[tuple[bool, int, int]], max_items: int) -> None:
    cache: LruCache[int, int] = LruCache(max_items)
    model: OrderedDict[int, int] = OrderedDict()
    for is_put, key, value in calls:
        if is_put:
            cache.put(key, value)
            model[key] = value
            model.move_to_end(key)
            while len(model) > max_items:
                model.popitem(last=False)
        else:
            assert cache.get(key) == model.get(key)
            if key in model:
                model.move_to_end(key)
    for key in range(7):
        assert cache.get(key) == model.get(key)


def test_a_value_put_again_is_the_newer_one_and_makes_no_room() -> None:
    cache: LruCache[str, int] = LruCache(2)
    for key, value in (("a", 1), ("b", 2), ("a", 3)):
        cache.put(key, value)
    assert (cache.get("a"), cache.get("b")) == (3, 2)


def test_values_that_look_like_nothing_are_values() -> None:
    cache: LruCache[str, int] = LruCache(1)
    cache.put("a", 0)
    assert cache.get("a") == 0


# --- one computation at a time ----------------------------------------------------------------------------


class Costly:
    """Something that ends when it is told to, and counts how often it was begun."""

    def __init__(self, *, fails: bool = False) -> None:
        self.begun, self.may_end, self._fails = 0, threading.Event(), fails

    def __call__(self) -> str:
        self.begun += 1
        assert self.may_end.wait(TIMEOUT)
        if self._fails:
            raise ZeroDivisionError
        return "found"


def test_of_many_who_ask_at_once_one_computes_and_other_keys_do_not_wait() -> None:
    cache: SingleFlightCache[str, str] = SingleFlightCache(2)
    costly = Costly()
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(cache.get, "one", costly) for _ in range(7)]
        until(lambda: costly.begun, "the first")
        assert cache.get("other", lambda: "at once") == "at once"
        costly.may_end.set()
        assert [item.result(TIMEOUT) for item in asked] == ["found"] * 7
    assert costly.begun == 1


def test_those_who_wait_get_the_same_error() -> None:
    cache: SingleFlightCache[str, str] = SingleFlightCache(2)
    costly = Costly(fails=True)
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(cache.get, "one", costly) for _ in range(3)]
        until(lambda: costly.begun, "the first")
        until(lambda: all(item.running() for item in asked), "the others")
        costly.may_end.set()
        errors = [item.exception(TIMEOUT) for item in asked]
    assert all(isinstance(error, ZeroDivisionError) for error in errors), errors
    assert costly.begun == len({id(error) for error in errors}), "one error of each computation"


def test_a_failure_is_not_cached() -> None:
    cache: SingleFlightCache[str, int] = SingleFlightCache(2)
    with pytest.raises(ZeroDivisionError):
        cache.get("one", lambda: 1 // 0)
    assert cache.get("one", lambda: 1) == 1


def test_those_that_are_used_stay() -> None:
    cache: SingleFlightCache[str, int] = SingleFlightCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a", lambda: 0) == 1
    cache.put("c", 3)
    assert [cache.get(name, lambda: 0) for name in ("a", "c", "b")] == [1, 3, 0]
