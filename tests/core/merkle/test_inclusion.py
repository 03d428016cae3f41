"""Inclusion proofs: exactly one form verifies, and each way to be wrong has its own name."""

from dataclasses import replace
from typing import Any

import pytest

from tests import naive
from tests import rawcbor as raw
from tests.builders import inclusion_proof, leaf, leaves, nodes, peaks
from tests.expect import faulty, refused
from veen.core.errors import Code, Detail, Fault, Stage
from veen.core.merkle.inclusion import MmrProof, Step, prove_inclusion, tree_height
from veen.core.merkle.mmr import fold_peaks, trailing_zeros
from veen.core.types import LeafHash, NodeHash

#: Leaf 3 of 7: a path of two steps in the highest of three trees.
SEQ, SIZE = 3, 7
GOOD = inclusion_proof(SEQ, SIZE)
ROOT = peaks(SIZE).root


def verify(proof: MmrProof, *, root: bytes = ROOT, seq: int = SEQ, size: int | None = SIZE) -> None:
    proof.verify(root, leaf(SEQ), stream_seq=seq, mmr_size=size)


def test_a_good_proof_verifies_also_after_a_round_trip() -> None:
    verify(GOOD)
    verify(MmrProof.decode(GOOD.encode()))
    verify(MmrProof.from_json(GOOD.to_json()))


def test_the_path_and_peaks_are_those_of_the_tree() -> None:
    assert [(step.dir, step.sib) for step in GOOD.path] == naive.path(leaves(SIZE), SEQ)
    assert list(GOOD.peaks_after) == naive.peaks(leaves(SIZE))


@pytest.mark.parametrize("seq", [*range(1, 18), 64, 96, 100])
def test_against_its_own_receipt_the_path_is_all_right_turns_and_its_peak_first(seq: int) -> None:
    proof = prove_inclusion(nodes(seq).__getitem__, stream_seq=seq)
    assert len(proof.path) == trailing_zeros(seq)
    assert all(step.dir == 1 for step in proof.path)
    acc = NodeHash(leaf(seq))
    for step in proof.path:
        acc = NodeHash(naive.node(step.sib, acc))
    assert proof.peaks_after[0] == acc
    proof.verify(peaks(seq).root, leaf(seq), stream_seq=seq)


def test_a_proof_is_the_same_bytes_after_the_log_grew() -> None:
    small, large = nodes(SIZE), nodes(200)
    for size in range(1, SIZE + 1):
        for seq in range(1, size + 1):
            before = prove_inclusion(small.__getitem__, stream_seq=seq, mmr_size=size)
            after = prove_inclusion(large.__getitem__, stream_seq=seq, mmr_size=size)
            assert before.encode() == after.encode()


# --- refused ------------------------------------------------------------------------------------------------


def test_another_leaf_is_refused() -> None:
    with refused(Detail.LEAF_HASH, field="leaf_hash", code=Code.PROOF) as caught:
        GOOD.verify(ROOT, leaf(4), stream_seq=SEQ, mmr_size=SIZE)
    assert caught.value.stage == Stage.VERIFY
    with refused(Detail.PROOF_PEAKS):
        replace(GOOD, leaf_hash=leaf(4)).verify(ROOT, leaf(4), stream_seq=SEQ, mmr_size=SIZE)


@pytest.mark.parametrize(
    ("seq", "size"), [(0, 7), (8, 7), (1, 0), (0, 0), (-1, 7), (1, 2**64), (2**64, None)]
)
def test_a_place_that_no_range_has_is_refused(seq: int, size: int | None) -> None:
    with refused(Detail.PROOF_SEQ, field="stream_seq"):
        verify(GOOD, seq=seq, size=size)
    with refused(Detail.PROOF_SEQ, field="stream_seq"):
        prove_inclusion(nodes(7).__getitem__, stream_seq=seq, mmr_size=size)


@pytest.mark.parametrize("seq", [seq for seq in range(1, 8) if seq != SEQ])
def test_the_proof_of_one_place_is_refused_at_every_other(seq: int) -> None:
    with refused(Detail.PROOF_PATH):
        verify(GOOD, seq=seq)


def test_a_path_of_another_length_is_refused() -> None:
    longer = replace(GOOD, path=(*GOOD.path, GOOD.path[-1]))
    shorter = replace(GOOD, path=GOOD.path[:-1])
    for wrong, actual in ((longer, 3), (shorter, 1), (replace(GOOD, path=()), 0)):
        with refused(Detail.PROOF_PATH, field="path") as caught:
            verify(wrong)
        assert (caught.value.fields["expected"], caught.value.fields["actual"]) == (2, actual)


def test_a_wrong_direction_is_refused_even_with_the_sibling_that_fits() -> None:
    for index in range(len(GOOD.path)):
        turned = list(GOOD.path)
        turned[index] = Step(1 - turned[index].dir, turned[index].sib)
        with refused(Detail.PROOF_PATH, field="path"):
            verify(replace(GOOD, path=tuple(turned)))


def test_the_older_meaning_of_dir_is_refused() -> None:
    swapped = tuple(Step(1 - step.dir, step.sib) for step in GOOD.path)
    with refused(Detail.PROOF_PATH):
        verify(replace(GOOD, path=swapped))


def test_steps_in_another_order_are_refused() -> None:
    proof = inclusion_proof(4, 8)
    assert [step.dir for step in proof.path[:2]] == [1, 1]
    reordered = replace(proof, path=(proof.path[1], proof.path[0], proof.path[2]))
    with refused(Detail.PROOF_PEAKS):
        reordered.verify(peaks(8).root, leaf(4), stream_seq=4, mmr_size=8)


def test_a_wrong_sibling_is_refused() -> None:
    wrong = Step(GOOD.path[0].dir, NodeHash(leaf(1)))
    with refused(Detail.PROOF_PEAKS, field="peaks_after"):
        verify(replace(GOOD, path=(wrong, *GOOD.path[1:])))


def test_peaks_too_many_too_few_repeated_or_out_of_order_are_refused() -> None:
    first, second, third = GOOD.peaks_after
    extra = NodeHash(leaf(9))
    for wrong in (
        (first, second),
        (third,),
        (),
        (extra, first, second, third),
        (first, first, third),
        (third, third, third),
        (third, second, first),
        (first, third, second),
    ):
        with refused(Detail.PROOF_PEAKS, field="peaks_after"):
            verify(replace(GOOD, peaks_after=wrong))
    with refused(Detail.PROOF_ROOT):
        verify(replace(GOOD, peaks_after=(second, first, third)))


def test_peaks_that_do_not_hold_the_leafs_own_are_refused_even_with_the_right_root() -> None:
    """Otherwise the list alone would give the root and the path would prove nothing."""
    forged = replace(GOOD, leaf_hash=LeafHash(leaf(99)))
    with refused(Detail.PROOF_PEAKS, field="peaks_after"):
        forged.verify(ROOT, leaf(99), stream_seq=SEQ, mmr_size=SIZE)


def test_another_root_is_refused() -> None:
    for other in (peaks(6).root, peaks(8).root, bytes(32), b"", ROOT[:-1]):
        with refused(Detail.PROOF_ROOT):
            verify(GOOD, root=other)


def test_the_older_rule_of_hashing_a_lone_peak_is_refused() -> None:
    proof = inclusion_proof(1, 1)
    hashed = fold_peaks((NodeHash(leaf(1)), NodeHash(leaf(1))))
    with refused(Detail.PROOF_ROOT):
        proof.verify(hashed, leaf(1), stream_seq=1)


def test_the_size_must_come_from_a_signed_object_because_the_root_does_not_commit_to_it() -> None:
    """The known weakness, kept visible: sizes 5 and 6 put leaf 1 in the same tree, beside one other peak."""
    proof = inclusion_proof(1, 5)
    root = peaks(5).root
    proof.verify(root, leaf(1), stream_seq=1, mmr_size=5)
    proof.verify(root, leaf(1), stream_seq=1, mmr_size=6)
    with refused(Detail.PROOF_ROOT):
        proof.verify(peaks(6).root, leaf(1), stream_seq=1, mmr_size=6)


# --- its encoding -------------------------------------------------------------------------------------------


def test_a_step_has_two_keys_in_order_and_a_hash() -> None:
    one = raw.mapping([(raw.uint(1), raw.uint(0)), (raw.uint(2), raw.bstr(bytes(32)))])

    def with_step(step: bytes) -> bytes:
        return raw.with_pair(GOOD.encode(), 3, raw.array([one, step]))

    MmrProof.decode(with_step(one))
    dir_, sib = raw.pairs(one)
    for step, fault in (
        (raw.mapping([dir_]), Fault.MISSING_KEY),
        (raw.mapping([sib]), Fault.MISSING_KEY),
        (raw.mapping([sib, dir_]), Fault.KEY_ORDER),
        (raw.mapping([dir_, dir_]), Fault.DUPLICATE_KEY),
        (raw.mapping([dir_, sib, (raw.uint(3), raw.uint(0))]), Fault.UNKNOWN_KEY),
        (raw.mapping([(raw.uint(1), raw.uint(0, width=1)), sib]), Fault.NON_MINIMAL),
        (raw.mapping([(raw.uint(1), raw.FALSE), sib]), Fault.BOOL),
        (raw.mapping([(raw.uint(1), b"\x20"), sib]), Fault.NEGATIVE),
        (raw.mapping([dir_, (raw.uint(2), raw.NULL)]), Fault.NULL),
        (raw.mapping([dir_, (raw.uint(2), raw.bstr(bytes(32), width=2))]), Fault.NON_MINIMAL),
        (raw.array([raw.uint(0), raw.bstr(bytes(32))]), Fault.TYPE),
    ):
        with faulty(fault):
            MmrProof.decode(with_step(step))
    for length in (0, 31, 33):
        with refused(Detail.FIELD_SIZE, field="path.sib"):
            MmrProof.decode(with_step(raw.mapping([dir_, (raw.uint(2), raw.bstr(bytes(length)))])))


@pytest.mark.parametrize("direction", [2, 23, 255, 2**64 - 1])
def test_a_direction_is_0_or_1(direction: int) -> None:
    step = raw.mapping([(raw.uint(1), raw.uint(direction)), (raw.uint(2), raw.bstr(bytes(32)))])
    with refused(Detail.PROOF_PATH, code=Code.PROOF):
        MmrProof.decode(raw.with_pair(GOOD.encode(), 3, raw.array([step])))
    with refused(Detail.PROOF_PATH):
        replace(GOOD, path=(Step(direction, NodeHash(bytes(32))),))
    form: Any = GOOD.to_json()
    with refused(Detail.PROOF_PATH):
        MmrProof.from_json({**form, "path": [{"dir": direction, "sib": "00" * 32}]})


def test_a_path_holds_steps_and_nothing_else() -> None:
    wrong: Any = ((0, NodeHash(bytes(32))),)
    with pytest.raises(TypeError):
        replace(GOOD, path=wrong)
    mutable: Any = bytearray(32)
    wrong = (Step(0, mutable),)
    with pytest.raises(TypeError):
        replace(GOOD, path=wrong)
    with refused(Detail.FIELD_SIZE, field="path.sib"):
        replace(GOOD, path=(Step(0, NodeHash(bytes(31))),))


def test_a_path_has_at_most_64_steps_and_there_are_at_most_64_peaks() -> None:
    step = Step(1, NodeHash(bytes(32)))
    most = replace(GOOD, path=(step,) * 64, peaks_after=(NodeHash(bytes(32)),) * 64)
    assert MmrProof.decode(most.encode()) == most
    with refused(Detail.FIELD_SIZE, field="path", code=Code.SIZE):
        replace(GOOD, path=(step,) * 65)
    with refused(Detail.FIELD_SIZE, field="peaks_after"):
        replace(GOOD, peaks_after=(NodeHash(bytes(32)),) * 65)
    one = raw.elements(raw.pairs(most.encode())[2][1])[0]
    with refused(Detail.FIELD_SIZE, field="path"):
        MmrProof.decode(raw.with_pair(GOOD.encode(), 3, raw.array([one] * 65)))


@pytest.mark.parametrize("seq", [1, 2**63, 2**63 + 1, 2**64 - 1])
def test_the_largest_log_can_be_proved(seq: int) -> None:
    log = naive.UniformLog()
    proof = prove_inclusion(log.read, stream_seq=seq, mmr_size=2**64 - 1)
    assert len(proof.peaks_after) == 64
    proof.verify(log.root(2**64 - 1), proof.leaf_hash, stream_seq=seq, mmr_size=2**64 - 1)


def test_the_height_of_a_leafs_tree() -> None:
    assert [tree_height(seq, 7) for seq in range(1, 8)] == [2, 2, 2, 2, 1, 1, 0]
    assert tree_height(2**63, 2**64 - 1) == 63
    assert tree_height(2**64 - 1, 2**64 - 1) == 0
