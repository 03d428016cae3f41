"""The checkpoint index of a label: derived, and only as new as the last clean stop."""

from bisect import bisect_left

from veen.core import layout
from veen.core.artifacts import CheckpointIndex, IndexedCheckpoint
from veen.core.checkpoint import Checkpoint
from veen.core.errors import ProtocolError
from veen.storage.fsck.context import Context
from veen.storage.fsck.listing import LabelFiles
from veen.storage.fsck.report import Finding, Reason


def check_index(context: Context, files: LabelFiles, ends: list[tuple[int, int]]) -> Finding | None:
    """Return the first wrong thing in an index; that it lacks newer checkpoints is none."""
    path = files.index
    assert path is not None
    try:
        index = CheckpointIndex.decode(context.source.read(path))
    except ProtocolError as error:
        return Finding(path, 0, error.detail, error.message, derived=True)
    for upto, item in index.checkpoints.items():
        mistake = _mistake(context, files, ends, upto, item)
        if mistake is not None:
            text = f"checkpoint {upto}: {mistake}"
            return Finding(path, 0, Reason.CHECKPOINT_INDEX, text, derived=True)
    return None


def _mistake(
    context: Context, files: LabelFiles, ends: list[tuple[int, int]], upto: int, item: IndexedCheckpoint
) -> str | None:
    checkpoint_path = files.checkpoints.get(upto)
    if checkpoint_path is None:
        return "there is no such checkpoint"
    try:
        checkpoint = Checkpoint.decode(context.source.read(checkpoint_path))
    except ProtocolError:
        return None  # a finding of its own
    if item.mmr_root != checkpoint.mmr_root:
        return "mmr_root is not that of the checkpoint"
    # The chunk that holds it begins where the one before ends; the last one may still be open.
    number = bisect_left(ends, upto, key=lambda chunk: chunk[1])
    start = ends[number - 1][1] + 1 if number else 1
    if (item.chunk_range.start_seq, item.chunk_range.end_seq) != (start, upto):
        return "the range is not from the start of its chunk"
    if item.peaks_ref != layout.peaks(files.domain, files.label, upto).removeprefix(f"{files.domain}/"):
        return "peaks_ref is not the name of its peaks file"
    return None
