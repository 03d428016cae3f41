"""Recording: pending records of the store are written to the log, exactly once despite crashes.

One thread uses the client. Before anything is sent the store marks it as possibly in the log; a marked record
is searched for before it is sent again, after the last event that is known to be there.

The body of an event is a function of the stored state, byte for byte, so an event that may have been sent is
found by its body (QAL).
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from veen.client.client import Client
from veen.client.errors import ClientError, NetworkError, RejectedError
from veen.client.fold.incremental import stream_epochs
from veen.client.fold.interpret import typed
from veen.client.models import Message, SendOptions
from veen.client.send import send_draft
from veen.core.encoding import canonical_json
from veen.core.errors import Code, Detail, ProtocolError, VeenError
from veen.core.limits import DEFAULT_LIMITS
from veen.core.types import VerifyKey
from veen.overlays.operations.schemas import QUERY
from veen.overlays.recorder.schemas import EVENT
from veen.overlays.schema import Schema
from veen.query.digest import ResultDigest
from veen.query.errors import QueryError
from veen.query_service.store import Kind, PendingRecord, Query, RecordedAt, State, Store
from veen.stdx.backoff import backoff_sec
from veen.stdx.grammar import counted
from veen.stdx.json_log import LogEvent

_log = logging.getLogger(__name__)

REQUESTS: Final = "record/query/requests"
RESULTS: Final = "record/query/results"
AUDIT: Final = "record/query/audit/service"
STREAMS: Final = {Kind.REQUEST: REQUESTS, Kind.RESULT: RESULTS, Kind.AUDIT: AUDIT, Kind.READ: AUDIT}
# The origin of the events, and the resource class of audit records.
ORIGIN: Final = "veen-query"
RESOURCE_CLASS: Final = "record"
# Maximum size of an event besides its digest.
_BESIDE_BYTES: Final = 4096
# Size limit of a digest: it must fit in one message.
MOST_DIGEST_BYTES: Final = DEFAULT_LIMITS.max_plain_body_bytes - _BESIDE_BYTES


@dataclass(frozen=True, slots=True)
class Event:
    """A message to be written to the log."""

    stream: str
    schema: Schema
    body: dict[str, Any]

    def encode(self) -> bytes:
        """Return its body."""
        return self.schema.encode(self.body)


def recordable(digest: ResultDigest) -> str:
    """Return a digest as recorded; the query fails if it does not fit in a message."""
    data = digest.encode()
    if len(data) > MOST_DIGEST_BYTES:
        raise QueryError(
            "execution_failed",
            f"the digest has {len(data)} bytes, and a message of the log takes {MOST_DIGEST_BYTES}: it names"
            f" {counted(len(digest.upto or ()), 'label')}, so ask for fewer streams at once",
        )
    return data.decode()


def event_of(kind: Kind, query: Query, signer: VerifyKey) -> Event:
    """Return an event about a query, signed by the recording key (QRY-026, QRY-037)."""
    if kind is Kind.AUDIT:
        return Event(AUDIT, QUERY, _audit(query, query.identity, query.received_at))
    if kind is Kind.REQUEST:
        event_type, when, payload = "query.submitted", query.received_at, query.descriptor
    else:
        assert query.digest is not None, "an answer has a digest before it is recorded"
        assert query.ended_at is not None, "and a time"
        event_type, when, payload = "query.result", query.ended_at, query.digest
    metadata = {"result_id": query.result_id}
    if kind is Kind.REQUEST:
        # The service signs, so the principal of the event is its key (SDR-002).
        metadata["requester_identity"] = query.identity
    body = EVENT.make(
        subject_id=query.principal,
        principal_id=signer.hex(),
        event_type=event_type,
        event_time=when,
        origin=ORIGIN,
        payload=payload,
        metadata=metadata,
    )
    return Event(STREAMS[kind], EVENT, body)


def read_event(query: Query, reader: str, at: int) -> Event:
    """Return the audit record of a reader other than the query's owner."""
    return Event(AUDIT, QUERY, _audit(query, reader, at))


def _audit(query: Query, requester: str, at: int) -> dict[str, Any]:
    descriptor: Any = canonical_json.parse(query.descriptor.encode())
    reason = (descriptor.get("meta") or {}).get("reason") if requester == query.identity else None
    # One resource per stream: an auditor searches by the name of a stream (QAL-004).
    outcome: dict[str, Any] = {
        "result_id": query.result_id,
        "status": query.state.public_name,
        "resources": descriptor["scope"],
    }
    if query.error_code is not None:
        outcome["error_code"] = query.error_code
    digest = None
    if query.state is State.COMPLETED and query.digest is not None:
        digest_fields: Any = canonical_json.parse(query.digest.encode())
        digest = bytes.fromhex(digest_fields["rows_hash"])  # QAL-002
    return QUERY.make(
        requester_identity=bytes.fromhex(requester),
        resource_identifier=",".join(descriptor["scope"]),
        resource_class=RESOURCE_CLASS,
        # As text: a rate is a fraction, which bodies cannot have.
        query_parameters=query.descriptor,
        purpose_code=reason if isinstance(reason, str) else None,
        result_digest=digest,
        request_time=at,
        metadata=outcome,
    )


# A hub that needs longer for one event counts as not working.
_SLOW_SEC: Final = 3.0
# How long a stop waits for the event in flight; a hub may hang for longer.
_STOP_SEC: Final = 3.0
# The signing key is the principal of the events, so it must not rotate (SDR-023).
_OPTIONS: Final = SendOptions(keep_key=True)


class Sender:
    """Sends events to the log. Not thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def signer(self) -> VerifyKey:
        """The key that events are signed with."""
        return self._client.session.secrets.client.signing_key.public_key

    def send(self, event: Event) -> RecordedAt:
        """Send an event; returns when it is durable and its receipt is verified."""
        draft = typed(event.schema, event.body)
        sent = send_draft(self._client, event.stream, draft, _OPTIONS)
        return self._place(event.stream, sent.epoch, sent.receipt.encode(), sent.position)

    def find(self, event: Event, after: tuple[int, int]) -> RecordedAt | None:
        """Search for an event that may be in the log, after a position of its stream."""
        client, (epoch, seq) = self._client, after
        client.flush(event.stream)  # it may be in flight: resend it first
        body = event.encode()
        for each in stream_epochs(client, event.stream):
            if each < epoch:
                continue
            first = seq + 1 if each == epoch else 1
            for message in client.read(event.stream, start=first, epoch=each):
                if self._is(message, event, body):
                    return self._place(event.stream, each, message.receipt.encode(), message.position)
        return None

    def _is(self, message: Message, event: Event, body: bytes) -> bool:
        """Whether a message is the event: others could send the same body, but not with our signature."""
        header = message.header
        return (
            header is not None
            and message.sender == self.signer
            and header.schema == event.schema.schema_id
            and message.raw_body() == body
        )

    def _place(self, stream: str, epoch: int, receipt: bytes, seq: int) -> RecordedAt:
        return RecordedAt(stream, epoch, seq, self._client.connect().identity.hub_id.hex(), receipt)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Backoff of a stream after a failure: exponential, up to a maximum."""

    first_sec: float = 0.5
    # After a rejection, which may last long.
    refused_sec: float = 30.0
    # After a network error: submits wait for the hub to be back.
    unreached_sec: float = 2.0

    def after(self, failures: int, error: Exception) -> float:
        """Return the pause after this number of consecutive failures, the last of which is ``error``."""
        cap_sec = self.unreached_sec if isinstance(error, NetworkError) else self.refused_sec
        return backoff_sec(failures, first_sec=self.first_sec, cap_sec=cap_sec)


@dataclass(frozen=True, slots=True)
class _Failing:
    """A stream in backoff, and until when."""

    failures: int
    until: float


class Recorder:
    """The thread that records; ``on_step`` is called after each state change of a query due to a record."""

    def __init__(
        self,
        store: Store,
        sender: Sender,
        clock: Callable[[], int],
        *,
        on_step: Callable[[Query], None],
        on_fatal: Callable[[Exception], None],
        pauses: Pauses | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``monotonic``: a monotonic clock in seconds, for backoff and timeouts."""
        self._store = store
        self._sender = sender
        self._clock = clock
        self._on_step = on_step
        self._on_fatal = on_fatal
        self._pauses = pauses or Pauses()
        self._monotonic = monotonic
        self._wake = threading.Event()
        self._ended = threading.Event()
        # Streams whose last event was not accepted; other streams are not affected.
        self._failing: dict[str, _Failing] = {}
        # Since when an event is in flight.
        self._sending: float | None = None
        self._thread = threading.Thread(target=self._run, name="veen-recorder", daemon=True)

    def start(self) -> None:
        """Start with the pending records of the store."""
        self._thread.start()

    def wake(self) -> None:
        """Signal that there is something to record."""
        self._wake.set()

    def stop(self, patience_sec: float = _STOP_SEC) -> None:
        """Stop after the event in flight; the rest is sent after the next start.

        On timeout the event is abandoned, as after a crash: the next start searches for it.
        """
        self._ended.set()
        self._wake.set()
        self._thread.join(patience_sec)
        if self._thread.is_alive():
            _log.warning(LogEvent("not-waited-for-the-hub"))
        else:
            self._sender.close()

    @property
    def is_working(self) -> bool:
        """Whether the last event of every stream was accepted, and none is in flight for too long."""
        since = self._sending
        return not self._failing and (since is None or self._monotonic() - since < _SLOW_SEC)

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._wake.clear()
                self._record_all()
                self._wake.wait(self._pause())
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is recorded any more
            if not self._ended.is_set():  # otherwise the thread was abandoned, and the store is closed
                self._on_fatal(error)

    def _pause(self) -> float | None:
        """Return the time until the next retry; None if there is nothing to retry."""
        if not self._failing:
            return None
        return max(0.0, min(item.until for item in self._failing.values()) - self._monotonic())

    def _record_all(self) -> bool:
        """Record all pending records; return whether all succeeded. A stream backs off after a failure.

        A record that is too large for the hub is dropped for good, and its stream continues.
        """
        number = 0
        while not self._ended.is_set():
            record = self._store.next_record(after=number)
            if record is None:
                break
            number = record.number
            stream = STREAMS[record.kind]
            if self._is_left_alone(stream):
                continue
            try:
                self._record(record)
            except (VeenError, OSError) as error:
                self._note_failure(record, error)
                if _is_too_long(error):
                    self._give_up(record)
                    self._failing.pop(stream, None)  # the backoff may be due to this record
                    continue
                self._leave_alone(stream, error)
                if isinstance(error, NetworkError):
                    break  # the others would fail as well
            else:
                self._note_success(stream)
        return not self._failing

    def _is_left_alone(self, stream: str) -> bool:
        failing = self._failing.get(stream)
        return failing is not None and self._monotonic() < failing.until

    def _leave_alone(self, stream: str, error: Exception) -> None:
        before = self._failing.get(stream)
        failures = 1 if before is None else before.failures + 1
        pause = self._pauses.after(failures, error)
        self._failing[stream] = _Failing(failures, self._monotonic() + pause)

    def _note_success(self, stream: str) -> None:
        if self._failing.pop(stream, None) is not None:
            _log.info(LogEvent("recording-again", stream=stream))

    def _note_failure(self, record: PendingRecord, error: Exception) -> None:
        known = isinstance(error, ClientError)
        event = LogEvent("not-recorded", kind=record.kind, result_id=record.query.result_id, error=str(error))
        _log.log(logging.WARNING if known else logging.ERROR, event)

    def _give_up(self, record: PendingRecord) -> None:
        if record.kind in (Kind.REQUEST, Kind.RESULT):
            text = "the hub does not take so long a record of the query: ask for fewer streams at once"
            self._store.give_up(record, text, self._clock())

    def _event(self, record: PendingRecord) -> Event:
        if record.kind is Kind.READ:
            return read_event(record.query, record.reader, record.at)
        return event_of(record.kind, record.query, self._sender.signer)

    def _record(self, record: PendingRecord) -> None:
        self._sending = self._monotonic()
        try:
            self._send(record)
        finally:
            self._sending = None

    def _send(self, record: PendingRecord) -> None:
        event = self._event(record)
        place = None
        if record.tried:
            place = self._sender.find(event, self._store.last_place(event.stream))
        if place is None:
            self._store.trying(record)
            place = self._sender.send(event)
        self._on_step(self._store.recorded(record, place, self._clock()))


def _is_too_long(error: Exception) -> bool:
    """Whether a message was not sent, or rejected, because of its size."""
    if isinstance(error, ProtocolError):
        return error.detail is Detail.FIELD_SIZE
    return isinstance(error, RejectedError) and error.code == Code.SIZE
