"""A feed: what an application records through, without waiting for the hub.

    with Feed.open("app", "http://127.0.0.1:37411", stream="record/app/orders") as feed:
        feed.record("order.placed", {"order": 17, "total": "9.90"}, subject_id="customer-4")

``record`` copies the values and puts them in a queue. A thread writes the queue to the spool, some fifty
times a second with one sync each, and another one ships the spool. What is in the queue when the process is
killed is lost; what is in the spool is recorded once, however often the process or the hub is killed. With
``durable``, ``record`` returns when the event is in the spool and synced.

After a fork the child has a queue, a spool and threads of its own, and sends nothing of the parent's.
Processes may share the directory of a client: one of them ships for all.
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

#: How long events are gathered for one sync of the spool.
_GATHER_SEC: Final = 0.02
#: How often to look for room, while there is something to say about lost events, or the disk fails.
_ROOM_SEC: Final = 0.5
#: How many events are moved to the spool at once: a caller that finds the queue full waits for so few.
_PORTION: Final = 8
#: A larger event goes to the spool at once: the queue is bounded by its length.
_LARGE_BYTES: Final = 64 << 10
#: How long the end of a program waits for the hub, unless it does not answer.
_CLOSE_SEC: Final = 5.0
_LOOK_SEC: Final = 0.005


@dataclass(frozen=True, slots=True)
class Stats:
    """What became of events, since the feed was opened in this process."""

    #: In the queue, and lost when the process is killed.
    queued: int
    #: Written to the spool.
    spooled: int
    #: Recorded by the hub; also those of other processes, if it is this one that ships.
    delivered: int
    #: Set aside, because they can never be recorded.
    refused: int
    #: Those for which there was no room, and those that the disk has damaged.
    lost: int
    #: Why nothing is sent at the moment, or why it cannot be made durable; empty if it is.
    trouble: str
    #: Streams that the hub refuses, and why.
    held: Mapping[str, str]
    #: Streams whose events nobody can read but this client, which has no key of them.
    unshared: tuple[str, ...] = ()


class Feed:
    """Where an application records. Any thread may; no call waits for the network."""

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
            stream: The stream of events that name no other one.
            origin: The component that records; by default the name of the program.
            subject: The subject of events that name no other one; by default the origin.
            queue_events: The size of the queue in memory.
            spool_bytes: The largest size on disk, per stream, of events that the hub does not have yet.
            max_payload: The largest payload in bytes, encoded; the same for metadata.
            durable: Whether ``record`` returns only when the event is on disk.
            timeout: Seconds to wait for one response of the hub.
            to: The card or key to seal to; by default the stream's readers.
            token: The token to send with; by default the one that the client has stored for the stream.
            passphrase: The passphrase of the keystore, or a function that returns it.
            trust: Whether an unknown hub is trusted; by default as the configuration file says.
            hub_id: The id that the hub must have.

        Raises:
            ContextError: There is no such client, or no hub is named.
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
        """Open a feed for a client that is open already."""
        feed = cls(session, settings)
        feed._spools.open(settings.stream)  # with what an earlier process left: flush waits for that too
        feed._shipper.look_for_readers(settings.stream)
        feed._start()
        return feed

    def _begin(self) -> None:
        """Start with nothing queued, and no threads yet."""
        self._queue: deque[Captured] = deque()
        self._spools = Spools(self._root, self._settings)
        #: Why the spools cannot be written; empty if they can.
        self._trouble = ""
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._asleep = True
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def stream(self) -> str:
        """The stream of events that do not say otherwise."""
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
        """Record an event; ``event_time`` is now by default, in seconds since 1970.

        The values are copied as they are now. Whatever is wrong with them, or with the disk or the hub, is
        logged and counted; nothing is raised.
        """
        if self._closed:
            self._spools.refuse_late(stream)
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

        Returns the numbers of those that cannot be recorded, with the reasons.

        Raises:
            SpoolFullError: There is no room for all. Unless the disk is full, none is written, so that they
                can be sent again.
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
        """Write some of the queue to the spool; but if a thread does already, wait only if it is too slow."""
        if len(self._queue) >= 2 * self._settings.queue_events or not self._spools.lock.locked():
            self._to_spool(_PORTION)

    def _rouse(self) -> None:
        if self._closed:  # since the call began, and nobody may look at the queue any more
            self._to_spool(sync=True)
            return
        if self._thread is None:
            self._start()
        self._wake.set()

    def _start(self) -> None:
        """Start the threads; if there can be no more of them, the next event tries again."""
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

    def _to_spool(self, most: int | None = None, *, sync: bool = False) -> None:
        """Move events from the queue to the spool, in their order; all of them, or as many as are asked."""
        left = len(self._queue) if most is None else most
        try:
            while left > 0 and self._queue:
                self._spools.take(self._queue, min(left, _PORTION))
                left -= _PORTION
            if sync:
                self._spools.sync()
                self._trouble = ""
        except Exception as error:  # noqa: BLE001 - not the application's
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Say what is wrong, once until it is not: it is tried again and again."""
        before, self._trouble = self._trouble, str(error) or type(error).__name__
        if not before:
            _logger.error("the spool in %s cannot be written: %s", self._root, error, exc_info=error)

    # --- what is lost ---------------------------------------------------------------------------------------

    def _tell_lost(self) -> None:
        """Record how much was lost, as soon as there is room."""
        if self._spools.tell_lost():
            self._spools.sync()
            self._shipper.wake()

    def _tell_damage(self, stream: str, count: int) -> None:
        """Record that events cannot be read any more; if the disk fails, the thread tries it again."""
        try:
            self._spools.tell_damage(stream, count)
        except OSError as error:
            self._complain(error)
        self._shipper.wake()
        self._wake.set()

    # --- waiting for the hub, if somebody wants to ----------------------------------------------------------

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the hub has what was recorded before; False if that takes longer."""
        return self._deliver(timeout, patient=True)

    def _deliver(self, timeout: float | None, *, patient: bool) -> bool:
        """``patient``: also while the hub cannot be reached."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        self._to_spool(sync=True)
        wanted = self._spools.reached()
        shipped = self._shipper.shipped
        failures = shipped.failures
        self._shipper.hurry()
        pause = threading.Event()
        while wanted:
            wanted = {name: number for name, number in wanted.items() if self._shipper.done(name) < number}
            if not wanted or time.monotonic() >= end or (not patient and shipped.failures > failures):
                break
            pause.wait(_LOOK_SEC)
        return not wanted

    def stats(self) -> Stats:
        """Return what became of events."""
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
        """Write the queue to the spool, wait a little for the hub, and end; True if the hub has all.

        A hub that does not answer is not waited for: events are in the spool, and the next feed that is
        opened with this client ships them.
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
        self._to_spool(sync=True)  # what other threads have recorded meanwhile
        self._shipper.stop(max(end - time.monotonic(), _GATHER_SEC))
        self._spools.close(self._shipper.done)
        self._to_spool()  # and what came later is lost, and counted
        return delivered

    def __enter__(self) -> Self:
        """Use it in a ``with`` statement, and it is closed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    # --- processes ------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """Begin anew in a child: what is queued and spooled is the parent's."""
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
