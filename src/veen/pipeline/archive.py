"""An archive of Spark's loaded classes, which halves the time that its JVM needs to begin."""

from collections.abc import Mapping
from pathlib import Path


def options(environment: Mapping[str, str], kept: Path) -> tuple[str, ...]:
    """Return what a JVM must be told to use the archive that is kept for it; nothing, if there is none."""
    return ()
