"""A running hub: composes its parts, and runs on one event loop.

The path of messages is in ``veen.hub.submit.intake``, HTTP in ``veen.hub.api.routes``.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from time import perf_counter
from typing import Any, Final, Protocol

from veen.admission.prefilter import PowRules
from veen.admission.stateless import MessageRules
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.control_record import ControlRecord, TrustRecord
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.new_entry import NewEntry
from veen.core.types import Label, RandomBytes, VerifyKey
from veen.hub import home as homes
from veen.hub.anchors import Anchorer, make_backend
from veen.hub.config import Settings
from veen.hub.control.control_plane import ControlPlane
from veen.hub.home import Home, write_binding
from veen.hub.keyring import CheckpointSigner, Clock
from veen.hub.metrics import Metrics, TimedFilesystem
from veen.hub.policy import policy_of, read_authority
from veen.hub.read.long_poll import LongPolls
from veen.hub.read.thread_pool import Job, ThreadPool
from veen.hub.submit.intake import Intake
from veen.hub.submit.submission import Submission
from veen.net.byte_budget import ByteBudget
from veen.stdx import json_log
from veen.stdx.json_log import LogEvent
from veen.stdx.lru import LruCache
from veen.storage import (
    Attachments,
    StoreFullError,
    Writer,
    newest_label,
    open_store,
)
from veen.storage.read.requests import PageBounds, ReadRequests

_log = logging.getLogger(__name__)

# Queued writes of attachments.
_MAX_PUTS: Final = 16
# Jobs of clients queued for the sequencer's thread: each costs a sync that delays messages.
_MAX_JOBS: Final = 16
# How long a checkpoint for an anchor may take, with the queue before it and a sync.
_CHECKPOINT_SEC: Final = 60
# Free space reserved for the journal: attachments and copies stop before it.
_SPACE_BYTES: Final = 256 << 20
# How long the disk is reported as full after a failed write; then writing is retried.
_FULL_SEC: Final = 10.0


class HubEvents(Protocol):
    """What a hub reports to the process that runs it."""

    def fatal(self, why: str) -> None:
        """The hub must stop: only a restart can establish what is on disk. Called on the loop."""


class Hub:
    """An open hub. Methods are called on the loop, unless they say otherwise."""

    def __init__(
        self,
        fs: TimedFilesystem,
        home: Home,
        settings: Settings,
        *,
        clock: Clock,
        random: RandomBytes,
        owner: str,
        events: HubEvents,
    ) -> None:
        self.fs = fs
        self.home = home
        self.settings = settings
        self.clock = clock
        self.random = random
        self.started = perf_counter()
        anchors = make_backend(settings, fs.root, owner)  # before anything is opened: it may fail
        self.metrics = Metrics(clock, fsync_ms=fs.sync_ms)
        self._events = events
        self._loop = asyncio.get_running_loop()
        # The last checkpoint of each label that this process made.
        self._checkpoints: LruCache[Label, int] = LruCache(1024)
        self._is_open = False
        self._signer = self._make_signer()
        self.writer = Writer.open(fs, sign_checkpoint=self._signer, random=random, owner=owner)
        self.reader = self.writer.reader
        self._is_open = True
        self._background = self.writer.start_background()
        self.limits = self.writer.limits
        bounds = PageBounds(max_items=settings.max_page_items, max_bytes=settings.max_page_bytes)
        self.reads = ReadRequests(self.reader, home.identity, bounds)
        self.policy = policy_of(home.identity, home.settings, settings, self.reader)
        self.attachments = (
            Attachments(fs, self.limits, settings.max_attachment_store_bytes)
            if settings.attachments
            else None
        )
        self.intake = self._make_intake()
        self.sequencer = self.intake.sequencer
        self.pow = (
            PowRules(settings.pow_difficulty, home.secrets.pow_key) if settings.pow_difficulty else None
        )
        self.readers = ThreadPool(self.call)
        # A separate thread writes attachments, so that reads do not wait for their syncs.
        self.putters = ThreadPool(self.call, threads=1, max_waiting=_MAX_PUTS)
        self.long_polls = LongPolls(settings.max_waiters)
        self.memory = ByteBudget(settings.max_held_bytes)
        self.stopping = False
        self._jobs = 0
        # Set by the server when its sockets listen.
        self.urls: tuple[str, ...] = ()
        self.control_plane = ControlPlane(self)
        self.control_plane.catch_up()
        self._add_gauges()
        self.intake.start()
        self.anchorer = None if anchors is None else Anchorer(anchors, self)
        if self.anchorer is not None:
            self.anchorer.start()

    def _make_signer(self) -> CheckpointSigner:
        return CheckpointSigner(
            self.home.ring,
            epoch_sec=self.home.settings.epoch_sec,
            max_skew_sec=open_store(self.fs).registries[-1].limits.max_epoch_skew_sec,
            clock=self.clock,
            hub_ts_of=self._hub_ts_of,
            on_signed=self._checkpointed,
        )

    def _make_intake(self) -> Intake:
        pads = {profile.profile_id: profile.pad_block for profile in self.home.settings.profiles}
        return Intake(
            MessageRules(self.limits, pads),
            self.writer,
            self.home.ring,
            self.policy,
            read_authority(self.reader, self.settings),
            settings=self.settings,
            clock=self.clock,
            newest=newest_label(self.fs),
            events=self,
            metrics=self.metrics,
        )

    def call(self, function: Callable[[Any], None], argument: object) -> None:
        """Call a function on the loop, from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, argument)

    def _add_gauges(self) -> None:
        self.metrics.gauges = {
            "veen_queue_depth": ("messages queued and not answered", lambda: self.intake.depth),
            "veen_queue_bytes": (
                "bytes of messages queued and not answered",
                lambda: self.intake.depth_bytes,
            ),
            "veen_held_bytes": ("bytes of requests and responses in memory", lambda: self.memory.used),
            "veen_journal_bytes": ("bytes that are in the journal only", lambda: self.writer.journal_bytes),
            "veen_stream_waiters": (
                "stream requests that are waiting for entries",
                lambda: self.long_polls.count,
            ),
            "veen_clock_behind_seconds": (
                "how far the clock is behind the newest entry",
                lambda: max(0, self.writer.floor_ts - self.clock()),
            ),
            "veen_uptime_seconds": ("time since the start", lambda: perf_counter() - self.started),
            "veen_anchor_overdue": (
                "labels whose anchor is overdue",
                lambda: 0 if self.anchorer is None else self.anchorer.overdue,
            ),
            "veen_log_dropped": ("log lines that were dropped", json_log.dropped),
        }

    # --- what the submit path reports -----------------------------------------------------------------------

    def decided(self, messages: Sequence[Submission]) -> None:
        """Wake long polls, and pass the entries to the anchorer and the control plane."""
        grown = {item.record.label for item in messages if item.record is not None and item.seq}
        if self.anchorer is not None:
            self.anchorer.grew(grown)
        self.long_polls.grown(grown)
        self.control_plane.take(messages)

    def worker_lost(self) -> None:
        """Count a verifier process that ended."""
        self.metrics.lost_workers += 1
        _log.warning(LogEvent("verifier-lost"))

    def bug(self, error: Exception) -> None:
        """Log an internal error and continue."""
        _log.error(LogEvent("fault", error=f"{type(error).__name__}: {error}", where=_where(error)))

    def fatal(self, error: Exception) -> None:
        """Log an error after which the hub must not continue, and end the process."""
        _log.error(LogEvent("fatal", error=str(error), where=_where(error)))
        self._events.fatal(str(error))

    # --- checkpoints ----------------------------------------------------------------------------------------

    def _hub_ts_of(self, label: Label, seq: int) -> int | None:
        """Return the time of an entry; None while the log is being opened."""
        return self.reader.entry(label, seq).receipt.hub_ts if self._is_open else None

    def _checkpointed(self, label: Label, upto_seq: int) -> None:
        """Observe the interval between checkpoints. Called by any thread that makes one."""
        if not self._is_open:
            return
        before = self._checkpoints.get(label)
        self._checkpoints.put(label, upto_seq)
        if before is not None:
            self.metrics.checkpoint_interval.observe(max(0, upto_seq - before))

    # --- other work -----------------------------------------------------------------------------------------

    @property
    def has_turn(self) -> bool:
        """Whether the queue of the sequencer's thread has room for another job."""
        return self._jobs < _MAX_JOBS

    def turn(self, run: Callable[[], Any], on_done: Callable[[Job], None]) -> None:
        """Run a job in the sequencer's thread, between batches."""

        def done(job: Job) -> None:
            self._jobs -= 1
            on_done(job)

        self._jobs += 1
        self.sequencer.run(Job(run, done))

    def checkpoint_now(self, label: Label, upto_seq: int | None) -> Checkpoint:
        """Return a checkpoint of a label up to an entry or its newest. Blocks: never call it on the loop."""
        checkpoint: Future[Checkpoint] = Future()

        def run() -> Checkpoint:
            return self.writer.checkpoint(label, upto_seq or self.reader.last_seq(label))

        def done(job: Job) -> None:
            if job.error is not None:
                checkpoint.set_exception(job.error)
            else:
                checkpoint.set_result(job.result)

        self.call(lambda _: self.turn(run, done), None)
        return checkpoint.result(_CHECKPOINT_SEC)

    def read(self, run: Callable[[], Any], on_done: Callable[[Job], None]) -> None:
        """Run a read in a reader's thread."""
        self.readers.put(Job(run, on_done))

    def control(self, *records: ControlRecord) -> None:
        """Record decisions of operator or admins, in force from here on. For the sequencer's thread."""
        label = labels.control_label(self.home.identity.hub_id)
        self.sequencer.append(*(NewEntry.of_control(label, record.encode()) for record in records))
        self.sequencer.authority = self.sequencer.authority.after(records)

    def trust(self, issuer: VerifyKey, *, trusted: bool, note: str | None) -> None:
        """Trust an issuer or revoke the trust. For the sequencer's thread."""
        self.control(TrustRecord(issuer_pk=issuer, trusted=trusted, note=note))

    def rotate(self, overlap_sec: int) -> None:
        """Rotate to a new signing key. For the sequencer's thread."""
        at = self.sequencer.hub_ts()
        self.home = homes.rotate(self.fs, self.home, self.random, at=at, overlap_sec=overlap_sec)
        self.sequencer.ring = self._signer.ring = self.home.ring
        self.reads.identity = self.home.identity

    # --- trouble and the end --------------------------------------------------------------------------------

    def check(self) -> None:
        """Check for errors of background work, and retry control messages. Called periodically."""
        self.control_plane.go_on()
        error = self._background.error
        if error is not None and not isinstance(error, StoreFullError):
            self.fatal(error)

    @property
    def is_full(self) -> bool:
        """Whether the disk is or just was full: acknowledged messages are safe, no more are accepted."""
        failed_recently = perf_counter() - self.sequencer.full_at < _FULL_SEC
        return failed_recently or isinstance(self._background.error, StoreFullError)

    def has_space(self, size: int) -> bool:
        """Return whether ``size`` bytes beside the log may be stored; the journal has reserved space."""
        disk = os.statvfs(self.fs.root)
        return disk.f_bavail * disk.f_frsize >= size + _SPACE_BYTES

    def turned_away(self, error: ErrorEnvelope) -> None:
        """Count a request for another host, or from a web page; it was rejected unread."""
        self.metrics.turned_away[str(error.field("field"))] += 1
        _log.info(LogEvent("turned-away", why=error.message))

    async def stop(self, *, abandon: bool = False) -> None:
        """Finish accepted work, flush everything into chunk files, and release the directory."""
        self.stopping = True
        self.long_polls.stop()
        if self.anchorer is not None:
            seconds = 0 if abandon else self.settings.drain_sec
            await self._loop.run_in_executor(None, self.anchorer.stop, seconds)
        await self.intake.stop()
        await self._loop.run_in_executor(None, self.readers.stop)
        await self._loop.run_in_executor(None, self.putters.stop)
        await self._loop.run_in_executor(None, self.writer.stop_background)
        if abandon:
            self.writer.abandon()
        else:
            await self._loop.run_in_executor(None, self._close)

    def _close(self) -> None:
        self.writer.flush()
        # After the last checkpoint, and before another process can lock the directory.
        write_binding(self.fs, self.home, self.limits.max_epoch_skew_sec)
        self.writer.close()


def _where(error: BaseException) -> str:
    """Return the innermost file and line of an error's traceback, without values."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return "" if traceback is None else f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
