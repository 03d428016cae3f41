"""The anchors of checkpoints: one file for each, named by label and size (ANC0-003)."""

from veen.core.data_dir import paths
from veen.core.errors import ProtocolError
from veen.core.objects.anchor import AnchorRecord
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import Label
from veen.storage.atomic_file import read_file, replace_file
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import Filesystem


def store_record(fs: Filesystem, record: AnchorRecord) -> None:
    """Store an anchor durably."""
    replace_file(fs, paths.anchor(record.label, record.upto_seq), record.encode())


def read_record(fs: Filesystem, label: Label, upto_seq: int) -> AnchorRecord | None:
    """Return the anchor of a checkpoint."""
    path = paths.anchor(label, upto_seq)
    record = _read(fs, path)
    if record is not None and (record.label, record.upto_seq) != (label, upto_seq):
        raise DamagedStoreError(path, 0, "it is the anchor of another checkpoint", "remove it")
    return record


def anchored(fs: Filesystem) -> dict[Label, int]:
    """Return the last anchored entry of each label, from the names of the files."""
    sizes: dict[Label, int] = {}
    for name in fs.names(paths.ANCHORS_DIR):
        parsed = paths.parse_anchor(name)
        if parsed is not None:
            label, upto_seq = parsed
            sizes[label] = max(upto_seq, sizes.get(label, 0))
    return sizes


def find_record(fs: Filesystem, directory: str, checkpoint: Checkpoint) -> AnchorRecord | None:
    """Return an anchor of the checkpoint's root: the one with its name, else any other (CLI-086)."""
    prefix = directory + "/" if directory else ""
    own = paths.anchor_name(checkpoint.label_curr, checkpoint.upto_seq)
    others = (name for name in fs.names(directory) if paths.parse_anchor(name) and name != own)
    for name in (own, *others):
        record = _read(fs, prefix + name)
        if record is not None and record.mmr_root == checkpoint.mmr_root:
            return record
    return None


def _read(fs: Filesystem, path: str) -> AnchorRecord | None:
    stored = read_file(fs, path)
    if stored is None:
        return None
    try:
        return AnchorRecord.decode(stored)
    except ProtocolError as error:
        raise DamagedStoreError(path, 0, str(error), "remove it") from error
