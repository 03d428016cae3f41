"""The one place where the log grows: messages are decided, placed, signed and made durable, in order (C-15).

A thread takes what has come, decides on each message in the light of those before it, and commits them
with one sync. Only then are they answered. Whatever else changes the log (tokens, control records,
checkpoints, keys) takes its turn here too.
"""

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from veen.core.ed25519 import SigningKey
from veen.core.errors import ProtocolError
from veen.core.receipt import Receipt
from veen.core.types import NodeHash
from veen.hub.admission.authority import Authority
from veen.hub.admission.sequence import Policy, admit
from veen.hub.admission.stages import Admitted, Authentic
from veen.hub.job import Job
from veen.hub.keyring import Clock, KeyRing
from veen.hub.submission import Submission, unavailable
from veen.storage import Batch, Binding, DamagedError, FullError, Record, StoppedError, StorageError, Writer

#: Messages in one commit at most: its sync is shared by them, and nobody waits for more than these.
MAX_BATCH: Final = 256
_FULL_RETRY_SEC: Final = 5


Work = Submission | Job


class Sequencer:
    """Owns the writer. Everything in here but ``put`` and ``stop`` happens in its thread."""

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
        self._deliver = deliver
        self._queue: SimpleQueue[Sequence[Work] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="veen-sequencer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def put(self, jobs: Sequence[Work]) -> None:
        """Add jobs; they are done in the order in which they came."""
        self._queue.put(jobs)

    def stop(self) -> None:
        """Finish what was put before, and end."""
        self._queue.put(None)
        self._thread.join()

    def hub_ts(self) -> int:
        """Return the time that the next entry gets: the clock's, but never before an earlier entry's."""
        return max(self.clock(), self.writer.floor_ts)

    def append(self, record: Record) -> Receipt:
        """Append one record of the hub's own logs, durably."""
        batch = self.writer.batch()
        hub_ts = max(self.clock(), batch.floor_ts)
        receipt = batch.append(record, _signing(self.ring.active(hub_ts), record, hub_ts))
        self.writer.commit(batch)
        return receipt

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        more = True
        while more:
            jobs, more = self._take()
            while jobs:
                count = self._leading(jobs)
                if count:
                    self._commit(jobs[:count])
                else:
                    count = 1
                    self._turn(jobs[0])
                jobs = jobs[count:]

    def _take(self) -> tuple[list[Work], bool]:
        """Wait for jobs, and take as many as have come; no more than fill a batch are waited for."""
        taken: list[Work] = []
        more = self._queue.get()
        while more is not None:
            taken += more
            if len(taken) >= MAX_BATCH:
                return taken, True
            try:
                more = self._queue.get_nowait()
            except Empty:
                return taken, True
        return taken, False

    def _leading(self, jobs: list[Work]) -> int:
        """Return how many messages are in front: they are committed together."""
        for nth, job in enumerate(jobs[:MAX_BATCH]):
            if isinstance(job, Job):
                return nth
        return min(len(jobs), MAX_BATCH)

    def _turn(self, job: Work) -> None:
        assert isinstance(job, Job)
        job.do()
        if isinstance(job.error, StoppedError):
            self.on_fatal(job.error)
        self._deliver([job])

    def _commit(self, jobs: list[Work]) -> None:
        messages = [job for job in jobs if isinstance(job, Submission)]
        try:
            batch = self.writer.batch()
            placed = self._place(batch, messages)
            self.writer.commit(batch)
        except FullError as error:
            _undo(messages, str(error), _FULL_RETRY_SEC)
        except Exception as error:  # noqa: BLE001 - nothing may be answered that is not known to be durable
            _undo(messages, "the hub has stopped; its operator has to look at it")
            self.on_fatal(error)
        else:
            if placed:
                self.on_commit(placed)
        self._deliver(messages)

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
    receipt = batch.append(record, _signing(key, record, admitted.hub_ts))
    if admitted.binding is not None:
        stream = admitted.binding
        batch.bind(Binding(stream.stream_id, stream.epoch, record.label))
    return receipt


def _signing(key: SigningKey, record: Record, hub_ts: int) -> Callable[[int, NodeHash], Receipt]:
    def sign(seq: int, root: NodeHash) -> Receipt:
        return Receipt.sign(
            key,
            label=record.label,
            stream_seq=seq,
            leaf_hash=record.leaf_hash,
            mmr_root=root,
            hub_ts=hub_ts,
        )

    return sign


def _undo(messages: Sequence[Submission], why: str, retry_after: int = 1) -> None:
    """Answer all of a batch that did not happen alike: also refusals may have rested on it."""
    for message in messages:
        if message.record is not None:
            message.receipt, message.seq = b"", 0
            message.error = unavailable(why, retry_after)
