"""Checking parts where they are sent to: what a task does, and what it returns to the driver."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from veen.client.errors import ClientError, NetworkError
from veen.core.errors import ProtocolError
from veen.core.merkle.mmr import subtrees
from veen.core.objects.finding import Level
from veen.core.types import NodeHash
from veen.pipeline.log.entry_columns import BadEntryError, Entries, parse
from veen.pipeline.log.finding import Finding
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.log import PlaceError
from veen.pipeline.log.partition import Part
from veen.pipeline.verify.kernel import Checked, EntryFault, check
from veen.storage.errors import DamagedStoreError

#: Why a part could not be read: it is damaged; it was dropped since; nobody answers; we may not.
UNREADABLE: Final = "unreadable"
PRUNED: Final = "pruned"
UNREACHABLE: Final = "unreachable"
DENIED: Final = "denied"


class PartTask(NamedTuple):
    """A part to be checked, and the entries of it whose roots somebody wants to know."""

    number: int
    part: Part
    wanted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartResult:
    """What became of a part. ``broken``: not all of it could be read, and what follows hangs in the air."""

    number: int
    entries: int
    faults: list[Finding]
    gaps: list[Finding]
    found: Checked
    broken: bool = False


def check_group(group: Iterable[PartTask], level: Level, keys: HubKeys) -> Iterator[PartResult]:
    """Check some parts."""
    for task in group:
        yield check_part(task, level, keys)


def check_part(task: PartTask, level: Level, keys: HubKeys) -> PartResult:
    """Check a part; whatever is wrong with it is part of the result."""
    part = task.part
    entries, bad = read_entries(part)
    if entries is None:
        return PartResult(task.number, 0, [bad] if bad else [], [], Checked([]), broken=True)
    wanted = [seq for seq in task.wanted if part.first_seq <= seq < part.first_seq + len(entries)]
    found = check(entries, level, keys=keys, peaks=part.peaks, wanted=wanted)
    faults = [_located(entries, fault) for fault in found.faults]
    gaps = [_located(entries, gap) for gap in found.gaps]
    found.faults, found.gaps = [], []
    if bad is not None:
        faults.append(bad)
    return PartResult(task.number, len(entries), faults, gaps, found, broken=bad is not None)


def _located(entries: Entries, fault: EntryFault) -> Finding:
    nth = fault.seq - entries.frames.first_seq
    return Finding(entries.label, fault.seq, entries.file, entries.offset(nth), fault.detail, fault.text)


def read_entries(part: Part) -> tuple[Entries | None, Finding | None]:
    """Read a part as far as it goes: the entries before the first bad one, and that one."""
    try:
        frames = part.read()
    except BadEntryError as error:
        return None, _located_error(error)
    except DamagedStoreError as error:
        return None, Finding(part.label, part.first_seq, error.path, error.offset, UNREADABLE, error.what)
    except (ProtocolError, ClientError, OSError) as error:
        text = str(error) or type(error).__name__
        return None, Finding(part.label, part.first_seq, part.place, None, _why(error), text)
    try:
        return part.parsed(frames), None
    except BadEntryError as error:
        return parse(frames.before(error.seq)), _located_error(error)


def _why(error: ProtocolError | ClientError | OSError) -> str:
    """Return what kind of obstacle it was that kept a part from being read."""
    match error:
        case NetworkError():
            return UNREACHABLE
        case PermissionError():
            return DENIED
        case ProtocolError() if error.fields.get("field") == PRUNED:
            return PRUNED
    return UNREADABLE


def obstacle(fault: Finding) -> ClientError | None:
    """Return the error for what kept us from reading, if that says nothing about the log."""
    if fault.detail == UNREACHABLE:
        return NetworkError(fault.text)
    if fault.detail == DENIED:
        return PlaceError(f"{fault.file} can not be read: {fault.text}; run as a user who may read it")
    return None


def _located_error(error: BadEntryError) -> Finding:
    return Finding(error.label, error.seq, error.file, error.offset, error.detail, error.text)


# --- the peaks before each part -----------------------------------------------------------------------------

Trees = list[tuple[int, NodeHash]]


def part_trees(part: Part) -> Trees | None:
    """Return the trees over the leaves of a part; None if it can not be read."""
    entries, bad = read_entries(part)
    if entries is None or bad is not None:
        return None
    return subtrees(part.first_seq, entries.leaves())
