"""What the verification of a log amounts to: separate verdicts, and the first thing that is wrong."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from veen.core.types import HubId, Label
from veen.pipeline.kernel import Level
from veen.pipeline.logs import LabelHead

#: Faults that are told one by one; all are counted.
MOST_TOLD: Final = 100
OK: Final = "ok"
DAMAGED: Final = "damaged"
BROKEN: Final = "broken"
FORKED: Final = "forked"
LOST: Final = "lost"
NOT_CHECKED: Final = "not checked"


class Located(NamedTuple):
    """Something that is wrong, and where."""

    label: Label
    seq: int
    file: str
    offset: int | None
    detail: str
    text: str

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file} at byte {self.offset}"
        return f"{self.label.hex()} entry {self.seq}, {place}: {self.text} ({self.detail})"

    def to_json(self) -> dict[str, Any]:
        """Return names and values."""
        return {**self._asdict(), "label": self.label.hex()}


@dataclass(slots=True)
class Told:
    """Faults in the order of labels and entries: the first ones, and how many there are."""

    kept: list[Located] = field(default_factory=list)
    total: int = 0

    def add(self, faults: Iterable[Located]) -> None:
        """Add faults, which are behind those that are here."""
        for fault in faults:
            self.total += 1
            if len(self.kept) < MOST_TOLD:
                self.kept.append(fault)


@dataclass(slots=True)
class LabelVerdict:
    """One label."""

    head: LabelHead
    #: Entries that were read.
    entries: int = 0
    clients: int = 0
    newest_ts: int | None = None
    checkpoints: int = 0
    newest_checkpoint: int = 0
    #: Entries that the hub has dropped, and has said so.
    pruned_upto: int = 0
    faults: Told = field(default_factory=Told)
    gaps: Told = field(default_factory=Told)

    def to_json(self) -> dict[str, Any]:
        """Return names and values."""
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
    """The whole verification."""

    place: str
    hub_id: HubId
    level: Level
    labels: list[LabelVerdict]
    #: What is wrong with files that belong to no label of messages.
    others: list[str]
    #: What receipts that somebody holds say: how many, and those that the log does not have like that.
    held: int = 0
    forked: list[Located] = field(default_factory=list)
    lost: list[Located] = field(default_factory=list)

    @property
    def entries(self) -> int:
        """How many entries were read."""
        return sum(item.entries for item in self.labels)

    @property
    def faults(self) -> list[Located]:
        """What is wrong with entries and checkpoints, the first first."""
        return [fault for item in self.labels for fault in item.faults.kept][:MOST_TOLD]

    @property
    def gaps(self) -> list[Located]:
        """Where clients are incomplete."""
        return [gap for item in self.labels for gap in item.gaps.kept][:MOST_TOLD]

    @property
    def integrity(self) -> str:
        """Whether all entries are what was signed, and stand where they were put."""
        return DAMAGED if any(item.faults.total for item in self.labels) or self.others else OK

    @property
    def completeness(self) -> str:
        """Whether each client's messages are all there."""
        if self.level < Level.FULL:
            return NOT_CHECKED
        if any(item.gaps.total for item in self.labels):
            return BROKEN
        return OK if self.integrity == OK else NOT_CHECKED

    @property
    def agreement(self) -> str:
        """Whether the log is the one that held receipts are of."""
        if not self.held:
            return NOT_CHECKED
        return FORKED if self.forked else LOST if self.lost else OK

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        good = (OK, NOT_CHECKED)
        return self.integrity == OK and self.completeness in good and self.agreement in good

    @property
    def first(self) -> Located | None:
        """The first thing that is wrong."""
        return next(iter([*self.faults, *self.gaps, *self.forked, *self.lost]), None)

    @property
    def newest_ts(self) -> int | None:
        """When the newest entry was taken."""
        return max((item.newest_ts for item in self.labels if item.newest_ts is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return names and values."""
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
            "first_bad": None if first is None else first.to_json(),
            "faults": [item.to_json() for item in self.faults],
            "faults_total": sum(item.faults.total for item in self.labels) + len(self.others),
            "gaps": [item.to_json() for item in self.gaps],
            "gaps_total": sum(item.gaps.total for item in self.labels),
            "forked": [item.to_json() for item in self.forked],
            "lost": [item.to_json() for item in self.lost],
            "other_files": self.others,
            "labels": [item.to_json() for item in self.labels],
        }
