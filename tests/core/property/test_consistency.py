"""Consistency proofs: every pair of sizes, minimal, and nothing but the honest proof is accepted."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import naive
from tests.builders import leaf, leaves, nodes
from veen.core.errors import ProtocolError
from veen.core.merkle.consistency import ConsistencyProof, prove_consistency
from veen.core.merkle.mmr import complete_nodes, node_position
from veen.core.types import NodeHash

MOST = 300
LEAVES = leaves(MOST)
NODES = nodes(MOST)
ROOTS = [b"", *(naive.root(LEAVES[:size]) for size in range(1, MOST + 1))]
#: Which leaves each node covers, as (first, one behind the last).
COVERS = {
    NODES[node_position(height, index)]: (index << height, (index + 1) << height)
    for height, index in naive.completion_order(MOST)
}
LISTS = ("old_peaks", "siblings", "new_peaks")


def prove(old: int, new: int) -> ConsistencyProof:
    return prove_consistency(NODES.__getitem__, old_size=old, new_size=new)


def accepts(proof: ConsistencyProof, old_root: bytes, old: int, new_root: bytes, new: int) -> bool:
    try:
        proof.verify(old_root=old_root, old_size=old, new_root=new_root, new_size=new)
    except ProtocolError:
        return False
    return True


def verifies(proof: ConsistencyProof, old: int, new: int) -> bool:
    return accepts(proof, ROOTS[old], old, ROOTS[new], new)


def elements(proof: ConsistencyProof) -> list[NodeHash]:
    return [*proof.old_peaks, *proof.siblings, *proof.new_peaks]


@pytest.mark.parametrize("low", range(1, 70, 10))
def test_every_pair_of_sizes_to_69(low: int) -> None:
    for new in range(low, min(low + 10, 70)):
        for old in range(1, new + 1):
            proof = prove(old, new)
            assert verifies(proof, old, new)
            assert ConsistencyProof.decode(proof.encode()) == proof
            check_minimal(proof, old, new)


@settings(max_examples=300)
@given(st.integers(1, MOST), st.integers(1, MOST))
def test_pairs_of_sizes_to_300(first: int, second: int) -> None:
    old, new = sorted((first, second))
    proof = prove(old, new)
    assert verifies(proof, old, new)
    check_minimal(proof, old, new)


def check_minimal(proof: ConsistencyProof, old: int, new: int) -> None:
    """Fail unless the elements cover each leaf once, in pieces as large as the old boundary allows."""
    if old == new:
        assert elements(proof) == []
        return
    given_nodes = elements(proof)
    if old.bit_count() == 1:
        given_nodes.append(NodeHash(ROOTS[old]))
    pieces = sorted(COVERS[node] for node in given_nodes)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == new
    assert all(left[1] == right[0] for left, right in itertools.pairwise(pieces))
    behind = [piece for piece in pieces if piece[0] >= old]
    whole = set(COVERS.values())
    for left, right in itertools.pairwise(behind):
        merged = (left[0], right[1])
        assert merged not in whole, "two pieces that one would replace"
    assert len(given_nodes) <= 2 * new.bit_length()


def test_no_proof_verifies_for_another_pair_of_sizes() -> None:
    pairs = [(old, new) for new in range(1, 25) for old in range(1, new + 1)]
    for old, new in pairs:
        proof = prove(old, new)
        for pair in pairs:
            both_equal = old == new and pair[0] == pair[1]  # one size, one root: there is nothing to show
            assert verifies(proof, *pair) == (pair == (old, new) or both_equal)


@settings(max_examples=200)
@given(st.lists(st.integers(1, 69), min_size=4, max_size=4))
def test_no_proof_verifies_for_another_pair_of_larger_sizes(numbers: list[int]) -> None:
    old, new = sorted(numbers[:2])
    other_old, other_new = sorted(numbers[2:])
    if (old, new) != (other_old, other_new) and old != new:
        assert not verifies(prove(old, new), other_old, other_new)


def damaged(proof: ConsistencyProof) -> Iterator[ConsistencyProof]:
    """Yield every proof that differs in one element: changed, dropped, doubled, added, moved or swapped."""
    other = NodeHash(b"\xff" * 32)
    for name in LISTS:
        items: tuple[NodeHash, ...] = getattr(proof, name)
        lists = [(*items, other), (other, *items)]
        for index, item in enumerate(items):
            before, after = items[:index], items[index + 1 :]
            lists += [(*before, other, *after), before + after, (*before, item, item, *after)]
            if after:
                lists.append((*before, after[0], item, *after[1:]))
        for changed in lists:
            change: Any = {name: changed}
            yield replace(proof, **change)
        for target in LISTS:
            if items and target != name:
                moved: Any = {name: items[1:], target: (*getattr(proof, target), items[0])}
                yield replace(proof, **moved)


@pytest.mark.parametrize("low", range(1, 34, 8))
def test_a_proof_with_any_element_changed_dropped_added_moved_or_swapped_is_refused(low: int) -> None:
    for new in range(low, min(low + 8, 34)):
        for old in range(1, new + 1):
            for wrong in damaged(prove(old, new)):
                assert not verifies(wrong, old, new), (old, new)


@settings(max_examples=30)
@given(st.integers(34, MOST), st.integers(1, MOST))
def test_a_damaged_proof_between_larger_sizes_is_refused(first: int, second: int) -> None:
    old, new = sorted((first, second))
    assert not any(verifies(wrong, old, new) for wrong in damaged(prove(old, new)))


def test_wrong_roots_are_refused() -> None:
    for new in range(1, 34):
        for old in range(1, new + 1):
            proof = prove(old, new)
            for wrong in (ROOTS[old % 33 + 1], bytes(32), b""):
                if wrong != ROOTS[old]:
                    assert not accepts(proof, wrong, old, ROOTS[new], new)
                if wrong != ROOTS[new]:
                    assert not accepts(proof, ROOTS[old], old, wrong, new)


# --- a reader that follows a log ----------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=7))
def test_a_reader_follows_a_growing_log_from_its_first_entry(steps: list[int]) -> None:
    """Each step and each longer jump verifies with nothing kept but the last root and size."""
    sizes = [sum(steps[: number + 1]) for number in range(len(steps))]
    for index, new in enumerate(sizes):
        for old in [1, *sizes[: index + 1]]:
            assert verifies(prove(old, new), old, new)


@settings(max_examples=60)
@given(st.integers(0, 60), st.integers(1, 60), st.integers(1, 60), st.integers(0, 60))
def test_a_fork_is_never_consistent_with_what_it_left(
    common: int, old_tail: int, new_tail: int, shared_after: int
) -> None:
    """Two logs with a common prefix: from a size behind the fork, no proof of one leads from the other."""
    prefix: list[bytes] = [*LEAVES[:common]]
    one = [*prefix, *(leaf(10_000 + number) for number in range(old_tail))]
    length = max(new_tail, old_tail) + shared_after
    two = [*prefix, *(leaf(20_000 + number) for number in range(length))]
    proof = prove_consistency(complete_nodes(two).__getitem__, old_size=len(one), new_size=len(two))
    honest = naive.root(two[: len(one)])
    assert accepts(proof, honest, len(one), naive.root(two), len(two))
    assert not accepts(proof, naive.root(one), len(one), naive.root(two), len(two))
    if common:
        back = prove_consistency(complete_nodes(two).__getitem__, old_size=common, new_size=len(two))
        assert accepts(back, naive.root(prefix), common, naive.root(two), len(two))


# --- any size -----------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.integers(1, 2**63), st.integers(1, 2**63))
def test_proofs_between_huge_logs_verify_and_read_few_nodes(first: int, second: int) -> None:
    old, new = sorted((first, second))
    log = naive.UniformLog()
    proof = prove_consistency(log.read, old_size=old, new_size=new)
    assert log.reads == len(elements(proof)) <= 2 * new.bit_length()
    assert accepts(proof, log.root(old), old, log.root(new), new)
    assert not accepts(proof, log.root(old), old, bytes(32), new)
    assert ConsistencyProof.decode(proof.encode()) == proof
