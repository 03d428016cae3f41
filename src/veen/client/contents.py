"""Files that are published, and the root over them."""

from collections.abc import Iterable
from hashlib import file_digest
from pathlib import Path

from veen.client.errors import StateError
from veen.overlays.content import Part


def parts_of(paths: Iterable[Path]) -> list[Part]:
    """Return the files that are meant: under their names, or their paths within a directory."""
    found: list[Part] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(item for item in path.rglob("*") if item.is_file())
            found += [_part(item, item.relative_to(path).as_posix()) for item in inside]
        else:
            found.append(_part(path, path.name))
    return found


def _part(path: Path, name: str) -> Part:
    try:
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").digest()
            return Part(name, file.tell(), digest)
    except OSError as error:
        raise StateError(f"{path} can not be read: {error.strerror}") from None
