"""The one place where the log grows: messages are decided, placed, signed and made durable, in order (C-15).

What has come is decided message by message, each in the light of those before it, and signed, on the loop;
a thread makes it durable, and only then is it answered. What comes meanwhile is decided too, in the light of
what is being made durable, and makes the next batch: should the disk refuse the first, none of them has
happened. Whatever else changes the log (tokens, control records, checkpoints, keys) takes its turn in that
thread, and nothing is decided beside it.

Not all of it in a thread: between two threads that both run Python, every signature hands the interpreter
over and waits to get it back, which costs more than the signature (docs/adr/0008).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Final

from veen.admission.authority import Authority
from veen.admission.stages import Admitted
from veen.admission.stateful import Policy, admit
from veen.core.crypto.ed25519 import SigningKey
from veen.core.errors import ProtocolError
from veen.core.objects.error_envelope import unavailable
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.hub.keyring import Clock, KeyRing, signing
from veen.hub.metrics import Metrics
from veen.hub.read.thread_pool import Job
from veen.hub.submit.events import SubmitEvents
from veen.hub.submit.submission import Submission
from veen.storage import (
    Batch,
    Binding,
    DamagedStoreError,
    StorageError,
    StoreFullError,
    Writer,
    WriterStoppedError,
)

# Messages in one commit at most: its sync is shared by them, and no message waits for more than these.
MAX_BATCH: Final = 256
# A sync is worth waiting for so many, if they are about to come: it costs as much for one as for all.
_WORTH: Final = 64
_FULL_RETRY_SEC: Final = 5


class _Open:
    """A batch that still grows, with its messages: those placed in it and those refused because of it."""

    __slots__ = ("batch", "messages", "placed")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.messages: list[Submission] = []
        self.placed = 0


class Sequencer:
    """Owns the writer. The disk has one batch or one job at a time; one more batch grows meanwhile."""

    def __init__(
        self,
        writer: Writer,
        ring: KeyRing,
        policy: Policy,
        authority: Authority,
        *,
        clock: Clock,
        decided: Callable[[Sequence[Submission]], None],
        events: SubmitEvents,
        metrics: Metrics,
    ) -> None:
        """``decided`` is called on the loop, with messages that were committed or rejected."""
        self.writer = writer
        self.ring = ring
        self.policy = policy
        self.authority = authority
        self.clock = clock
        # When a commit last met a full disk.
        self.full_at = float("-inf")
        self._decided = decided
        self._events = events
        self._batch_size = metrics.batch_size
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Submission | Job] = deque()
        # Messages that are being verified, and will be put here.
        self._pending = 0
        # At the disk.
        self._under_way: _Open | Job | None = None
        self._open: _Open | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._disk: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="veen-sequencer", daemon=True)
        self._thread.start()

    def put(self, messages: Sequence[Submission], *, pending: int) -> None:
        """Add verified messages, if any; so many others are still being verified.

        Messages and jobs are done in the order in which they came.
        """
        self._pending = pending
        self._waiting += messages
        self._idle.clear()
        self._go_on()

    def run(self, job: Job) -> None:
        """Run a job in the thread, between batches."""
        self._waiting.append(job)
        self._idle.clear()
        self._go_on()

    async def stop(self) -> None:
        """Finish what was put before, and end."""
        await self._idle.wait()
        self._disk.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def hub_ts(self) -> int:
        """Return the time that the next entry gets: the clock's, but never before an earlier entry's."""
        return max(self.clock(), self.writer.floor_ts)

    def append(self, *records: NewEntry) -> Receipt:
        """Append records of the hub's own logs, durably and together; return the receipt of the last."""
        batch = self.writer.batch()
        hub_ts = max(self.clock(), batch.floor_ts)
        key = self.ring.active(hub_ts)
        receipts = [batch.append(record, signing(key, record, hub_ts)) for record in records]
        self.writer.commit(batch)
        return receipts[-1]

    # --- on the loop ----------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Do what can be done now."""
        self._take_waiting()
        while self._open is not None and self._under_way is None and self._is_due(self._open):
            self._close_batch()
            self._take_waiting()
        if self._under_way is None and self._open is None:
            self._idle.set()

    def _take_waiting(self) -> None:
        """Turn to what waits, as far as it has not to wait for the disk."""
        while self._waiting and not isinstance(self._under_way, Job):
            if isinstance(front := self._waiting[0], Job):
                if self._under_way is not None or self._open is not None:
                    return  # what came before it is to be in the log by then
                self._waiting.popleft()
                self._begin(front, self._turn(front))
            elif not self._place_more():
                return

    def _is_due(self, batch: _Open) -> bool:
        """Tell whether a batch is to go to the disk now; what waits could not be added to it."""
        return bool(self._waiting) or len(batch.messages) >= min(self._pending, _WORTH)

    def _place_more(self) -> bool:
        """Decide on the messages in front; False if the batch has no room for another."""
        taken = self._leading(MAX_BATCH - (0 if self._open is None else len(self._open.messages)))
        if not taken:
            return False
        try:
            if self._open is None:
                before = self._under_way
                assert not isinstance(before, Job), "a job may change what is decided here"
                self._open = _Open(self.writer.batch(None if before is None else before.batch))
            self._open.placed += self._place(self._open.batch, taken)
            self._open.messages += taken
        except Exception as error:  # noqa: BLE001 - nothing was written: all are rejected
            self._give_up(taken, error)
        return True

    def _leading(self, most: int) -> list[Submission]:
        """Take the messages in front: they are committed together."""
        taken: list[Submission] = []
        while self._waiting and len(taken) < most:
            front = self._waiting[0]
            if isinstance(front, Job):
                break
            taken.append(front)
            self._waiting.popleft()
        return taken

    def _close_batch(self) -> None:
        """Hand the batch to the disk, unless it has nothing for it."""
        closed, self._open = self._open, None
        assert closed is not None
        if closed.placed:
            self._begin(closed, lambda: self._commit(closed))
        else:
            self._report(closed.messages)

    def _begin(self, what: _Open | Job, work: Callable[[], Callable[[], None]]) -> None:
        self._under_way = what
        self._disk.put(work)

    def _committed(self, done: _Open) -> None:
        self._under_way = None
        self._go_on()  # before the answers: the disk is not to wait for them
        self._report(done.messages)

    def _met_full_disk(self, failed: _Open, why: str) -> None:
        self._under_way = None
        self.full_at = perf_counter()
        self._report(self._undone(failed.messages, why, _FULL_RETRY_SEC))
        self._go_on()

    def _failed(self, failed: _Open, error: Exception) -> None:
        self._under_way = None
        self._give_up(failed.messages, error)
        self._go_on()

    def _give_up(self, messages: list[Submission], error: Exception) -> None:
        undone = self._undone(messages, "the hub has stopped after an error; its operator must check it")
        self._events.fatal(error)
        self._report(undone)

    def _undone(self, messages: list[Submission], why: str, retry_after: int = 1) -> list[Submission]:
        """Return messages that did not happen, and those decided behind them, as rejected.

        All alike: also refusals may have rested on them.
        """
        if self._open is not None:
            messages = messages + self._open.messages
            self._open = None
        for message in messages:
            if message.record is not None:
                message.receipt, message.seq = b"", 0
                message.error = unavailable(why, retry_after)
        return messages

    def _report(self, messages: Sequence[Submission]) -> None:
        try:
            self._decided(messages)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not stop what comes next
            self._events.bug(error)

    def _done(self, job: Job) -> None:
        self._under_way = None
        if isinstance(job.error, WriterStoppedError):
            self._events.fatal(job.error)
        try:
            job.on_done(job)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not stop what comes next
            self._events.bug(error)
        self._go_on()

    # --- in the thread: each returns what is to be done on the loop -----------------------------------------

    def _run(self) -> None:
        while (work := self._disk.get()) is not None:
            self._loop.call_soon_threadsafe(work())

    def _turn(self, job: Job) -> Callable[[], Callable[[], None]]:
        def run() -> Callable[[], None]:
            job.do()
            return lambda: self._done(job)

        return run

    def _commit(self, closed: _Open) -> Callable[[], None]:
        try:
            self.writer.commit(closed.batch)
        except StoreFullError as error:
            why = str(error)
            return lambda: self._met_full_disk(closed, why)
        except Exception as error:  # noqa: BLE001 - nothing may be answered that is not known to be durable
            failed = error  # the name of the handler ends with it
            return lambda: self._failed(closed, failed)
        self._batch_size.observe(closed.placed)
        return lambda: self._committed(closed)

    def _place(self, batch: Batch, messages: Sequence[Submission]) -> int:
        hub_ts = max(self.clock(), batch.floor_ts)
        key = self.ring.active(hub_ts)
        placed = 0
        for message in messages:
            if message.record is None:
                continue  # refused before it came here
            try:
                admitted = admit(message.record, batch, self.policy, self.authority, hub_ts)
                receipt = _append(batch, admitted, key)
            except ProtocolError as error:
                message.reject(error)
            except DamagedStoreError as error:  # of this label; others go on
                message.error = unavailable(str(error), _FULL_RETRY_SEC)
                self._events.bug(error)
            except StorageError:
                raise
            except Exception as error:  # noqa: BLE001 - a fault of ours must not stop other messages
                message.error = unavailable("the hub failed to handle the message; the reason is in its log")
                self._events.bug(error)
            else:
                message.receipt = receipt.encode()
                message.seq = receipt.stream_seq
                message.hub_ts = hub_ts
                placed += 1
        return placed


def _append(batch: Batch, admitted: Admitted, key: SigningKey) -> Receipt:
    record: NewEntry = admitted.record
    if admitted.bucket is not None:
        record = record._replace(bucket=admitted.bucket)
    receipt = batch.append(record, signing(key, record, admitted.hub_ts))
    if admitted.binding is not None:
        stream = admitted.binding
        batch.bind(Binding(stream.stream_id, stream.epoch, record.label))
    return receipt
