"""Files that are not a single wire object, one of each, by its name in the conformance adapter."""

from tests import builders as make
from veen.core.data_dir.chunk_artifacts import CheckpointIndex, PeakSnapshot
from veen.core.objects.entry import Entry
from veen.core.objects.hub_identity import CheckpointBinding, KeyMap

File = Entry | PeakSnapshot | CheckpointIndex | KeyMap | CheckpointBinding


def every_file() -> dict[str, File]:
    """Return one of each."""
    keys = make.identity([make.hub_key(), make.hub_key("second", valid_from=5)])
    return {
        "entry": make.entry(),
        "peaks": PeakSnapshot(make.peaks(7).hashes),
        "checkpoint_index": make.checkpoint_index(),
        "hub_key_map": keys.key_map(),
        "checkpoint_binding": CheckpointBinding.of(
            make.bound_checkpoint(upto_seq=seq) for seq in (1, 30, 400)
        ),
    }
