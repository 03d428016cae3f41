"""The work of a verification task, and the results that it returns to the driver."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from veen.client.errors import ClientError, NetworkError
from veen.core.errors import ProtocolError, PrunedError
from veen.core.merkle.mmr import subtrees
from veen.core.objects.finding import INTEGRITY, Finding, Level, Location
from veen.core.types import NodeHash
from veen.pipeline.errors import InvalidEntryError, LogSourceError
from veen.pipeline.log.entry_columns import Entries, parse
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.partition import Part
from veen.pipeline.verify.kernel import Checked, EntryFault, check
from veen.pipeline.verify.report import COMPLETENESS
from veen.storage.errors import DamagedStoreError


class Obstacle(StrEnum):
    """Why a part could not be read."""

    UNREADABLE = "unreadable"
    PRUNED = "pruned"
    UNREACHABLE = "unreachable"
    DENIED = "denied"


class PartTask(NamedTuple):
    """A part to check, and those of its entries whose roots are returned."""

    number: int
    part: Part
    wanted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of a part; ``broken``: only partly readable, so later parts cannot be chained to it."""

    number: int
    entries: int
    faults: list[Finding]
    gaps: list[Finding]
    found: Checked
    broken: bool = False


def check_group(group: Iterable[PartTask], level: Level, keys: HubKeys) -> Iterator[PartResult]:
    """Check the parts of a group."""
    for task in group:
        yield check_part(task, level, keys)


def check_part(task: PartTask, level: Level, keys: HubKeys) -> PartResult:
    """Check a part. Faults are returned, not raised."""
    part = task.part
    entries, bad = read_entries(part)
    if entries is None:
        return PartResult(task.number, 0, [bad] if bad else [], [], Checked([]), broken=True)
    wanted = [seq for seq in task.wanted if part.first_seq <= seq < part.first_seq + len(entries)]
    checked = check(entries, level, keys=keys, peaks=part.peaks, wanted=wanted)
    faults = [_located(entries, fault) for fault in checked.faults]
    gaps = [_located(entries, gap, COMPLETENESS) for gap in checked.gaps]
    checked.faults, checked.gaps = [], []
    if bad is not None:
        faults.append(bad)
    return PartResult(task.number, len(entries), faults, gaps, checked, broken=bad is not None)


def _located(entries: Entries, fault: EntryFault, verdict: str = INTEGRITY) -> Finding:
    offset = entries.offset(fault.seq - entries.frames.first_seq)
    where = Location(entries.file, offset, entries.label, seq=fault.seq)
    return Finding(where, fault.detail, fault.text, verdict)


def read_entries(part: Part) -> tuple[Entries | None, Finding | None]:
    """Return the entries before the first unreadable one, and the finding for that one."""
    try:
        frames = part.read()
    except InvalidEntryError as error:
        return None, error.finding
    except DamagedStoreError as error:
        where = Location(error.path, error.offset, part.label, seq=part.first_seq)
        return None, Finding(where, Obstacle.UNREADABLE, error.what)
    except (ProtocolError, ClientError, OSError) as error:
        text = str(error) or type(error).__name__
        where = Location(part.place, label=part.label, seq=part.first_seq)
        return None, Finding(where, _obstacle_of(error), text)
    try:
        return part.parsed(frames), None
    except InvalidEntryError as error:
        return parse(frames.before(error.seq)), error.finding


def _obstacle_of(error: ProtocolError | ClientError | OSError) -> Obstacle:
    """Return why a part could not be read."""
    match error:
        case NetworkError():
            return Obstacle.UNREACHABLE
        case PermissionError():
            return Obstacle.DENIED
        case PrunedError():
            return Obstacle.PRUNED
    return Obstacle.UNREADABLE


def obstacle(fault: Finding) -> ClientError | None:
    """Return the error to raise for an obstacle that says nothing about the log; None if it does."""
    if fault.code is Obstacle.UNREACHABLE:
        return NetworkError(fault.text)
    if fault.code is Obstacle.DENIED:
        return LogSourceError(
            f"{fault.where.file} cannot be read: {fault.text}; run as a user with permission to read it"
        )
    return None


# --- the peaks before each part -----------------------------------------------------------------------------

Trees = list[tuple[int, NodeHash]]


def part_trees(part: Part) -> Trees | None:
    """Return the trees over the leaves of a part; None if it cannot be read."""
    entries, bad = read_entries(part)
    if entries is None or bad is not None:
        return None
    return subtrees(part.first_seq, entries.leaves())
