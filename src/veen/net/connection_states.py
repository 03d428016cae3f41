"""The states of a connection, of receiving and of sending, and every step between them.

Receiving                                      Sending

IDLE --BYTES--> STARTED                        READY <--HANDLE, ANSWERED--> ANSWERING
  |                |                             ^                             ^
  '--BEGIN--> HEAD <--BEGIN                 STALL, RESUME                 STALL, RESUME
                | HEADERS                        v                             v
              BODY <--DATA, CHUNK--> CHUNK     STALLED <---ANSWERED--- ANSWERING_STALLED
                |                      |
                +--COMPLETE--> IDLE----+       LOSE leads from anywhere to LOST
                +--LAST----> CLOSED----+

CLOSE leads from anywhere to CLOSED; UPGRADE from BODY to STARTED: the head is parsed again without it.
A step that is not in its table is a bug, never the fault of a peer: it raises KeyError.
"""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Final


class Receiving(StrEnum):
    """What has arrived of the next request."""

    # Nothing.
    IDLE = auto()
    # Bytes, but no request line yet.
    STARTED = auto()
    # A part of its head, which the parser reports only when it is complete.
    HEAD = auto()
    # Its head.
    BODY = auto()
    # Its head and a chunk header; trailers may follow the last chunk.
    CHUNK = auto()
    # No more requests are accepted; further input is ignored.
    CLOSED = auto()


class Received(StrEnum):
    """A step of receiving."""

    BYTES = auto()
    BEGIN = auto()
    HEADERS = auto()
    CHUNK = auto()
    DATA = auto()
    COMPLETE = auto()
    # As COMPLETE, of a request that asks to close the connection.
    LAST = auto()
    UPGRADE = auto()
    CLOSE = auto()


class Sending(StrEnum):
    """Whether a request is being handled, and whether the client reads responses."""

    # The next request can be handled.
    READY = auto()
    # A request is being handled.
    ANSWERING = auto()
    # The client does not read its responses.
    STALLED = auto()
    # Both.
    ANSWERING_STALLED = auto()
    # The connection is lost.
    LOST = auto()


class Sent(StrEnum):
    """A step of sending."""

    HANDLE = auto()
    ANSWERED = auto()
    STALL = auto()
    RESUME = auto()
    LOSE = auto()


# The next state, by step and state.
RECEIVING: Final[Mapping[Received, Mapping[Receiving, Receiving]]] = {
    Received.BYTES: {Receiving.IDLE: Receiving.STARTED},
    Received.BEGIN: {Receiving.IDLE: Receiving.HEAD, Receiving.STARTED: Receiving.HEAD},
    Received.HEADERS: {Receiving.HEAD: Receiving.BODY},
    Received.CHUNK: {Receiving.BODY: Receiving.CHUNK},
    Received.DATA: {Receiving.BODY: Receiving.BODY, Receiving.CHUNK: Receiving.BODY},
    Received.COMPLETE: {Receiving.BODY: Receiving.IDLE, Receiving.CHUNK: Receiving.IDLE},
    Received.LAST: {Receiving.BODY: Receiving.CLOSED, Receiving.CHUNK: Receiving.CLOSED},
    Received.UPGRADE: {Receiving.BODY: Receiving.STARTED},
    Received.CLOSE: dict.fromkeys(Receiving, Receiving.CLOSED),
}
SENDING: Final[Mapping[Sent, Mapping[Sending, Sending]]] = {
    Sent.HANDLE: {Sending.READY: Sending.ANSWERING},
    Sent.ANSWERED: {
        Sending.ANSWERING: Sending.READY,
        Sending.ANSWERING_STALLED: Sending.STALLED,
        Sending.LOST: Sending.LOST,
    },
    Sent.STALL: {
        Sending.READY: Sending.STALLED,
        Sending.ANSWERING: Sending.ANSWERING_STALLED,
        Sending.LOST: Sending.LOST,
    },
    Sent.RESUME: {
        Sending.STALLED: Sending.READY,
        Sending.ANSWERING_STALLED: Sending.ANSWERING,
        Sending.LOST: Sending.LOST,
    },
    Sent.LOSE: dict.fromkeys(Sending, Sending.LOST),
}
