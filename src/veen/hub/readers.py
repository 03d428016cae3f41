"""Threads that read for clients, so that others do not wait for a page to be put together."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final

from veen.hub.job import Job

THREADS: Final = 2
#: Reads that wait for a thread; more are answered 503.
MAX_WAITING: Final = 1024


class Readers:
    """A few threads, and the reads that wait for them."""

    def __init__(
        self, on_loop: Callable[..., None], *, threads: int = THREADS, most: int = MAX_WAITING
    ) -> None:
        """``on_loop`` calls a function with its argument on the loop, from any thread."""
        self._on_loop = on_loop
        self._most = most
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._run, name=f"veen-reader-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def has_room(self) -> bool:
        """Whether one more may wait."""
        return self._queue.qsize() < self._most

    def put(self, read: Job) -> None:
        """Add a read."""
        self._queue.put(read)

    def stop(self) -> None:
        """Finish what was put before, and end."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (read := self._queue.get()) is not None:
            read.do()
            self._on_loop(read.on_done, read)
