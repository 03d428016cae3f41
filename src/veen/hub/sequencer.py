"""The one place where the log grows: messages are decided, placed, signed and made durable, in order (C-15).

What has come is decided message by message, each in the light of those before it, and signed, on the loop;
a thread makes it durable, and only then is it answered. What comes meanwhile makes the next batch. Whatever
else changes the log (tokens, control records, checkpoints, keys) takes its turn in that thread.

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

from veen.core.ed25519 import SigningKey
from veen.core.errors import ProtocolError
from veen.core.receipt import Receipt
from veen.hub.admission.authority import Authority
from veen.hub.admission.sequence import Policy, admit
from veen.hub.admission.stages import Admitted, Authentic
from veen.hub.job import Job
from veen.hub.keyring import Clock, KeyRing, signing
from veen.hub.refusing import unavailable
from veen.hub.submission import Submission
from veen.storage import Batch, Binding, DamagedError, FullError, Record, StoppedError, StorageError, Writer

#: Messages in one commit at most: its sync is shared by them, and nobody waits for more than these.
MAX_BATCH: Final = 256
_FULL_RETRY_SEC: Final = 5


Work = Submission | Job


class Sequencer:
    """Owns the writer. One batch or one job is under way at a time; everything else waits for it."""

    def __init__(
        self,
        writer: Writer,
        ring: KeyRing,
        policy: Policy,
        authority: Authority,
        *,
        clock: Clock,
        deliver: Callable[[Sequence[Work]], None],
    ) -> None:
        """``deliver`` is called on the loop, with what has been done."""
        self.writer = writer
        self.ring = ring
        self.policy = policy
        self.authority = authority
        self.clock = clock
        #: Called with an error that the hub must not survive: the next start finds out what is on disk.
        self.on_fatal: Callable[[Exception], None] = lambda _: None
        #: Called with a fault of ours in the decision on one message; the message is answered 503.
        self.on_bug: Callable[[Exception], None] = lambda _: None
        #: Called after each commit, with the number of messages in it.
        self.on_commit: Callable[[int], None] = lambda _: None
        #: When a commit last met a full disk.
        self.full_at = float("-inf")
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Work] = deque()
        self._under_way = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._disk: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="veen-sequencer", daemon=True)
        self._thread.start()

    def put(self, work: Sequence[Work]) -> None:
        """Add messages and jobs; they are done in the order in which they came."""
        self._waiting += work
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

    def append(self, record: Record) -> Receipt:
        """Append one record of the hub's own logs, durably."""
        batch = self.writer.batch()
        hub_ts = max(self.clock(), batch.floor_ts)
        receipt = batch.append(record, signing(self.ring.active(hub_ts), record, hub_ts))
        self.writer.commit(batch)
        return receipt

    # --- on the loop ----------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begin what is next, unless something is under way."""
        while self._waiting and not self._under_way:
            if isinstance(self._waiting[0], Job):
                self._begin(self._turn(self._waiting.popleft()))
            else:
                self._begin_batch(self._leading())
        if not self._under_way:
            self._idle.set()

    def _leading(self) -> list[Submission]:
        """Take the messages in front: they are committed together."""
        taken: list[Submission] = []
        while self._waiting and len(taken) < MAX_BATCH:
            front = self._waiting[0]
            if isinstance(front, Job):
                break
            taken.append(front)
            self._waiting.popleft()
        return taken

    def _begin_batch(self, messages: list[Submission]) -> None:
        try:
            batch = self.writer.batch()
            placed = self._place(batch, messages)
        except Exception as error:  # noqa: BLE001 - nothing was written, and nobody can be answered
            self._give_up(messages, error)
            return
        if placed:
            self._begin(lambda: self._commit(batch, messages, placed))
        else:
            self._deliver(messages)

    def _begin(self, work: Callable[[], Callable[[], None]]) -> None:
        self._under_way = True
        self._disk.put(work)

    def _finish(self, finish: Callable[[], None]) -> None:
        self._under_way = False
        finish()
        self._go_on()

    def _give_up(self, messages: Sequence[Submission], error: Exception) -> None:
        _undo(messages, "the hub has stopped; its operator has to look at it")
        self.on_fatal(error)
        self._deliver(messages)

    # --- in the thread: each returns what is to be done on the loop -----------------------------------------

    def _run(self) -> None:
        while (work := self._disk.get()) is not None:
            self._loop.call_soon_threadsafe(self._finish, work())

    def _turn(self, job: Work) -> Callable[[], Callable[[], None]]:
        assert isinstance(job, Job)

        def run() -> Callable[[], None]:
            job.do()
            return lambda: self._done(job)

        return run

    def _done(self, job: Job) -> None:
        if isinstance(job.error, StoppedError):
            self.on_fatal(job.error)
        self._deliver([job])

    def _commit(self, batch: Batch, messages: list[Submission], placed: int) -> Callable[[], None]:
        try:
            self.writer.commit(batch)
        except FullError as error:
            self.full_at = perf_counter()
            _undo(messages, str(error), _FULL_RETRY_SEC)
        except Exception as error:  # noqa: BLE001 - nothing may be answered that is not known to be durable
            failed = error  # the name of the handler ends with it
            return lambda: self._give_up(messages, failed)
        else:
            self.on_commit(placed)
        return lambda: self._deliver(messages)

    def _place(self, batch: Batch, messages: Sequence[Submission]) -> int:
        hub_ts = max(self.clock(), batch.floor_ts)
        key = self.ring.active(hub_ts)
        placed = 0
        for message in messages:
            if message.record is None:
                continue  # refused before it came here
            try:
                admitted = admit(Authentic(message.record), batch, self.policy, self.authority, hub_ts)
                receipt = _append(batch, admitted, key)
            except ProtocolError as error:
                message.refuse(error)
            except DamagedError as error:  # of this label; others go on
                message.error = unavailable(str(error), _FULL_RETRY_SEC)
                self.on_bug(error)
            except StorageError:
                raise
            except Exception as error:  # noqa: BLE001 - a fault of ours must not stop other messages
                message.error = unavailable("the message met a fault of the hub; see its log")
                self.on_bug(error)
            else:
                message.receipt = receipt.encode()
                message.seq = receipt.stream_seq
                placed += 1
        return placed


def _append(batch: Batch, admitted: Admitted, key: SigningKey) -> Receipt:
    record = admitted.record
    if admitted.bucket is not None:
        record = record._replace(bucket=admitted.bucket)
    receipt = batch.append(record, signing(key, record, admitted.hub_ts))
    if admitted.binding is not None:
        stream = admitted.binding
        batch.bind(Binding(stream.stream_id, stream.epoch, record.label))
    return receipt


def _undo(messages: Sequence[Submission], why: str, retry_after: int = 1) -> None:
    """Answer all of a batch that did not happen alike: also refusals may have rested on it."""
    for message in messages:
        if message.record is not None:
            message.receipt, message.seq = b"", 0
            message.error = unavailable(why, retry_after)
