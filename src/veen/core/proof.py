"""Inclusion proofs: a leaf is in the log that a signed root commits to (001 sections 5.2 to 5.4).

One format, two numbers: ``stream_seq`` says which leaf, ``mmr_size`` how many leaves the root covers.
At the receipt's own size both are equal (C-24). The root does not commit to the size, so the size must
come from the signed object that holds the root: RECEIPT.stream_seq or CHECKPOINT.upto_seq.
"""

from dataclasses import dataclass
from typing import ClassVar

from veen.core.errors import Detail, ProtocolError
from veen.core.hashing import U64_MAX
from veen.core.kinds import B32, UINT, VER, ListOf
from veen.core.limits import MAX_PROOF_PATH
from veen.core.mmr import ReadNode, fold_peaks, node_position, parent, read_peaks
from veen.core.shapes import Field, MapShape
from veen.core.types import LeafHash, NodeHash
from veen.core.wire import Nested, Wire

#: The running hash is the left or the right child at a step (C-22).
LEFT, RIGHT = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Wire):
    """One step from the leaf towards its peak."""

    SHAPE: ClassVar = MapShape("step", Field("dir", UINT, key=1), Field("sib", B32, key=2))

    dir: int
    sib: NodeHash

    def _validate(self) -> None:
        if self.dir not in (LEFT, RIGHT):
            raise ProtocolError(Detail.PROOF_PATH, f"dir {self.dir} is neither 0 nor 1", field="dir")


@dataclass(frozen=True, slots=True, kw_only=True)
class MmrProof(Wire):
    """An inclusion proof: the siblings up to the leaf's peak, and all peaks (C-23)."""

    SHAPE: ClassVar = MapShape(
        "mmr_proof",
        Field("ver", VER, key=1),
        Field("leaf_hash", B32, key=2),
        Field("path", ListOf(Nested(Step), most=MAX_PROOF_PATH), key=3),
        Field("peaks_after", ListOf(B32, most=MAX_PROOF_PATH), key=4),
    )

    leaf_hash: LeafHash
    path: tuple[Step, ...]
    peaks_after: tuple[NodeHash, ...]

    def verify(
        self, expected_root: bytes, leaf_hash: LeafHash, *, stream_seq: int, mmr_size: int | None = None
    ) -> None:
        """Check that leaf number ``stream_seq`` is under a root over ``mmr_size`` leaves.

        ``mmr_size`` defaults to ``stream_seq``: the root of the leaf's own receipt.
        """
        size = stream_seq if mmr_size is None else mmr_size
        check_seq(stream_seq, size)
        if self.leaf_hash != leaf_hash:
            raise ProtocolError(Detail.LEAF_HASH, "the proof is for another leaf", field="leaf_hash")
        height = tree_height(stream_seq, size)
        peak = self._climb(stream_seq, height)
        if len(self.peaks_after) != size.bit_count() or len(set(self.peaks_after)) != len(self.peaks_after):
            raise ProtocolError(
                Detail.PROOF_PEAKS,
                f"{len(self.peaks_after)} peaks do not fit a size of {size}",
                field="peaks_after",
            )
        # The leaf's tree stands behind the smaller ones: one for each lower bit of the size.
        slot = (size & ((1 << height) - 1)).bit_count()
        if self.peaks_after[slot] != peak:
            raise ProtocolError(Detail.PROOF_PEAKS, "the path does not lead to its peak", field="peaks_after")
        if fold_peaks(self.peaks_after) != expected_root:
            raise ProtocolError(Detail.PROOF_ROOT, "the peaks do not give the expected root")

    def _climb(self, stream_seq: int, height: int) -> NodeHash:
        """Fold the path; its length and directions follow from the position, so only one form verifies."""
        if len(self.path) != height:
            raise ProtocolError(
                Detail.PROOF_PATH,
                f"path of {len(self.path)} steps, must have {height}",
                field="path",
                expected=height,
                actual=len(self.path),
            )
        acc = NodeHash(self.leaf_hash)
        index = stream_seq - 1
        for level, step in enumerate(self.path):
            if step.dir != index >> level & 1:
                raise ProtocolError(Detail.PROOF_PATH, f"wrong direction at step {level}", field="path")
            acc = parent(acc, step.sib) if step.dir == LEFT else parent(step.sib, acc)
        return acc


def check_seq(stream_seq: int, size: int) -> None:
    """Refuse a leaf number or size that no range has."""
    if not 1 <= stream_seq <= size <= U64_MAX:
        raise ProtocolError(
            Detail.PROOF_SEQ,
            f"no leaf {stream_seq} in a range of {size}",
            field="stream_seq",
            actual=max(stream_seq, 0),
        )


def tree_height(stream_seq: int, size: int) -> int:
    """Return the height of the tree that holds a leaf in a range of ``size`` leaves."""
    # The highest bit in which the leaf's index and the size differ is the bit of its tree.
    return ((stream_seq - 1) ^ size).bit_length() - 1


def prove_inclusion(read: ReadNode, *, stream_seq: int, mmr_size: int | None = None) -> MmrProof:
    """Build the proof of a leaf from stored nodes: O(log n) reads, the same bytes every time."""
    size = stream_seq if mmr_size is None else mmr_size
    check_seq(stream_seq, size)
    index = stream_seq - 1
    path = tuple(
        Step(dir=index >> level & 1, sib=read(node_position(level, (index >> level) ^ 1)))
        for level in range(tree_height(stream_seq, size))
    )
    return MmrProof(
        leaf_hash=LeafHash(read(node_position(0, index))),
        path=path,
        peaks_after=read_peaks(read, size).hashes,
    )
