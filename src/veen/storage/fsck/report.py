"""Findings of the checker, and the verdicts that follow from them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from veen.core.errors import CborError, Detail, ProtocolError
from veen.core.objects.finding import INTEGRITY, Finding, Level, Location
from veen.core.types import JsonValue, Label
from veen.storage.errors import FindingError

# Maximum of findings, and of notes, that are listed; all are counted.
MAX_LISTED: Final = 100

# The verdict on files that ``veen repair`` can rebuild from the log; the log itself is not affected.
DERIVED: Final = "derived"

OK: Final = "ok"
DAMAGED: Final = "damaged"
STALE: Final = "stale"
BROKEN: Final = "broken"
NOT_CHECKED: Final = "not checked"

# The levels of a check, without the one that checks nothing.
LEVELS: Final = (Level.FRAMES, Level.HASHES, Level.ROOTS, Level.FULL)


class Reason(StrEnum):
    """Errors of files; errors inside of objects have their names from ``Detail``."""

    MISSING = "MISSING"
    UNEXPECTED = "UNEXPECTED"
    UNREADABLE = "UNREADABLE"
    GAP = "GAP"
    OVERLAP = "OVERLAP"
    ORDER = "ORDER"
    BOUNDARY = "BOUNDARY"
    CONFLICT = "CONFLICT"
    COMPRESSION = "COMPRESSION"
    SUMMARY = "SUMMARY"
    PEAKS = "PEAKS"
    TOMBSTONE = "TOMBSTONE"
    HUB_TS = "HUB_TS"
    HUB_ID = "HUB_ID"
    BINDING = "BINDING"
    JOURNAL_HEADER = "JOURNAL_HEADER"
    JOURNAL_RECORD = "JOURNAL_RECORD"
    NODES = "NODES"
    RECEIPTS = "RECEIPTS"
    CHECKPOINTS = "CHECKPOINTS"
    CHECKPOINT_INDEX = "CHECKPOINT_INDEX"


# Reasons that mean missing entries, or entries out of order.
_INCOMPLETE: Final = frozenset(
    {Reason.MISSING, Reason.GAP, Detail.CLIENT_SEQ, Detail.DUPLICATE, Detail.PREV_ACK}
)


def damage(path: str, offset: int | None, reason: str, text: str) -> Finding:
    """Return a finding about the log itself."""
    return Finding(Location(path, offset), reason, text)


def stale(path: str, offset: int | None, reason: str, text: str) -> Finding:
    """Return a finding about a derived file."""
    return Finding(Location(path, offset), reason, text, DERIVED)


def to_json(finding: Finding) -> dict[str, JsonValue]:
    """Return a finding as names and values."""
    return {
        "path": finding.where.file,
        "offset": finding.where.offset,
        "reason": str(finding.code),
        "detail": finding.text,
        "derived": finding.verdict == DERIVED,
    }


def wrong(path: str, offset: int | None, reason: str, detail: str) -> FindingError:
    """Return a finding about the log, to raise."""
    return FindingError(damage(path, offset, reason, detail))


def refused(path: str, offset: int, error: ProtocolError) -> FindingError:
    """Return the finding, to raise, for an object at ``offset`` that a parser or verifier rejected."""
    if isinstance(error, CborError):
        offset += error.offset
    return FindingError(damage(path, offset, error.detail, error.message))


class Findings:
    """Findings in the order of their discovery: the first ones listed, all counted."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.reasons: Counter[str] = Counter()
        self.total = 0
        self.damages = 0

    def add(self, finding: Finding) -> None:
        self.total += 1
        if finding.verdict == INTEGRITY:
            self.damages += 1
            self.reasons[finding.code] += 1
        if len(self.kept) < MAX_LISTED:
            self.kept.append(finding)

    def absorb(self, other: "Findings", where: str = "") -> None:
        """Add those of another part of the check, whose paths are relative to ``where``."""
        self.total += other.total
        self.damages += other.damages
        self.reasons += other.reasons
        listed = other.kept[: MAX_LISTED - len(self.kept)]
        self.kept += [_below(where, item) for item in listed] if where else listed


def _below(directory: str, finding: Finding) -> Finding:
    return replace(finding, where=replace(finding.where, file=directory + finding.where.file))


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelReport:
    """The outcome for one label."""

    domain: str
    label: Label
    ok: bool
    # The last entry, in chunks or journal, and the root in its receipt.
    head_seq: int
    head_root: bytes | None
    newest_ts: int | None
    newest_checkpoint: int | None
    # Entries that are durable, but not yet in chunk files.
    journal_entries: int
    pruned_to: int
    # Number of clients whose sequences were checked; None if they were not.
    clients: int | None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the report by its field names."""
        return {
            "domain": self.domain,
            "label": self.label.hex(),
            "ok": self.ok,
            "head_seq": self.head_seq,
            "head_root": None if self.head_root is None else self.head_root.hex(),
            "newest_ts": self.newest_ts,
            "newest_checkpoint": self.newest_checkpoint,
            "journal_entries": self.journal_entries,
            "pruned_to": self.pruned_to,
            "clients": self.clients,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of a check."""

    level: Level
    findings: tuple[Finding, ...]
    findings_total: int
    damages_total: int
    reasons: frozenset[str]
    notes: tuple[str, ...]
    labels: tuple[LabelReport, ...]
    # Why signatures of the hub could not be checked; empty if they could.
    no_hub_keys: str
    # Content of state/lock, which names the last writer, running or not.
    lock: str

    @property
    def ok(self) -> bool:
        """Whether there are no findings, neither about the log nor about derived files."""
        return self.findings_total == 0

    @property
    def integrity(self) -> str:
        """Whether the log has what was written; needs more than frames."""
        if self.damages_total:
            return DAMAGED
        return NOT_CHECKED if self.level == Level.FRAMES else OK

    @property
    def signatures(self) -> str:
        """Whether the hub's signatures were checked; a bad one is a finding."""
        if self.level < Level.FULL:
            return f"{NOT_CHECKED}: level {self.level.name.lower()}"
        return f"{NOT_CHECKED}: {self.no_hub_keys}" if self.no_hub_keys else OK

    @property
    def completeness(self) -> str:
        """Whether the entries of each client have no gaps."""
        if self.reasons & _INCOMPLETE:
            return BROKEN
        followed = self.level == Level.FULL and all(item.clients is not None for item in self.labels)
        return OK if followed and not self.damages_total else NOT_CHECKED

    @property
    def derived(self) -> str:
        """Whether derived files match the log."""
        if self.findings_total > self.damages_total:
            return STALE
        return NOT_CHECKED if self.level < Level.ROOTS else OK

    @property
    def journal_entries(self) -> int:
        """Entries that are only in the journal."""
        return sum(item.journal_entries for item in self.labels)

    def to_json(self) -> dict[str, JsonValue]:
        """Return everything as one JSON object."""
        return {
            "ok": self.ok,
            "level": self.level.name.lower(),
            "integrity": self.integrity,
            "signatures": self.signatures,
            "completeness": self.completeness,
            "pruned": [[item.label.hex(), 1, item.pruned_to] for item in self.labels if item.pruned_to],
            "derived": self.derived,
            "journal_entries": self.journal_entries,
            "lock": self.lock,
            "findings_total": self.findings_total,
            "findings": _listed(to_json(item) for item in self.findings),
            "notes": list(self.notes),
            "labels": _listed(item.to_json() for item in self.labels),
        }


def _listed(items: Iterable[dict[str, JsonValue]]) -> list[JsonValue]:
    return list(items)
