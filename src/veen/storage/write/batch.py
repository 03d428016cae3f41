"""A batch of entries that are admitted together: positioned one after another, not written yet."""

from typing import Protocol

from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.objects.capability import CapToken
from veen.core.objects.labels import authorize_label
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label, LeafHash, VerifyKey
from veen.storage.index.label_state import Head
from veen.storage.journal.journal import Binding
from veen.storage.journal.tail import SignReceipt, Tail, stage
from veen.storage.read.reader import Reader


class CommittedLog(Protocol):
    """The log that a batch continues: the writer's view of what is committed."""

    def head(self, label: Label) -> Head:
        """Return the head of a label that may be appended to."""

    @property
    def reader(self) -> Reader:
        """A reader of the committed log."""

    def domain_of(self, label: Label) -> Domain:
        """Return which log a label belongs to."""

    @property
    def floor_ts(self) -> int:
        """The minimum hub_ts of the next entry."""

    @property
    def limits(self) -> Limits:
        """The limits in force."""


class Batch:
    """Entries to commit, and a view of the log as it will be after the commit.

    A batch may continue another one that is being committed in another thread. That one does not change any
    more; for a moment its entries are seen both in it and in the log, with the same result.
    """

    def __init__(self, committed: CommittedLog, number: int, after: "Batch | None" = None) -> None:
        # The number of the writer's commit that this will be.
        self.number = number
        self._committed = committed
        self._after = after
        self._log: Batch | Reader = after or committed.reader
        self._authorize = authorize_label(committed.reader.store.hub_id)
        self.frames: list[bytes] = []
        self.bindings: list[Binding] = []
        self._bindings: dict[Label, StreamEpoch | None] = {}
        self.added = Tail(segment=0)
        # The minimum hub_ts of the next entry (C-15).
        self.floor_ts: int = (after or committed).floor_ts

    def settle(self) -> None:
        """Drop the reference to the previous batch, which is now committed."""
        self._after, self._log = None, self._committed.reader

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.frames or self.bindings)

    def head(self, label: Label) -> Head:
        added = self.added.labels.get(label)
        return (self._after or self._committed).head(label) if added is None else added.head

    def last_seq(self, label: Label) -> int:
        """Return the number of the newest entry of a label; 0 if it has none."""
        return self.head(label).seq

    def client(self, label: Label, client_id: VerifyKey) -> ClientCursor:
        """Return the cursor of a client in a label."""
        return self.added.clients.get((label, client_id)) or self._log.client(label, client_id)

    def auth(self, auth_ref: AuthRef) -> AuthRecord | None:
        """Return the record of a token: when it was first seen, and its rate bucket."""
        known, added = self._log.auth(auth_ref), self.added.auths.get(auth_ref)
        return known.merged(added) if known and added else known or added

    def client_since(self, client_id: VerifyKey) -> int | None:
        """Return when a client was first seen, in any label."""
        known = self._log.client_since(client_id)
        return self.added.since.get(client_id) if known is None else known

    def token(self, auth_ref: AuthRef) -> CapToken | None:
        """Return an authorized token."""
        known = self._log.token(auth_ref)
        added = self.added.auths.get(auth_ref)
        if known is not None or added is None or not added.authorize_seq:
            return known
        authorized = self.added.labels[self._authorize].entry(added.authorize_seq)
        assert authorized is not None
        return CapToken.decode(authorized.record.content, self._committed.limits)

    def binding(self, label: Label) -> StreamEpoch | None:
        """Return the stream and epoch of a label, if known."""
        added = self.added.bindings.get(label)
        if added is not None:
            return added
        if label not in self._bindings:  # cached: looked up for every message, and a batch has few labels
            self._bindings[label] = self._log.binding(label)
        return self._bindings[label]

    def find(self, leaf_hash: LeafHash) -> tuple[Label, int] | None:
        """Return the position of a message, by its id."""
        return self.added.leaves.get(leaf_hash) or self._log.find(leaf_hash)

    def append(self, record: NewEntry, sign: SignReceipt) -> Receipt:
        """Append a record to its label and return the receipt, which must not be sent before the commit."""
        domain = self._committed.domain_of(record.label)
        if (record.client_id is not None) != (domain is Domain.DATA):
            raise ProtocolError(
                Detail.VALUE, "the label belongs to another log", code=Code.FORBIDDEN, field="label"
            )
        limits = self._committed.limits
        max_bytes = limits.max_msg_bytes  # of the content of a frame, of any kind
        if domain is Domain.AUTHORIZE:
            max_bytes = min(max_bytes, limits.max_cap_bytes)
        if len(record.content) > max_bytes:  # rejected by admission too; would make the directory invalid
            raise ProtocolError(
                Detail.FIELD_SIZE, f"{len(record.content)} bytes exceed {max_bytes}", max_allowed=max_bytes
            )
        staged = stage(record, self.head(record.label), sign)
        if staged.head.hub_ts < self.floor_ts:
            raise ProtocolError(Detail.VALUE, "hub_ts went back", field="hub_ts")
        self.floor_ts = staged.head.hub_ts
        self.added.add(staged)
        self.frames.append(staged.frame)
        return staged.receipt

    def bind(self, binding: Binding) -> None:
        """Record the stream and epoch of a label, together with its entry."""
        self.bindings.append(binding)
        self.added.bind(binding)
