"""The data directory that a command was given, and the hub that runs in it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veen.cli.errors import UsageError
from veen.core.data_dir import paths
from veen.storage.errors import NotAStoreError
from veen.storage.fs import RealFilesystem


@contextmanager
def open_data_dir(data_dir: Path) -> Iterator[RealFilesystem]:
    """Open a data directory, and close it afterwards."""
    if not data_dir.is_dir():
        raise UsageError(f"there is no directory {data_dir}; give the data directory of a hub")
    files = RealFilesystem(data_dir)
    try:
        yield files
    except NotAStoreError:
        raise UsageError(
            f"{data_dir} is not a data directory; give the directory that the hub runs with"
        ) from None
    except OSError as error:
        raise UsageError(f"{data_dir} cannot be read: {error.strerror}; run as the hub's user") from None
    finally:
        files.close()


def running_pid(data_dir: Path) -> int | None:
    """Return the process of the hub that was started last in a directory; None if it has stopped."""
    try:
        return int(json.loads((data_dir / paths.HUB_RUNNING).read_text(encoding="ascii"))["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
