"""Times that a query asks for: which entries of a label are of them, found without reading the others.

hub_ts never goes back within a label, so entries of a time are a range, and logs know where it begins. That
is not believed: tasks look at the time of each entry that they read, and where signatures are checked, so is
the entry next to each end, which no task reads, and by which it is known that nothing was left out.
"""

from collections.abc import Mapping

from veen.core.errors import Detail
from veen.core.types import Label
from veen.pipeline.kernel import Fault, Level, check
from veen.pipeline.logs import LabelHead, Log
from veen.pipeline.source.looking import PrunedMeanwhileError, look_at
from veen.pipeline.source.options import Options

Heads = Mapping[Label, LabelHead]


class Within:
    """The entries of each label that are of the times asked for; all, if none are."""

    def __init__(self, options: Options) -> None:
        times, level = options.times, options.verify.level
        self._since = None if times.since is None else _Edge(times.since, level, outside=-1)
        self._until = None if times.until is None else _Edge(times.until, level, outside=0)

    def of(self, log: Log, heads: Heads) -> dict[Label, tuple[int, int]]:
        """Return the first and the last entry of labels; the last is before the first if there are none."""
        first = {label: head.first_seq for label, head in heads.items()}
        behind = {label: head.last_seq + 1 for label, head in heads.items()}
        if self._since is not None:
            first = self._since.at(log, heads)
        if self._until is not None:
            behind = self._until.at(log, heads)
        return {label: (first[label], behind[label] - 1) for label in heads}


class _Edge:
    """Where a time begins in labels. What was found stays so; only labels that grow are looked at again."""

    def __init__(self, hub_ts: int, level: Level, *, outside: int) -> None:
        self._hub_ts = hub_ts
        self._level = level
        #: Which entry is outside of the range that begins or ends here, counted from the first of the time.
        self._outside = outside
        self._first: dict[Label, int] = {}
        #: Up to here there is none.
        self._none: dict[Label, int] = {}

    def at(self, log: Log, heads: Heads) -> dict[Label, int]:
        """Return the first entry at or after the time; one behind the last if there is none."""
        unknown = {label: head for label, head in heads.items() if not self._is_known(head)}
        found = {
            label: min(max(log.seq_at(label, self._hub_ts), head.first_seq), head.last_seq + 1)
            for label, head in unknown.items()
        }
        if self._level >= Level.FULL:
            self._check(log, unknown, found)
        for label, seq in found.items():
            self._first.pop(label, None)
            last = heads[label].last_seq
            kept, value = (self._none, last) if seq > last else (self._first, seq)
            kept[label] = value
        return {
            label: max(self._first.get(label, head.last_seq + 1), head.first_seq)  # it may be pruned by now
            for label, head in heads.items()
        }

    def _is_known(self, head: LabelHead) -> bool:
        """Tell whether nothing is to be looked at; a log that was cut since is looked at again."""
        if head.label in self._first:
            return self._first[head.label] <= head.last_seq
        return self._none.get(head.label) == head.last_seq

    def _check(self, log: Log, heads: Heads, found: Mapping[Label, int]) -> None:
        """Check the entries by which ends are known; a hub has signed their times."""
        places = {label: seq + self._outside for label, seq in found.items()}
        there = {
            label: seq
            for label, seq in places.items()
            if heads[label].first_seq <= seq <= heads[label].last_seq
        }
        looked = look_at(log, there)
        for label in there.keys() - looked.keys():
            which = f"entry {there[label]} of {label.hex()}"
            raise PrunedMeanwhileError(f"{log.name}: {which} was pruned just now; run the query again")
        for label, entries in looked.items():
            faults = check(entries, self._level, keys=log.keys).faults
            if (entries.hub_ts[0] < self._hub_ts) != (self._outside < 0):
                text = f"hub_ts is {entries.hub_ts[0]}, and the log tells another time of it"
                faults.append(Fault(there[label], Detail.VALUE.value, text))
            for fault in faults:
                text = f"{fault.text}; by this entry it is known which are of the time asked for"
                raise entries.frames.refused(fault.seq, 0, fault.detail, text)
