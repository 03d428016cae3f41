"""Files that appear whole or not at all: written beside, synced, renamed (docs/adr/0007)."""

from collections.abc import Mapping

from veen.storage.fs import Filesystem, Write

#: What a file is called until it is whole.
TMP = ".tmp"


def replace_files(fs: Filesystem, files: Mapping[str, bytes]) -> None:
    """Give files their content, each at once; their names are durable after ``sync_dir``."""
    for path in files:
        if fs.size(path + TMP) is not None:  # of a writer that did not get further
            fs.unlink(path + TMP)
    fs.write_all([Write(path + TMP, 0, data) for path, data in files.items()])
    for path in files:
        fs.rename(path + TMP, path)


def replace_file(fs: Filesystem, path: str, data: bytes) -> None:
    """Give one file its content, durably."""
    replace_files(fs, {path: data})
    fs.sync_dir(path.rpartition("/")[0])


def read_file(fs: Filesystem, path: str) -> bytes | None:
    """Return the content of a file, or None if there is none."""
    try:
        return fs.read(path)
    except FileNotFoundError:
        return None
