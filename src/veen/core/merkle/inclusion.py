"""Inclusion proofs: a leaf is in the log that a signed root commits to (001 sections 5.2 to 5.4).

One format, two numbers: ``stream_seq`` says which leaf, ``mmr_size`` how many leaves the root covers.
At the receipt's own size both are equal (C-24). The root does not commit to the size, so the size must
come from the signed object that holds the root: RECEIPT.stream_seq or CHECKPOINT.upto_seq.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from veen.core.crypto.hash import HASH_BYTES, U64_MAX
from veen.core.encoding import cbor
from veen.core.encoding.field_types import B32, UINT, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import MAX_PROOF_PATH, Limits
from veen.core.merkle.mmr import ReadNode, fold_peaks, node_position, parent, peak_positions
from veen.core.types import JsonValue, LeafHash, NodeHash
from veen.stdx.grammar import counted

# The running hash is the left or the right child at a step (C-22).
LEFT, RIGHT = 0, 1


class Step(NamedTuple):
    """One step from the leaf towards its peak: the running hash's side, and its sibling."""

    dir: int
    sib: NodeHash


STEP_SHAPE: Final = MapShape("step", Field("dir", UINT, key=1), Field("sib", B32, key=2))
_STEP_HEAD: Final = b"\xa2\x01"
_SIB_HEAD: Final = b"\x02\x58\x20"
_STEP_BYTES: Final = 38
_HEAD_32: Final = b"\x58\x20"
# {1: 1, 2: leaf_hash, 3: path, 4: peaks_after}: the bytes before each value.
_BEFORE_LEAF: Final = b"\xa4\x01\x01\x02" + _HEAD_32
_PATH_KEY: Final = b"\x03"
_PEAKS_KEY: Final = b"\x04"
# The bytes before the sibling of a step, by direction.
_STEP_HEADS: Final = (_STEP_HEAD + b"\x00" + _SIB_HEAD, _STEP_HEAD + b"\x01" + _SIB_HEAD)


class _StepKind:
    """The kind of a step. A proof has up to 64 of them, so the only form that can verify has a fast path."""

    name = STEP_SHAPE.name
    sized = True
    versioned = False

    def read(self, buf: bytes, pos: int) -> tuple[Step, int]:
        """Read the expected bytes directly; leave anything else to the shape, which reports what is wrong."""
        end = pos + _STEP_BYTES
        if (
            end <= len(buf)
            and buf[pos : pos + 2] == _STEP_HEAD
            and buf[pos + 2] in (LEFT, RIGHT)
            and buf[pos + 3 : pos + 6] == _SIB_HEAD
        ):
            return Step(buf[pos + 2], NodeHash(buf[pos + 6 : end])), end
        raw, end = STEP_SHAPE.read(buf, pos)
        return Step(**raw), end

    def check(self, raw: Step, limits: Limits | None) -> None:
        """Check the length of the sibling."""
        if len(raw.sib) != HASH_BYTES:
            STEP_SHAPE.check(raw._asdict(), limits)

    def versions(self, raw: Step) -> None:
        """No version inside."""

    def lift(self, raw: Step) -> Step:
        """Return the step if its direction is valid."""
        if raw.dir not in (LEFT, RIGHT):
            raise ProtocolError(Detail.PROOF_PATH, f"dir {raw.dir} is neither 0 nor 1", field="dir")
        return raw

    def lower(self, value: Step) -> Step:
        """Return the step if it is valid."""
        if not isinstance(value, Step):
            raise TypeError(f"expected Step, not {type(value).__name__}")
        if type(value.dir) is int and type(value.sib) is bytes and value.dir in (LEFT, RIGHT):
            return value
        return self.lift(Step(**STEP_SHAPE.lower(value._asdict())))

    def write(self, raw: Step) -> bytes:
        """Encode the step."""
        if raw.dir in (LEFT, RIGHT) and len(raw.sib) == HASH_BYTES:
            return _STEP_HEADS[raw.dir] + raw.sib
        return STEP_SHAPE.write(raw._asdict())

    def to_json(self, raw: Step) -> JsonValue:
        """Return a JSON object."""
        return STEP_SHAPE.to_json(raw._asdict())

    def from_json(self, value: JsonValue) -> Step:
        """Parse a JSON object."""
        return Step(**STEP_SHAPE.from_json(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class MmrProof(Wire):
    """An inclusion proof: the siblings up to the leaf's peak, and all peaks (C-23)."""

    SHAPE: ClassVar = MapShape(
        "mmr_proof",
        Field("ver", VER, key=1),
        Field("leaf_hash", B32, key=2),
        Field("path", ListOf(_StepKind(), max_length=MAX_PROOF_PATH), key=3),
        Field("peaks_after", ListOf(B32, max_length=MAX_PROOF_PATH), key=4),
    )

    leaf_hash: LeafHash
    path: tuple[Step, ...]
    peaks_after: tuple[NodeHash, ...]

    def encode(self) -> bytes:
        """Return the canonical CBOR. The layout of SHAPE, inlined: a hub encodes many proofs, each once."""
        if self._encoded is None:
            steps = [_STEP_HEADS[step.dir] + step.sib for step in self.path]
            peaks = [_HEAD_32 + peak for peak in self.peaks_after]
            parts = (
                _BEFORE_LEAF,
                self.leaf_hash,
                _PATH_KEY + cbor.head(cbor.MAJOR_ARRAY, len(steps)),
                *steps,
                _PEAKS_KEY + cbor.head(cbor.MAJOR_ARRAY, len(peaks)),
                *peaks,
            )
            object.__setattr__(self, "_encoded", b"".join(parts))
        return super(MmrProof, self).encode()

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
                f"{counted(len(self.peaks_after), 'peak')} for a size of {size}",
                field="peaks_after",
            )
        # The leaf's tree comes after the smaller ones: one for each lower bit of the size.
        slot = (size & ((1 << height) - 1)).bit_count()
        if self.peaks_after[slot] != peak:
            raise ProtocolError(Detail.PROOF_PEAKS, "the path does not lead to its peak", field="peaks_after")
        if fold_peaks(self.peaks_after) != expected_root:
            raise ProtocolError(Detail.PROOF_ROOT, "the peaks do not hash to the expected root")

    def _climb(self, stream_seq: int, height: int) -> NodeHash:
        """Fold the path; its length and directions follow from the position, so only one form verifies."""
        if len(self.path) != height:
            raise ProtocolError(
                Detail.PROOF_PATH,
                f"path of {counted(len(self.path), 'step')} instead of {height}",
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
    """Reject a leaf number or size that no range has."""
    if not 1 <= stream_seq <= size <= U64_MAX:
        raise ProtocolError(
            Detail.PROOF_SEQ,
            f"no leaf {stream_seq} in a range of {size}",
            field="stream_seq",
        )


def tree_height(stream_seq: int, size: int) -> int:
    """Return the height of the tree that holds a leaf in a range of ``size`` leaves."""
    # The highest bit in which the leaf's index and the size differ is the bit of its tree.
    return ((stream_seq - 1) ^ size).bit_length() - 1


def proof_positions(stream_seq: int, size: int) -> list[int]:
    """Return the positions of all nodes of a leaf's proof (siblings, leaf, peaks), to be read at once."""
    check_seq(stream_seq, size)
    index = stream_seq - 1
    siblings = [node_position(level, (index >> level) ^ 1) for level in range(tree_height(stream_seq, size))]
    return [*siblings, node_position(0, index), *peak_positions(size)]


def assemble_proof(nodes: Sequence[NodeHash], stream_seq: int, size: int) -> MmrProof:
    """Return the proof of a leaf from its nodes, in the order of ``proof_positions``."""
    height = tree_height(stream_seq, size)
    index = stream_seq - 1
    return MmrProof(
        leaf_hash=LeafHash(nodes[height]),
        path=tuple(Step(dir=index >> level & 1, sib=nodes[level]) for level in range(height)),
        peaks_after=tuple(nodes[height + 1 :]),
    )


def prove_inclusion(read: ReadNode, *, stream_seq: int, mmr_size: int | None = None) -> MmrProof:
    """Build the proof of a leaf from stored nodes: O(log n) reads, deterministic."""
    size = stream_seq if mmr_size is None else mmr_size
    return assemble_proof([read(at) for at in proof_positions(stream_seq, size)], stream_seq, size)
