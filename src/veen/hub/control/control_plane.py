"""The control plane: admins' messages on the control streams are applied to the control log (C-107).

Admission must not depend on anything encrypted, so it does not read these messages itself. The control plane
follows the stream after the commit, like any client; it opens messages that an admin has sealed to the hub's
control key, and appends their content in plaintext to the control log, with a reference to the message.
Admission reads that log only, so every decision can be recomputed from files.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from veen.admission.stateful import Policy
from veen.core.crypto import hpke
from veen.core.encoding.canonical_json import Described
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.control_record import (
    REVOCATION_SCHEMA,
    REVOCATION_STREAM,
    ControlRecord,
    RevocationBody,
    RevocationRecord,
)
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.sealed_payload import open_msg
from veen.core.types import JsonValue, Label, LeafHash, ProfileId, ReaderSecretKey
from veen.hub.config import Settings
from veen.hub.home import Home
from veen.hub.metrics import Metrics
from veen.hub.read.long_poll import LongPolls
from veen.hub.read.thread_pool import Job
from veen.hub.submit.intake import Intake
from veen.hub.submit.sequencer import Sequencer
from veen.hub.submit.submission import Submission
from veen.stdx.json_log import LogEvent
from veen.storage import DamagedStoreError, Reader, StoreFullError

_log = logging.getLogger(__name__)

# Messages per job in the sequencer's thread: no messages are decided meanwhile.
_MAX_TAKEN: Final = 32
# Characters of a reason in descriptions; the record has all of it.
_MAX_REASON: Final = 1000

Ignored = tuple[NewEntry, str]


@dataclass(frozen=True, slots=True)
class Orders:
    """Decodes the messages of admins; the caller checks the sender."""

    key: hpke.ReaderKey
    # Padding by profile.
    pads: Mapping[ProfileId, int]
    limits: Limits

    def read(self, record: NewEntry) -> RevocationRecord:
        """Return the revocation that a message orders; raise if it is none."""
        msg = Msg.decode(record.content, self.limits)
        opened = open_msg(msg, self.key, pad_block=self.pads[msg.profile_id], limits=self.limits)
        opened.header.verify_cap_ref(msg.auth_ref)
        if opened.header.schema != REVOCATION_SCHEMA:
            raise ProtocolError(Detail.VALUE, "the message is not a revocation", field="schema")
        return RevocationBody.decode(opened.body, self.limits).record(record.leaf_hash)


class ControlledHub(Protocol):
    """What the control plane needs of the hub that it belongs to."""

    @property
    def settings(self) -> Settings:
        """The configuration: which keys are those of admins."""

    @property
    def home(self) -> Home:
        """Identity and secrets; admins seal their messages to the control key."""

    @property
    def intake(self) -> Intake:
        """The submit path, with the rules of the stateless rows: padding by profile."""

    @property
    def limits(self) -> Limits:
        """The limits in force."""

    @property
    def policy(self) -> Policy:
        """The rules of the stateful rows: which epochs are open."""

    @property
    def sequencer(self) -> Sequencer:
        """The sequencer, whose authority has the revocations in force."""

    @property
    def reader(self) -> Reader:
        """The log."""

    @property
    def metrics(self) -> Metrics:
        """The counters."""

    @property
    def long_polls(self) -> LongPolls:
        """The long polls, which are woken for new control records."""

    def turn(self, run: Callable[[], Any], on_done: Callable[[Job], None]) -> None:
        """Run a job in the sequencer's thread, between batches."""

    def control(self, *records: ControlRecord) -> None:
        """Append to the control log. For the sequencer's thread."""

    def bug(self, error: Exception) -> None:
        """Log an internal error and continue."""


class ControlPlane:
    """Follows the stream of revocations. Methods are called on the loop, unless they say otherwise."""

    def __init__(self, hub: ControlledHub) -> None:
        self._hub = hub
        # A replica copies control records from its primary, like all entries.
        self._admins = frozenset(hub.settings.admin_keys if hub.settings.role == "primary" else ())
        secret = ReaderSecretKey(hub.home.secrets.control_sk)
        self._orders = Orders(hpke.ReaderKey.from_secret(secret), hub.intake.rules.pad_blocks, hub.limits)
        # Messages that the control log has records of.
        self.applied: set[LeafHash] = {
            record.origin
            for records in hub.sequencer.authority.revoked.values()
            for record in records
            if record.origin is not None
        }
        self._waiting: deque[NewEntry] = deque()
        self._busy = False
        self._at = -1
        self._labels: frozenset[Label] = frozenset()

    @property
    def stream(self) -> str | None:
        """The id of the stream that is followed, in hex; None without admins."""
        return REVOCATION_STREAM.hex() if self._admins else None

    # --- new messages ---------------------------------------------------------------------------------------

    def take(self, messages: Sequence[Submission]) -> None:
        """Queue committed messages of admins on the control stream; skip all other decided messages."""
        if not self._admins:
            return
        ignored: list[Ignored] = []
        for item in messages:
            record = item.record
            if record is None or not item.seq or record.label not in self._labels_at(item.hub_ts):
                continue
            if record.client_id in self._admins:
                self._waiting.append(record)
            else:
                ignored.append((record, "NOT_ADMIN"))
        self._ignore(ignored)
        self.go_on()

    def _labels_at(self, hub_ts: int) -> frozenset[Label]:
        """Return the labels that the stream may have at a time."""
        if hub_ts != self._at:
            routing = self._hub.home.identity.routing_key
            epochs = self._hub.policy.epoch_window(hub_ts)
            self._labels = frozenset(labels.label(routing, REVOCATION_STREAM, epoch) for epoch in epochs)
            self._at = hub_ts
        return self._labels

    def go_on(self) -> None:
        """Apply queued messages; also called periodically, to retry after a full disk."""
        if self._waiting and not self._busy:
            batch = list(islice(self._waiting, _MAX_TAKEN))
            self._busy = True
            self._hub.turn(lambda: self._apply(batch), partial(self._done, batch))

    def _apply(self, batch: Sequence[NewEntry]) -> list[Ignored]:
        """Append the records of messages to the control log; return messages that are ignored.

        For the sequencer's thread.
        """
        revocations, ignored = [], []
        for record in batch:
            try:
                revocations.append(self._orders.read(record))
            except ProtocolError as error:
                ignored.append((record, error.detail.value))
            except Exception as error:  # noqa: BLE001 - an internal error must not stop other messages
                self._hub.bug(error)
                ignored.append((record, "FAULT"))
        if revocations:
            self._hub.control(*revocations)
            self.applied.update(record.origin for record in revocations if record.origin is not None)
            self._hub.metrics.control_applied += len(revocations)
        return ignored

    def _done(self, batch: Sequence[NewEntry], job: Job) -> None:
        self._busy = False
        if isinstance(job.error, StoreFullError):
            _log.warning(LogEvent("control-waits", why=str(job.error)))
            return
        for _ in batch:
            self._waiting.popleft()
        if job.error is not None:  # the next start retries these messages
            self._hub.bug(job.error)
        else:
            self._ignore(job.result)
        self._hub.long_polls.grown([labels.control_label(self._hub.home.identity.hub_id)])
        self.go_on()

    def _ignore(self, ignored: Sequence[Ignored]) -> None:
        """Count ignored messages; one log line for all that arrived together."""
        if not ignored:
            return
        for _, why in ignored:
            self._hub.metrics.control_ignored[why] += 1
        record, why = ignored[0]
        _log.warning(
            LogEvent(
                "control-ignored",
                why=why,
                count=len(ignored),
                leaf_hash_prefix=record.leaf_hash.hex()[:8],
                client_id_prefix=(record.client_id or b"").hex()[:8],
            )
        )

    # --- old messages ---------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Apply messages that no record exists for. Called before the hub serves, while no jobs run."""
        if not self._admins:
            return
        missed = (record for label in self._all_labels() for record in self._missed(label))
        ignored: list[Ignored] = []
        before = len(self.applied)
        while batch := list(islice(missed, _MAX_TAKEN)):
            try:
                ignored += self._apply(batch)
            except StoreFullError as error:
                _log.warning(LogEvent("control-waits", why=str(error)))
                self._waiting.extend([*batch, *missed])
        self._ignore(ignored)
        if len(self.applied) > before:
            _log.info(LogEvent("control-caught-up", applied=len(self.applied) - before))

    def _all_labels(self) -> list[Label]:
        if self._hub.policy.epoch_sec:
            return self._hub.reader.labels_of(REVOCATION_STREAM)
        return [labels.label(self._hub.home.identity.routing_key, REVOCATION_STREAM, 0)]

    def _missed(self, label: Label) -> Iterator[NewEntry]:
        """Yield messages of admins in a label that are not applied yet."""
        reader = self._hub.reader
        try:
            # Sequence numbers have no gaps, so their sum is the number of messages, usually 0.
            remaining = sum(reader.client(label, admin).client_seq for admin in self._admins)
            if not remaining or reader.is_frozen(label):  # a fork cannot open messages sealed to its parent
                return
            manifest = reader.manifest(label)
            for place in reader.entries(label, manifest.first_seq, manifest.head.seq):
                record = NewEntry.of_msg(place.entry.msg())
                if record.client_id in self._admins:
                    remaining -= 1
                    if record.leaf_hash not in self.applied:
                        yield record
                if not remaining:
                    return
        except DamagedStoreError as error:  # affects this label only
            self._hub.bug(error)


# --- orders of the operator ---------------------------------------------------------------------------------


def revocation_of(order: JsonValue, now: int) -> RevocationRecord:
    """Return the record of a revocation in JSON; without ``ts``, it is in force from now on."""
    return RevocationBody.from_json({"ts": now, **order} if isinstance(order, dict) else order).record()


def describe_revocation(record: RevocationRecord, now: int) -> dict[str, Described]:
    """Return the description of a revocation for operators."""
    return {
        "kind": record.target_kind,
        "target": record.target,
        "ts": record.ts,
        "ttl": record.ttl,
        "active_now": record.holds_at(now),
        "reason": None if record.reason is None else record.reason[:_MAX_REASON],
        "origin": record.origin,
    }
