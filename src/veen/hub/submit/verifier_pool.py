"""Messages are verified in parallel and delivered in the order of their arrival.

A few messages at a time are verified on the loop. If more are waiting, worker processes verify them in
batches; messages that arrive meanwhile form the next batch, so the size of batches adapts to the load.
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

# Up to this many messages are verified on the loop: a round trip to a process would take longer.
_ON_THE_SPOT: Final = 2
# A burst is split into this many batches, of _SMALL to _BATCH messages, so that worker, loop and disk work on
# different parts of it at the same time (measured: a third more throughput than with one batch).
_SHARES: Final = 4
_SMALL: Final = 4
_BATCH: Final = 64
# Messages queued at a worker: enough that it never waits for the loop.
_AHEAD: Final = 512
# Workers that may die with a batch before it is rejected as the cause. More than one, because workers may
# die independently at the same time, before the pool knows.
_ATTEMPTS: Final = 5

# Delay before a process that ended is replaced: doubled each time, reset once a batch is verified.
_MIN_DELAY_SEC: Final = 0.1
_MAX_DELAY_SEC: Final = 10.0


class Deliver(Protocol):
    """Receives messages in order, verified or rejected."""

    def __call__(self, messages: Sequence[Submission], pending: int) -> None:
        """Receive messages; ``pending`` others are being verified. If empty, only that number changed."""


class _Batch:
    """Messages that are verified together."""

    __slots__ = ("attempts", "done", "items")

    def __init__(self, items: list[Submission]) -> None:
        self.items = items
        self.done = False
        self.attempts = 0


class _Worker(asyncio.SubprocessProtocol):
    """The loop's side of a verifier process."""

    def __init__(self, pool: "VerifierPool") -> None:
        self._pool = pool
        self._buffer = b""
        self.given: deque[_Batch] = deque()
        self.transport: asyncio.SubprocessTransport | None = None
        self.has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the process its rules."""
        # A cast, because uvloop's transports are not subclasses.
        self.transport = cast("asyncio.SubprocessTransport", transport)
        self._write(verifier_process.encode_rules(self._pool.rules))

    @property
    def load(self) -> int:
        """How many messages it has not answered."""
        return sum(len(batch.items) for batch in self.given)

    def give(self, batch: _Batch) -> None:
        """Send a batch."""
        batch.attempts += 1
        self.given.append(batch)
        self._write(verifier_process.encode_batch(batch.items))

    def _write(self, data: bytes) -> None:
        assert self.transport is not None
        # The pipe of a process that has just ended is closed; process_exited follows, and reassigns its
        # batches.
        with contextlib.suppress(RuntimeError):
            cast("asyncio.WriteTransport", self.transport.get_pipe_transport(0)).write(data)

    def close(self) -> None:
        """Close the transport, which ends the process."""
        if self.transport is not None:
            with contextlib.suppress(ProcessLookupError):
                self.transport.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Receive verdicts."""
        assert fd == 1, "a verifier says nothing else"
        if self not in self._pool.workers:
            return  # it was replaced, and others have its batches
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            verdicts, self._buffer = self._buffer[LENGTH.size : end], self._buffer[end:]
            batch = self.given.popleft()
            try:
                verifier_process.decode_verdicts(verdicts, batch.items)
            except Exception as error:  # noqa: BLE001 - an internal error must not leave messages unanswered
                self.given.appendleft(batch)
                self._pool.broken(self, error)
                return
            self._pool.checked(batch)

    def process_exited(self) -> None:
        """Reassign its batches."""
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
        # Messages that are queued and not answered, and their size.
        self.depth = 0
        self.depth_bytes = 0
        # Messages that are being verified.
        self._checking = 0

    def has_room(self, items: int, size: int) -> bool:
        """Return whether the queue has room; an empty queue has room for one request of any size."""
        if not self.depth:
            return True
        bounds = self._settings
        return self.depth + items <= bounds.max_queue and self.depth_bytes + size <= bounds.max_queue_bytes

    def put(self, items: Sequence[Submission]) -> None:
        """Queue messages in order; the caller has checked ``has_room``."""
        self._fresh += items
        self.depth += len(items)
        self.depth_bytes += sum(item.size for item in items)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def answered(self, item: Submission) -> None:
        """Release the room of a message that was answered."""
        self.depth -= 1
        self.depth_bytes -= item.size

    def _start(self) -> None:
        """Begin to verify all messages that arrived in this iteration of the loop."""
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
        except Exception as error:  # noqa: BLE001 - an internal error must not stop other messages
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
        """Verify a batch on the loop while no worker runs."""
        if self._waiting and not self.workers:
            batch = self._waiting.popleft()
            for item in batch.items:
                self._check_here(item)
            self.checked(batch)

    def _merge(self) -> None:
        """Merge small waiting batches at the end of the queue."""
        while len(self._waiting) > 1 and not self._waiting[-1].attempts and not self._waiting[-2].attempts:
            last, before = self._waiting[-1], self._waiting[-2]
            if len(last.items) + len(before.items) > _BATCH or self._order[-1] is not last:
                return
            before.items += last.items
            self._waiting.pop()
            self._order.pop()

    def checked(self, batch: _Batch) -> None:
        """Mark a batch as verified, and deliver all that are next in order."""
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
        """Start the worker processes, without waiting until they run."""
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
                    "-P",  # no imports from the current directory
                    "-m",
                    "veen.hub.submit.verifier_process",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=None,
                    env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                    start_new_session=True,
                )
                if worker.has_ended:
                    return  # ``lost`` has scheduled another one
                self.workers.append(worker)
                self._distribute()
        finally:
            self._starting = False

    def broken(self, worker: _Worker, error: Exception) -> None:
        """End a process whose verdicts cannot be decoded, and reject the messages of that batch."""
        self._events.bug(error)
        worker.given[0].attempts = _ATTEMPTS
        self.lost(worker)

    def lost(self, worker: _Worker) -> None:
        """Requeue the batches of a process that ended; reject one whose attempts are exhausted."""
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
        # With a delay: if processes cannot run on this machine, it must not be busy starting them.
        asyncio.get_running_loop().call_later(self._delay, self._ensure_workers)
        self._delay = min(2 * self._delay, _MAX_DELAY_SEC)
        # In the next iteration of the loop, when other processes that ended at the same time are known.
        asyncio.get_running_loop().call_soon(self._distribute)

    def stop(self) -> list[Submission]:
        """End the processes; return messages that were not delivered."""
        self._ended = True
        for worker in self.workers:
            worker.close()
        self.workers.clear()
        undelivered = [item for batch in self._order for item in batch.items] + self._fresh
        self._order.clear()
        self._waiting.clear()
        self._fresh = []
        self._checking = 0
        return undelivered
