"""What is costly to find out and does not change: found out once at a time, and kept by use."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """A few values by their names; any thread."""

    def __init__(self, most: int) -> None:
        """``most``: how many are kept; those that were not used for longest go."""
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()
        #: Those that somebody is finding out.
        self._coming: dict[K, Future[V]] = {}

    def put(self, name: K, value: V) -> None:
        """Keep a value that is known already."""
        with self._lock:
            self._put(name, value)

    def _put(self, name: K, value: V) -> None:
        self._values[name] = value
        self._values.move_to_end(name)
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def get(self, name: K, find: Callable[[], V]) -> V:
        """Return a value, found out if need be; who comes meanwhile gets the same, or the same error."""
        with self._lock:
            if name in self._values:
                self._values.move_to_end(name)
                return self._values[name]
            coming = self._coming.get(name)
            mine = None if coming is not None else self._coming.setdefault(name, Future())
        if coming is not None:
            return coming.result()
        assert mine is not None, "either somebody else finds it out, or we do"
        return self._find(name, find, mine)

    def _find(self, name: K, find: Callable[[], V], mine: Future[V]) -> V:
        try:
            value = find()
        except BaseException as error:
            with self._lock:
                del self._coming[name]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._coming[name]
            self._put(name, value)
        mine.set_result(value)
        return value
