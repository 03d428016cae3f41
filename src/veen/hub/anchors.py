"""Anchors of labels, published from a separate thread that never delays a client's request (ANC0-002).

Which labels are due follows from the log and the files in anchors/, so a hub that was stopped or killed knows
at its next start what is overdue. A failure is counted, logged as an error and retried with backoff.

``make_backend`` returns the backend that the configuration names.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, Protocol

from veen.core.api.tooling import AnchorRequest, AnchorResponse
from veen.core.data_dir import paths
from veen.core.encoding.canonical_json import Described
from veen.core.errors import Code, Detail, ProtocolError, not_found
from veen.core.objects import labels
from veen.core.objects.anchor import AnchorRecord
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import Label, RandomBytes
from veen.hub.config import Settings
from veen.hub.keyring import Clock
from veen.hub.metrics import Metrics
from veen.hub.read.thread_pool import Job
from veen.stdx.backoff import backoff_sec
from veen.stdx.json_log import LogEvent
from veen.storage import Reader, RealFilesystem, StorageError
from veen.storage.anchors import AnchorError, Backend, FileLedger, anchored, read_record, store_record

_log = logging.getLogger(__name__)


def make_backend(settings: Settings, data_dir: Path, owner: str) -> Backend | None:
    """Return the configured backend or None; the files that the configuration names must exist."""
    match settings.anchor_backend:
        case "file":
            path = settings.anchor_ledger or data_dir / paths.ANCHORS_DIR / paths.LEDGER
            if not path.parent.is_dir():
                raise AnchorError(f"anchor_ledger: the directory {path.parent} does not exist")
            return FileLedger(RealFilesystem(path.parent), path.name, owner)
        case "rfc3161":
            # Imported here: its libraries are slow to load, and few hubs need them.
            from veen.storage.anchors.rfc3161 import Rfc3161, load_roots  # noqa: PLC0415

            assert settings.anchor_url is not None, "the settings have checked it"
            cert = settings.anchor_tsa_cert
            try:
                roots = None if cert is None else load_roots(cert.read_bytes())
            except OSError as error:
                raise AnchorError(f"anchor_tsa_cert: {cert} cannot be read: {error.strerror}") from None
            return Rfc3161(settings.anchor_url, roots)
    return None


# How often grown labels are looked at. Cadences of anchors are far longer.
_TICK_SEC: Final = 0.2
_NONCE_BYTES: Final = 16
# Retries back off exponentially from one second to this.
_MAX_BACKOFF_SEC: Final = 300
# Queued requests for an anchor.
_MAX_ASKED: Final = 16


@dataclass(frozen=True, slots=True)
class Cadence:
    """When a label is due: after this many unanchored entries, or when one of them reaches this age."""

    receipts: int
    seconds: int
    # Minimum time between anchors that clients have requested.
    ask_seconds: int

    @classmethod
    def of(cls, settings: Settings) -> "Cadence":
        """Return the configured cadence."""
        return cls(
            settings.anchor_every_receipts, 60 * settings.anchor_every_minutes, settings.anchor_ask_sec
        )


class AnchoredHub(Protocol):
    """What the anchorer needs of the hub that it belongs to."""

    @property
    def settings(self) -> Settings:
        """The configuration: when a label is due."""

    @property
    def reader(self) -> Reader:
        """The log."""

    @property
    def clock(self) -> Clock:
        """The time."""

    @property
    def random(self) -> RandomBytes:
        """The source of nonces."""

    @property
    def metrics(self) -> Metrics:
        """The counters."""

    def checkpoint_now(self, label: Label, upto_seq: int | None) -> Checkpoint:
        """Return a checkpoint of a label up to an entry or its newest; blocks until it is made."""

    def call(self, function: Callable[[Any], None], argument: object) -> None:
        """Call a function on the loop."""

    def bug(self, error: Exception) -> None:
        """Log an internal error and continue."""


class Anchorer:
    """Tracks which labels are due, and publishes their roots."""

    def __init__(
        self,
        backend: Backend,
        hub: AnchoredHub,
    ) -> None:
        self._backend = backend
        self._hub = hub
        self._cadence = Cadence.of(hub.settings)
        self._reader = reader = hub.reader
        self._clock = hub.clock
        self._metrics = hub.metrics
        self._grown: set[Label] = set()
        self._lock = Lock()
        self._saving = Lock()
        self._asked: SimpleQueue[Job | None] = SimpleQueue()
        self._reserved = (
            labels.authorize_label(reader.store.hub_id),
            labels.control_label(reader.store.hub_id),
        )
        # Last anchored entry of each label; None until the files were read.
        self._anchored: dict[Label, int] | None = None
        # When each label with unanchored entries is due; the heap has the same pairs, and stale ones.
        self._behind: dict[Label, int] = {}
        self._heap: list[tuple[int, Label]] = []
        # Labels that are due, in the order in which they became due.
        self._due: dict[Label, None] = {}
        # Failures in a row of labels that failed for reasons of their own.
        self._aside: dict[Label, int] = {}
        # An anchor that was published, but could not be written to disk.
        self._unsaved: AnchorRecord | None = None
        self._failed_in_row = 0
        self._retry_at = 0.0
        self._asked_at = float("-inf")
        self._last_ts: int | None = None
        self._end_at = float("inf")
        self._over = False
        self._thread = Thread(target=self._run, name="veen-anchoring", daemon=True)

    # --- for the loop ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def grew(self, grown: Iterable[Label]) -> None:
        """Record that labels have new entries."""
        with self._lock:
            self._grown.update(grown)

    @property
    def has_room(self) -> bool:
        """Whether the queue has room for another request."""
        return self._asked.qsize() < _MAX_ASKED

    def ask(self, job: Job) -> None:
        """Run a job in the thread."""
        self._asked.put(job)

    @property
    def overdue(self) -> int:
        """How many labels are due and not anchored yet."""
        return len(self._due)

    def status(self) -> dict[str, Described]:
        """Return the status of anchoring, for operators."""
        return {
            "backend": self._backend.name,
            "last_anchor_ts": self._last_ts,
            "overdue": self.overdue,
            "anchors": self._metrics.anchor_ok,
            "failures": self._metrics.anchor_fail,
        }

    def stop(self, seconds: float) -> None:
        """Anchor what is due for at most ``seconds``; nothing is written after that."""
        self._end_at = monotonic() + seconds
        self._asked.put(None)
        self._thread.join(seconds)
        with self._saving:  # lets a write in progress finish
            self._over = True
        if not self._thread.is_alive():
            self._backend.close()

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                job = self._asked.get(timeout=self._pause())
            except Empty:
                self._round()
                continue
            if job is None:
                break
            job.do()
            self._hub.call(job.on_done, job)
        self._retry_at = 0.0  # a last attempt, regardless of backoff
        while self._round():
            pass

    def _pause(self) -> float:
        if self._due:
            return min(_TICK_SEC, max(0.0, self._retry_at - monotonic()))
        return _TICK_SEC

    def _round(self) -> bool:
        """Anchor one label, if one is due; return whether there may be more to do."""
        try:
            self._note_growth()
            idle = not self._due or monotonic() < self._retry_at or monotonic() > self._end_at
            return not idle and self._anchor_next()
        except Exception as error:  # noqa: BLE001 - an internal error is reported, and the thread continues
            self._hub.bug(error)
            self._failed(error, None)
            return False

    # --- what is due ----------------------------------------------------------------------------------------

    def _note_growth(self) -> None:
        if self._anchored is None and not self._look():
            return
        with self._lock:
            grown, self._grown = self._grown, set()
        self._note_all((*grown, *self._reserved))
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            at, label = heappop(self._heap)
            if self._behind.get(label) == at:
                self._due[label] = None

    def _look(self) -> bool:
        """Read from the files what is anchored; return whether that succeeded."""
        if monotonic() < self._retry_at:
            return False
        try:
            self._anchored = anchored(self._reader.fs)
            # Labels that a fork has copied do not grow: the parent hub anchors them.
            known = [label for label in self._reader.labels() if not self._reader.is_frozen(label)]
        except (StorageError, OSError) as error:
            self._anchored = None
            self._failed(error, None)
            return False
        self._note_all(known)
        return True

    def _note_all(self, grown: Iterable[Label]) -> None:
        for label in grown:
            try:
                self._note(label)
            except (StorageError, OSError) as error:
                self._set_aside(label, error)

    def _note(self, label: Label) -> None:
        assert self._anchored is not None
        if label in self._due or (label in self._aside and label in self._behind):
            return
        last, anchored_seq = self._reader.last_seq(label), self._anchored.get(label, 0)
        if last - anchored_seq >= self._cadence.receipts:
            self._due[label] = None
        elif last > anchored_seq and label not in self._behind:
            self._wait(label, self._since(label, anchored_seq + 1) + self._cadence.seconds)

    def _since(self, label: Label, seq: int) -> int:
        try:
            return self._reader.entry(label, seq).receipt.hub_ts
        except ProtocolError:
            return 0  # pruned, so it is old

    def _wait(self, label: Label, at: int) -> None:
        self._behind[label] = at
        heappush(self._heap, (at, label))

    # --- anchors --------------------------------------------------------------------------------------------

    def _anchor_next(self) -> bool:
        """Anchor the label that became due first; False if no other label could be anchored either."""
        label = next(iter(self._due))
        try:
            checkpoint = self._hub.checkpoint_now(label, None)
        except (ProtocolError, StorageError, OSError) as error:
            self._set_aside(label, error)
            return True
        try:
            self._publish(checkpoint)
        except StorageError as error:
            self._failed(error, label)
            return False
        return True

    def _publish(
        self,
        checkpoint: Checkpoint,
        *,
        epoch: int | None = None,
        ts: int | None = None,
        nonce: bytes | None = None,
    ) -> AnchorRecord:
        if self._unsaved is not None:
            self._save(self._unsaved)
            stored = read_record(self._reader.fs, checkpoint.label_curr, checkpoint.upto_seq)
            if stored is not None:
                return stored
        ref = self._backend.publish(
            checkpoint.mmr_root,
            checkpoint.epoch if epoch is None else epoch,
            self._clock() if ts is None else ts,
            self._hub.random(_NONCE_BYTES) if nonce is None else nonce,
        )
        record = AnchorRecord(
            label=checkpoint.label_curr,
            upto_seq=checkpoint.upto_seq,
            mmr_root=checkpoint.mmr_root,
            anchor_ref=ref,
        )
        self._save(record)
        return record

    def _save(self, record: AnchorRecord) -> None:
        self._unsaved = record  # until it is stored, so that it is not published twice
        with self._saving:
            if self._over:
                raise AnchorError("the hub has stopped")
            try:
                store_record(self._reader.fs, record)
            except OSError as error:
                raise AnchorError(f"the anchor was published, but could not be stored: {error}") from error
        self._unsaved = None
        self._done(record)

    def _done(self, record: AnchorRecord) -> None:
        label = record.label
        if self._anchored is not None:
            self._anchored[label] = max(record.upto_seq, self._anchored.get(label, 0))
        for pending in (self._due, self._behind, self._aside):
            pending.pop(label, None)
        self.grew([label])  # it may have grown meanwhile, or have been anchored up to an earlier entry
        self._failed_in_row, self._retry_at = 0, 0.0
        self._last_ts = self._clock()
        self._metrics.anchor_ok += 1
        _log.info(LogEvent("anchored", label=label.hex(), upto_seq=record.upto_seq))

    # --- failures -------------------------------------------------------------------------------------------

    def _failed(self, error: Exception, label: Label | None) -> None:
        """Back off: no label can be anchored for now."""
        wait = _backoff(self._failed_in_row + 1)
        self._failed_in_row += 1
        self._retry_at = monotonic() + wait
        self._alarm(error, label, wait)

    def _set_aside(self, label: Label, error: Exception) -> None:
        """Back off for this label only."""
        failures = self._aside[label] = self._aside.get(label, 0) + 1
        wait = _backoff(failures)
        self._due.pop(label, None)
        self._wait(label, self._clock() + wait)
        self._alarm(error, label, wait)

    def _alarm(self, error: Exception, label: Label | None, wait: int) -> None:
        self._metrics.anchor_fail += 1
        _log.error(
            LogEvent(
                "anchor-failed",
                label="" if label is None else label.hex(),
                error=str(error),
                retry_in_sec=wait,
                overdue=self.overdue,
            )
        )

    # --- on request -----------------------------------------------------------------------------------------

    def answer(self, request: AnchorRequest, *, local: bool) -> AnchorResponse:
        """Return the anchor of a label, or publish one; only the operator may do so without limits.

        For the thread; see ``ask``.
        """
        label = request.label
        last = self._reader.last_seq(label)
        upto = last if request.upto_seq is None else request.upto_seq
        if not 1 <= upto <= last:
            raise not_found("upto_seq", f"the label has no entry {upto}")
        chosen = (request.epoch, request.ts, request.nonce)
        record = read_record(self._reader.fs, label, upto)
        if record is not None:
            ref = record.ref
            if any(
                choice not in (None, stored)
                for choice, stored in zip(chosen, (ref.epoch, ref.ts, ref.nonce), strict=True)
            ):
                raise ProtocolError(
                    Detail.VALUE,
                    "this entry is already anchored with another epoch, ts or nonce",
                    code=Code.CONFLICT,
                    field="upto_seq",
                )
            return AnchorResponse(record=record, checkpoint=self._hub.checkpoint_now(label, upto))
        if not local:
            self._require_few(label, chosen)
        checkpoint = self._hub.checkpoint_now(label, upto)
        try:
            record = self._publish(checkpoint, epoch=request.epoch, ts=request.ts, nonce=request.nonce)
        except StorageError as error:
            self._failed(error, label)
            raise AnchorError(
                str(error) if local else "the anchor could not be published; retry later"
            ) from error
        return AnchorResponse(record=record, checkpoint=checkpoint)

    def _require_few(self, label: Label, chosen: tuple[object, ...]) -> None:
        """Reject a client's request for more anchors than the operator allows."""
        if any(value is not None for value in chosen) or not self._cadence.ask_seconds:
            raise ProtocolError(
                Detail.VALUE,
                "only the operator may choose epoch, ts and nonce of an anchor, through the admin socket; "
                "clients may request anchors if anchor_ask_sec is set",
                code=Code.FORBIDDEN,
                field="label",
            )
        now = monotonic()
        if now < self._retry_at:
            raise AnchorError("anchors cannot be published at the moment; retry later")
        if label not in self._due:
            if now < self._asked_at + self._cadence.ask_seconds:
                raise AnchorError(
                    f"an anchor was requested less than {self._cadence.ask_seconds} s ago; retry later"
                )
            self._asked_at = now


def _backoff(failures: int) -> int:
    return int(backoff_sec(failures, first_sec=1, cap_sec=_MAX_BACKOFF_SEC))
