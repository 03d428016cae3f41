"""Where Spark finds itself and what it writes: its home, its scratch, and files kept between runs."""

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
    """Choose where files live that are made once: in the virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "share" / "veen" / "spark"
    cache = environ.get("XDG_CACHE_HOME")
    root = Path(cache) if cache else Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return root / "veen" / "spark"


def spark_home(kept: Path) -> Path:
    """Return a home for Spark that has its programs and jars, but no archive of its Python code.

    Spark puts ``python/lib/pyspark.zip`` in front of the path of every Python process that it starts. That
    holds no compiled modules: without it, each imports the installed package, and is there 0.7 s earlier.
    """
    package = Path(pyspark.__file__).parent
    home = kept / f"home-{hashlib.sha256(os.fsencode(package)).hexdigest()[:16]}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "jars", "sbin"):
            with suppress(FileExistsError):
                (home / name).symlink_to(package / name)
    except OSError:  # nowhere to write: slower, and right
        return package
    return home


def quoted(text: str | Path) -> str:
    """Return a text so that it stays one word where Spark takes options of Java apart."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextmanager
def private() -> Iterator[None]:
    """Have files made for their owner alone: by this process for now, by those that it starts for good.

    Sockets too: those between Java and Python ask nobody for a secret; whoever may write to them is heard.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


class Scratch:
    """A directory for what Spark writes while it runs; removed at its end, or after a kill by the next."""

    def __init__(self) -> None:
        sweep(Path(tempfile.gettempdir()))
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
        self._lock = lock(made / _LOCK, wait=False)
        # It gets the name that others look for when it is held, so that nobody takes it for left behind.
        self.path = made.rename(made.with_name(made.name[1:]))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            unlock(self._lock)
            self._lock = None


def sweep(parent: Path) -> None:
    """Remove what runs have left that were killed."""
    for place in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            fd = lock(place / _LOCK, wait=False, create=False)
            if fd is not None:
                shutil.rmtree(place, ignore_errors=True)
                unlock(fd)
