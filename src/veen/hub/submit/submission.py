"""A message on its way through the hub, and what has become of it."""

from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING

from veen.core.errors import ProtocolError
from veen.core.objects.error_envelope import envelope_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from veen.core.objects.error_envelope import ErrorEnvelope
    from veen.core.objects.new_entry import NewEntry


class MessageForm(Enum):
    """How the bytes of a submission hold the message."""

    REQUEST = b"r"
    MSG = b"m"


class Submission:
    """One message. ``on_done`` is called once, on the loop, when its fate is sealed: durable or refused."""

    __slots__ = (
        "body",
        "error",
        "form",
        "hub_ts",
        "on_done",
        "receipt",
        "received",
        "record",
        "seq",
        "verified",
    )

    def __init__(self, form: MessageForm, body: bytes, on_done: "Callable[[Submission], None]") -> None:
        self.form = form
        self.body = body
        self.on_done = on_done
        self.received = self.verified = perf_counter()
        self.record: NewEntry | None = None
        self.error: ErrorEnvelope | None = None
        self.receipt = b""
        self.seq = 0
        #: The time of its entry, if it has one.
        self.hub_ts = 0

    def refuse(self, error: ProtocolError) -> None:
        """Remember why the message was refused."""
        self.error = envelope_of(error)
