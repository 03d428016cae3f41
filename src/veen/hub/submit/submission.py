"""A message on its way through the hub, with its outcome."""

from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING

from veen.core.errors import ProtocolError
from veen.core.objects.error_envelope import envelope_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from veen.admission.stages import Authentic, Sized
    from veen.core.objects.error_envelope import ErrorEnvelope


class MessageForm(Enum):
    """The encoding of a submission: a bare message or a request that contains it."""

    REQUEST = b"r"
    MSG = b"m"


class Submission:
    """One message. ``on_done`` is called once, on the loop, when it is durable or rejected.

    ``body`` is set when the prefilter has accepted it, ``record`` when the stateless rows have.
    """

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
        "size",
        "verified",
    )

    def __init__(self, form: MessageForm, size: int, on_done: "Callable[[Submission], None]") -> None:
        self.form = form
        self.size = size
        self.body: Sized
        self.on_done = on_done
        self.received = self.verified = perf_counter()
        self.record: Authentic | None = None
        self.error: ErrorEnvelope | None = None
        self.receipt = b""
        self.seq = 0
        # The time of its entry; only set if it was committed.
        self.hub_ts = 0

    def accept(self, body: "Sized") -> None:
        """Set the bytes to verify; they may be fewer than those of the request, for example if it is JSON."""
        self.body = body
        self.size = len(body)

    def reject(self, error: ProtocolError) -> None:
        """Store why the message was rejected."""
        self.error = envelope_of(error)
