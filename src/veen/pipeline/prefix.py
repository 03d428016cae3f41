"""The peaks before each part, where nobody states them: the trees of all parts, then a prefix over those."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from pyspark import SparkContext

from veen.core.mmr import Peaks, join
from veen.pipeline.checking import Trees, part_trees
from veen.pipeline.parts import Part


def with_peaks(context: SparkContext, parts: Sequence[Part]) -> list[Part]:
    """Return parts, in their order, that state their peaks as far as these follow from the parts before them.

    A part whose first entry is not behind another part begins with what it states itself.
    """
    if all(part.peaks is not None for part in parts):
        return list(parts)
    incomplete = {part.label for part in parts if part.peaks is None}
    chosen = [part for part in parts if part.label in incomplete]
    trees = context.parallelize(chosen, len(chosen)).map(part_trees).collect()
    found = iter(prefixed(chosen, trees))
    return [next(found) if part.label in incomplete else part for part in parts]


def prefixed(parts: Sequence[Part], trees: Sequence[Trees | None]) -> Iterable[Part]:
    """Yield parts with the peaks that follow from the trees of those before, label by label."""
    pairs = zip(parts, trees, strict=True)
    for _, group in groupby(pairs, key=lambda pair: pair[0].label):
        peaks: Peaks | None = None
        upto = 0
        for part, found in group:
            if part.first_seq == 1:
                peaks = Peaks.empty()
            elif peaks is None or part.first_seq != upto + 1:
                peaks = part.peaks
            yield replace(part, peaks=peaks)
            upto = part.last_seq
            peaks = None if peaks is None or found is None else join(peaks, found)


def unstated(parts: Sequence[Part]) -> list[Part]:
    """Return parts without what is stated, but for those whose beginning was pruned: nothing else tells."""
    found: list[Part] = []
    for part in parts:
        first = not found or found[-1].label != part.label
        found.append(part if first else replace(part, peaks=None))
    return found
