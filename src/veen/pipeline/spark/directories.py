"""Spark's directories: its home, its scratch space, and files cached between runs."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark

from veen.stdx.file_lock import lock, unlock

__all__ = ["Scratch", "kept_dir", "private", "quoted", "spark_home"]

_PREFIX: Final = "veen-spark-"
_LOCK: Final = "in-use"


def kept_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Choose the directory of cached files: in the virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "share" / "veen" / "spark"
    cache = environ.get("XDG_CACHE_HOME")
    root = Path(cache) if cache else Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return root / "veen" / "spark"


def spark_home(kept: Path) -> Path:
    """Return a Spark home with its programs and jars, but without the archive of its Python code.

    Spark puts ``python/lib/pyspark.zip`` first on the path of every Python process that it starts. That has
    no compiled modules: without it each process imports the installed package, and starts 0.7 s faster.
    """
    package = Path(pyspark.__file__).parent
    home = kept / f"home-{hashlib.sha256(os.fsencode(package)).hexdigest()[:16]}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "jars", "sbin"):
            with suppress(FileExistsError):
                (home / name).symlink_to(package / name)
    except OSError:  # not writable: correct, but slower
        return package
    return home


def quoted(text: str | Path) -> str:
    """Quote a text so that it stays one word when Spark splits Java options."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextmanager
def private() -> Iterator[None]:
    """Set a umask that excludes other users: for this process in the block, for its children for good.

    This covers the sockets between Java and Python, which have no authentication besides file permissions.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


class Scratch:
    """A directory for Spark's temporary files; removed at the end, or after a kill by the next run."""

    def __init__(self) -> None:
        sweep(Path(tempfile.gettempdir()))
        directory = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
        self._lock = lock(directory / _LOCK, wait=False)
        # Only a locked directory gets the name that sweeps look for: otherwise one might remove it.
        self.path = directory.rename(directory.with_name(directory.name[1:]))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            unlock(self._lock)
            self._lock = None


def sweep(parent: Path) -> None:
    """Remove the directories of runs that were killed."""
    for directory in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            fd = lock(directory / _LOCK, wait=False, create=False)
            if fd is not None:
                shutil.rmtree(directory, ignore_errors=True)
                unlock(fd)
