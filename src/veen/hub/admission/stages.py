"""What a message is after each stage of admission."""

from typing import NamedTuple

from veen.core.capability import Bucket
from veen.core.msg import Msg
from veen.storage import Record, StreamEpoch


class Sized(NamedTuple):
    """A request that is small enough to look at, and has done its work: rows 1 and 2."""

    body: bytes


class WellFormed(NamedTuple):
    """A message of a profile that this hub serves, intact: rows 3 to 7."""

    msg: Msg


class Authentic(NamedTuple):
    """A message that its client has signed: row 9. The record is what the rest of admission looks at."""

    record: Record


class Admitted(NamedTuple):
    """A message that may be appended: rows 10 to 18."""

    record: Record
    #: The time assigned to it (C-15).
    hub_ts: int
    #: Its stream and epoch, if they were found out by this message.
    binding: StreamEpoch | None
    #: What is left of its token's rate, if it has a token (C-52).
    bucket: Bucket | None
