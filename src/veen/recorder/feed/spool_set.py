"""The spools that a feed writes to, one per stream, and the events that do not reach them.

No event is lost uncounted: whatever fails, it is in a spool, set aside, or counted as lost.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from veen.core.objects import labels
from veen.recorder.configuration import record_stream
from veen.recorder.errors import SpoolFullError
from veen.recorder.event import Captured
from veen.recorder.feed.losses import DAMAGED, DeferredLog, Losses
from veen.recorder.feed.settings import FeedSettings
from veen.recorder.feed.ship_journal import reserved
from veen.recorder.feed.shipper import JOURNAL, REFUSED, set_aside
from veen.recorder.feed.spool import Spool, sync_segments
from veen.stdx.fair_lock import FairLock
from veen.stdx.grammar import counted

# Size limit of the file of events that can never be sent; beyond it they count as lost.
ASIDE_BYTES: Final = 64 << 20
_LATE: Final = "recorded after the feed was closed"


class Spools:
    """The spools of a feed. Thread-safe."""

    def __init__(self, root: Path, settings: FeedSettings) -> None:
        self._root = root
        self._settings = settings
        # Guards the spools and removal from the queue. Callers wait for it: within it nothing is logged, and
        # nothing is synced except when the first event of a stream creates its spool.
        self.lock = FairLock()
        # Serializes syncs: a caller must not return before a sync in progress on another thread is done.
        self._syncing = threading.Lock()
        self._spools: dict[str, Spool] = {}
        self._closed = False
        self._later = DeferredLog()
        self.losses = Losses(self._later.error)
        self.spooled = self.refused = 0

    def open(self, stream: str) -> None:
        """Open the spool of a stream, or create it."""
        with self.lock:
            self._spool(stream)
        self._later.log()

    def _spool(self, stream: str) -> Spool:
        spool = self._spools.get(stream)
        if spool is None:
            spool = Spool.open(
                self._root,
                stream,
                bound=self._settings.spool_bytes,
                done=partial(reserved, self._root / JOURNAL),
            )
            self._spools[stream] = spool
            if spool.torn_bytes:
                self._later.warning(
                    "%d bytes at the end of the spool %s are not a complete event and were cut off: they "
                    "were not durable when a process ended, or the disk damaged them",
                    spool.torn_bytes, spool.place,
                )  # fmt: skip
        return spool

    # --- writing --------------------------------------------------------------------------------------------

    def take(self, queue: deque[Captured], max_items: int) -> None:
        """Move up to ``max_items`` events from a queue to the spools, in order."""
        with self.lock:
            self._take([queue.popleft() for _ in range(min(max_items, len(queue)))])
        self._later.log()

    def _take(self, items: Iterable[Captured]) -> None:
        ready: dict[str, list[tuple[int, bytes]]] = {}
        for item in items:
            stream = item.stream or self._settings.stream
            if self._closed:
                self.losses.add(stream, _LATE)
                continue
            packed = self._pack(stream, item)
            if packed is not None:
                ready.setdefault(stream, []).append(packed)
        for stream, events in ready.items():
            self._write(stream, events)

    def _pack(self, stream: str, item: Captured) -> tuple[int, bytes] | None:
        """Return the time and the encoding of an event; an invalid one is set aside, or else lost."""
        try:
            if stream not in self._spools:
                record_stream(stream)
                labels.stream_id(stream)  # checks that the name has an id
            return item.pack(self._settings)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are recorded
            reason = str(error) or type(error).__name__
        try:
            self._set_aside(stream, item, reason)
        except Exception as error:  # noqa: BLE001 - as above
            self.losses.add(self._settings.stream, f"{reason}, and it cannot be set aside: {error}")
        return None

    def _set_aside(self, stream: str, item: Captured, reason: str) -> None:
        file = self._root / REFUSED
        if file.exists() and file.stat().st_size > ASIDE_BYTES:
            raise SpoolFullError(f"{file} has reached {ASIDE_BYTES} bytes")
        described = item.described(self._settings)
        set_aside(self._root, stream, described, reason, self._later.error)
        self.refused += 1

    def _write(self, stream: str, events: Sequence[tuple[int, bytes]]) -> None:
        written, reason = 0, f"the spool has reached {self._settings.spool_bytes} bytes, or the disk is full"
        try:
            if self._tell_lost_of(stream):
                written = self._spool(stream).append([body for _, body in events])
        except Exception as error:  # noqa: BLE001 - as above
            reason = f"the spool in {self._root} cannot be written: {error}"
        self.spooled += written
        missing = events[written:]
        if missing:
            self.losses.add(stream, reason, [when for when, _ in missing])

    def store(self, ready: Mapping[str, Sequence[bytes]]) -> None:
        """Write encoded events; they are durable when this returns. SpoolFullError if not all have room."""
        try:
            with self.lock:
                self._store(ready)
        finally:
            self._later.log()
        self.sync()

    def _store(self, ready: Mapping[str, Sequence[bytes]]) -> None:
        if self._closed:
            raise SpoolFullError("the feed is closed")
        for stream, bodies in ready.items():
            if not self._spool(stream).fits(bodies):
                raise SpoolFullError(f"there is no room for {counted(len(bodies), 'event')} of {stream}")
        for stream, bodies in ready.items():
            written = self._spool(stream).append(bodies)
            self.spooled += written
            if written < len(bodies):
                raise SpoolFullError(
                    f"there is no room for {counted(len(bodies) - written, 'event')} of {stream}"
                )

    # --- syncing --------------------------------------------------------------------------------------------

    def are_unsynced(self) -> bool:
        """Whether written events are not durable yet."""
        return any(any(spool.unsynced) for spool in list(self._spools.values()))

    def sync(self) -> None:
        """Sync the spools, concurrently with writes to them. A failed sync is retried by the next call."""
        failed: OSError | None = None
        with self._syncing:
            with self.lock:
                pending = [(spool, spool.take_unsynced()) for spool in self._spools.values()]
            for spool, unsynced in pending:
                try:
                    sync_segments(spool.place, unsynced)
                except OSError as error:
                    failed = error
                    with self.lock:
                        spool.unsynced |= unsynced
        if failed is not None:
            raise failed

    # --- what is lost ---------------------------------------------------------------------------------------

    def tell_lost(self) -> bool:
        """Write events that report losses, if there is room; False if there is nothing to report."""
        self._later.log()
        streams = self.losses.streams()
        if streams:
            with self.lock:
                for stream in streams:
                    self._tell_lost_of(stream)
            self._later.log()
        return bool(streams)

    def tell_damage(self, stream: str, count: int) -> None:
        """Count and record events that were damaged on the disk; the record is deferred if there is no room.

        Raises SpoolFullError if the feed is closed: the next feed reports the damage.
        """
        with self.lock:
            if self._closed:
                raise SpoolFullError("the feed is closed")
            self.losses.add(stream, DAMAGED, count=count)
        self.tell_lost()
        self.sync()

    def _tell_lost_of(self, stream: str) -> bool:
        event = self.losses.event(stream, self._settings.subject, self._settings.origin)
        if event is None:
            return True
        try:
            if self._spool(stream).append([event]) == 0:
                return False
        except OSError:
            return False
        self.losses.told(stream)
        return True

    def count_late(self, stream: str | None) -> None:
        """Count an event that was recorded after the feed was closed."""
        self.losses.add(stream or self._settings.stream, _LATE)
        self._later.log()

    # --- the end --------------------------------------------------------------------------------------------

    def reached(self) -> dict[str, int]:
        """Return the last number of each spool."""
        with self.lock:
            return {spool.name: spool.next - 1 for spool in self._spools.values()}

    def close(self, done: Callable[[str], int]) -> None:
        """Release all spools; ``done`` returns how far the hub has each. Later events are lost."""
        with self.lock:
            self._closed = True
            for spool in self._spools.values():
                try:
                    spool.close(done(spool.name))
                except Exception as error:  # noqa: BLE001 - the others are closed all the same
                    self._later.error("the spool %s cannot be closed: %s", spool.place, error)
            self._spools.clear()
        self._later.log()

    def abandon(self) -> None:
        """Close the files unchanged; in a forked child."""
        for spool in self._spools.values():
            spool.abandon()
