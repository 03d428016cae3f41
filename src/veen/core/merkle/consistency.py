"""Consistency proofs: a later root commits to everything that an earlier one did.

Not part of the v0.0.1 documents; every transparency log has them, so this one does too. The format is
described in docs/reference/consistency-proof.md. What a proof holds is fixed by the two sizes alone:

    old_peaks   the peaks of the old range, by increasing height; omitted if the old root is a lone
                peak, or if both sizes are equal: then the verifier has them already
    siblings    the nodes with which trees of the old range were merged into a larger one, bottom-up
    new_peaks   the peaks of the new range that hold no old leaf

Both sizes come from signed objects, because a root does not commit to its size (C-24).
"""

from dataclasses import dataclass
from typing import ClassVar

from veen.core.encoding.field_types import B32, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import MAX_PROOF_PATH
from veen.core.merkle.inclusion import check_seq
from veen.core.merkle.mmr import ReadNode, fold_peaks, node_position, parent, peak_heights, trailing_zeros
from veen.core.types import NodeHash


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a proof between two sizes consists of; shared by prover and verifier."""

    old_heights: list[int]
    # (level, index) of each sibling, bottom-up.
    siblings: list[tuple[int, int]]
    # Heights of the new peaks that hold no old leaf.
    new_heights: list[int]
    # Height of the new tree into which the smaller old ones were merged; None if none were.
    merged_height: int | None


def _plan(old: int, new: int) -> _Plan:
    if old == new:
        return _Plan([], [], [], None)
    old_heights = peak_heights(old)
    # Above the highest bit in which the sizes differ, both ranges have the same trees.
    differ = (old ^ new).bit_length() - 1
    new_heights = [height for height in peak_heights(new) if height <= differ]
    if old & ((1 << differ) - 1) == 0:
        return _Plan(old_heights, [], new_heights, None)
    # The smaller old trees are the left part of the new tree of that height. Climb from the smallest:
    # where the running node is a right child, its sibling is the next old peak, else the proof must have it.
    lowest = trailing_zeros(old)
    index = (old >> lowest) - 1
    siblings = []
    for level in range(lowest, differ):
        if index & 1 == 0:
            siblings.append((level, index + 1))
        index >>= 1
    return _Plan(old_heights, siblings, new_heights[:-1], differ)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyProof(Wire):
    """A proof that the range of the old size is a prefix of the range of the new size."""

    SHAPE: ClassVar = MapShape(
        "consistency_proof",
        Field("ver", VER, key=1),
        Field("old_peaks", ListOf(B32, max_length=MAX_PROOF_PATH), key=2),
        Field("siblings", ListOf(B32, max_length=MAX_PROOF_PATH), key=3),
        Field("new_peaks", ListOf(B32, max_length=MAX_PROOF_PATH), key=4),
    )

    old_peaks: tuple[NodeHash, ...]
    siblings: tuple[NodeHash, ...]
    new_peaks: tuple[NodeHash, ...]

    def verify(self, *, old_root: bytes, old_size: int, new_root: bytes, new_size: int) -> None:
        """Check the proof between two signed (root, size) pairs."""
        check_seq(old_size, new_size)
        plan = _plan(old_size, new_size)
        lone = len(plan.old_heights) == 1
        for name, nodes, expected in (
            ("old_peaks", self.old_peaks, 0 if lone else len(plan.old_heights)),
            ("siblings", self.siblings, len(plan.siblings)),
            ("new_peaks", self.new_peaks, len(plan.new_heights)),
        ):
            if len(nodes) != expected:
                raise ProtocolError(
                    Detail.PROOF_PATH,
                    f"{len(nodes)} {name} instead of {expected}",
                    field=name,
                    expected=expected,
                    actual=len(nodes),
                )
        if old_size == new_size:
            if old_root != new_root:
                raise ProtocolError(Detail.PROOF_ROOT, "two different roots of one size")
            return
        old_peaks = (NodeHash(old_root),) if lone else self.old_peaks
        if fold_peaks(old_peaks) != old_root:
            raise ProtocolError(
                Detail.PROOF_PEAKS, "old_peaks do not hash to the old root", field="old_peaks"
            )
        if fold_peaks(self._grown(plan, old_peaks)) != new_root:
            raise ProtocolError(Detail.PROOF_ROOT, "the old range is not a prefix of the new one")

    def _grown(self, plan: _Plan, old_peaks: tuple[NodeHash, ...]) -> tuple[NodeHash, ...]:
        """Return the peaks of the new range, computed from the old ones."""
        if plan.merged_height is None:
            return self.new_peaks + old_peaks
        peaks = dict(zip(plan.old_heights, old_peaks, strict=True))
        siblings = dict(zip((level for level, _ in plan.siblings), self.siblings, strict=True))
        lowest = plan.old_heights[0]
        acc = peaks.pop(lowest)
        for level in range(lowest, plan.merged_height):
            acc = parent(acc, siblings[level]) if level in siblings else parent(peaks.pop(level), acc)
        return (*self.new_peaks, acc, *peaks.values())


def prove_consistency(read: ReadNode, *, old_size: int, new_size: int) -> ConsistencyProof:
    """Build the proof between two sizes from stored nodes: O(log n) reads."""
    check_seq(old_size, new_size)
    plan = _plan(old_size, new_size)

    def peaks(size: int, heights: list[int]) -> tuple[NodeHash, ...]:
        return tuple(read(node_position(height, (size >> height) - 1)) for height in heights)

    return ConsistencyProof(
        old_peaks=() if len(plan.old_heights) == 1 else peaks(old_size, plan.old_heights),
        siblings=tuple(read(node_position(*where)) for where in plan.siblings),
        new_peaks=peaks(new_size, plan.new_heights),
    )
