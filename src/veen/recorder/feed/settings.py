"""The settings of a feed: one object, passed from the caller down to the spools and the shipper."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.client.models import Recipient, SendOptions
from veen.client.transport.resolve import DEFAULT_TIMEOUT_SEC
from veen.core.objects.capability import CapToken
from veen.recorder.configuration import record_stream
from veen.recorder.event import Defaults

QUEUE_EVENTS: Final = 10_000
SPOOL_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings(Defaults):
    """How a feed works.

    Attributes:
        stream: The default stream of events.
        origin: The component that records; by default the name of the program.
        subject: The default subject of events; by default the origin.
        max_payload: The maximum size of an encoded payload in bytes; the same for metadata.
        queue_events: The size of the queue in memory.
        spool_bytes: The maximum size on disk, per stream, of events that the hub does not have yet.
        durable: Whether ``Feed.record`` returns only when the event is on disk.
        timeout: Seconds to wait for one response of the hub.
        to: The card or key to seal to; by default the stream's readers.
        token: The token to send with; by default the one that the client has stored for the stream.
    """

    stream: str
    origin: str = ""
    subject: str = ""
    queue_events: int = QUEUE_EVENTS
    spool_bytes: int = SPOOL_BYTES
    durable: bool = False
    timeout: float = DEFAULT_TIMEOUT_SEC
    to: Recipient | None = None
    token: CapToken | None = None

    def __post_init__(self) -> None:
        """Default origin and subject; raise StreamNameError if the stream is not one of the recorder."""
        record_stream(self.stream)
        origin = self.origin or Path(sys.argv[0]).name or "python"
        object.__setattr__(self, "origin", origin)
        object.__setattr__(self, "subject", self.subject or origin)

    @property
    def send_options(self) -> SendOptions:
        """Options for sending: the key is the principal, so it is not rotated."""
        return SendOptions(to=self.to, token=self.token, store_body=False, keep_key=True)
