"""Messages checked side by side, and handed on in the order in which they came.

A few messages at a time are checked here and now. When more are waiting, they go to worker processes in
batches; what arrives meanwhile makes the next batch, so batches grow with the load by themselves.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Final, Protocol, cast

from veen.admission.stateless import MessageRules
from veen.core.errors import ProtocolError
from veen.core.objects.error_envelope import unavailable
from veen.hub.config import Settings
from veen.hub.submit import verifier_process
from veen.hub.submit.events import SubmitEvents
from veen.hub.submit.submission import Submission
from veen.hub.submit.verifier_process import LENGTH

# So many messages are checked on the spot: asking another process would take longer.
_ON_THE_SPOT: Final = 2
# A burst is cut into so many batches, of these sizes: the worker, the loop and the disk are to work on
# different parts of it at the same time (measured: a third more than with the burst as one batch).
_SHARES: Final = 4
_SMALL: Final = 4
_BATCH: Final = 64
# Messages at a worker: enough that it never waits for the loop.
_AHEAD: Final = 512
# A batch whose worker died is given to another so often; then it is the batch. Others may have died by
# themselves, all at once and not noticed yet.
_ATTEMPTS: Final = 5

# How long a process that ended is missed: doubled each time, until one has worked.
_MIN_DELAY_SEC: Final = 0.1
_MAX_DELAY_SEC: Final = 10.0


class Deliver(Protocol):
    """Receives messages in their order, with or without an error."""

    def __call__(self, messages: Sequence[Submission], pending: int) -> None:
        """Take these; so many others are still being verified. None: only that number has changed."""


class _Batch:
    """Messages that are checked together."""

    __slots__ = ("attempts", "done", "items")

    def __init__(self, items: list[Submission]) -> None:
        self.items = items
        self.done = False
        self.attempts = 0


class _Worker(asyncio.SubprocessProtocol):
    """A verifier process as the loop sees it."""

    def __init__(self, pool: "VerifierPool") -> None:
        self._pool = pool
        self._buffer = b""
        self.given: deque[_Batch] = deque()
        self.transport: asyncio.SubprocessTransport | None = None
        self.has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the process its rules."""
        self.transport = cast("asyncio.SubprocessTransport", transport)  # uvloop's have no common base
        self._write(verifier_process.encode_rules(self._pool.rules))

    @property
    def load(self) -> int:
        """How many messages it has."""
        return sum(len(batch.items) for batch in self.given)

    def give(self, batch: _Batch) -> None:
        """Hand over a batch."""
        batch.attempts += 1
        self.given.append(batch)
        self._write(verifier_process.encode_batch(batch.items))

    def _write(self, data: bytes) -> None:
        assert self.transport is not None
        # A process that has just ended has closed its pipe; that it has ended is reported next, and then
        # what it was given goes to others.
        with contextlib.suppress(RuntimeError):
            cast("asyncio.WriteTransport", self.transport.get_pipe_transport(0)).write(data)

    def close(self) -> None:
        """Let go of the process."""
        if self.transport is not None:
            with contextlib.suppress(ProcessLookupError):
                self.transport.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take verdicts."""
        assert fd == 1, "a verifier says nothing else"
        if self not in self._pool.workers:
            return  # it has ended, and what it was given is with others
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            verdicts, self._buffer = self._buffer[LENGTH.size : end], self._buffer[end:]
            batch = self.given.popleft()
            try:
                verifier_process.decode_verdicts(verdicts, batch.items)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not leave messages unanswered
                self.given.appendleft(batch)
                self._pool.broken(self, error)
                return
            self._pool.checked(batch)

    def process_exited(self) -> None:
        """Another worker takes over."""
        self._pool.lost(self)


class VerifierPool:
    """The queue in front of the sequencer: bounded in messages and bytes."""

    def __init__(
        self,
        rules: MessageRules,
        deliver: Deliver,
        settings: Settings,
        events: SubmitEvents,
    ) -> None:
        self.rules = rules
        self._deliver = deliver
        self._events = events
        self._settings = settings
        self._size = settings.resolved_verify_workers
        self._fresh: list[Submission] = []
        self._waiting: deque[_Batch] = deque()
        self._order: deque[_Batch] = deque()
        self.workers: list[_Worker] = []
        self._starting = False
        self._scheduled = False
        self._ended = False
        self._delay = _MIN_DELAY_SEC
        # Messages, and bytes of them, that were taken and not answered.
        self.depth = 0
        self.depth_bytes = 0
        # Messages that are being checked.
        self._checking = 0

    def has_room(self, items: int, size: int) -> bool:
        """Tell whether so much more may be taken; one request of any size always may, if nothing waits."""
        if not self.depth:
            return True
        bounds = self._settings
        return self.depth + items <= bounds.max_queue and self.depth_bytes + size <= bounds.max_queue_bytes

    def put(self, items: Sequence[Submission]) -> None:
        """Take messages, in their order; there must be room."""
        self._fresh += items
        self.depth += len(items)
        self.depth_bytes += sum(item.size for item in items)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def answered(self, item: Submission) -> None:
        """Forget a message whose answer has been made."""
        self.depth -= 1
        self.depth_bytes -= item.size

    def _start(self) -> None:
        """Begin with all that has come in this turn of the loop."""
        self._scheduled = False
        fresh, self._fresh = self._fresh, []
        if not self._order and (len(fresh) <= _ON_THE_SPOT or not self._size):
            for item in fresh:
                self._check_here(item)
            self._deliver(fresh, self._checking)
            return
        size = max(_SMALL, min(len(fresh) // _SHARES, _BATCH))
        for at in range(0, len(fresh), size):
            batch = _Batch(fresh[at : at + size])
            self._order.append(batch)
            self._waiting.append(batch)
        self._checking += len(fresh)
        self._deliver((), self._checking)
        self._distribute()

    def _check_here(self, item: Submission) -> None:
        try:
            item.record = verifier_process.verify(item.form, item.body, self.rules)
        except ProtocolError as error:
            item.reject(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not stop other messages
            item.error = unavailable("the hub failed to handle the message; the reason is in its log")
            self._events.bug(error)
        item.verified = perf_counter()

    def _distribute(self) -> None:
        if self._waiting and not self.workers:
            asyncio.get_running_loop().call_soon(self._check_one_here)
        while self._waiting and self.workers:
            idlest = min(self.workers, key=lambda worker: worker.load)
            if idlest.load >= _AHEAD:
                break
            idlest.give(self._waiting.popleft())
        self._merge()

    def _check_one_here(self) -> None:
        """Go on without workers, until one has started."""
        if self._waiting and not self.workers:
            batch = self._waiting.popleft()
            for item in batch.items:
                self._check_here(item)
            self.checked(batch)

    def _merge(self) -> None:
        """Make small batches that still wait into large ones."""
        while len(self._waiting) > 1 and not self._waiting[-1].attempts and not self._waiting[-2].attempts:
            last, before = self._waiting[-1], self._waiting[-2]
            if len(last.items) + len(before.items) > _BATCH or self._order[-1] is not last:
                return
            before.items += last.items
            self._waiting.pop()
            self._order.pop()

    def checked(self, batch: _Batch) -> None:
        """Hand on what is next in order."""
        now = perf_counter()
        for item in batch.items:
            item.verified = now
        batch.done = True
        self._delay = _MIN_DELAY_SEC
        ready: list[Submission] = []
        while self._order and self._order[0].done:
            ready += self._order.popleft().items
        self._checking -= len(ready)
        if ready:
            self._deliver(ready, self._checking)
        self._distribute()

    # --- workers --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the worker processes, without waiting for them."""
        if self._size:
            self._ensure_workers()

    def _ensure_workers(self) -> None:
        if not self._starting and not self._ended:
            self._starting = True
            self._task = asyncio.get_running_loop().create_task(self._start_workers())

    async def _start_workers(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while len(self.workers) < self._size and not self._ended:
                _, worker = await loop.subprocess_exec(
                    lambda: _Worker(self),
                    sys.executable,
                    "-P",  # whatever is in the current directory is none of ours
                    "-m",
                    "veen.hub.submit.verifier_process",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=None,
                    env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                    start_new_session=True,
                )
                if worker.has_ended:
                    return  # and another one is started after a pause
                self.workers.append(worker)
                self._distribute()
        finally:
            self._starting = False

    def broken(self, worker: _Worker, error: Exception) -> None:
        """End a process whose verdicts cannot be read, and reject the messages that they are about."""
        self._events.bug(error)
        worker.given[0].attempts = _ATTEMPTS
        self.lost(worker)

    def lost(self, worker: _Worker) -> None:
        """Give the work of a process that ended to others; a batch that ends every process is rejected."""
        if worker.has_ended:
            return
        worker.has_ended = True
        if worker in self.workers:
            self.workers.remove(worker)
        if self._ended:
            return
        self._events.worker_lost()
        for batch in reversed(worker.given):
            if batch.attempts < _ATTEMPTS:
                self._waiting.appendleft(batch)
                continue
            for item in batch.items:
                item.error = unavailable("the hub failed to verify the message; the reason is in its log")
            self.checked(batch)
        worker.given.clear()
        worker.close()
        # Not at once: a machine on which no process can live must not be kept busy by starting them.
        asyncio.get_running_loop().call_later(self._delay, self._ensure_workers)
        self._delay = min(2 * self._delay, _MAX_DELAY_SEC)
        # In the next turn: if others ended at the same time, that is known by then.
        asyncio.get_running_loop().call_soon(self._distribute)

    def stop(self) -> list[Submission]:
        """End the processes; return the messages that were not handed on."""
        self._ended = True
        for worker in self.workers:
            worker.close()
        self.workers.clear()
        left = [item for batch in self._order for item in batch.items] + self._fresh
        self._order.clear()
        self._waiting.clear()
        self._fresh = []
        self._checking = 0
        return left
