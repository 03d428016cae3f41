"""Judging a record: separate verdicts, each of which names what is wrong (SDR-005, 010, 011, 021 to 023).

Every entry of every stream is read once, from the beginning; only counts are held in memory.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from veen.client.client import Client
from veen.client.errors import DamagedLogError, DivergenceError
from veen.client.models import Message
from veen.client.read import ReadOptions, read_stream
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.objects.finding import Finding, Location
from veen.overlays.recorder.schemas import (
    CHANGE,
    CHANGES_STREAM,
    CHECKPOINTS_STREAM,
    EVENT,
    IMPORTED,
    LONG_TERM_SEC,
)
from veen.recorder.cadence import DEFAULT_CADENCE, Cadence
from veen.recorder.checkpoint import Manifest, Place, Vouched, check_stored, manifests
from veen.recorder.configuration import (
    Classes,
    Configuration,
    LabelClass,
    fold_classes,
    keeps,
    known_record_streams,
    read_configuration,
    stream_labels,
)
from veen.recorder.errors import ManifestError
from veen.recorder.feed.losses import LOST_TYPE
from veen.recorder.replay import recorded
from veen.recorder.verify.coverage import CLASSES, CadenceAudit, Coverage, LabelRead, SealedCounts
from veen.recorder.verify.owners import EventTypeOwners
from veen.recorder.verify.tamper import EDITED, FORGOTTEN, REMOVED, diagnose
from veen.stdx.grammar import counted

# The verdicts, in the order of the report.
VERDICTS: Final = (
    "order",
    "completeness",
    "stability",
    "roles",
    "event_types",
    "retention",
    "checkpoint_cadence",
)


def to_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON; with stream, epoch and entry only if it has them."""
    where = finding.where
    place = {"stream": where.stream, "epoch": where.epoch, "stream_seq": where.seq}
    return {
        "verdict": finding.verdict,
        "what": finding.code,
        "detail": finding.text,
        **{name: value for name, value in place.items() if value is not None},
    }


def to_text(finding: Finding) -> str:
    """Return a finding as one line."""
    at = f" at {finding.where}" if finding.where.stream else ""
    return f"{finding.verdict}: {finding.code}{at}: {finding.text}"


# The location of a finding about no particular stream.
_RECORD: Final = Location()
# Maximum difference between the clock of the checkpoints' author and the hub's.
_SKEW_SEC: Final = 60


# Errors of false or damaged data in a log.
FALSE: Final = (ProtocolError, DivergenceError, DamagedLogError)


@dataclass(slots=True)
class Judgement:
    """The findings, and what was read."""

    findings: list[Finding] = field(default_factory=list)
    # What was read.
    streams: int = 0
    entries: int = 0
    events: int = 0
    checkpoints: int = 0
    # Entries of other schemas, for example of a query service: verified, but not judged.
    others: int = 0
    # Streams with entries, but without a declaration.
    undeclared: list[str] = field(default_factory=list)
    # Entries of each stream, and how many of them these keys cannot decrypt.
    opened: SealedCounts = field(default_factory=SealedCounts)
    # Verdicts that are neither good nor bad, with the streams that they would need.
    unjudged: dict[str, list[str]] = field(default_factory=dict)

    def add(self, verdict: str, what: str, detail: str, where: Location = _RECORD) -> None:
        """Add a finding."""
        self.findings.append(Finding(where, what, detail, verdict))

    def ok(self, verdict: str | None = None) -> bool:
        """Whether there are no findings, in total or for one verdict; it may not have been judged."""
        return not any(verdict in (None, item.verdict) for item in self.findings)

    def verdict(self, name: str) -> bool | None:
        """Return whether a verdict is good; None if it could not be judged, and there are no findings."""
        return None if name in self.unjudged and self.ok(name) else self.ok(name)

    @property
    def unreadable(self) -> int:
        """Entries that these keys cannot decrypt: their types and principals are not judged."""
        return sum(self.opened.sealed[stream] for stream in self.opened.sealed if stream != CLASSES)

    @property
    def hidden(self) -> dict[str, tuple[int, int]]:
        """The recorder's own streams with entries sealed for other readers: (sealed, total)."""
        own = (CHANGES_STREAM, CHECKPOINTS_STREAM)
        count = self.opened
        return {name: (count.sealed[name], count.entries[name]) for name in own if count.sealed[name]}


class Judge:
    """Reads the streams of a recorder, and judges them."""

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        checkpoints: list[Manifest],
        cadence: Cadence = DEFAULT_CADENCE,
        now: int | None = None,
    ) -> None:
        self.client = client
        self.configuration = configuration
        self.checkpoints = checkpoints
        self.found = Judgement(checkpoints=len(checkpoints))
        self._labels: dict[Place, LabelRead] = {}
        self._owners = EventTypeOwners()
        self._producers: set[str] = set()
        # When streams were first declared.
        self._since: dict[str, int] = {}
        self._wanted: dict[Place, set[int]] = {}
        for manifest in checkpoints:
            self.expect(manifest)
        self._told: set[tuple[str, str, Location]] = set()
        self._volume = CadenceAudit(
            cadence, [*(item.taken_at or 0 for item in checkpoints), *([] if now is None else [now])]
        )
        self._cadence = cadence
        self._now = now

    @property
    def _epoch_sec(self) -> int:
        return self.client.session.profiles[0].epoch_sec

    def expect(self, manifest: Manifest) -> None:
        """Remember the positions whose roots a checkpoint states; the checkpoint need not be in the log."""
        for entry in manifest.streams:
            self._wanted.setdefault(entry.place, set()).add(entry.upto_seq)

    # --- reading --------------------------------------------------------------------------------------------

    def read(self, streams: list[str]) -> None:
        """Read streams completely: order and completeness.

        The stream of changes comes first: events are judged by its declarations.
        """
        vouched: dict[str, set[int]] = {}
        for name, epoch in self._wanted:
            vouched.setdefault(name, set()).add(epoch)
        for stream in sorted(streams, key=lambda name: name != CHANGES_STREAM):
            epochs = {epoch for epoch, _ in stream_labels(self.client, stream)} | vouched.get(stream, set())
            for epoch in sorted(epochs):
                self._read_label(stream, epoch)
            has_entries = any(self._labels[stream, epoch].entries for epoch in epochs)
            self.found.streams += has_entries
            if has_entries and stream not in self.configuration.names:
                self.found.undeclared.append(stream)

    def _read_label(self, stream: str, epoch: int) -> None:
        label = LabelRead(self.client.session.label(labels.stream_id(stream), epoch))
        self._labels[stream, epoch] = label
        try:
            self._read_from(stream, epoch, label)
        except FALSE as error:
            seq, what = diagnose(self.client, stream, epoch, label.entries + 1, error)
            with suppress(*FALSE):  # in damaged files the last valid entries may be unreadable too
                self._read_from(stream, epoch, label, seq - 1)
            forgotten = what == FORGOTTEN
            label.stopped = REMOVED if forgotten else what
            verdict = "stability" if forgotten else "order"
            where = Location(stream=stream, epoch=epoch, seq=seq)
            self._add_once(verdict, label.stopped, str(error), where)

    def _read_from(self, stream: str, epoch: int, label: LabelRead, upto: int | None = None) -> None:
        """Continue to read a label; to its end, or up to an entry."""
        if upto is not None and upto <= label.entries:
            return
        options = ReadOptions(start=label.entries + 1, stop=upto, epoch=epoch, peek=True)
        for message in read_stream(self.client, stream, options):
            self._note(stream, label, message)

    def _note(self, stream: str, label: LabelRead, message: Message) -> None:
        receipt, msg = message.receipt, message.msg
        where = Location(stream=stream, epoch=message.epoch, seq=receipt.stream_seq)
        label.entries += 1
        self.found.entries += 1
        if receipt.hub_ts < label.last_ts:
            text = f"the hub's time goes back from {label.last_ts} to {receipt.hub_ts}"
            self.found.add("order", "time", text, where)
        if stream != CHECKPOINTS_STREAM:
            self._volume.count(receipt.hub_ts)
        label.first_ts = receipt.hub_ts if label.first_ts is None else label.first_ts
        label.last_ts = max(label.last_ts, receipt.hub_ts)
        expected = label.clients.get(msg.client_id, 0) + 1
        if msg.client_seq != expected:  # SDR-023: one stream has all messages of an identity
            text = f"{msg.client_id.hex()} has number {msg.client_seq} where {expected} is due"
            self.found.add("completeness", REMOVED, text, where)
        label.clients[msg.client_id] = msg.client_seq
        positions = self._wanted.get((stream, message.epoch), ())
        if receipt.stream_seq in positions:
            label.roots[receipt.stream_seq] = receipt.mmr_root
        if receipt.stream_seq - 1 in positions:
            label.times[receipt.stream_seq] = receipt.hub_ts
        self._note_event(stream, message, where)

    def _note_event(self, stream: str, message: Message, where: Location) -> None:
        entry, key = recorded(stream, message), message.sender.hex()
        self.found.opened.note(stream, 1, int(not message.is_open))
        if not message.is_open:
            if stream not in (CHANGES_STREAM, CHECKPOINTS_STREAM):
                self._producers.add(key)  # the signer is not sealed (SDR-010)
        elif entry.schema is None:
            self.found.others += 1
        elif entry.problem is not None:
            self.found.add("completeness", "principal" if entry.body else "refused", entry.problem, where)
        elif entry.schema in (EVENT.name, IMPORTED.name) and entry.body is not None:
            self.found.events += 1
            self._producers.add(key)
            if entry.body["event_type"] != LOST_TYPE:  # allowed in any stream that has lost events
                self._owners.event(entry.body["event_type"], stream, message.receipt.hub_ts)
        elif entry.schema == CHANGE.name and entry.body is not None and stream == CHANGES_STREAM:
            self._owners.change(entry.body, message.receipt.hub_ts)
            for name in (entry.body["stream"], *(entry.body.get("into") or ())):
                self._since.setdefault(name, message.receipt.hub_ts)

    # --- judging --------------------------------------------------------------------------------------------

    def judge_checkpoints(self, extra: Manifest | None = None) -> None:
        """Compare checkpoints with the entries: stability (SDR-022).

        One that covers less than the one before is not false: two may be made concurrently.
        """
        identity = self.client.connect().identity
        front = Coverage(self._labels, self._epoch_sec)
        for manifest in [*self.checkpoints, *([] if extra is None else [extra])]:
            try:
                manifest.verify_hub(identity)
            except ManifestError as error:
                self.found.add("stability", "hub", f"{error}: {manifest.hub_id.hex()}")
                continue
            for entry in manifest.streams:
                self._judge_entry(entry)
            self._judge_missing(manifest, front)
            front.reach(manifest)
        if self.checkpoints:
            self._judge_signed(self.checkpoints[-1])

    def _judge_entry(self, entry: Vouched) -> None:
        label = self._labels[entry.place]
        where = Location(stream=entry.stream, epoch=entry.epoch)
        root = label.roots.get(entry.upto_seq)
        if label.entries < entry.upto_seq:
            text = (
                f"a checkpoint covers {counted(entry.upto_seq, 'entry')}, but only {label.entries} "
                "could be verified"
            )
            missing = replace(where, seq=label.entries + 1)
            self._add_once("stability", label.stopped or REMOVED, text, missing)
        elif root != entry.mmr_root or label.label != entry.label:
            text = "the entries do not lead to the root that a checkpoint vouches for"
            self._add_once("stability", EDITED, text, replace(where, seq=entry.upto_seq))

    def _add_once(self, verdict: str, what: str, text: str, where: Location) -> None:
        """Add a finding at a location once; many checkpoints may lead to it."""
        key = (verdict, what, where)
        if key not in self._told:
            self._told.add(key)
            self.found.add(verdict, what, text, where)

    def _judge_missing(self, manifest: Manifest, front: Coverage) -> None:
        """Find streams that a checkpoint omits, though they were declared and had entries (SDR-012)."""
        listed = {entry.place for entry in manifest.streams}
        front.advance(manifest.created_at)
        for (stream, epoch), label in front.labels.items():
            since = max(label.first_ts or 0, self._since.get(stream, 0))
            early = since + _SKEW_SEC < manifest.created_at
            known = stream in self.configuration.names and early and (stream, epoch) not in listed
            if known and not front.is_done((stream, epoch), manifest.created_at):
                text = f"the checkpoint of {manifest.created_at} leaves the stream out"
                self.found.add("stability", "checkpoint", text, Location(stream=stream, epoch=epoch))

    def _judge_signed(self, manifest: Manifest) -> None:
        """Verify the hub's signatures for the newest checkpoint, where available."""
        for entry in manifest.streams:
            try:
                check_stored(self.client, entry)
            except (ProtocolError, DamagedLogError) as error:
                where = Location(stream=entry.stream, seq=entry.upto_seq)
                self.found.add("stability", "checkpoint", str(error), where)

    def judge_roles(self, classes: Mapping[bytes, LabelClass]) -> None:
        """Find keys that both administer and produce (SDR-010)."""
        admins = {
            *self.configuration.admins,
            *(label_class.client_id.hex() for label_class in classes.values()),
        }
        for key in sorted(admins & self._producers):
            self.found.add("roles", "overlap", f"{key} administers the recorder and produces events")

    def judge_types(self) -> None:
        """Find types of events in several streams, or in one that does not declare them (SDR-005)."""
        for event_type, streams in self._owners.shared().items():
            self.found.add("event_types", "shared", f"{event_type} is in {', '.join(streams)}")

    def judge_retention(self, classes: Mapping[bytes, LabelClass], min_seconds: int) -> None:
        """Find labels of recorder streams without a sufficient retention class (SDR-006)."""
        for (stream, epoch), label in self._labels.items():
            retention = self.configuration.kept_for(stream, min_seconds)
            if label.entries and not keeps(classes.get(bytes(label.label)), retention):
                text = f"label {label.label.hex()} has no retention_hint of {retention}"
                self.found.add("retention", "missing", text, Location(stream=stream, epoch=epoch))

    def judge_cadence(self) -> None:
        """Find entries that have waited too long for a checkpoint, and too many waiting at once (SDR-011).

        Without ``now`` judging ends at the last entry: in a copy of the log nothing is due.
        """
        waiting = {place: label for place, label in self._labels.items() if place[0] != CHECKPOINTS_STREAM}
        front = Coverage(waiting, self._epoch_sec)
        last = max((label.last_ts for label in waiting.values()), default=0)
        for manifest in self.checkpoints:
            taken_at = manifest.taken_at or 0
            self._judge_wait(front, taken_at, self._volume.before(taken_at))
            front.reach(manifest)
        if self._now is None:
            self._judge_wait(front, last, self._volume.before_last())
        else:
            self._judge_wait(front, self._now, self._volume.before(self._now))

    def _judge_wait(self, front: Coverage, until: int, early: int) -> None:
        """Judge the waiting entries at a time; ``early`` is the number of entries before its grace period."""
        front.advance(until)
        cadence, since = self._cadence, front.waiting_since()
        if since is not None and cadence.is_late(since, until):
            text = f"entries from {since} on had no checkpoint until {until}; every {cadence.every_sec} s"
            self.found.add("checkpoint_cadence", "late", text)
        count = early - front.recorded
        if cadence.is_many(count):
            text = (
                f"{counted(count, 'entry')} had waited for {cadence.grace_sec} s at {until}; "
                f"each {cadence.each_events}"
            )
            self.found.add("checkpoint_cadence", "volume", text)


def judge(
    client: Client,
    *,
    streams: Iterable[str] = (),
    checkpoint: Manifest | None = None,
    cadence: Cadence = DEFAULT_CADENCE,
    least_sec: int = LONG_TERM_SEC,
    now: int | None = None,
) -> Judgement:
    """Judge the record at a hub, in its directory or in files; ``checkpoint`` was stored separately."""
    client.connect()
    configuration, checkpoints = Configuration(b""), list[Manifest]()
    classes = Classes()
    with suppress(*FALSE):  # false data in these streams is reported when they are read
        configuration = read_configuration(client)
    with suppress(*FALSE):
        checkpoints.extend(manifests(client))
    with suppress(*FALSE):
        classes = fold_classes(client)
    work = Judge(client, configuration, checkpoints, cadence, now)
    if checkpoint is not None:
        work.expect(checkpoint)
    vouched = (entry.stream for item in (*checkpoints, *filter(None, [checkpoint])) for entry in item.streams)
    names = {*configuration.names, *known_record_streams(client), *streams, *vouched}
    work.read(sorted(names, key=str.encode))
    if CHANGES_STREAM in work.found.hidden:
        work.found.undeclared.clear()  # the declarations are unreadable
    work.found.opened.note(CLASSES, classes.entries, classes.unreadable)
    unjudged = work.found.unjudged = work.found.opened.unjudged()
    work.judge_checkpoints(checkpoint)
    work.judge_roles(classes.labels)
    work.judge_types()
    if "retention" not in unjudged:
        work.judge_retention(classes.labels, least_sec)
    if "checkpoint_cadence" not in unjudged:
        work.judge_cadence()
    return work.found
