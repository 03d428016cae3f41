"""Inclusion proofs against a naive construction, and at sizes that no test could build."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import naive
from tests.builders import leaves, nodes
from veen.core.errors import ProtocolError
from veen.core.merkle.inclusion import MmrProof, Step, prove_inclusion
from veen.core.types import LeafHash, NodeHash

MOST = 300
LEAVES = leaves(MOST)
NODES = nodes(MOST)
ROOTS = [b"", *(naive.root(LEAVES[:size]) for size in range(1, MOST + 1))]


def prove(seq: int, size: int) -> MmrProof:
    return prove_inclusion(NODES.__getitem__, stream_seq=seq, mmr_size=size)


def verifies(proof: MmrProof, seq: int, size: int, root: bytes | None = None) -> bool:
    try:
        proof.verify(ROOTS[size] if root is None else root, proof.leaf_hash, stream_seq=seq, mmr_size=size)
    except ProtocolError:
        return False
    return True


def check_against_naive(seq: int, size: int) -> None:
    proof = prove(seq, size)
    assert proof.leaf_hash == LEAVES[seq - 1]
    assert [(step.dir, step.sib) for step in proof.path] == naive.path(LEAVES[:size], seq)
    assert list(proof.peaks_after) == naive.peaks(LEAVES[:size])
    assert verifies(proof, seq, size)


@pytest.mark.parametrize("low", range(1, 70, 10))
def test_every_leaf_of_every_size_to_69(low: int) -> None:
    for size in range(low, min(low + 10, 70)):
        for seq in range(1, size + 1):
            check_against_naive(seq, size)


@pytest.mark.parametrize("low", range(70, MOST + 1, 33))
def test_chosen_leaves_of_every_size_to_300(low: int) -> None:
    for size in range(low, min(low + 33, MOST + 1)):
        powers = [1 << height for height in range(size.bit_length())]
        chosen = {1, 2, size // 2, size - 1, size, *powers, *(power + 1 for power in powers)}
        for seq in sorted(chosen):
            if 1 <= seq <= size:
                check_against_naive(seq, size)


@pytest.mark.parametrize("low", range(1, 70, 10))
def test_at_one_size_no_proof_verifies_for_another_leaf(low: int) -> None:
    for size in range(low, min(low + 10, 70)):
        for seq in range(1, size + 1):
            proof = prove(seq, size)
            assert [other for other in range(1, size + 1) if verifies(proof, other, size)] == [seq]


def test_no_proof_verifies_against_the_root_of_another_size() -> None:
    for size in range(1, 41):
        for seq in range(1, size + 1):
            proof = prove(seq, size)
            for other in range(1, 41):
                assert verifies(proof, seq, other) == (other == size)
                if other != size:
                    assert not verifies(proof, seq, size, ROOTS[other])


def damaged(proof: MmrProof) -> Iterator[MmrProof]:
    """Yield every proof that differs in one element: changed, dropped, doubled, inserted or swapped."""
    other = NodeHash(b"\xff" * 32)
    yield replace(proof, leaf_hash=LeafHash(other))
    for index, step in enumerate(proof.path):
        before, after = proof.path[:index], proof.path[index + 1 :]
        yield replace(proof, path=(*before, Step(step.dir, other), *after))
        yield replace(proof, path=(*before, Step(1 - step.dir, step.sib), *after))
        yield replace(proof, path=before + after)
        yield replace(proof, path=(*before, step, step, *after))
        if after:
            yield replace(proof, path=(*before, after[0], step, *after[1:]))
    for direction in (0, 1):
        yield replace(proof, path=(Step(direction, other), *proof.path))
        yield replace(proof, path=(*proof.path, Step(direction, other)))
    for index, peak in enumerate(proof.peaks_after):
        before_, after_ = proof.peaks_after[:index], proof.peaks_after[index + 1 :]
        yield replace(proof, peaks_after=(*before_, other, *after_))
        yield replace(proof, peaks_after=before_ + after_)
        yield replace(proof, peaks_after=(*before_, peak, peak, *after_))
        yield replace(proof, peaks_after=(*before_, other, peak, *after_))
        if after_:
            yield replace(proof, peaks_after=(*before_, after_[0], peak, *after_[1:]))
    yield replace(proof, peaks_after=(*proof.peaks_after, other))


def test_a_proof_with_any_element_changed_dropped_added_or_swapped_is_refused() -> None:
    for size in [*range(1, 34), 63, 64, 65, 100, 255, 256, 300]:
        for seq in {1, size, size // 2 or 1, (size + 1) // 2, max(size - 1, 1)}:
            for wrong in damaged(prove(seq, size)):
                assert not verifies(wrong, seq, size), (seq, size)


# --- any size -----------------------------------------------------------------------------------------------


@st.composite
def places(draw: st.DrawFn) -> tuple[int, int]:
    size = draw(st.one_of(st.integers(1, 2**63), st.sampled_from([2**40, 2**62 - 1, 2**63])))
    return draw(st.integers(1, size)), size


@settings(max_examples=200)
@given(places())
def test_proofs_of_huge_logs_verify_and_read_few_nodes(place: tuple[int, int]) -> None:
    seq, size = place
    log = naive.UniformLog()
    proof = prove_inclusion(log.read, stream_seq=seq, mmr_size=size)
    assert log.reads == 1 + len(proof.path) + size.bit_count()
    assert log.reads <= 2 * size.bit_length() + 1
    assert len(proof.path) <= 64
    root = log.root(size)
    proof.verify(root, proof.leaf_hash, stream_seq=seq, mmr_size=size)
    assert MmrProof.decode(proof.encode()) == proof


@settings(max_examples=100)
@given(places())
def test_a_proof_at_its_own_size_has_one_step_per_trailing_zero(place: tuple[int, int]) -> None:
    seq, _ = place
    proof = prove_inclusion(naive.UniformLog().read, stream_seq=seq)
    assert len(proof.path) == (seq & -seq).bit_length() - 1
    assert all(step.dir == 1 for step in proof.path)
    proof.verify(naive.UniformLog().root(seq), proof.leaf_hash, stream_seq=seq)
