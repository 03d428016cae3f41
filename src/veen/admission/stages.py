"""What a message is after each stage of admission, and the view of the log that the last stage needs.

Types that cost nothing at run time: each function accepts only what the stage before it has returned.
"""

from typing import NamedTuple, NewType, Protocol

from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.objects.capability import Bucket, CapToken
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, Label, LeafHash, VerifyKey

# Rows 1 and 2: a request that is small enough to parse, and has shown its proof of work.
Sized = NewType("Sized", bytes)

# Rows 3 to 7: an intact message of a profile that this hub serves.
WellFormed = NewType("WellFormed", Msg)

# Row 9: a message that its client has signed, as the record that the rest of admission uses.
Authentic = NewType("Authentic", NewEntry)


class Admitted(NamedTuple):
    """A message that may be appended: rows 10 to 18."""

    record: Authentic
    # The time assigned to it (C-15).
    hub_ts: int
    # Its stream and epoch, if this message revealed them.
    binding: StreamEpoch | None
    # The bucket of its token after it, if it has a token (C-52).
    bucket: Bucket | None


class LogView(Protocol):
    """The log before the message, as far as admission needs it. Each call is one lookup."""

    def last_seq(self, label: Label) -> int:
        """Return the position of the newest entry of a label, 0 if it is empty; reject a closed label."""

    def client(self, label: Label, client_id: VerifyKey) -> ClientCursor:
        """Return the last accepted position of a client in a label."""

    def client_since(self, client_id: VerifyKey) -> int | None:
        """Return when a client was first seen, in any label."""

    def auth(self, auth_ref: AuthRef) -> AuthRecord | None:
        """Return when a token was first seen, and its bucket."""

    def token(self, auth_ref: AuthRef) -> CapToken | None:
        """Return an authorized token."""

    def binding(self, label: Label) -> StreamEpoch | None:
        """Return the stream and epoch of a label, if they are known."""

    def find(self, leaf_hash: LeafHash) -> tuple[Label, int] | None:
        """Return the position of a message, by its id."""
