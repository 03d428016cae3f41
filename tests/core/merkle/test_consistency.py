"""Consistency proofs: what they hold, and the name of each way to be wrong."""

from dataclasses import replace
from typing import Any

import pytest

from tests import rawcbor as raw
from tests.builders import consistency_proof, digest, leaf, nodes, peaks
from tests.expect import refused
from veen.core.errors import Code, Detail, Stage
from veen.core.merkle.consistency import ConsistencyProof, prove_consistency
from veen.core.merkle.mmr import Peaks, parent
from veen.core.types import NodeHash

#: From 3 leaves to 7: both old trees are swallowed by a larger one, and two new ones stand beside it.
OLD, NEW = 3, 7
GOOD = consistency_proof(OLD, NEW)


def verify(
    proof: ConsistencyProof,
    *,
    old_size: int = OLD,
    new_size: int = NEW,
    old_root: bytes | None = None,
    new_root: bytes | None = None,
) -> None:
    proof.verify(
        old_root=peaks(old_size).root if old_root is None else old_root,
        old_size=old_size,
        new_root=peaks(new_size).root if new_root is None else new_root,
        new_size=new_size,
    )


def test_a_good_proof_verifies_also_after_a_round_trip() -> None:
    verify(GOOD)
    verify(ConsistencyProof.decode(GOOD.encode()))
    verify(ConsistencyProof.from_json(GOOD.to_json()))


def names(hashes: tuple[NodeHash, ...]) -> list[str]:
    """Return the nodes of a log of eight leaves by the leaves that they cover."""
    known: dict[bytes, str] = {leaf(number): str(number) for number in range(1, 9)}
    for first in (1, 3, 5, 7):
        known[parent(leaf(first), leaf(first + 1))] = f"{first}-{first + 1}"
    known[peaks(4).root] = "1-4"
    return [known[node] for node in hashes]


@pytest.mark.parametrize(
    ("old", "new", "old_peaks", "siblings", "new_peaks"),
    [
        (1, 1, [], [], []),
        (3, 3, [], [], []),
        (1, 2, [], ["2"], []),
        (1, 3, [], ["2"], ["3"]),
        (1, 4, [], ["2", "3-4"], []),
        (2, 3, [], [], ["3"]),
        (2, 4, [], ["3-4"], []),
        (3, 4, ["3", "1-2"], ["4"], []),
        (3, 5, ["3", "1-2"], ["4"], ["5"]),
        (3, 7, ["3", "1-2"], ["4"], ["7", "5-6"]),
        (4, 7, [], [], ["7", "5-6"]),
        (5, 6, ["5", "1-4"], ["6"], []),
        (5, 8, ["5", "1-4"], ["6", "7-8"], []),
        (6, 7, ["5-6", "1-4"], [], ["7"]),
        (7, 8, ["7", "5-6", "1-4"], ["8"], []),
    ],
)
def test_what_a_proof_holds_follows_from_the_two_sizes(
    old: int, new: int, old_peaks: list[str], siblings: list[str], new_peaks: list[str]
) -> None:
    proof = consistency_proof(old, new)
    assert names(proof.old_peaks) == old_peaks
    assert names(proof.siblings) == siblings
    assert names(proof.new_peaks) == new_peaks
    verify(proof, old_size=old, new_size=new)


@pytest.mark.parametrize(("old", "new"), [(0, 0), (0, 7), (7, 3), (3, 0), (-1, 3), (1, 2**64)])
def test_sizes_that_no_two_ranges_have_are_refused(old: int, new: int) -> None:
    with refused(Detail.PROOF_SEQ, code=Code.PROOF) as caught:
        GOOD.verify(old_root=bytes(32), old_size=old, new_root=bytes(32), new_size=new)
    assert caught.value.stage == Stage.VERIFY
    with refused(Detail.PROOF_SEQ):
        prove_consistency(nodes(8).__getitem__, old_size=old, new_size=new)


@pytest.mark.parametrize("name", ["old_peaks", "siblings", "new_peaks"])
def test_lists_of_another_length_are_refused(name: str) -> None:
    given: tuple[NodeHash, ...] = getattr(GOOD, name)
    extra = NodeHash(digest("extra"))
    for wrong in (given[:-1], given[1:], (*given, extra), (extra, *given), ()):
        change: Any = {name: wrong}
        with refused(Detail.PROOF_PATH, field=name) as caught:
            verify(replace(GOOD, **change))
        assert caught.value.fields["expected"] == len(given)
        assert caught.value.fields["actual"] == len(wrong)


def test_peaks_the_verifier_has_already_are_refused() -> None:
    """A lone old peak is the old root: giving it again would be a second form of the same proof."""
    lone = consistency_proof(4, 7)
    with refused(Detail.PROOF_PATH, field="old_peaks"):
        verify(replace(lone, old_peaks=peaks(4).hashes), old_size=4)
    same = consistency_proof(3, 3)
    with refused(Detail.PROOF_PATH, field="old_peaks"):
        verify(replace(same, old_peaks=peaks(3).hashes), new_size=3)


def test_forged_lists_are_refused() -> None:
    forged = NodeHash(digest("forged"))
    with refused(Detail.PROOF_PEAKS, field="old_peaks"):
        verify(replace(GOOD, old_peaks=(forged, GOOD.old_peaks[1])))
    with refused(Detail.PROOF_PEAKS, field="old_peaks"):
        verify(replace(GOOD, old_peaks=GOOD.old_peaks[::-1]))
    with refused(Detail.PROOF_ROOT):
        verify(replace(GOOD, siblings=(forged,)))
    with refused(Detail.PROOF_ROOT):
        verify(replace(GOOD, new_peaks=(forged, GOOD.new_peaks[1])))
    with refused(Detail.PROOF_ROOT):
        verify(replace(GOOD, new_peaks=GOOD.new_peaks[::-1]))


def test_other_roots_are_refused() -> None:
    with refused(Detail.PROOF_PEAKS, field="old_peaks"):
        verify(GOOD, old_root=peaks(2).root)
    with refused(Detail.PROOF_ROOT):
        verify(GOOD, new_root=peaks(8).root)
    with refused(Detail.PROOF_ROOT):
        verify(consistency_proof(4, 7), old_size=4, old_root=peaks(2).root)


def test_two_roots_of_one_size_are_not_consistent() -> None:
    same = consistency_proof(3, 3)
    verify(same, new_size=3)
    other = Peaks.empty().append(leaf(1)).append(leaf(2)).append(leaf(9))
    with refused(Detail.PROOF_ROOT):
        verify(same, new_size=3, new_root=other.root)


def test_a_rewritten_log_has_no_proof() -> None:
    """A hub that replaced leaf 2 can not show that its log still begins with the three old leaves."""
    rewritten = Peaks.empty()
    for number in (1, 99, 3, 4, 5, 6, 7):
        rewritten = rewritten.append(leaf(number))
    with refused(Detail.PROOF_ROOT):
        verify(GOOD, new_root=rewritten.root)


def test_lists_are_bounded() -> None:
    most = (NodeHash(bytes(32)),) * 64
    full = ConsistencyProof(old_peaks=most, siblings=most, new_peaks=most)
    assert ConsistencyProof.decode(full.encode()) == full
    for key, name in ((2, "old_peaks"), (3, "siblings"), (4, "new_peaks")):
        with refused(Detail.FIELD_SIZE, field=name, code=Code.SIZE):
            ConsistencyProof.decode(raw.with_pair(GOOD.encode(), key, raw.array([raw.bstr(bytes(32))] * 65)))
        with refused(Detail.FIELD_SIZE, field=name):
            ConsistencyProof.decode(raw.with_pair(GOOD.encode(), key, raw.array([raw.bstr(bytes(31))])))
