"""Files of a lake, as Spark is told of them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

#: What stands for other names where Spark reads files.
_PATTERN: Final = re.compile(r"[\\\[\]{}*?]")


def spark_paths(root: Path, paths: Iterable[str]) -> list[str]:
    """Return files below a directory for Spark to read: these, and none that a pattern may fit."""
    place = root.resolve()
    return [f"file://{_PATTERN.sub(_escaped, str(place / path))}" for path in paths]


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"
