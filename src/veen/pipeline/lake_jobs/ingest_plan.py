"""The plan of an ingest: each label's entries after those in the lake, if the log still continues it.

Ranges omitted because only some streams were requested are recorded: a data directory restored from the lake
is then known to be incomplete.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels as naming
from veen.core.objects.finding import Finding, Location
from veen.core.types import Label, StreamId
from veen.pipeline.errors import DamagedLakeError, ForkedLogError, InvalidEntryError, RejectedEntryError
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Blob, LabelFact, State, canonical
from veen.pipeline.lake.hub_files import read_blob
from veen.pipeline.lake.table_files import write_durably
from veen.pipeline.lake_jobs.ingest_task import Slice
from veen.pipeline.log.entry_columns import Entries, parse
from veen.pipeline.log.log import LabelHead, Log
from veen.pipeline.log.partition import Part
from veen.pipeline.verify.task import Obstacle

# Entries between two commits of a run: the work that a kill can lose, and that the driver has in memory.
STEP_ENTRIES: Final = 64 * layout.SLICE
# The number of epochs around that of a label's first entry that are tried to find its stream.
_PROBE: Final = 1


@dataclass(frozen=True, slots=True)
class PendingEntries:
    """Entries of a label that a lake does not have."""

    label: Label
    stream_id: StreamId | None
    epoch: int
    first: int
    last: int
    # The peaks before the first entry; None after pruned entries, where only the log can state them.
    peaks: Peaks | None
    missing: tuple[int, int] | None = None

    @property
    def entries(self) -> int:
        return self.last - self.first + 1


def find_work(state: State, log: Log, binder: "Binder") -> list[PendingEntries]:
    """Return the entries that a lake does not have, by label; reject a log that does not continue it."""
    behind = check_against(state, log)
    return [_work(state.labels.get(head.label.hex()), head, binder) for head in behind if _can_be_read(head)]


def check_against(state: State, log: Log) -> list[LabelHead]:
    """Require that a log continues a lake; return the labels with further entries."""
    if state.hub_id not in (None, log.hub_id.hex()):
        raise DamagedLakeError(f"the lake is of hub {state.hub_id}, and not of {log.hub_id.hex()}")
    heads = log.heads()
    for fact in state.labels.values():
        _check_head(fact, heads.get(Label(bytes.fromhex(fact.label))))
    behind = [head for head in heads.values() if _upto(state, head) < head.last_seq]
    _check_continued(state, log, behind)
    return behind


def _upto(state: State, head: LabelHead) -> int:
    known = state.labels.get(head.label.hex())
    return 0 if known is None else known.upto_seq


def _can_be_read(head: LabelHead) -> bool:
    return head.first_seq <= head.last_seq


def _check_head(fact: LabelFact, head: LabelHead | None) -> None:
    if head is None:
        raise ForkedLogError(fact.label, fact.upto_seq, "the log has no such label, and the lake has")
    if head.last_seq < fact.upto_seq:
        text = f"the log ends with entry {head.last_seq}, before the last one that the lake has"
        raise ForkedLogError(fact.label, fact.upto_seq, text)
    if head.last_seq == fact.upto_seq and head.mmr_root.hex() != fact.mmr_root:
        raise _other_root(fact, head.mmr_root.hex())


def _other_root(fact: LabelFact, root: str) -> ForkedLogError:
    return ForkedLogError(
        fact.label, fact.upto_seq, f"the log has root {root}, and the lake has {fact.mmr_root}"
    )


def _check_continued(state: State, log: Log, heads: list[LabelHead]) -> None:
    """Compare the last entry of each grown label in the lake with the log's."""
    ends = {}
    for head in heads:
        known = state.labels.get(head.label.hex())
        if known is not None and known.upto_seq >= head.first_seq:
            ends[head.label] = (known.upto_seq, known.upto_seq)
    for part in log.plan(ends) if ends else ():
        fact = state.labels[part.label.hex()]
        root = read_whole(part).mmr_root[-1].tobytes().hex()
        if root != fact.mmr_root:
            raise _other_root(fact, root)


def read_whole(part: Part) -> Entries:
    """Return the entries of a part; an invalid one ends the run."""
    try:
        return parse(part.read())
    except InvalidEntryError as error:
        raise RejectedEntryError(error.finding) from None


def _work(known: LabelFact | None, head: LabelHead, binder: "Binder") -> PendingEntries:
    first = 1 if known is None else known.upto_seq + 1
    peaks: Peaks | None = Peaks.empty() if known is None else known.range
    missing: tuple[int, int] | None = None
    if head.first_seq > first:
        missing, peaks, first = (first, head.first_seq - 1), None, head.first_seq
    if known is not None:
        stream, epoch = known.stream, known.epoch
    else:
        stream, epoch = binder.bound(head)
    return PendingEntries(head.label, stream, epoch, first, head.last_seq, peaks, missing)


class Binder:
    """Finds the stream of a label: from the log, or by the keys and names that a reader has.

    Labels of ``streams``, which a reader knows, follow from the names alone.
    """

    def __init__(self, log: Log, streams: Iterable[StreamId] = ()) -> None:
        self._log = log
        self._tried: dict[Label, tuple[StreamId | None, int]] = {}
        self._streams = sorted(set(streams))
        self._epoch_secs = sorted({profile.epoch_sec for profile in log.profiles})

    def bound(self, head: LabelHead) -> tuple[StreamId | None, int]:
        """Return stream and epoch."""
        if head.stream_id is not None or not self._streams:
            return head.stream_id, head.epoch
        binding = self._tried.get(head.label)
        if binding is None:
            binding = self._tried[head.label] = self._by_name(head)
        return binding

    def newly_bound(self, state: State) -> dict[str, tuple[StreamId, int]]:
        """Return the lake's labels whose streams became known since, with their streams and epochs."""
        unknown = [Label(bytes.fromhex(fact.label)) for fact in state.labels.values() if fact.stream is None]
        heads = self._log.heads() if unknown else {}
        bindings = {}
        for label in unknown:
            if label in heads and _can_be_read(heads[label]):
                stream, epoch = self.bound(heads[label])
                if stream is not None:
                    bindings[label.hex()] = (stream, epoch)
        return bindings

    def _by_name(self, head: LabelHead) -> tuple[StreamId | None, int]:
        routing = self._log.keys.identity_of(head.label).routing_key
        for epoch in self._epochs(head):
            for stream in self._streams:
                if naming.label(routing, stream, epoch) == head.label:
                    return stream, epoch
        return None, head.epoch

    def _epochs(self, head: LabelHead) -> Iterator[int]:
        if self._epoch_secs == [0]:
            yield 0
            return
        (part,) = self._log.plan({head.label: (head.first_seq, head.first_seq)})
        hub_ts = int(read_whole(part).hub_ts[0])
        for seconds in self._epoch_secs:
            epoch = naming.epoch_at(hub_ts, seconds)
            yield from range(max(epoch - _PROBE, 0), epoch + _PROBE + 1)


@dataclass(slots=True)
class Step:
    """The entries of one commit: a range of each label, cut into slices."""

    spans: dict[Label, list[tuple[int, int]]] = field(default_factory=dict)
    works: dict[Label, PendingEntries] = field(default_factory=dict)
    entries: int = 0

    def add(self, work: PendingEntries, span: tuple[int, int]) -> None:
        self.works[work.label] = work
        self.spans.setdefault(work.label, []).append(span)
        self.entries += span[1] - span[0] + 1


def steps(works: Iterable[PendingEntries]) -> Iterator[Step]:
    """Yield work in steps, whose ends follow from the log: a run after a kill continues the same steps."""
    step = Step()
    for work in works:
        for span in layout.cut(work.first, work.last):
            step.add(work, span)
            if step.entries >= STEP_ENTRIES:
                yield step
                step = Step()
    if step.entries:
        yield step


def plan_slices(log: Log, step: Step, fill: Callable[[Sequence[Part]], list[Part]]) -> list[Slice]:
    """Return the slices of a step, in order, with their parts of the log.

    ``fill`` computes the peaks of parts where the log states none.
    """
    parts: list[Part] = []
    for nth in range(max(map(len, step.spans.values()))):
        spans = {label: listed[nth] for label, listed in step.spans.items() if nth < len(listed)}
        parts += log.plan(spans)
    parts.sort(key=lambda part: (part.label, part.first_seq))
    begun = [_beginning(part, step.works[part.label]) for part in parts]
    by_slice: dict[tuple[Label, int], list[Part]] = {}
    for part in fill(begun):
        by_slice.setdefault((part.label, layout.slice_of(part.first_seq)), []).append(part)
    return [
        _slice(work, span, by_slice.get((label, layout.slice_of(span[0])), []))
        for label, work in sorted(step.works.items())
        for span in step.spans[label]
    ]


def _beginning(part: Part, work: PendingEntries) -> Part:
    known = work.peaks is not None and part.first_seq == work.first
    return replace(part, peaks=work.peaks) if known else part


def _slice(work: PendingEntries, span: tuple[int, int], parts: list[Part]) -> Slice:
    covered = sum(part.count for part in parts)
    if covered != span[1] - span[0] + 1:
        found = parts[0].first_seq if parts else span[1]
        text = "the entry was pruned since the ingest was planned; run it again"
        raise RejectedEntryError(
            Finding(Location(label=work.label, seq=min(found, span[1])), Obstacle.PRUNED, text)
        )
    return Slice(work.label, work.stream_id, work.epoch, *span, tuple(parts), parts[0].peaks)


def by_label(slices: Iterable[Slice]) -> dict[Label, list[Slice]]:
    """Return slices by label, in order."""
    slices_of: dict[Label, list[Slice]] = {}
    for item in slices:
        slices_of.setdefault(item.label, []).append(item)
    return slices_of


# The name of its blob, beside those of the hub.
NAME: Final = "left/out"


class OmittedRange(NamedTuple):
    """Entries of a label that were omitted."""

    label: str
    first: int
    last: int


def keep(root: Path, state: State, works: Iterable[PendingEntries]) -> list[Blob]:
    """Store the ranges that a run omits, if they changed; nothing if none ever were."""
    omitted = sorted(OmittedRange(work.label.hex(), work.first, work.last) for work in works)
    data = canonical([list(item) for item in omitted])
    blob = Blob(NAME, len(data), hashlib.sha256(data).hexdigest())
    if state.hub.get(NAME) == blob or (not omitted and NAME not in state.hub):
        return []
    path = root / layout.HUB / blob.sha256
    if not path.exists():
        write_durably(path, data)
    return [blob]


def left_out(root: Path, state: State) -> list[OmittedRange]:
    """Return the ranges omitted by the last run that are still not in the lake."""
    blob = state.hub.get(NAME)
    if blob is None:
        return []
    try:
        omitted = [OmittedRange(*item) for item in json.loads(read_blob(root, blob))]
    except (ValueError, TypeError) as error:
        raise DamagedLakeError(f"the list of entries left out of the lake cannot be read: {error}") from None
    upto = {label: fact.upto_seq for label, fact in state.labels.items()}
    return [item for item in omitted if upto.get(item.label, 0) < item.last]
