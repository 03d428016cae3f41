"""Threads that read for clients, so that building one page does not delay the others.

A ``Job`` runs in a thread, and its result comes back to the loop.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final


class Job:
    """``run`` is called in that thread; ``on_done`` on the loop, with the result or the error."""

    __slots__ = ("error", "on_done", "result", "run")

    def __init__(self, run: Callable[[], Any], on_done: "Callable[[Job], None]") -> None:
        self.run = run
        self.on_done = on_done
        self.result: Any = None
        self.error: Exception | None = None

    def do(self) -> None:
        """Run it; an error is stored for ``on_done``."""
        try:
            self.result = self.run()
        except Exception as error:  # noqa: BLE001 - see above
            self.error = error


THREADS: Final = 2
# Reads that wait for a thread; more are answered 503.
MAX_WAITING: Final = 1024


class ThreadPool:
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
