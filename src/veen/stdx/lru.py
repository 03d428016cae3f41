"""Bounded caches that evict the least recently used value. Eviction affects latency, never results."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """A thread-safe LRU cache."""

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the cached value, or None."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Cache a value, which may evict another."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._max_items:
                self._values.popitem(last=False)


class SingleFlightCache(Generic[K, V]):
    """A thread-safe LRU cache of values that are costly to compute: one thread at a time computes each."""

    def __init__(self, max_items: int) -> None:
        self._values: LruCache[K, V] = LruCache(max_items)
        self._lock = threading.Lock()
        # Values that a thread is computing now.
        self._pending: dict[K, Future[V]] = {}

    def put(self, key: K, value: V) -> None:
        """Cache a value that is known already."""
        self._values.put(key, value)

    def get(self, key: K, compute: Callable[[], V]) -> V:
        """Return a value, computed if it is not cached.

        Concurrent callers wait, and get the same value or the same error. Errors and None are not cached.
        """
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                return value
            pending = self._pending.get(key)
            mine = None if pending is not None else self._pending.setdefault(key, Future())
        if pending is not None:
            return pending.result()
        assert mine is not None, "either another thread computes it, or this one does"
        return self._compute(key, compute, mine)

    def _compute(self, key: K, compute: Callable[[], V], mine: Future[V]) -> V:
        try:
            value = compute()
        except BaseException as error:
            with self._lock:
                del self._pending[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._pending[key]
            self._values.put(key, value)
        mine.set_result(value)
        return value
