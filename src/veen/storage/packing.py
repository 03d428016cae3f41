"""Compressing sealed chunks, once, if the directory's registry says so (001 section 4.8.4; C-87)."""

import bz2

from veen.core import layout
from veen.storage import chunks
from veen.storage.durable import replace_file
from veen.storage.fs import Filesystem
from veen.storage.index import COMPRESSED, Index

_LEVEL = 9


def pack_next(fs: Filesystem, index: Index) -> bool:
    """Compress one chunk that waits for it; False if none does. Can be done again after any interruption."""
    with index.view() as view:
        waiting = view.first_unpacked()
        if waiting is None:
            return False
        label, start_seq = waiting
        state = view.label(label)
        row = None if state is None else view.chunk_at(state.number, start_seq)
    if state is None or row is None or row.start_seq != start_seq or row.compressed or row.pruned:
        with index.change() as changes:
            changes.clear_unpacked(label, start_seq)
        return True
    path = chunks.path_of(state.ref, row)
    replace_file(fs, path + layout.COMPRESSED, bz2.compress(fs.read(path), _LEVEL))
    with index.change() as changes:
        changes.put_chunk(state.number, row._replace(flags=row.flags | COMPRESSED))
        changes.clear_unpacked(label, start_seq)
    fs.unlink(path)
    fs.sync_dir(state.domain)
    return True
