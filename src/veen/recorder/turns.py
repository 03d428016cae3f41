"""A lock that is had in turns: who has just had it does not get it before who waits."""

import threading


class Turns:
    """A lock for a ``with`` statement.

    Python's own gives no turns: a thread that lets go and takes it again at once, over and over, keeps all
    others out for as long as it goes on.
    """

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """Wait for it; whoever comes later waits behind."""
        with self._next:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Let go."""
        self._lock.release()

    def locked(self) -> bool:
        """Tell whether somebody has it."""
        return self._lock.locked()
