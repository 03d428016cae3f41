"""A fair lock: a thread that releases it cannot reacquire it before the next waiting thread."""

import threading


class FairLock:
    """A fair lock for a ``with`` statement.

    ``threading.Lock`` is not fair: a thread that releases and acquires it in a loop can starve all others.
    """

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """Acquire it, after the thread that is next in line."""
        with self._next:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        """Report whether a thread holds it."""
        return self._lock.locked()
