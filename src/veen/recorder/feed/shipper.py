"""Shipping: from the spools of a client's directory to the hub, each event once and in order.

One process at a time ships, for all processes that record with this client: it holds the lock. A note in the
journal says which events are in flight before they are sealed. After any failure, the client first resends
unanswered messages; then the last number that the hub has for this key says which were recorded.

The backlog is the events in the spools that the hub does not have yet.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any, Final

from veen.client.client import Client
from veen.client.errors import RejectedError, UnsentError
from veen.client.home.directory import OUTBOX_DIR
from veen.client.hub_address import HubAddress
from veen.client.models import Draft
from veen.client.retry import Retry, is_passing
from veen.client.send import BATCH, Sender
from veen.client.session import Session
from veen.client.transport.resolve import open_hub
from veen.core.errors import Code, ProtocolError, VeenError
from veen.core.objects.msg import MsgContext
from veen.overlays.recorder.schemas import EVENT
from veen.recorder.configuration import GET_KEY, has_readers
from veen.recorder.event import body_of, described, writable
from veen.recorder.feed.settings import FeedSettings
from veen.recorder.feed.ship_journal import Journal, Note, read_progress
from veen.recorder.feed.spool import Spooled, SpoolReader, find_spools, segment_path, segments, whole_frames
from veen.stdx.atomic_file import append_file, remove_file
from veen.stdx.file_lock import lock, unlock

_logger: Final = logging.getLogger(__name__)

# Directory of spools and journal, inside that of the client.
SPOOL_DIR: Final = "recorder"
JOURNAL: Final = "journal"
_LOCK: Final = "lock"
# Events that can never be sent, one per line with the reason.
REFUSED: Final = "refused.jsonl"
# Polling interval for events, or the end of shipping, of other processes.
_POLL_SEC: Final = 1.0
# Backoff while the hub is unreachable or rejects: exponential with jitter.
PAUSES: Final = Retry(attempts=1, base_sec=0.2, cap_sec=30.0)


@dataclass(slots=True)
class Shipped:
    """Counts of the events that this process has shipped, and the state of shipping."""

    delivered: int = 0
    refused: int = 0
    # Why shipping is stalled; empty if it is not.
    trouble: str = ""
    # Stream -> why it is stalled.
    held: dict[str, str] = field(default_factory=dict)
    # Number of requests without a response, or that were rejected.
    failures: int = 0
    # For each spool the number of events that were skipped: set aside, or damaged on the disk.
    passed: dict[str, int] = field(default_factory=dict)
    # Streams whose events only this client can read: they are sealed to it alone.
    unshared: list[str] = field(default_factory=list)


# Reports how many events of a stream are unreadable. It is called before the journal skips them: if it
# raises, the journal does not, and they are reported again.
ReportDamage = Callable[[str, int], None]


class Shipper:
    """Sends the events of the spools, in a thread of its own."""

    def __init__(self, session: Session, settings: FeedSettings, report_damage: ReportDamage) -> None:
        """The key of the client is the principal: it is not rotated."""
        self.root = session.home.root / SPOOL_DIR
        self.root.mkdir(mode=0o700, exist_ok=True)
        self.session = replace(session, retry=PAUSES, rotation=None)
        self.shipped = Shipped()
        self._hub = session.hub_name
        self._settings = settings
        self._report_damage = report_damage
        self._asked: set[str] = set()
        self._options = settings.send_options
        self._client: Client | None = None
        self._journal: Journal | None = None
        self._lock_fd: int | None = None
        self._readers: dict[str, SpoolReader] = {}
        # Backoff of a stream, or of all: the time of the retry, and the number of failures.
        self._rest: dict[str, tuple[float, int]] = {}
        self._until, self._failures = 0.0, 0
        # Spools whose next event is sent alone, because a batch was too large.
        self._alone: set[str] = set()
        self._wake = threading.Event()
        self._hurried = self._stopping = False
        self._thread: threading.Thread | None = None

    # --- the thread -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread if not started; raises RuntimeError if no thread can be started."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="veen-recorder-ship", daemon=True)
            thread.start()
            self._thread = thread

    def wake(self) -> None:
        """Signal that there are new events."""
        self._wake.set()

    def hurry(self) -> None:
        """Retry now, without backoff."""
        self._hurried = True
        self._wake.set()

    def stop(self, timeout: float | None) -> bool:
        """Stop after the request in flight; False on timeout."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def done(self, spool: str) -> int:
        """Return how far a spool is recorded, whichever process ships."""
        journal = self._journal
        if journal is None:
            return read_progress(self.root / JOURNAL).done.get(spool, 0)
        return journal.done(spool)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wake.clear()
                self._wake.wait(self._safe_turn())
        finally:
            self._let_go()

    def _safe_turn(self) -> float:
        """Log any error: the thread must survive, since no other one ships."""
        try:
            return self.turn()
        except Exception as error:
            _logger.exception("shipping from %s failed; it is retried", self.root)
            self.shipped.trouble = str(error) or type(error).__name__
            return PAUSES.cap_sec

    def turn(self) -> float:
        """Ship pending events; return the time until the next attempt."""
        if self._hurried:
            self._hurried, self._until = False, 0.0
            self._rest.clear()
        if time.monotonic() < self._until:
            return self._until - time.monotonic()
        try:
            if self._journal is None and not self._take_over():
                return _POLL_SEC
            moved = self._ship_some()
        except Exception as error:  # noqa: BLE001 - whatever it is, the events are in the spool
            return self._fail(error)
        if self.shipped.trouble:
            _logger.warning("shipping to %s resumed", self._hub)
            self.shipped.trouble = ""
        self._failures = 0
        if moved:
            return 0.0
        until = [at for at, _ in self._rest.values()]
        return max(min([_POLL_SEC, *(at - time.monotonic() for at in until)]), 0.01)

    def _take_over(self) -> bool:
        if self._lock_fd is None:
            self._lock_fd = lock(self.root / _LOCK, wait=False)
        if self._lock_fd is None:
            return False
        self._journal = Journal(self.root / JOURNAL)
        return True

    def _let_go(self) -> None:
        try:
            if self._journal is not None:
                self._journal.close()
            self._hang_up()
        except OSError as error:  # the note was durable before: the next shipper settles what is in flight
            _logger.warning("the journal in %s cannot be closed: %s", self.root, error)
        finally:
            if self._lock_fd is not None:
                unlock(self._lock_fd)
                self._lock_fd = None

    def after_fork(self) -> "Shipper":
        """Return a shipper for a forked child: lock and connection belong to the parent."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
        return Shipper(replace(self.session, locked_state=None), self._settings, self._report_damage)

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _fail(self, error: Exception) -> float:
        self._hang_up()
        self._failures += 1
        self.shipped.failures += 1
        if not self.shipped.trouble:
            kind = "" if isinstance(error, VeenError) else f"{type(error).__name__}: "
            _logger.warning(
                "events stay in %s until the hub can be reached: %s%s", self.root, kind, error,
                exc_info=None if isinstance(error, VeenError | OSError) else error,
            )  # fmt: skip
        self.shipped.trouble = str(error) or type(error).__name__
        pause = PAUSES.pause(self._failures, None, self.session.random).seconds
        self._until = time.monotonic() + pause
        return pause

    # --- what is shipped ------------------------------------------------------------------------------------

    def _ship_some(self) -> bool:
        """Send one request per spool with events; False if there are none, or none can be sent now."""
        assert self._journal is not None
        for place in find_spools(self.root):
            if place.name not in self._readers:
                self._readers[place.name] = SpoolReader(place)
        moved = False
        for reader in self._readers.values():
            at, _ = self._rest.get(reader.stream, (0.0, 0))
            if at <= time.monotonic() and not self._stopping:
                moved |= self._ship(self._journal, reader)
        if not moved:
            self._journal.write()
        return moved

    def _ship(self, journal: Journal, reader: SpoolReader) -> bool:
        """Send a batch of a spool; False if there are no events, or none can be sent now."""
        self._settle(journal)
        done = journal.done(reader.name)
        batch = _row(reader.peek(done, 1 if reader.name in self._alone else BATCH))
        if not batch:
            if reader.passed > done:  # no readable event follows the damaged ones
                self._advance(journal, reader, reader.passed + 1, reader.passed)
            return False
        self.look_for_readers(reader.stream)
        try:
            sent = self._send(journal, reader, batch)
        except RejectedError as error:
            return self._reject(journal, reader, batch, error)
        except ProtocolError as error:
            if error.code is not Code.SIZE:
                raise
            self._set_aside(journal, reader, batch[0], str(error))
            return True
        self._advance(journal, reader, batch[0].number, batch[sent - 1].number)
        self.shipped.delivered += sent
        self._alone.discard(reader.name)
        self._rest.pop(reader.stream, None)
        self.shipped.held.pop(reader.stream, None)
        self._discard(journal, reader)
        return True

    def _send(self, journal: Journal, reader: SpoolReader, batch: Sequence[Spooled]) -> int:
        """Send events in one request; return how many the hub has accepted, in order."""

        def encode(nth: int, context: MsgContext) -> bytes:
            if nth == 0:
                journal.begin(
                    Note(
                        reader.name,
                        batch[0].number,
                        len(batch),
                        context.label,
                        context.client_id,
                        context.client_seq,
                    )
                )
            return body_of(batch[nth].data, context.client_id)

        drafts = [
            Draft(None, schema=EVENT.schema_id, encoded=partial(encode, nth)) for nth in range(len(batch))
        ]
        return len(self._open().run(Sender(self.session, reader.stream, self._options).send(drafts)))

    def _open(self) -> Client:
        if self._client is None:
            self._client = Client(self.session, open_hub(HubAddress.parse(self._hub), self._settings.timeout))
        return self._client

    def _settle(self, journal: Journal) -> None:
        """Determine which events in flight were recorded after a failure."""
        note = journal.progress.note
        if note is None:
            return
        reader = self._readers[note.spool]
        stream = reader.stream
        client = self._open()
        try:
            client.flush(stream)
        except UnsentError as error:
            _logger.info("resending events as new messages: %s", error)
        reached = self._reached(client, stream, note)
        accepted = max(min(reached - note.client_seq + 1, note.count), 0)
        if reached >= note.client_seq + note.count:
            _logger.warning(
                "another program used the key of this client on %s, so that events %d to %d of the spool %s "
                "are known to be recorded by their numbers only; give the recorder a client of its own",
                stream, note.first, note.first + accepted - 1, note.spool,
            )  # fmt: skip
        self._advance(journal, reader, note.first, note.first + accepted - 1)
        self.shipped.delivered += accepted
        for seq in range(note.client_seq + accepted, note.client_seq + note.count):
            # The events are still in the spool: the rejected messages are not needed.
            remove_file(self.session.home.root / OUTBOX_DIR / f"{note.label.hex()}-{seq}.refused")

    def _reached(self, client: Client, stream: str, note: Note) -> int:
        """Return the highest number of this key that the hub has."""
        home = self.session.home
        label_state = home.load().labels.get(note.label)
        if label_state is None:  # nothing was sent before the note, or the client's state was deleted
            client.resync(stream)
            label_state = home.load().labels.get(note.label)
        writer = None if label_state is None else label_state.writers.get(note.client_id)
        return 0 if writer is None else writer.client_seq

    def _discard(self, journal: Journal, reader: SpoolReader) -> None:
        """Remove segments that the hub has, once the journal that prevents sending them again is durable."""
        done = journal.done(reader.name)
        if reader.can_discard(done):
            journal.write()
            journal.sync()
            reader.discard(done)

    # --- what cannot be sent --------------------------------------------------------------------------------

    def _reject(
        self, journal: Journal, reader: SpoolReader, batch: Sequence[Spooled], error: RejectedError
    ) -> bool:
        """Set aside an event that is too large; back off if the stream may be accepted later."""
        if error.code == Code.SIZE.value:
            if len(batch) == 1:
                self._set_aside(journal, reader, batch[0], str(error))
            else:
                self._alone.add(reader.name)
            return True
        self._settle(journal)
        _, failures = self._rest.get(reader.stream, (0.0, 0))
        pause = PAUSES.pause(failures + 1, error.envelope.retry_after, self.session.random)
        self._rest[reader.stream] = (time.monotonic() + pause.seconds, failures + 1)
        if reader.stream not in self.shipped.held and not is_passing(error.envelope):
            _logger.error(
                "the hub rejects events of %s, which stay in %s until it accepts them: %s; if the client's "
                "token has expired, issue a new one: veen cap issue, then veen cap authorize",
                reader.stream, reader.place, error,
            )  # fmt: skip
        self.shipped.held[reader.stream] = str(error)
        self.shipped.failures += 1
        return False

    def _set_aside(self, journal: Journal, reader: SpoolReader, event: Spooled, reason: str) -> None:
        """Write an event that can never be sent to a file, and continue after it."""
        self._settle(journal)
        set_aside(self.root, reader.stream, described(event.data), reason)
        self._advance(journal, reader, event.number, event.number)
        self.shipped.refused += 1
        self._count_passed(reader, 1)
        self._alone.discard(reader.name)

    def _advance(self, journal: Journal, reader: SpoolReader, first: int, last: int) -> None:
        """Mark events as processed up to ``last``; a gap before ``first`` means damaged events."""
        missing = first - 1 - journal.done(reader.name)
        if missing > 0:
            _logger.error("%d events of %s can no longer be read: %s", missing, reader.stream, reader.place)
            self._report_damage(reader.stream, missing)
            self._count_passed(reader, missing)
        journal.settle(reader.name, last)

    def _count_passed(self, reader: SpoolReader, count: int) -> None:
        passed = self.shipped.passed
        passed[reader.name] = passed.get(reader.name, 0) + count

    def look_for_readers(self, stream: str) -> None:
        """Warn once per stream if only this client can read what it records there."""
        if stream in self._asked:
            return
        self._asked.add(stream)
        if not has_readers(self.session.secrets, self._options, stream):
            self.shipped.unshared.append(stream)
            _logger.warning(
                "only this client can read what it records on %s: it has no key of the stream, and seals to "
                "itself; %s; then open the feed again",
                writable(stream), GET_KEY,
            )  # fmt: skip


def set_aside(
    root: Path, stream: str, event: object, reason: str, log: Callable[..., None] = _logger.error
) -> None:
    """Append an event that can never be sent to the file of such events."""
    line = json.dumps({"stream": stream, "reason": reason, "event": event}, ensure_ascii=False, default=repr)
    append_file(root / REFUSED, writable(line).encode() + b"\n")
    log(
        "an event of %s can never be sent and was set aside in %s: %s; correct it and record it with: "
        "veen recorder import FILE --stream %s",
        writable(stream), root / REFUSED, writable(reason), writable(stream),
    )  # fmt: skip


def _row(events: Sequence[Spooled]) -> list[Spooled]:
    """Return the events up to the first gap in their numbers."""
    if not events:
        return []
    first = events[0].number
    return [
        event for _, event in takewhile(lambda pair: pair[1].number == first + pair[0], enumerate(events))
    ]


def spool_depth(home: Path) -> dict[str, Any] | None:
    """Return the number of events and bytes in the spools of a client; None if it has no spools."""
    root = home / SPOOL_DIR
    if not root.is_dir():
        return None
    done = read_progress(root / JOURNAL).done
    events = size = 0
    for place in find_spools(root):
        last = done.get(place.name, 0)
        firsts = segments(place)
        for first, after in zip_longest(firsts, firsts[1:]):
            try:
                path = segment_path(place, first)
                size += path.stat().st_size
                end = after or max(
                    (item.number + 1 for item in whole_frames(path.read_bytes(), first)), default=first
                )
            except FileNotFoundError:  # removed meanwhile: the hub has it
                continue
            events += max(end - max(first, last + 1), 0)
    return {"events": events, "bytes": size}
