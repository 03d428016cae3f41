"""A lock that no thread can keep from another by acquiring it over and over."""

import threading

from tests.recorder.feed.feed_reader import eventually
from veen.stdx.fair_lock import FairLock


def test_who_waits_for_a_lock_is_next() -> None:
    """A thread that lets go and takes it again at once keeps nobody out."""
    lock, order = FairLock(), list[str]()

    def wait() -> None:
        with lock:
            order.append("who waits")

    thread = threading.Thread(target=wait)
    with lock:
        thread.start()
        eventually(lock._next.locked)
    with lock:
        order.append("who had it")
    thread.join()
    assert order == ["who waits", "who had it"]
