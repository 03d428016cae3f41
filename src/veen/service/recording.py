"""Recording: what the store says is to be in the log gets there, once, however often somebody dies meanwhile.

One thread has the client. Before anything is sent the store notes that it may be in the log; what may be
there is looked for before it is sent again, behind the last event that is known to be there.
"""

import threading
from collections.abc import Callable
from typing import Final

from veen.client.client import Client, ReadOptions
from veen.client.errors import ClientError, NetworkError, RefusedError
from veen.client.interpreting import typed
from veen.client.reading import Message
from veen.client.records import stream_epochs
from veen.client.sending import Options
from veen.core.errors import Code, Detail, ProtocolError, VeenError
from veen.core.types import VerifyKey
from veen.hub.logs import Log
from veen.service.events import STREAMS, Event, event_of, read_event
from veen.service.store import Kind, Place, Query, Record, Store

_FIRST_PAUSE_SEC: Final = 0.5
_LONGEST_PAUSE_SEC: Final = 30.0
#: The key that signs is the principal of the events: it stays (SDR-023).
_OPTIONS: Final = Options(keep_key=True)


class Sender:
    """Puts events in the log; one thread at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def signer(self) -> VerifyKey:
        """The key that events are signed with."""
        return self._client.session.secrets.client.signing_key.public_key

    def send(self, event: Event) -> Place:
        """Send an event; returns when it is durable and its receipt was checked."""
        draft = typed(event.schema, event.body)
        sent = self._client.send(event.stream, None, draft=draft, options=_OPTIONS)
        return self._place(event.stream, sent.epoch, sent.receipt.encode(), sent.stream_seq)

    def find(self, event: Event, after: tuple[int, int]) -> Place | None:
        """Look for an event that may be in the log, behind a place of its stream."""
        client, (epoch, seq) = self._client, after
        client.flush(event.stream)  # it may be on its way: then it is there now
        body = event.encode()
        for each in stream_epochs(client, event.stream):
            if each < epoch:
                continue
            first = seq + 1 if each == epoch else 1
            for message in client.stream(event.stream, options=ReadOptions(from_seq=first, epoch=each)):
                if self._is(message, event, body):
                    return self._place(event.stream, each, message.receipt.encode(), message.stream_seq)
        return None

    def _is(self, message: Message, event: Event, body: bytes) -> bool:
        """Tell whether a message is the event: anybody may write the same, but not sign it as we do."""
        header = message.header
        return (
            header is not None
            and message.client_id == self.signer
            and header.schema == event.schema.schema_id
            and message.raw_body() == body
        )

    def _place(self, stream: str, epoch: int, receipt: bytes, seq: int) -> Place:
        return Place(stream, epoch, seq, self._client.meet().identity.hub_id.hex(), receipt)

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()


class Recorder:
    """The thread that records; ``on_step`` hears of every step that a query has taken because of it."""

    def __init__(
        self,
        store: Store,
        sender: Sender,
        log: Log,
        clock: Callable[[], int],
        *,
        on_step: Callable[[Query], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._sender = sender
        self._log = log
        self._clock = clock
        self._on_step = on_step
        self._on_fatal = on_fatal
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="veen-recorder", daemon=True)

    def start(self) -> None:
        """Begin with what was left."""
        self._thread.start()

    def wake(self) -> None:
        """Tell that there is something to record."""
        self._wake.set()

    def stop(self) -> None:
        """End, when what is being sent is answered; the rest is sent at the next start."""
        self._ended.set()
        self._wake.set()
        self._thread.join()
        self._sender.close()

    @property
    def is_working(self) -> bool:
        """Whether the hub has taken what it was last given."""
        return self._failures == 0

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._wake.clear()
                if self._record_all():
                    self._wake.wait()
                else:
                    self._ended.wait(self._pause())
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is recorded any more
            self._on_fatal(error)

    def _pause(self) -> float:
        return min(_LONGEST_PAUSE_SEC, _FIRST_PAUSE_SEC * 2.0 ** min(self._failures - 1, 10))

    def _record_all(self) -> bool:
        """Record what there is; tell whether all of it was. A stream is left alone when it was refused.

        What is too long for the hub is not in the log, and never will be: others of its stream go on.
        """
        number = 0
        refused: set[str] = set()
        while not self._ended.is_set():
            record = self._store.next_record(after=number)
            if record is None:
                break
            number = record.number
            stream = STREAMS[record.kind]
            if stream in refused:
                continue
            try:
                self._record(record)
            except (VeenError, OSError) as error:
                self._note_failure(record, error)
                if _is_too_long(error):
                    self._give_up(record)
                    continue
                refused.add(stream)
                if isinstance(error, NetworkError):
                    break  # the others would not get through either
        if not refused and self._failures:
            self._log.event("info", "recording-again")
        self._failures = self._failures + 1 if refused else 0
        return not refused

    def _note_failure(self, record: Record, error: Exception) -> None:
        known = isinstance(error, ClientError)
        self._log.event(
            "warn" if known else "error",
            "not-recorded",
            kind=record.kind,
            result_id=record.query.result_id,
            error=str(error),
        )

    def _give_up(self, record: Record) -> None:
        if record.kind in (Kind.REQUEST, Kind.RESULT):
            text = "the hub does not take so long a record of the query: ask for fewer streams at once"
            self._store.give_up(record, text, self._clock())

    def _event(self, record: Record) -> Event:
        if record.kind is Kind.READ:
            return read_event(record.query, record.reader, record.at)
        return event_of(record.kind, record.query, self._sender.signer)

    def _record(self, record: Record) -> None:
        event = self._event(record)
        place = None
        if record.tried:
            place = self._sender.find(event, self._store.last_place(event.stream))
        if place is None:
            self._store.trying(record)
            place = self._sender.send(event)
        self._on_step(self._store.recorded(record, place, self._clock()))


def _is_too_long(error: Exception) -> bool:
    """Tell whether a message was not sent, or not taken, because of its size."""
    if isinstance(error, ProtocolError):
        return error.detail is Detail.FIELD_SIZE
    return isinstance(error, RefusedError) and error.code == Code.SIZE
