"""LMDB files of a client: opened only if they are whole.

LMDB maps its file and trusts what its first pages say of the others. Where the file is shorter, touching what
is missing ends the process, so that is found out before.
"""

import os
from pathlib import Path

import lmdb

from veen.client.errors import ClientStateError, DamagedClientFileError
from veen.stdx.atomic_file import PRIVATE
from veen.stdx.grammar import counted

#: Processes and threads that read a file at the same time.
_MAX_READERS = 512


def open_environment(path: Path, map_size: int) -> lmdb.Environment:
    """Open or create a file.

    Raises ClientStateError if it cannot be used, DamagedClientFileError if it is not whole.
    """
    try:
        if path.exists() and not path.stat().st_size:  # LMDB would take it for a new one
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
    environment.reader_check()  # places of processes that were killed
    return environment


def _missing(environment: lmdb.Environment, path: Path) -> int:
    """Return by how much a file is shorter than it says; only its first pages are looked at."""
    pages = environment.info()["last_pgno"] + 1
    return max(0, pages * environment.stat()["psize"] - path.stat().st_size)


def settle(environment: lmdb.Environment, path: Path) -> None:
    """Make a file as long as it says, after something was written.

    Pages that a transaction has taken and given back are not written. Only where they are there all the same
    is a file that is shorter one that was cut.
    """
    missing = _missing(environment, path)
    if missing:
        os.truncate(path, path.stat().st_size + missing)


def remove_environment(path: Path) -> None:
    """Remove a file with its locks: those who still have them open do not meet those of the next one."""
    path.with_name(path.name + "-lock").unlink(missing_ok=True)
    path.unlink(missing_ok=True)
