"""The sidecar files of chunks: summary, peaks, checkpoint, tombstone; each must match its name."""

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
    except FileNotFoundError:  # a running hub never moves these
        raise missing(path, "it was there when the directory was listed") from None


def read_summary(context: Context, path: str, label: Label, start: int, end: int) -> ChunkSummary:
    """Read a summary, which must match its name."""
    summary = _read(context, path, ChunkSummary)
    if (summary.label, summary.start_seq, summary.end_seq) != (label, start, end):
        raise wrong(path, 0, Reason.SUMMARY, "label or range does not match the file name")
    return summary


def check_summary(context: Context, path: str, label: Label, chunk: Chunk) -> None:
    """Check a summary against its chunk."""
    summary = read_summary(context, path, label, chunk.start, chunk.end)
    if summary.total_bytes != chunk.size:
        raise wrong(
            path,
            0,
            Reason.SUMMARY,
            f"total_bytes is {summary.total_bytes}, but the chunk has {chunk.size} bytes",
        )
    if context.level >= Level.HASHES and summary.entry_hashes_root != chunk.hashes.root:
        raise wrong(path, 0, Reason.SUMMARY, "entry_hashes_root is not the root over the entry hashes")
    if context.level >= Level.ROOTS and summary.mmr_root_end != chunk.root:
        raise wrong(path, 0, Reason.SUMMARY, "mmr_root_end is not the root after the chunk's last entry")


def read_peaks(context: Context, path: str, upto: int) -> Peaks:
    """Read a peaks file."""
    try:
        return PeakSnapshot.decode(_content(context, path)).at(upto)
    except ProtocolError as error:
        raise refused(path, 0, error) from error


def check_peaks(context: Context, path: str, upto: int, expected: Peaks | None) -> None:
    """Check a peaks file against the log."""
    peaks = read_peaks(context, path, upto)
    if context.level >= Level.ROOTS and expected is not None and peaks != expected:
        raise wrong(path, 0, Reason.PEAKS, f"not the peaks after entry {upto}")


def check_checkpoint(context: Context, path: str, label: Label, upto: int, root: NodeHash | None) -> None:
    """Check a checkpoint file: position, root and signature."""
    checkpoint = _read(context, path, Checkpoint)
    if (checkpoint.label_curr, checkpoint.upto_seq) != (label, upto):
        raise wrong(path, 0, Detail.CHECKPOINT_LABEL, "label or upto_seq does not match the file name")
    check_commitment(context, checkpoint, path, 0, root)


def check_commitment(
    context: Context, checkpoint: Checkpoint, path: str, offset: int, root: NodeHash | None
) -> None:
    """Check root and signature of a checkpoint from any file."""
    if context.level >= Level.ROOTS and root is not None and checkpoint.mmr_root != root:
        text = f"mmr_root is not the root after entry {checkpoint.upto_seq}"
        raise wrong(path, offset, Detail.CHECKPOINT_ROOT, text)
    if context.level >= Level.FULL:
        try:
            context.keys.verify_checkpoint(checkpoint)
        except ProtocolError as error:
            raise refused(path, offset, error) from error


def read_tombstone(context: Context, path: str, label: Label, start: int, end: int) -> Tombstone:
    """Read a tombstone, which must match its name."""
    tombstone = _read(context, path, Tombstone)
    if (tombstone.label, tombstone.start_seq, tombstone.end_seq) != (label, start, end):
        raise wrong(path, 0, Reason.TOMBSTONE, "label or range does not match the file name")
    return tombstone


def missing(path: str, why: str) -> FindingError:
    """Return the finding, to raise, for a missing file."""
    return wrong(path, None, Reason.MISSING, why)
