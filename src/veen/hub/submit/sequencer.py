"""The only writer of the log: messages are decided, positioned, signed and made durable, in order (C-15).

On the loop, each message is decided against the state after the messages before it, and signed. A thread
commits the batch, and only then are its messages answered. Messages that arrive meanwhile are decided against
the state after the batch that is being committed, and form the next batch: if the first commit fails, both
batches are rejected. All other changes of the log (tokens, control records, checkpoints, keys) run as jobs in
that thread, and no message is decided while a job runs.

Decisions stay on the loop: with two threads running Python, every signature releases the GIL and waits to get
it back, which costs more than the signature (docs/adr/0008).
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

# Maximum of messages in a commit: they share a sync, and no message waits for more than these.
MAX_BATCH: Final = 256
# While messages are being verified, a batch waits for this many: a sync costs the same for one or all.
_WORTH: Final = 64
_FULL_RETRY_SEC: Final = 5


class _Open:
    """A batch with its messages: those placed in it, and those rejected against its state."""

    __slots__ = ("batch", "messages", "placed")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.messages: list[Submission] = []
        self.placed = 0


class Sequencer:
    """Owns the writer. One batch or job is at the disk at a time, while the next batch grows."""

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
        # When a commit last failed because the disk was full.
        self.full_at = float("-inf")
        self._decided = decided
        self._events = events
        self._batch_size = metrics.batch_size
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Submission | Job] = deque()
        # Messages that are being verified, and will be put next.
        self._pending = 0
        # The batch or job that the thread works on.
        self._under_way: _Open | Job | None = None
        self._open: _Open | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._disk: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="veen-sequencer", daemon=True)
        self._thread.start()

    def put(self, messages: Sequence[Submission], *, pending: int) -> None:
        """Add verified messages, if any; ``pending`` others are still being verified.

        Messages and jobs are processed in the order in which they are added.
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
        """Finish queued messages and jobs, and end the thread."""
        await self._idle.wait()
        self._disk.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def hub_ts(self) -> int:
        """Return the time that the next entry gets: the clock's, but never before an earlier entry's."""
        return max(self.clock(), self.writer.floor_ts)

    def append(self, *records: NewEntry) -> Receipt:
        """Append records to the hub's own logs in one commit; return the receipt of the last."""
        batch = self.writer.batch()
        hub_ts = max(self.clock(), batch.floor_ts)
        key = self.ring.active(hub_ts)
        receipts = [batch.append(record, signing(key, record, hub_ts)) for record in records]
        self.writer.commit(batch)
        return receipts[-1]

    # --- on the loop ----------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Process whatever does not have to wait for the disk."""
        self._take_waiting()
        while self._open is not None and self._under_way is None and self._is_due(self._open):
            self._close_batch()
            self._take_waiting()
        if self._under_way is None and self._open is None:
            self._idle.set()

    def _take_waiting(self) -> None:
        """Decide waiting messages, or begin a waiting job, unless it must wait for the disk."""
        while self._waiting and not isinstance(self._under_way, Job):
            if isinstance(front := self._waiting[0], Job):
                if self._under_way is not None or self._open is not None:
                    return  # earlier messages must be in the log before it runs
                self._waiting.popleft()
                self._begin(front, self._turn(front))
            elif not self._place_more():
                return

    def _is_due(self, batch: _Open) -> bool:
        """Return whether to commit a batch now. If messages or jobs wait, they could not be added to it."""
        return bool(self._waiting) or len(batch.messages) >= min(self._pending, _WORTH)

    def _place_more(self) -> bool:
        """Decide the messages at the front; False if the batch has no room for another."""
        front = self._leading(MAX_BATCH - (0 if self._open is None else len(self._open.messages)))
        if not front:
            return False
        try:
            if self._open is None:
                before = self._under_way
                assert not isinstance(before, Job), "a job may change what is decided here"
                self._open = _Open(self.writer.batch(None if before is None else before.batch))
            self._open.placed += self._place(self._open.batch, front)
            self._open.messages += front
        except Exception as error:  # noqa: BLE001 - nothing was written: all are rejected
            self._give_up(front, error)
        return True

    def _leading(self, max_items: int) -> list[Submission]:
        """Take messages from the front, up to the next job; they are committed together."""
        messages: list[Submission] = []
        while self._waiting and len(messages) < max_items:
            front = self._waiting[0]
            if isinstance(front, Job):
                break
            messages.append(front)
            self._waiting.popleft()
        return messages

    def _close_batch(self) -> None:
        """Commit the batch, unless all of its messages were rejected."""
        closed, self._open = self._open, None
        assert closed is not None
        if closed.placed:
            self._begin(closed, lambda: self._commit(closed))
        else:
            self._report(closed.messages)

    def _begin(self, unit: _Open | Job, work: Callable[[], Callable[[], None]]) -> None:
        self._under_way = unit
        self._disk.put(work)

    def _committed(self, batch: _Open) -> None:
        self._under_way = None
        self._go_on()  # before answering, so that the disk does not idle meanwhile
        self._report(batch.messages)

    def _met_full_disk(self, batch: _Open, why: str) -> None:
        self._under_way = None
        self.full_at = perf_counter()
        self._report(self._undone(batch.messages, why, _FULL_RETRY_SEC))
        self._go_on()

    def _failed(self, batch: _Open, error: Exception) -> None:
        self._under_way = None
        self._give_up(batch.messages, error)
        self._go_on()

    def _give_up(self, messages: list[Submission], error: Exception) -> None:
        undone = self._undone(messages, "the hub has stopped after an error; its operator must check it")
        self._events.fatal(error)
        self._report(undone)

    def _undone(self, messages: list[Submission], why: str, retry_after: int = 1) -> list[Submission]:
        """Reject messages that were not committed, and those decided after them; return both.

        Earlier rejections too, because they may depend on uncommitted messages.
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
        except Exception as error:  # noqa: BLE001 - an internal error must not stop what comes next
            self._events.bug(error)

    def _done(self, job: Job) -> None:
        self._under_way = None
        if isinstance(job.error, WriterStoppedError):
            self._events.fatal(job.error)
        try:
            job.on_done(job)
        except Exception as error:  # noqa: BLE001 - an internal error must not stop what comes next
            self._events.bug(error)
        self._go_on()

    # --- in the thread: each returns a continuation for the loop --------------------------------------------

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
            failed = error  # Python deletes the name after the handler
            return lambda: self._failed(closed, failed)
        self._batch_size.observe(closed.placed)
        return lambda: self._committed(closed)

    def _place(self, batch: Batch, messages: Sequence[Submission]) -> int:
        hub_ts = max(self.clock(), batch.floor_ts)
        key = self.ring.active(hub_ts)
        placed = 0
        for message in messages:
            if message.record is None:
                continue  # rejected by the verifier
            try:
                admitted = admit(message.record, batch, self.policy, self.authority, hub_ts)
                receipt = _append(batch, admitted, key)
            except ProtocolError as error:
                message.reject(error)
            except DamagedStoreError as error:  # affects this label only
                message.error = unavailable(str(error), _FULL_RETRY_SEC)
                self._events.bug(error)
            except StorageError:
                raise
            except Exception as error:  # noqa: BLE001 - an internal error must not stop other messages
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
