"""A feed: applications record events through it, without waiting for the hub.

    with Feed.open("app", "http://127.0.0.1:37411", stream="record/app/orders") as feed:
        feed.record("order.placed", {"order": 17, "total": "9.90"}, subject_id="customer-4")

``record`` copies the values and puts them in a queue. One thread writes the queue to the spool, about fifty
times a second with one sync each, and another one ships the spool. Events in the queue are lost when the
process is killed; events in the spool are recorded exactly once, even if the process or the hub is killed.
With ``durable``, ``record`` returns when the event is in the spool and synced.

After a fork the child has its own queue, spool and threads, and sends nothing of the parent's. Processes may
share the directory of a client: one of them ships for all.
"""

import atexit
import datetime as dt
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from veen.client.home.pins import Trust
from veen.client.models import Recipient
from veen.client.session import Session
from veen.client.session_setup import Passphrase, StrPath, open_session
from veen.client.transport.resolve import DEFAULT_TIMEOUT_SEC
from veen.core.objects.capability import CapToken
from veen.core.types import HubId
from veen.recorder.configuration import record_stream
from veen.recorder.event import PAYLOAD_BYTES, UNFIT, Captured, capture
from veen.recorder.feed.settings import QUEUE_EVENTS, SPOOL_BYTES, FeedSettings
from veen.recorder.feed.shipper import Shipper
from veen.recorder.feed.spool_set import Spools

_logger: Final = logging.getLogger(__name__)

# How long events are batched for one sync of the spool.
_GATHER_SEC: Final = 0.02
# Retry interval while the loss of events is not recorded yet, or writes to the disk fail.
_ROOM_SEC: Final = 0.5
# Events moved to the spool at once: bounds how long a caller waits if the queue is full.
_PORTION: Final = 8
# Larger events go to the spool at once: the queue is bounded by number, not by size.
_LARGE_BYTES: Final = 64 << 10
# How long the end of a program waits for the hub, if the hub responds.
_CLOSE_SEC: Final = 5.0
_LOOK_SEC: Final = 0.005


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of events since the feed was opened in this process, and the state of shipping.

    Attributes:
        queued: In the queue; lost if the process is killed.
        spooled: Written to the spool.
        delivered: Recorded by the hub; includes events of other processes if this one ships for them.
        refused: Set aside, because they can never be recorded.
        lost: Dropped for lack of room, or damaged on the disk.
        trouble: Why nothing can be sent, or made durable, at the moment; empty if all is well.
        held: Streams that the hub rejects, with the reasons.
        unshared: Streams without a key: only this client can read their events.
    """

    queued: int
    spooled: int
    delivered: int
    refused: int
    lost: int
    trouble: str
    held: Mapping[str, str]
    unshared: tuple[str, ...] = ()


class Feed:
    """Records events of an application. Thread-safe; no call waits for the network."""

    def __init__(self, session: Session, settings: FeedSettings) -> None:
        self._settings = settings
        self._shipper = Shipper(session, settings, self._tell_damage)
        self._root = self._shipper.root
        self._closed = False
        self._begin()
        _FEEDS.add(self)

    @classmethod
    def open(
        cls,
        home: StrPath | None = None,
        hub: StrPath | None = None,
        *,
        stream: str,
        origin: str = "",
        subject: str = "",
        queue_events: int = QUEUE_EVENTS,
        spool_bytes: int = SPOOL_BYTES,
        max_payload: int = PAYLOAD_BYTES,
        durable: bool = False,
        timeout: float = DEFAULT_TIMEOUT_SEC,
        to: Recipient | None = None,
        token: CapToken | None = None,
        passphrase: Passphrase | None = None,
        trust: Trust | None = None,
        hub_id: HubId | str | None = None,
    ) -> Self:
        """Open a feed with the directory of a client; the hub need not be reachable.

        Example:
            >>> feed = Feed.open("shop", "http://127.0.0.1:37411", stream="record/app/orders")
            >>> feed.record("order.placed", {"order": 17}, subject_id="anna")
            >>> feed.close()

        Args:
            home: Directory of the client; by default ``VEEN_CLIENT``, or that of the configuration file.
            hub: URL or data directory of the hub; by default ``VEEN_HUB``, or that of the configuration file.
            stream: The default stream of events.
            origin: The component that records; by default the name of the program.
            subject: The default subject of events; by default the origin.
            queue_events: The size of the queue in memory.
            spool_bytes: The maximum size on disk, per stream, of events that the hub does not have yet.
            max_payload: The maximum size of an encoded payload in bytes; the same for metadata.
            durable: Whether ``record`` returns only when the event is on disk.
            timeout: Seconds to wait for one response of the hub.
            to: The card or key to seal to; by default the stream's readers.
            token: The token to send with; by default the one that the client has stored for the stream.
            passphrase: The passphrase of the keystore, or a function that returns it.
            trust: Whether an unknown hub is trusted; by default as the configuration file says.
            hub_id: The id that the hub must have.

        Raises:
            ContextError: There is no such client, or no hub is configured.
            KeystoreError: The keystore cannot be opened.
            StreamNameError: The stream is not one of the recorder.
        """
        settings = FeedSettings(
            stream=stream,
            origin=origin,
            subject=subject,
            queue_events=queue_events,
            spool_bytes=spool_bytes,
            max_payload=max_payload,
            durable=durable,
            timeout=timeout,
            to=to,
            token=token,
        )
        session = open_session(home, hub, hub_id=hub_id, trust=trust, passphrase=passphrase)
        return cls.of_session(session, settings)

    @classmethod
    def of_session(cls, session: Session, settings: FeedSettings) -> Self:
        """Open a feed for an open client session."""
        feed = cls(session, settings)
        feed._spools.open(settings.stream)  # adopts an abandoned spool, so that flush waits for it
        feed._shipper.look_for_readers(settings.stream)
        feed._start()
        return feed

    def _begin(self) -> None:
        """Initialize the state of a process: an empty queue, and no threads."""
        self._queue: deque[Captured] = deque()
        self._spools = Spools(self._root, self._settings)
        # Why the spools cannot be written; empty if they can.
        self._trouble = ""
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._asleep = True
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def stream(self) -> str:
        """The default stream of events."""
        return self._settings.stream

    # --- recording ------------------------------------------------------------------------------------------

    def record(
        self,
        event_type: str,
        payload: object = None,
        *,
        subject_id: str | None = None,
        event_time: float | dt.datetime | None = None,
        origin: str | None = None,
        metadata: Mapping[str, object] | None = None,
        stream: str | None = None,
    ) -> None:
        """Record an event; the default of ``event_time`` is now, in seconds since 1970.

        The values are copied. Errors of the values, the disk or the hub are logged and counted, never raised.
        """
        if self._closed:
            self._spools.count_late(stream)
            return
        data = capture(payload, self._settings.max_payload)
        queue = self._queue
        queue.append(
            Captured(
                stream,
                event_type,
                subject_id,
                time.time() if event_time is None else event_time,
                origin,
                data,
                None if metadata is None else capture(metadata, self._settings.max_payload),
            )
        )
        if self._settings.durable:
            self._to_spool(sync=True)
        elif len(queue) >= self._settings.queue_events or len(data) > _LARGE_BYTES:
            self._make_room()
        if self._asleep:
            self._rouse()

    def store(self, events: Sequence[Captured]) -> list[tuple[int, str]]:
        """Write events to the spool; they are durable when this returns.

        Returns the indexes of those that cannot be recorded, with the reasons.

        Raises:
            SpoolFullError: There is no room for all. Unless the disk is full, none is written, so that the
                caller can retry.
        """
        bad: list[tuple[int, str]] = []
        ready: dict[str, list[bytes]] = {}
        for nth, event in enumerate(events):
            try:
                stream = record_stream(event.stream or self._settings.stream)
                _, body = event.pack(self._settings)
            except UNFIT as error:
                bad.append((nth, str(error)))
            else:
                ready.setdefault(stream, []).append(body)
        self._spools.store(ready)
        self._shipper.wake()
        return bad

    def _make_room(self) -> None:
        """Write some of the queue to the spool; if another thread does so, wait only when it falls behind."""
        if len(self._queue) >= 2 * self._settings.queue_events or not self._spools.lock.locked():
            self._to_spool(_PORTION)

    def _rouse(self) -> None:
        if self._closed:  # closed during the call: no thread reads the queue any more
            self._to_spool(sync=True)
            return
        if self._thread is None:
            self._start()
        self._wake.set()

    def _start(self) -> None:
        """Start the threads; if the process cannot start threads now, the next event retries."""
        with self._starting:
            if self._thread is not None or self._closed:
                return
            thread = threading.Thread(target=self._run, name="veen-recorder-spool", daemon=True)
            try:
                self._shipper.start()
                thread.start()
            except RuntimeError as error:
                failed = error
            else:
                self._thread = thread
                return
        self._complain(failed)

    # --- from the queue to the spool ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - nothing ends the thread: there would be no other one
                self._complain(error)
                self._wake.wait(_ROOM_SEC)
            self._wake.clear()
        self._asleep = True

    def _turn(self) -> None:
        if self._queue or self._spools.are_unsynced():
            self._to_spool(sync=True)
            self._shipper.wake()
            self._wake.wait(_ROOM_SEC if self._trouble else _GATHER_SEC)
            return
        self._tell_lost()
        self._asleep = True
        if not self._queue and not self._stopping:
            self._wake.wait(_ROOM_SEC if self._spools.losses.streams() else None)
        self._asleep = False

    def _to_spool(self, max_items: int | None = None, *, sync: bool = False) -> None:
        """Move events from the queue to the spool, in order: all of them, or ``max_items``."""
        remaining = len(self._queue) if max_items is None else max_items
        try:
            while remaining > 0 and self._queue:
                self._spools.take(self._queue, min(remaining, _PORTION))
                remaining -= _PORTION
            if sync:
                self._spools.sync()
                self._trouble = ""
        except Exception as error:  # noqa: BLE001 - not the application's
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Log an error once, until it is resolved: the operation is retried."""
        before, self._trouble = self._trouble, str(error) or type(error).__name__
        if not before:
            _logger.error("the spool in %s cannot be written: %s", self._root, error, exc_info=error)

    # --- what is lost ---------------------------------------------------------------------------------------

    def _tell_lost(self) -> None:
        """Record how many events were lost, as soon as there is room."""
        if self._spools.tell_lost():
            self._spools.sync()
            self._shipper.wake()

    def _tell_damage(self, stream: str, count: int) -> None:
        """Record that spooled events are unreadable; if the disk fails, the thread retries."""
        try:
            self._spools.tell_damage(stream, count)
        except OSError as error:
            self._complain(error)
        self._shipper.wake()
        self._wake.set()

    # --- waiting for the hub --------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the hub has all events recorded so far; False on timeout."""
        return self._deliver(timeout, patient=True)

    def _deliver(self, timeout: float | None, *, patient: bool) -> bool:
        """``patient``: keep waiting while the hub cannot be reached."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        self._to_spool(sync=True)
        pending = self._spools.reached()
        shipped = self._shipper.shipped
        failures = shipped.failures
        self._shipper.hurry()
        pause = threading.Event()
        while pending:
            pending = {name: number for name, number in pending.items() if self._shipper.done(name) < number}
            if not pending or time.monotonic() >= end or (not patient and shipped.failures > failures):
                break
            pause.wait(_LOOK_SEC)
        return not pending

    def stats(self) -> Stats:
        """Return counts of events and the state of shipping."""
        shipped = self._shipper.shipped
        return Stats(
            queued=len(self._queue),
            delivered=shipped.delivered,
            spooled=self._spools.spooled,
            refused=self._spools.refused + shipped.refused,
            lost=self._spools.losses.total,
            trouble=self._trouble or shipped.trouble,
            held=dict(shipped.held),
            unshared=tuple(sorted(shipped.unshared)),
        )

    def close(self, timeout: float = _CLOSE_SEC) -> bool:
        """Write the queue to the spool, wait briefly for the hub, and stop; True if the hub has all events.

        If the hub does not respond, close does not wait: the events are in the spool, and the next feed of
        this client ships them.
        """
        if self._closed:
            return True
        end = time.monotonic() + timeout
        self._closed = True
        delivered = self._deliver(timeout, patient=False)
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(max(end - time.monotonic(), _GATHER_SEC))
        self._asleep = True
        try:
            self._tell_lost()
        except Exception as error:  # noqa: BLE001 - not the application's
            self._complain(error)
        self._to_spool(sync=True)  # events that other threads recorded meanwhile
        self._shipper.stop(max(end - time.monotonic(), _GATHER_SEC))
        self._spools.close(self._shipper.done)
        self._to_spool()  # later events are counted as lost
        return delivered

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- processes ------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """Reinitialize in a child: queue and spools belong to the parent."""
        if self._closed:
            return
        self._spools.abandon()
        self._shipper = self._shipper.after_fork()
        self._begin()


_FEEDS: Final["weakref.WeakSet[Feed]"] = weakref.WeakSet()


def _after_fork() -> None:
    for feed in list(_FEEDS):
        feed.after_fork()


def _close_all() -> None:
    for feed in list(_FEEDS):
        feed.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
