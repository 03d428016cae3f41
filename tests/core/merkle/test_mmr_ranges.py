"""Many leaves at once, and ranges of leaves that are joined: the same peaks and roots as one by one."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from veen.core.errors import ProtocolError
from veen.core.merkle.mmr import Peaks, join, subtrees

LEAVES = builders.leaves(130)


@given(st.integers(0, 60), st.integers(0, 70))
def test_extending_gives_what_appending_gives(before: int, more: int) -> None:
    start = builders.peaks(before)
    peaks, roots = start, []
    for leaf in LEAVES[before : before + more]:
        peaks = peaks.append(leaf)
        roots.append(peaks.root)
    assert start.extend(LEAVES[before : before + more]) == (peaks, roots)


@given(st.lists(st.integers(0, 130), max_size=8))
def test_ranges_join_to_the_peaks_wherever_they_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), 130]
    peaks = Peaks.empty()
    for start, end in pairwise(places):
        trees = subtrees(start + 1, LEAVES[start:end])
        assert len(trees) <= 2 * 8
        peaks = join(peaks, trees)
        assert peaks == builders.peaks(end)


def test_trees_that_stand_elsewhere_are_refused() -> None:
    trees = subtrees(1, LEAVES[:4])
    with pytest.raises(ProtocolError):
        join(builders.peaks(2), trees)
