"""Reader threads, so that building one page does not delay other requests.

A ``Job`` runs in a thread, and its result is delivered on the loop.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final


class Job:
    """``run`` is called in a thread, then ``on_done`` on the loop, with the job and its result or error."""

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
# Queued reads; further ones are answered 503.
MAX_WAITING: Final = 1024


class ThreadPool:
    """A few threads and a queue of reads."""

    def __init__(
        self, on_loop: Callable[..., None], *, threads: int = THREADS, max_waiting: int = MAX_WAITING
    ) -> None:
        """``on_loop`` calls a function with its argument on the loop, from any thread."""
        self._on_loop = on_loop
        self._max_waiting = max_waiting
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._run, name=f"veen-reader-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def has_room(self) -> bool:
        """Whether the queue has room for another read."""
        return self._queue.qsize() < self._max_waiting

    def put(self, read: Job) -> None:
        """Queue a read."""
        self._queue.put(read)

    def stop(self) -> None:
        """Finish queued reads, and end the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (read := self._queue.get()) is not None:
            read.do()
            self._on_loop(read.on_done, read)
