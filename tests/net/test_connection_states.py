"""The tables of steps are whole, and no bytes and no order of events leads to a step that is not in them."""

import asyncio
import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from veen.core.objects.error_envelope import ErrorEnvelope
from veen.net.byte_budget import ByteBudget
from veen.net.connection_states import RECEIVING, SENDING, Received, Receiving, Sending, Sent
from veen.net.host_names import Names
from veen.net.http_application import Bounds
from veen.net.http_connection import Connection
from veen.net.http_message import Request, Response, error_response

RECEIVING_STEPS = {
    "idle": {"bytes": "started", "begin": "head", "close": "closed"},
    "started": {"begin": "head", "close": "closed"},
    "head": {"headers": "body", "close": "closed"},
    "body": {
        "data": "body",
        "chunk": "chunk",
        "complete": "idle",
        "last": "closed",
        "upgrade": "started",
        "close": "closed",
    },
    "chunk": {"data": "body", "complete": "idle", "last": "closed", "close": "closed"},
    "closed": {"close": "closed"},
}
SENDING_STEPS = {
    "ready": {"handle": "answering", "stall": "stalled", "lose": "lost"},
    "answering": {"answered": "ready", "stall": "answering_stalled", "lose": "lost"},
    "stalled": {"resume": "ready", "lose": "lost"},
    "answering_stalled": {"answered": "stalled", "resume": "answering", "lose": "lost"},
    "lost": {"answered": "lost", "stall": "lost", "resume": "lost", "lose": "lost"},
}


@pytest.mark.parametrize(
    ("table", "steps", "states", "expected"),
    [(RECEIVING, Received, Receiving, RECEIVING_STEPS), (SENDING, Sent, Sending, SENDING_STEPS)],
)
def test_each_step_leads_where_it_should_and_all_others_raise(
    table: Mapping[Any, Mapping[Any, Any]], steps: Any, states: Any, expected: Mapping[str, Mapping[str, str]]
) -> None:
    assert set(expected) == set(states)
    for step, state in itertools.product(steps, states):
        if step in expected[state]:
            assert table[step][state] == expected[state][step]
        else:
            with pytest.raises(KeyError):
                table[step][state]


def test_a_step_that_is_not_in_the_table_is_not_taken_for_a_fault_of_the_client() -> None:
    connection, _, _ = connect(random.Random(0))
    connection._receiving = Receiving.BODY
    with pytest.raises(Exception, match="callback") as caught:
        connection.data_received(b"GET / HTTP/1.1\r\n")
    assert isinstance(caught.value.__context__, KeyError)
    connection._receiving = Receiving.IDLE
    connection._sending = Sending.STALLED
    with pytest.raises(KeyError):
        connection.pause_writing()


class Sink(asyncio.Transport):
    """Where a connection writes to."""

    def __init__(self, *, can_write_eof: bool) -> None:
        super().__init__()
        self._can_write_eof = can_write_eof
        self.is_reading_paused = False
        self.is_shut = False
        self.is_ended = False
        self.written: list[bytes] = []
        #: Called after each write, as transports pause a protocol.
        self.on_write: Callable[[], None] = lambda: None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert data
        assert not self.is_ended, "a transport raises an error here"
        self.written.append(bytes(data))
        self.on_write()

    def can_write_eof(self) -> bool:
        return self._can_write_eof

    def write_eof(self) -> None:
        self.is_ended = True

    def get_write_buffer_size(self) -> int:
        return 100

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def close(self) -> None:
        self.is_shut = True

    def abort(self) -> None:
        self.is_shut = True


class Slow:
    """Answers some requests at once, and others when it is told to."""

    def __init__(self, chance: random.Random, promptness: float) -> None:
        self._chance = chance
        self._promptness = promptness
        self.pending: list[Request] = []

    def max_body(self, method: str, target: str, content_type: str) -> int:  # noqa: ARG002 - of the protocol
        return 50

    def too_large(self, request: Request, size: int, limit: int) -> Response:  # noqa: ARG002 - of the protocol
        return Response(413)

    def reject(self, error: ErrorEnvelope, request: Request | None = None) -> Response:  # noqa: ARG002 - of the protocol
        return error_response(error, as_json=True)

    def handle(self, request: Request) -> None:
        assert not self.pending, "one at a time"
        if self._chance.random() < self._promptness:
            request.respond(Response(200))
        else:
            self.pending.append(request)

    def answer(self) -> None:
        if self.pending:
            self.pending.pop().respond(Response(200))


class Clock:
    """A clock that is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def connect(
    chance: random.Random, *, budget: int = 1 << 20, clock: Clock | None = None
) -> tuple[Connection, Sink, Slow]:
    app = Slow(chance, chance.random())
    max_header_bytes = chance.choice((300, 8000))
    bounds = Bounds(
        max_connections=1, max_header_bytes=max_header_bytes, header_sec=1, body_sec=1, idle_sec=1
    )
    names = Names(hosts=frozenset({"hub"}), advice="")
    connection = Connection(app, bounds, clock or Clock(), set(), ByteBudget(budget), names=names)
    sink = Sink(can_write_eof=chance.random() < 0.7)
    connection.connection_made(sink)
    return connection, sink, app


HEAD = b" HTTP/1.1\r\nhost: hub\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
PIECES = (
    b"GET /" + HEAD + b"\r\n",
    b"HEAD /" + HEAD + b"\r\n",
    b"POST /" + HEAD + b"content-length: 5\r\n\r\nhello",
    b"POST /" + HEAD + b"content-length: 5\r\nexpect: 100-continue\r\n\r\nhello",
    b"POST /" + HEAD + CHUNKED + b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nx: y\r\n\r\n",
    b"POST /" + HEAD + CHUNKED + b"0\r\n\r\n",
    b"GET /" + HEAD + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n",
    b"POST /" + HEAD + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\nab",
    b"POST /" + HEAD + b"connection: upgrade\r\nupgrade: h2c\r\n" + CHUNKED + b"2\r\nab\r\n0\r\n\r\n",
    b"\r\n\r\n",
)
#: What ends a connection, now or later.
LAST = (
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET /" + HEAD + b"connection: close\r\n\r\n",
    b"CONNECT hub:1" + HEAD + b"\r\n",
    b"GET / HTTP/1.1\r\nhost: other\r\n\r\n",
    b"GET /" + HEAD + b"x: " + b"y" * 400 + b"\r\n\r\n",
    b"POST /" + HEAD + b"content-length: 51\r\n\r\n",
    b"POST /" + HEAD + b"content-length: " + b"0" * 5000 + b"5\r\n\r\nhello",
    b"GET /" + HEAD + b"host: hub\r\n\r\n",
    b"POST /" + HEAD + CHUNKED + b"40\r\n" + b"z" * 64 + b"\r\n0\r\n\r\n",
    b"POST /" + HEAD + CHUNKED + b"0\r\nt: " + b"u" * 400,
    b"\x00junk",
)


def stream(chance: random.Random) -> bytes:
    """Return what a client sends."""
    pieces = [
        chance.choice(PIECES if chance.random() < 0.95 else LAST) for _ in range(chance.choice((1, 5, 60)))
    ]
    data = b"".join(pieces)
    if chance.random() < 0.2:
        at = chance.randrange(len(data))
        data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    return data


class Flow:
    """Pauses and resumes writing, as a transport does: in turns, and also in the middle of a write."""

    def __init__(self, chance: random.Random, connection: Connection, sink: Sink) -> None:
        self._chance = chance
        self._connection = connection
        self._stalled = False
        sink.on_write = self.written

    def written(self) -> None:
        if not self._stalled and self._chance.random() < 0.1:
            self.change()

    def change(self) -> None:
        self._stalled = not self._stalled
        if self._stalled:
            self._connection.pause_writing()
        else:
            self._connection.resume_writing()

    def resume(self) -> None:
        if self._stalled:
            self.change()


def play(seed: int) -> set[tuple[Receiving, Sending]]:
    """Give a connection bytes and events in some order; return the states that it was in after each."""
    chance = random.Random(seed)
    clock = Clock()
    connection, sink, app = connect(chance, budget=1 << 20 if chance.random() < 0.8 else 60, clock=clock)
    data = stream(chance)
    flow = Flow(chance, connection, sink)
    states = set()

    def send() -> None:
        nonlocal data
        if not sink.is_reading_paused:
            size = chance.choice((1, 7, 50, 400, 20_000))
            piece, data = data[:size], data[size:]
            if piece:
                connection.data_received(piece)

    def end() -> None:
        if not connection.eof_received():
            sink.close()

    def wait() -> None:
        clock.now += chance.choice((0.5, 2.0))
        if connection.deadline < clock.now:
            connection.expire()

    actions: tuple[Callable[[], object], ...] = (send, app.answer, flow.change)
    rare: tuple[Callable[[], object], ...] = (end, wait, connection.shut)

    async def run() -> None:
        for _ in range(chance.choice((10, 100))):
            chance.choice(rare if chance.random() < 0.02 else actions)()
            states.add((connection._receiving, connection._sending))
            if chance.random() < 0.3:
                await asyncio.sleep(0)  # a turn
            if sink.is_shut:
                break
        sink.on_write = lambda: None
        connection.connection_lost(None)
        app.answer()  # too late
        await asyncio.sleep(0)
        states.add((connection._receiving, connection._sending))

    asyncio.run(run())
    assert connection._memory.used == 0, "all bytes are given back"
    return states


def test_no_order_of_bytes_and_events_leads_out_of_the_tables() -> None:
    met = set().union(*map(play, range(1500)))
    assert {receiving for receiving, _ in met} == set(Receiving)
    assert {sending for _, sending in met} == set(Sending)


def answers_of(seed: int) -> None:
    """Send whole requests in pieces, among other events, and expect one answer to each."""
    chance = random.Random(seed)
    connection, sink, app = connect(chance)
    pieces = [chance.choice(PIECES) for _ in range(chance.choice((1, 5, 60)))]
    data = b"".join(pieces)
    flow = Flow(chance, connection, sink)

    async def run() -> None:
        nonlocal data
        while data:
            match chance.randrange(4):
                case 0 | 1 if not sink.is_reading_paused:
                    size = chance.choice((1, 7, 50, 400, 20_000))
                    piece, data = data[:size], data[size:]
                    connection.data_received(piece)
                case 2:
                    flow.change()
                case _:
                    app.answer()
                    await asyncio.sleep(0)
        sink.on_write = lambda: None
        flow.resume()
        for _ in range(len(pieces)):
            app.answer()
            await asyncio.sleep(0)

    asyncio.run(run())
    answers = [item for item in sink.written if not item.startswith(b"HTTP/1.1 100 ")]
    assert len(answers) == sum(piece.strip() != b"" for piece in pieces)
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)


def test_each_request_is_answered_once_whatever_happens_between_its_bytes() -> None:
    for seed in range(500):
        answers_of(seed)


def test_a_request_is_rejected_also_while_an_error_is_handled() -> None:
    connection, sink, _ = connect(random.Random(0))
    try:
        int("an error that is being handled: behind its answer the next request is read")
    except ValueError:
        connection.data_received(b"GET / HTTP/1.1\r\nhost: other\r\n\r\n")
    assert sink.written[0].startswith(b"HTTP/1.1 421 ")


def test_a_length_of_thousands_of_digits_is_rejected() -> None:
    connection, sink, _ = connect(random.Random(1))
    connection._bounds = Bounds(
        max_connections=1, max_header_bytes=16_000, header_sec=1, body_sec=1, idle_sec=1
    )
    connection.data_received(b"POST /" + HEAD + b"content-length: " + b"0" * 5000 + b"5\r\n\r\nhello")
    assert sink.written[0].startswith(b"HTTP/1.1 400 ")
