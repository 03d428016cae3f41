"""The small files beside chunks: summary, peaks, checkpoint, tombstone; each must fit its name."""

from typing import TypeVar

from veen.core.data_dir.chunk_artifacts import ChunkSummary, PeakSnapshot
from veen.core.data_dir.store_records import Tombstone
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Level
from veen.core.types import Label, NodeHash
from veen.storage.errors import FindingError
from veen.storage.fsck.context import Context
from veen.storage.fsck.label_log import Chunk
from veen.storage.fsck.report import Reason, refused, wrong

W = TypeVar("W", bound=Wire)


def _read(context: Context, path: str, cls: type[W]) -> W:
    try:
        return cls.decode(_content(context, path))
    except ProtocolError as error:
        raise refused(path, 0, error) from error


def _content(context: Context, path: str) -> bytes:
    try:
        return context.source.read(path)
    except FileNotFoundError:  # no hub ever moves these
        raise missing(path, "it was there when the directory was listed") from None


def read_summary(context: Context, path: str, label: Label, start: int, end: int) -> ChunkSummary:
    """Read the summary of a chunk."""
    made = _read(context, path, ChunkSummary)
    if (made.label, made.start_seq, made.end_seq) != (label, start, end):
        raise wrong(path, 0, Reason.SUMMARY, "label or range does not match the file name")
    return made


def check_summary(context: Context, path: str, label: Label, chunk: Chunk) -> None:
    """Check what a summary says about a chunk that was read."""
    made = read_summary(context, path, label, chunk.start, chunk.end)
    if made.total_bytes != chunk.size:
        raise wrong(
            path,
            0,
            Reason.SUMMARY,
            f"total_bytes is {made.total_bytes}, but the chunk has {chunk.size} bytes",
        )
    if context.level >= Level.HASHES and made.entry_hashes_root != chunk.hashes.root:
        raise wrong(path, 0, Reason.SUMMARY, "entry_hashes_root is not the root over the entry hashes")
    if context.level >= Level.ROOTS and made.mmr_root_end != chunk.root:
        raise wrong(path, 0, Reason.SUMMARY, "mmr_root_end is not the root after the chunk's last entry")


def read_peaks(context: Context, path: str, upto: int) -> Peaks:
    """Read a peaks file."""
    try:
        return PeakSnapshot.decode(_content(context, path)).at(upto)
    except ProtocolError as error:
        raise refused(path, 0, error) from error


def check_peaks(context: Context, path: str, upto: int, expected: Peaks | None) -> None:
    """Check a peaks file against the log."""
    made = read_peaks(context, path, upto)
    if context.level >= Level.ROOTS and expected is not None and made != expected:
        raise wrong(path, 0, Reason.PEAKS, f"not the peaks after entry {upto}")


def check_checkpoint(context: Context, path: str, label: Label, upto: int, root: NodeHash | None) -> None:
    """Check a checkpoint: its place, its root and its signature."""
    made = _read(context, path, Checkpoint)
    if (made.label_curr, made.upto_seq) != (label, upto):
        raise wrong(path, 0, Detail.CHECKPOINT_LABEL, "label or upto_seq does not match the file name")
    check_commitment(context, made, path, 0, root)


def check_commitment(
    context: Context, made: Checkpoint, path: str, offset: int, root: NodeHash | None
) -> None:
    """Check what a checkpoint, wherever it stands, says about the log."""
    if context.level >= Level.ROOTS and root is not None and made.mmr_root != root:
        text = f"mmr_root is not the root after entry {made.upto_seq}"
        raise wrong(path, offset, Detail.CHECKPOINT_ROOT, text)
    if context.level >= Level.FULL:
        try:
            context.keys.verify_checkpoint(made)
        except ProtocolError as error:
            raise refused(path, offset, error) from error


def read_tombstone(context: Context, path: str, label: Label, start: int, end: int) -> Tombstone:
    """Read what is left of a pruned chunk."""
    made = _read(context, path, Tombstone)
    if (made.label, made.start_seq, made.end_seq) != (label, start, end):
        raise wrong(path, 0, Reason.TOMBSTONE, "label or range does not match the file name")
    return made


def missing(path: str, why: str) -> FindingError:
    """Return the finding for a file that should be there."""
    return wrong(path, None, Reason.MISSING, why)
