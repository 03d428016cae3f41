"""A hub at work: its parts put together, and the way of a message through them. Lives on one loop.

    verifier pool (processes) -> sequencer (the loop) -> the disk (a thread) -> answers (the loop)

It knows nothing of HTTP; ``veen.hub.api.routes`` does.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from time import perf_counter
from typing import Any, Final

from veen.admission.prefilter import PowRules
from veen.admission.stateless import MessageRules
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.control_record import ControlRecord, TrustRecord
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.new_entry import NewEntry
from veen.core.types import Label, RandomBytes, VerifyKey
from veen.hub import home as homes
from veen.hub.anchors import Anchorer, Cadence, make_backend
from veen.hub.config import Settings
from veen.hub.control.control_plane import ControlPlane
from veen.hub.home import Home, write_binding
from veen.hub.keyring import CheckpointSigner, Clock
from veen.hub.metrics import Failure, Metrics
from veen.hub.policy import policy_of, read_authority
from veen.hub.read.long_poll import LongPolls
from veen.hub.read.thread_pool import Job, ThreadPool
from veen.hub.submit.sequencer import Sequencer, Work
from veen.hub.submit.submission import Submission
from veen.hub.submit.verifier_pool import VerifierPool
from veen.net.byte_budget import ByteBudget
from veen.stdx.json_log import Log
from veen.stdx.lru import LruCache
from veen.storage import (
    Attachments,
    BackgroundFlush,
    RealFilesystem,
    StoreFullError,
    Writer,
    newest_label,
    open_store,
)
from veen.storage.read.requests import PageBounds, ReadRequests

#: Attachments that wait to be written.
_MAX_PUTS: Final = 16
#: Jobs of strangers that wait for their turn: each costs a sync, and messages wait for it.
_MAX_JOBS: Final = 16
#: How long a checkpoint for an anchor may take: what is before it in the queue, and a sync.
_CHECKPOINT_SEC: Final = 60
#: What is left on the disk for the journal when attachments and copies have to stop.
_SPACE_BYTES: Final = 256 << 20
#: A disk that was full is called so for this long, then it is tried again.
_FULL_SEC: Final = 10.0


class Hub:
    """An open hub. All methods are for the loop, unless they say otherwise."""

    def __init__(
        self,
        fs: RealFilesystem,
        home: Home,
        settings: Settings,
        *,
        clock: Clock,
        random: RandomBytes,
        owner: str,
        log: Log,
        workers: int,
    ) -> None:
        self.fs = fs
        self.home = home
        self.settings = settings
        self.clock = clock
        self.random = random
        self.log = log
        self.started = perf_counter()
        self._anchors = make_backend(settings, fs.root, owner)  # before anything is opened: it may refuse
        self.metrics = Metrics(clock)
        self.on_fatal: Callable[[str], None] = lambda _: None
        self._loop = asyncio.get_running_loop()
        self._signer = self._make_signer()
        self.writer = Writer.open(fs, sign_checkpoint=self._signer, random=random, owner=owner)
        self.reader = self.writer.reader
        self._background = BackgroundFlush(self.writer)
        self.limits = self.writer.limits
        bounds = PageBounds(max_items=settings.max_page_items, max_bytes=settings.max_page_bytes)
        self.reads = ReadRequests(self.reader, home.identity, bounds)
        self.policy = policy_of(home.identity, home.settings, settings, self.reader)
        self.attachments = (
            Attachments(fs, self.limits, settings.max_attachment_store_bytes)
            if settings.attachments
            else None
        )
        self.sequencer = self._make_sequencer()
        pads = {profile.profile_id: profile.pad_block for profile in home.settings.profiles}
        self.rules = MessageRules(self.limits, pads)
        self.verifiers = self._make_verifiers(workers)
        self.pow = (
            PowRules(settings.pow_difficulty, home.secrets.pow_key) if settings.pow_difficulty else None
        )
        self.readers = ThreadPool(self.call)
        #: Attachments are written apart, so that those who read do not wait for their syncs.
        self.putters = ThreadPool(self.call, threads=1, most=_MAX_PUTS)
        self.long_polls = LongPolls(settings.max_waiters)
        self.memory = ByteBudget(settings.max_held_bytes)
        #: The label that was committed last, as far as this process or the log knows (C-76).
        self.newest: Label | None = newest_label(fs)
        self.stopping = False
        self._jobs = 0
        #: Where it is served, once it is.
        self.urls: tuple[str, ...] = ()
        #: Of labels, the last checkpoint made by this process.
        self._checkpoints: LruCache[Label, int] = LruCache(1024)
        self.control_plane = ControlPlane(self)
        self.control_plane.catch_up()
        self._add_gauges()
        self.verifiers.start()
        self.anchorer = self._make_anchorer()
        if self.anchorer is not None:
            self.anchorer.start()

    def _make_signer(self) -> CheckpointSigner:
        return CheckpointSigner(
            self.home.ring,
            epoch_sec=self.home.settings.epoch_sec,
            max_skew_sec=open_store(self.fs).registries[-1].limits.max_epoch_skew_sec,
            clock=self.clock,
        )

    def _make_verifiers(self, workers: int) -> VerifierPool:
        made = VerifierPool(
            self.rules,
            self._verified,
            workers=workers,
            max_items=self.settings.max_queue,
            max_bytes=self.settings.max_queue_bytes,
        )
        made.on_lost = self._worker_lost
        made.on_bug = self.bug
        return made

    def _make_sequencer(self) -> Sequencer:
        made = Sequencer(
            self.writer,
            self.home.ring,
            self.policy,
            read_authority(self.reader, self.settings),
            clock=self.clock,
            deliver=self._delivered,
        )
        made.on_fatal = self._fatal
        made.on_bug = self.bug
        made.on_commit = self.metrics.batch_size.observe
        made.coming = lambda: self.verifiers.checking
        self._signer.on_signed = self._checkpointed
        self._signer.hub_ts_of = lambda label, seq: self.reader.entry(label, seq).receipt.hub_ts
        return made

    def _make_anchorer(self) -> Anchorer | None:
        if self._anchors is None:
            return None
        return Anchorer(
            self._anchors,
            Cadence.of(self.settings),
            self.reader,
            checkpoint=self._checkpoint_now,
            on_loop=self.call,
            clock=self.clock,
            random=self.random,
            log=self.log,
            metrics=self.metrics,
            bug=self.bug,
        )

    def call(self, function: Callable[[Any], None], argument: object) -> None:
        """Call a function on the loop, from any thread."""
        with suppress(RuntimeError):  # the loop has ended: nobody is left to be told
            self._loop.call_soon_threadsafe(function, argument)

    def _add_gauges(self) -> None:
        self.metrics.gauges = {
            "veen_queue_depth": ("messages taken and not answered", lambda: self.verifiers.depth),
            "veen_queue_bytes": (
                "bytes of messages taken and not answered",
                lambda: self.verifiers.depth_bytes,
            ),
            "veen_held_bytes": ("bytes held for clients", lambda: self.memory.used),
            "veen_journal_bytes": ("bytes that are in the journal only", lambda: self.writer.journal_bytes),
            "veen_stream_waiters": ("stream requests that wait for entries", lambda: self.long_polls.count),
            "veen_clock_behind_seconds": (
                "how far the clock is behind the newest entry",
                lambda: max(0, self.writer.floor_ts - self.clock()),
            ),
            "veen_uptime_seconds": ("time since the start", lambda: perf_counter() - self.started),
            "veen_anchor_overdue": (
                "labels that are due to be anchored and are not",
                lambda: 0 if self.anchorer is None else self.anchorer.overdue,
            ),
            "veen_log_dropped": ("log lines that were dropped", lambda: self.log.writer.dropped),
        }

    # --- messages -------------------------------------------------------------------------------------------

    def submit(self, items: Sequence[Submission]) -> None:
        """Take messages that have passed the prefilter; there must be room."""
        self.verifiers.put(items)

    def _verified(self, items: Sequence[Submission]) -> None:
        good = [item for item in items if item.error is None]
        # Sorted out before: the sequencer may refuse some of the others at once, and answer them itself.
        bad = [item for item in items if item.error is not None]
        self.sequencer.put(good)  # also if there is none: it may have waited for these
        if bad:
            self._answer(bad)

    def _delivered(self, work: Sequence[Work]) -> None:
        messages = [item for item in work if isinstance(item, Submission)]
        if messages:
            self._answer(messages)
            grown = {item.record.label for item in messages if item.record is not None and item.seq}
            if self.anchorer is not None:
                self.anchorer.grew(grown)
            self.long_polls.grown(grown)
            self.control_plane.take(messages)
        for item in work:
            if isinstance(item, Job):
                item.on_done(item)

    def refuse(self, item: Submission) -> None:
        """Answer a message that was refused before it was taken."""
        self._answer([item], queued=False)

    def _answer(self, messages: Sequence[Submission], *, queued: bool = True) -> None:
        metrics = self.metrics
        ts = self.clock()
        lines: list[str] = []
        logged = self.settings.log_submits and self.log.is_on("info")
        now = perf_counter()
        for item in messages:
            if queued:
                self.verifiers.answered(item)
            metrics.verify_ms.observe(1000 * (item.verified - item.received))
            metrics.commit_ms.observe(1000 * (now - item.verified))
            metrics.end_to_end_ms.observe(1000 * (now - item.received))
            if item.error is None:
                metrics.ok += 1
                assert item.record is not None
                self.newest = item.record.label
            else:
                metrics.refused(_failure(item, ts))
            if logged:
                lines.append(_line(item, ts, now))
            item.on_done(item)
        if lines:
            self.log.writer.write(lines)

    def _checkpointed(self, label: Label, upto_seq: int) -> None:
        """Measure; called by whatever thread makes a checkpoint."""
        before = self._checkpoints.get(label)
        self._checkpoints.put(label, upto_seq)
        if before is not None:
            self.metrics.checkpoint_interval.observe(max(0, upto_seq - before))

    # --- other work -----------------------------------------------------------------------------------------

    @property
    def has_turn(self) -> bool:
        """Whether one more job may wait for its turn."""
        return self._jobs < _MAX_JOBS

    def turn(self, run: Callable[[], Any], on_done: Callable[[Job], None]) -> None:
        """Have something done in the sequencer's thread, between batches."""

        def done(job: Job) -> None:
            self._jobs -= 1
            on_done(job)

        self._jobs += 1
        self.sequencer.put([Job(run, done)])

    def _checkpoint_now(self, label: Label, upto_seq: int | None) -> Checkpoint:
        """Make the checkpoint of a label, up to an entry or its newest; for other threads than the loop."""
        made: Future[Checkpoint] = Future()

        def run() -> Checkpoint:
            return self.writer.checkpoint(label, upto_seq or self.reader.last_seq(label))

        def done(job: Job) -> None:
            if job.error is not None:
                made.set_exception(job.error)
            else:
                made.set_result(job.result)

        self.call(lambda _: self.turn(run, done), None)
        return made.result(_CHECKPOINT_SEC)

    def read(self, run: Callable[[], Any], on_done: Callable[[Job], None]) -> None:
        """Have something read by a reader's thread."""
        self.readers.put(Job(run, on_done))

    def control(self, *records: ControlRecord) -> None:
        """Record decisions of operator or admins; they count from here on. For the sequencer's thread."""
        label = labels.control_label(self.home.identity.hub_id)
        self.sequencer.append(*(NewEntry.of_control(label, record.encode()) for record in records))
        self.sequencer.authority = self.sequencer.authority.after(records)

    def trust(self, issuer: VerifyKey, *, trusted: bool, note: str | None) -> None:
        """Trust an issuer, or no longer. For the sequencer's thread."""
        self.control(TrustRecord(issuer_pk=issuer, trusted=trusted, note=note))

    def rotate(self, overlap_sec: int) -> None:
        """Take a new signing key into use. For the sequencer's thread."""
        at = self.sequencer.hub_ts()
        self.home = homes.rotate(self.fs, self.home, self.random, at=at, overlap_sec=overlap_sec)
        self.sequencer.ring = self._signer.ring = self.home.ring
        self.reads.identity = self.home.identity

    # --- trouble and the end --------------------------------------------------------------------------------

    def check(self) -> None:
        """Look for trouble in the background, and go on where it is over; called now and then."""
        self.control_plane.go_on()
        error = self._background.error
        if error is not None and not isinstance(error, StoreFullError):
            self._fatal(error)

    @property
    def is_full(self) -> bool:
        """Whether the disk is full, or was just now: what was acknowledged is safe, but no more is taken."""
        met = perf_counter() - self.sequencer.full_at < _FULL_SEC
        return met or isinstance(self._background.error, StoreFullError)

    def has_space(self, size: int) -> bool:
        """Tell whether so much may be stored that is not the log: the journal always keeps some space."""
        found = os.statvfs(self.fs.root)
        return found.f_bavail * found.f_frsize >= size + _SPACE_BYTES

    def bug(self, error: Exception) -> None:
        """Report a fault that was ours, without stopping."""
        self.log.event("error", "fault", error=f"{type(error).__name__}: {error}", where=_where(error))

    def turned_away(self, error: ErrorEnvelope) -> None:
        """Count a request that is not for us, or that a page has sent; it was not looked at any further."""
        self.metrics.turned_away[str((error.detail or {}).get("field"))] += 1
        self.log.event("info", "turned-away", why=error.message)

    def _worker_lost(self) -> None:
        self.metrics.lost_workers += 1
        self.log.event("warn", "verifier-lost")

    def _fatal(self, error: Exception) -> None:
        self.log.event("error", "fatal", error=str(error), where=_where(error))
        self.on_fatal(str(error))

    async def stop(self, *, abandon: bool = False) -> None:
        """Finish what was taken, move everything into chunk files, and let go of the directory."""
        self.stopping = True
        self.long_polls.stop()
        if self.anchorer is not None:
            seconds = 0 if abandon else self.settings.drain_sec
            await self._loop.run_in_executor(None, self.anchorer.stop, seconds)
        await self.sequencer.stop()
        await self._loop.run_in_executor(None, self.readers.stop)
        await self._loop.run_in_executor(None, self.putters.stop)
        await self.verifiers.stop()
        await self._loop.run_in_executor(None, self._background.stop)
        if abandon:
            self.writer.abandon()
        else:
            await self._loop.run_in_executor(None, self._close)

    def _close(self) -> None:
        self.writer.flush()
        # Of all checkpoints, and while nobody else can have the directory.
        write_binding(self.fs, self.home, self.limits.max_epoch_skew_sec)
        self.writer.close()


def _failure(item: Submission, ts: int) -> Failure:
    assert item.error is not None
    record = item.record
    label, client = (
        ("", "") if record is None else (record.label.hex()[:8], (record.client_id or b"").hex()[:8])
    )
    return Failure(ts, item.error.code, _detail(item.error), label, client)


def _detail(error: ErrorEnvelope) -> str:
    return str((error.detail or {}).get("detail_enum", ""))


def _line(item: Submission, ts: int, now: float) -> str:
    """Return the log line of a message (OBS0-003). By hand: there is one for each.

    It has prefixes of ids and no content, so that nothing secret comes near a log.
    """
    record, error = item.record, item.error
    about = ""
    if error is not None:
        about = f'"code":"{error.code}","detail":"{_detail(error)}",'
    if record is not None:
        about += (
            f'"label":"{record.label.hex()}","client_id_prefix":"{(record.client_id or b"").hex()[:8]}",'
            f'"leaf_hash_prefix":"{record.leaf_hash.hex()[:8]}",'
        )
    return (
        f'{{"ts":{ts},"level":"info","event":"submit",{about}"stream_seq":{item.seq},'
        f'"bytes_in":{item.size},"bytes_out":{len(item.receipt)},'
        f'"verify_ms":{1000 * (item.verified - item.received):.3f},'
        f'"commit_ms":{1000 * (now - item.verified):.3f}}}'
    )


def _where(error: BaseException) -> str:
    """Return the innermost place of an error: files and lines, no values."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return "" if place is None else f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
