"""LMDB files of a client: opened only if they are complete.

LMDB maps its file and trusts the page count in its first pages. If the file is shorter, access to a missing
page kills the process (SIGBUS), so the size is checked first.
"""

import os
from pathlib import Path

import lmdb

from veen.client.errors import ClientStateError, DamagedClientFileError
from veen.stdx.atomic_file import PRIVATE
from veen.stdx.grammar import counted

# Concurrent readers of a file, in all processes.
_MAX_READERS = 512


def open_environment(path: Path, map_size: int) -> lmdb.Environment:
    """Open or create a file.

    Raises ClientStateError if it cannot be used, DamagedClientFileError if it is damaged or truncated.
    """
    try:
        if path.exists() and not path.stat().st_size:  # LMDB would treat it as new
            raise DamagedClientFileError(f"{path} is damaged: it is empty")
        environment = lmdb.open(
            str(path),
            subdir=False,
            map_size=map_size,
            mode=PRIVATE,
            readahead=False,
            max_readers=_MAX_READERS,
            max_dbs=0,
        )
    except (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError) as error:
        raise DamagedClientFileError(f"{path} is damaged: {error}") from None
    except (OSError, lmdb.Error) as error:
        raise ClientStateError(f"{path} cannot be used: {error}") from None
    missing = _missing(environment, path)
    if missing:
        environment.close()
        raise DamagedClientFileError(f"{path} is damaged: {counted(missing, 'byte')} missing at the end")
    environment.reader_check()  # frees the slots of killed processes
    return environment


def _missing(environment: lmdb.Environment, path: Path) -> int:
    """Return how many bytes a file is shorter than its page count; only its first pages are read."""
    pages = environment.info()["last_pgno"] + 1
    return max(0, pages * environment.stat()["psize"] - path.stat().st_size)


def settle(environment: lmdb.Environment, path: Path) -> None:
    """Extend a file to its page count, after a commit.

    Pages that a transaction allocated and freed again are never written. Extending the file makes sure that
    a shorter one was truncated.
    """
    missing = _missing(environment, path)
    if missing:
        os.truncate(path, path.stat().st_size + missing)


def remove_environment(path: Path) -> None:
    """Remove a file and its lock file, so that processes that have them open do not affect the next one."""
    path.with_name(path.name + "-lock").unlink(missing_ok=True)
    path.unlink(missing_ok=True)
