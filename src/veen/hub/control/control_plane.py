"""The control plane: what admins write on the control streams is taken into the control log (C-107).

Admission must not depend on anything encrypted. So it is not admission that reads the admins' messages, but
this: like any client it follows a stream, behind the commit; it opens what an admin has sealed to the hub's
control key, and writes it into the control log in the open, with the message that it came in. Admission goes
by that log alone, and every decision can be made again from files.
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

# Messages that are taken in one turn: nothing is decided beside it.
_MAX_TAKEN: Final = 32
# What is shown of a reason; the record has all of it.
_MAX_REASON: Final = 1000

Ignored = tuple[NewEntry, str]


@dataclass(frozen=True, slots=True)
class Orders:
    """Reads the messages of admins; the caller checks the sender."""

    key: hpke.ReaderKey
    # The padding of each profile.
    pads: Mapping[ProfileId, int]
    limits: Limits

    def read(self, record: NewEntry) -> RevocationRecord:
        """Return what a message asks for; raise, if it asks for nothing that we know."""
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
        """Identity and secrets: what admins seal is sealed to the control key."""

    @property
    def intake(self) -> Intake:
        """The submit path, with the rules of the stateless rows: the padding of each profile."""

    @property
    def limits(self) -> Limits:
        """The limits in force."""

    @property
    def policy(self) -> Policy:
        """The rules of the stateful rows: which epochs are open."""

    @property
    def sequencer(self) -> Sequencer:
        """What decides on messages, and knows what is revoked."""

    @property
    def reader(self) -> Reader:
        """The log."""

    @property
    def metrics(self) -> Metrics:
        """The counters."""

    @property
    def long_polls(self) -> LongPolls:
        """The long polls, which learn of new entries."""

    def turn(self, run: Callable[[], Any], on_done: Callable[[Job], None]) -> None:
        """Run something in the sequencer's thread, between batches."""

    def control(self, *records: ControlRecord) -> None:
        """Append to the control log. For the sequencer's thread."""

    def bug(self, error: Exception) -> None:
        """Report a fault of ours, without stopping."""


class ControlPlane:
    """Follows the stream of revocations. Methods are for the loop, unless they say otherwise."""

    def __init__(self, hub: ControlledHub) -> None:
        self._hub = hub
        # A replica takes control records from its primary, as everything else.
        self._admins = frozenset(hub.settings.admin_keys if hub.settings.role == "primary" else ())
        secret = ReaderSecretKey(hub.home.secrets.control_sk)
        self._orders = Orders(hpke.ReaderKey.from_secret(secret), hub.intake.rules.pad_blocks, hub.limits)
        # Messages whose records are in the control log.
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
        """The name of the stream that is followed, if one is."""
        return REVOCATION_STREAM.hex() if self._admins else None

    # --- messages as they come ------------------------------------------------------------------------------

    def take(self, messages: Sequence[Submission]) -> None:
        """Look at messages that are in the log or were refused; those of admins are read in turn."""
        if not self._admins:
            return
        strangers: list[Ignored] = []
        for item in messages:
            record = item.record
            if record is None or not item.seq or record.label not in self._labels_at(item.hub_ts):
                continue
            if record.client_id in self._admins:
                self._waiting.append(record)
            else:
                strangers.append((record, "NOT_ADMIN"))
        self._ignore(strangers)
        self.go_on()

    def _labels_at(self, hub_ts: int) -> frozenset[Label]:
        """Return the labels that the stream could have at a time."""
        if hub_ts != self._at:
            routing = self._hub.home.identity.routing_key
            epochs = self._hub.policy.epoch_window(hub_ts)
            self._labels = frozenset(labels.label(routing, REVOCATION_STREAM, epoch) for epoch in epochs)
            self._at = hub_ts
        return self._labels

    def go_on(self) -> None:
        """Turn to what waits; also called now and then, in case the disk was full."""
        if self._waiting and not self._busy:
            taken = list(islice(self._waiting, _MAX_TAKEN))
            self._busy = True
            self._hub.turn(lambda: self._apply(taken), partial(self._done, taken))

    def _apply(self, taken: Sequence[NewEntry]) -> list[Ignored]:
        """Write into the control log what messages ask for; return those that ask for nothing.

        For the sequencer's thread.
        """
        found, ignored = [], []
        for record in taken:
            try:
                found.append(self._orders.read(record))
            except ProtocolError as error:
                ignored.append((record, error.detail.value))
            except Exception as error:  # noqa: BLE001 - a fault of ours must not stop other messages
                self._hub.bug(error)
                ignored.append((record, "FAULT"))
        if found:
            self._hub.control(*found)
            self.applied.update(record.origin for record in found if record.origin is not None)
            self._hub.metrics.control_applied += len(found)
        return ignored

    def _done(self, taken: Sequence[NewEntry], job: Job) -> None:
        self._busy = False
        if isinstance(job.error, StoreFullError):
            _log.warning(LogEvent("control-waits", why=str(job.error)))
            return
        for _ in taken:
            self._waiting.popleft()
        if job.error is not None:  # they are read again at the next start
            self._hub.bug(job.error)
        else:
            self._ignore(job.result)
        self._hub.long_polls.grown([labels.control_label(self._hub.home.identity.hub_id)])
        self.go_on()

    def _ignore(self, ignored: Sequence[Ignored]) -> None:
        """Count messages that change nothing; one line for all that came together."""
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

    # --- what came before -----------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Read the stream as far as it was not read; before anything is served, when no job has a turn."""
        if not self._admins:
            return
        missed = (record for label in self._all_labels() for record in self._missed(label))
        ignored: list[Ignored] = []
        before = len(self.applied)
        while taken := list(islice(missed, _MAX_TAKEN)):
            try:
                ignored += self._apply(taken)
            except StoreFullError as error:
                _log.warning(LogEvent("control-waits", why=str(error)))
                self._waiting.extend([*taken, *missed])
        self._ignore(ignored)
        if len(self.applied) > before:
            _log.info(LogEvent("control-caught-up", applied=len(self.applied) - before))

    def _all_labels(self) -> list[Label]:
        if self._hub.policy.epoch_sec:
            return self._hub.reader.labels_of(REVOCATION_STREAM)
        return [labels.label(self._hub.home.identity.routing_key, REVOCATION_STREAM, 0)]

    def _missed(self, label: Label) -> Iterator[NewEntry]:
        """Yield messages of admins in a label that have no record yet."""
        reader = self._hub.reader
        try:
            # Numbers have no gaps, so they say how many messages there are, and mostly that there are none.
            left = sum(reader.client(label, admin).client_seq for admin in self._admins)
            if not left or reader.is_frozen(label):  # a fork cannot open what was sealed to its parent
                return
            made = reader.manifest(label)
            for place in reader.entries(label, made.first_seq, made.head.seq):
                record = NewEntry.of_msg(place.entry.msg())
                if record.client_id in self._admins:
                    left -= 1
                    if record.leaf_hash not in self.applied:
                        yield record
                if not left:
                    return
        except DamagedStoreError as error:  # of this label; the hub serves others
            self._hub.bug(error)


# --- orders of the operator ---------------------------------------------------------------------------------


def revocation_of(asked: JsonValue, now: int) -> RevocationRecord:
    """Return the record of an order in JSON: a revocation, from now on unless it says otherwise."""
    return RevocationBody.from_json({"ts": now, **asked} if isinstance(asked, dict) else asked).record()


def describe_revocation(record: RevocationRecord, now: int) -> dict[str, Described]:
    """Return a revocation as people are shown it."""
    return {
        "kind": record.target_kind,
        "target": record.target,
        "ts": record.ts,
        "ttl": record.ttl,
        "active_now": record.holds_at(now),
        "reason": None if record.reason is None else record.reason[:_MAX_REASON],
        "origin": record.origin,
    }
