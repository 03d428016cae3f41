"""The result of verifying a log: separate verdicts, and the first fault."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from veen.core.objects.finding import Finding, Level
from veen.core.types import HubId
from veen.pipeline.finding_format import to_json
from veen.pipeline.log.log import LabelHead

# Faults that are listed; all are counted.
MOST_TOLD: Final = 100
# Verdicts and their values.
COMPLETENESS: Final = "completeness"
AGREEMENT: Final = "agreement"
OK: Final = "ok"
DAMAGED: Final = "damaged"
BROKEN: Final = "broken"
FORKED: Final = "forked"
LOST: Final = "lost"
NOT_CHECKED: Final = "not checked"


@dataclass(slots=True)
class FindingList:
    """The first faults, ordered by label and entry, and the number of all."""

    kept: list[Finding] = field(default_factory=list)
    total: int = 0

    def add(self, faults: Iterable[Finding]) -> None:
        """Add faults that come after those added so far."""
        for fault in faults:
            self.total += 1
            if len(self.kept) < MOST_TOLD:
                self.kept.append(fault)


@dataclass(slots=True)
class HeldReceipts:
    """The verdicts on held receipts."""

    count: int = 0
    # The hub signed another entry at the same position.
    forked: list[Finding] = field(default_factory=list)
    # The hub signed an entry that the log does not contain.
    lost: list[Finding] = field(default_factory=list)
    # The log's entry is unreadable, faulty or pruned, or its label was not read.
    unchecked: int = 0


@dataclass(slots=True)
class LabelVerdict:
    """The verdicts on one label."""

    head: LabelHead
    # The number of entries read.
    entries: int = 0
    clients: int = 0
    newest_ts: int | None = None
    checkpoints: int = 0
    newest_checkpoint: int = 0
    # The last entry that was pruned with a tombstone.
    pruned_upto: int = 0
    faults: FindingList = field(default_factory=FindingList)
    gaps: FindingList = field(default_factory=FindingList)

    def to_json(self) -> dict[str, Any]:
        head = self.head
        return {
            "label": head.label.hex(),
            "stream_id": None if head.stream_id is None else head.stream_id.hex(),
            "epoch": head.epoch,
            "ok": not (self.faults.total or self.gaps.total),
            "entries": self.entries,
            "last_seq": head.last_seq,
            "mmr_root": head.mmr_root.hex(),
            "clients": self.clients,
            "newest_ts": self.newest_ts,
            "checkpoints": self.checkpoints,
            "newest_checkpoint": self.newest_checkpoint or None,
            "pruned_upto": self.pruned_upto,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The verdicts on a log."""

    place: str
    hub_id: HubId
    level: Level
    labels: list[LabelVerdict]
    # Findings that belong to no entry: in other logs of the hub, and in files that imply missing entries.
    others: list[Finding]
    held: HeldReceipts = field(default_factory=HeldReceipts)

    @property
    def entries(self) -> int:
        return sum(item.entries for item in self.labels)

    @property
    def faults(self) -> list[Finding]:
        """The first faults of entries and checkpoints."""
        return [fault for item in self.labels for fault in item.faults.kept][:MOST_TOLD]

    @property
    def gaps(self) -> list[Finding]:
        """The first gaps in clients' messages."""
        return [gap for item in self.labels for gap in item.gaps.kept][:MOST_TOLD]

    @property
    def integrity(self) -> str:
        """Whether all entries are as signed, and at their positions."""
        return DAMAGED if any(item.faults.total for item in self.labels) or self.others else OK

    @property
    def completeness(self) -> str:
        """Whether no client's messages are missing."""
        if self.level < Level.FULL:
            return NOT_CHECKED
        if any(item.gaps.total for item in self.labels):
            return BROKEN
        return OK if self.integrity == OK else NOT_CHECKED

    @property
    def agreement(self) -> str:
        """Whether the log agrees with the held receipts."""
        held = self.held
        if held.forked or held.lost:
            return FORKED if held.forked else LOST
        return OK if held.count > held.unchecked else NOT_CHECKED

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        good = (OK, NOT_CHECKED)
        return self.integrity == OK and self.completeness in good and self.agreement in good

    @property
    def first(self) -> Finding | None:
        return next(iter(self.told), None)

    @property
    def told(self) -> list[Finding]:
        """All listed findings, the most severe first."""
        return [*self.faults, *self.others, *self.gaps, *self.held.forked, *self.held.lost]

    @property
    def newest_ts(self) -> int | None:
        """The hub_ts of the newest entry."""
        return max((item.newest_ts for item in self.labels if item.newest_ts is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        first = self.first
        return {
            "ok": self.ok,
            "place": self.place,
            "hub_id": self.hub_id.hex(),
            "level": self.level.name.lower(),
            "entries": self.entries,
            "integrity": self.integrity,
            "signatures": OK
            if self.level is Level.FULL and self.integrity == OK
            else NOT_CHECKED
            if self.level < Level.FULL
            else self.integrity,
            "completeness": self.completeness,
            "agreement": self.agreement,
            "freshness": {"newest_ts": self.newest_ts},
            "first_bad": None if first is None else to_json(first),
            "faults": [to_json(item) for item in self.faults],
            "faults_total": sum(item.faults.total for item in self.labels) + len(self.others),
            "gaps": [to_json(item) for item in self.gaps],
            "gaps_total": sum(item.gaps.total for item in self.labels),
            "held": {"receipts": self.held.count, "not_compared": self.held.unchecked},
            "forked": [to_json(item) for item in self.held.forked],
            "lost": [to_json(item) for item in self.held.lost],
            "others": [to_json(item) for item in self.others],
            "labels": [item.to_json() for item in self.labels],
        }
