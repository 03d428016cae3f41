"""checkpoint-binding.cbor: which key stands behind which checkpoint (C-83, C-89).

Written when the hub stops, not while it works: it can be made from the checkpoints at any time.
"""

from veen.core import hubfiles, layout
from veen.core.checkpoint import Checkpoint
from veen.core.errors import ProtocolError
from veen.core.identity import BoundCheckpoint, CheckpointBinding
from veen.core.wire import decode_sequence
from veen.hub.home import Home
from veen.storage import Filesystem
from veen.storage.durable import read_file, replace_file


def write_binding(fs: Filesystem, home: Home, max_skew_sec: int) -> None:
    """Add the checkpoints that were made since the last time."""
    known = {item.place: item for item in _read(fs)}
    changed = False
    for checkpoint in _made(fs):
        place = checkpoint.label_curr, checkpoint.epoch, checkpoint.upto_seq
        if place in known:
            continue
        try:
            key = home.identity.verify_checkpoint(
                checkpoint, epoch_sec=home.settings.epoch_sec, max_skew_sec=max_skew_sec
            )
        except ProtocolError:
            continue  # of a parent, in a fork: its own files speak for it
        known[place] = BoundCheckpoint(
            label=checkpoint.label_curr,
            epoch=checkpoint.epoch,
            upto_seq=checkpoint.upto_seq,
            hub_id=home.identity.hub_id,
            key_id=key.key_id,
            mmr_root=checkpoint.mmr_root,
        )
        changed = True
    if changed or fs.size(hubfiles.BINDING) is None:
        replace_file(fs, hubfiles.BINDING, CheckpointBinding.of(known.values()).encode())


def _made(fs: Filesystem) -> list[Checkpoint]:
    try:
        return decode_sequence(read_file(fs, layout.CHECKPOINTS) or b"", Checkpoint)
    except ProtocolError:
        return []  # damaged: a repair makes it anew, and the next stop goes on


def _read(fs: Filesystem) -> tuple[BoundCheckpoint, ...]:
    stored = read_file(fs, hubfiles.BINDING)
    if stored is None:
        return ()
    try:
        return CheckpointBinding.decode(stored).checkpoints
    except ProtocolError:
        return ()  # damaged: made anew
