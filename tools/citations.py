"""Ids of decisions and requirements: the texts that cite them, and their definitions in the reference.

A decision is C, a dash and two or three digits. A requirement is a prefix of two to five capitals and digits,
a dash and three digits. Further ids may follow, those with the same prefix also without it; ``to`` stands for
all numbers in between. Texts that only look like ids are listed in ``NOT_IDS``.

The pages are written by hand, except for the lines that begin with "Cited in".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

DECISIONS: Final = "decisions.md"
REQUIREMENTS: Final = "requirements.md"

# Prefixes of other names with the form of a requirement.
NOT_IDS: Final = frozenset({"SHA"})

# More paths are only counted.
MAX_LISTED: Final = 6

_DIRECTORIES: Final = ("src", "tests", "vectors", "fuzz", "bench", "tools", "deploy", "docs")
# Begins with the capital and looks back from there: a search for a set of characters is fast.
_ID: Final = r"[A-Z](?<![\w-][A-Z])[A-Z0-9]{0,4}-\d{2,3}(?![\w-])"
# A comment may continue in the next line.
_SEPARATOR: Final = r"(?:,|,? and| to)\s+(?:#:?\s+)?"
_CITATION: Final = re.compile(rf"{_ID}(?:{_SEPARATOR}(?:{_ID}|\d{{3}}(?![\w-])))*")
_ITEM: Final = re.compile(r"(to\s+(?:#:?\s+)?)?(?:([A-Z]\w*)-)?\b(\d{2,3})\b")
_DECISION: Final = re.compile(r"^### (C-\d{2,3}): .+$", re.MULTILINE)
_REQUIREMENT: Final = re.compile(r"^- \*\*([A-Z][A-Z0-9]{1,4}-\d{3})\*\* .+$", re.MULTILINE)
_PLACES: Final = re.compile(r"\n(?:\n|  )Cited in .*")


def cited(text: str) -> Iterator[str]:
    """Yield the ids that a text cites, in order; an id that is cited twice comes twice."""
    for run in _CITATION.finditer(text):
        prefix, last = "", 0
        for to, named, digits in _ITEM.findall(run[0]):
            is_range = bool(to) and named in {"", prefix}
            prefix = named or prefix
            first = last + 1 if is_range else int(digits)
            last = int(digits)
            if _is_id(prefix, digits):
                yield from (_name(prefix, number) for number in range(first, last + 1))


def _is_id(prefix: str, digits: str) -> bool:
    if prefix == "C":
        return True
    return len(prefix) > 1 and len(digits) == 3 and prefix not in NOT_IDS


def _name(prefix: str, number: int) -> str:
    return f"C-{number:02}" if prefix == "C" else f"{prefix}-{number:03}"


def defined(page: str) -> list[str]:
    """Return the ids that a page defines: by the heading of a decision, or the line of a requirement."""
    return [*_DECISION.findall(page), *_REQUIREMENT.findall(page)]


def undefined(texts: Iterable[tuple[str, str]], known: Iterable[str]) -> list[str]:
    """Return an error text for each unknown id that a path cites."""
    ids = set(known)
    return [
        f"{path}: {one} is defined neither in {DECISIONS} nor in {REQUIREMENTS} of docs/reference"
        for path, text in texts
        for one in sorted(set(cited(text)) - ids)
    ]


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of the project as (path from the root, content), source first."""
    paths = [path for name in _DIRECTORIES for path in sorted((root / name).rglob("*"))]
    for path in [*paths, *sorted(root.iterdir())]:
        if path.suffix == ".pyc" or path.name.startswith(".") or not path.is_file():
            continue
        content = path.read_bytes()
        if b"\0" not in content:
            yield path.relative_to(root).as_posix(), content.decode(errors="replace")


def places(root: Path, generated: Iterable[str]) -> dict[str, list[str]]:
    """Return the paths that cite each id; ``generated`` pages only repeat others, and do not count."""
    skipped = {f"docs/reference/{name}" for name in generated}
    paths_by_id: dict[str, list[str]] = {}
    for path, text in texts(root):
        if path not in skipped:
            for one in set(cited(text)):
                paths_by_id.setdefault(one, []).append(path)
    return paths_by_id


def with_places(page: str, where: Mapping[str, Sequence[str]]) -> str:
    """Return a page with its lines "Cited in" updated."""
    bare = _PLACES.sub("", page)
    if _REQUIREMENT.search(bare):
        return _REQUIREMENT.sub(lambda line: line[0] + _line("\n  ", where.get(line[1], ())), bare)
    sections = re.split(r"^(?=##)", bare.rstrip("\n"), flags=re.MULTILINE)
    return "\n\n".join(_section(section.rstrip("\n"), where) for section in sections) + "\n"


def _section(text: str, where: Mapping[str, Sequence[str]]) -> str:
    heading = _DECISION.match(text)
    return text + _line("\n\n", where.get(heading[1], ())) if heading else text


def _line(before: str, paths: Sequence[str]) -> str:
    if not paths:
        return ""
    rest = len(paths) - MAX_LISTED
    listed = ", ".join(f"`{path}`" for path in paths[:MAX_LISTED])
    return f"{before}Cited in {listed}{f' and {rest} more' if rest > 0 else ''}."
