"""Compression of sealed chunks, if the directory's registry has it (001 section 4.8.4; C-87)."""

import bz2

from veen.core.data_dir import paths
from veen.storage.atomic_file import replace_file
from veen.storage.errors import StaleIndexError
from veen.storage.fs import Filesystem
from veen.storage.index.index import Index
from veen.storage.index.rows import COMPRESSED

_LEVEL = 9


def pack_next(fs: Filesystem, index: Index) -> bool:
    """Compress one chunk that is due; False if there is none. Can be repeated after any interruption."""
    with index.view() as view:
        waiting = view.first_unpacked()
        if waiting is None:
            return False
        label, start_seq = waiting
        state = view.label(label)
        row = None if state is None else view.chunk_at(state.number, start_seq)
    if state is None or row is None:
        raise StaleIndexError(paths.INDEX, None, "a chunk that is queued for compression is unknown")
    path = paths.chunk(state.domain, label, row.start_seq, row.end_seq)
    if not row.compressed:
        replace_file(fs, path + paths.COMPRESSED, bz2.compress(fs.read(path), _LEVEL))
        with index.change() as changes:
            changes.put_chunk(state.number, row._replace(flags=row.flags | COMPRESSED))
    if fs.size(path) is not None:
        fs.unlink(path)
        fs.sync_dir(state.domain)
    with index.change() as changes:
        changes.clear_unpacked(label, start_seq)
    return True
