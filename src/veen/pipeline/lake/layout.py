"""The file names of a lake, and the ranges of its files: both follow from the log alone.

    bronze/entries/label=HEX/FROM-UPTO.parquet     verified entries, as the hub has them
    silver/records/...                             every entry, opened or with the reason why not
    silver/SCHEMA/...                              the bodies of a schema, in typed columns
    silver/rejected/...                            bodies that are not what their schema says
    gold/...                                       states of overlays
    _veen/commits/NUMBER.json                      which files are the lake, and what they hold
    _veen/snapshots/NUMBER.json                    all commits up to there in one; can be made again
    _veen/hub/HASH                                 what is needed to write the hub's directory again

Numbers in names have 20 digits, so that names sort as numbers do. A file holds entries of one slice of a
label: slices start every ``SLICE`` entries, independent of how ingest was divided into runs. A file that was
rebuilt, because more is known about its entries, has the number of rebuilds after its range.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from veen.core.types import Label

# Entries of a slice: a power of two, so that a slice is a subtree of its label's range.
SLICE: Final = 1 << 15
# A row group ends after this many rows, or with the row at which it reaches this many bytes.
GROUP_ROWS: Final = 1 << 12
GROUP_BYTES: Final = 16 << 20

ENTRIES: Final = "bronze/entries"
RECORDS: Final = "silver/records"
REJECTED: Final = "silver/rejected"
SILVER: Final = "silver"
GOLD: Final = "gold"
META: Final = "_veen"
LOCK: Final = f"{META}/lock"
COMMITS: Final = f"{META}/commits"
SNAPSHOTS: Final = f"{META}/snapshots"
HUB: Final = f"{META}/hub"
# Exists while a run writes tables: if the next run finds it, an earlier one may have left files.
WRITING: Final = f"{META}/writing"
# The prefix of incomplete files.
UNFINISHED: Final = ".unfinished-"

# The names of a run's files; no other files are ever removed.
_OURS: Final = re.compile(
    r"(?:bronze|silver)/[^/]+/label=[0-9a-f]{64}/[0-9]{20}-[0-9]{20}(?:-[0-9]+)?\.parquet"
    r"|gold/[^/]+/stream=[0-9a-f]{64}/(?:[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\.parquet"
    r"|_[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\.state)"
    r"|_veen/hub/[0-9a-f]{64}"
    r"|(?:bronze|silver|gold|_veen)/(?:[^/]+/)*\.unfinished-[0-9a-f]{32}"
)
_MADE_AGAIN: Final = re.compile(r"(.*/[0-9]{20}-[0-9]{20})(?:-([0-9]+))?\.parquet")


def number(value: int) -> str:
    """Return a number as written in names."""
    return f"{value:020d}"


def table_file(table: str, label: Label, first: int, last: int) -> str:
    """Return the name of the file of a table that holds these entries of a label."""
    return f"{table}/label={label.hex()}/{number(first)}-{number(last)}.parquet"


def again_file(path: str) -> str:
    """Return the name of a file's replacement; the file itself stays until the commit."""
    found = _MADE_AGAIN.fullmatch(path)
    assert found is not None
    return f"{found[1]}-{int(found[2] or 0) + 1}.parquet"


def state_name(epoch: int, upto_seq: int, digest: str) -> str:
    """Return the name of a state's files: its end, and a digest of all positions and roots that it covers."""
    return f"{number(epoch)}-{number(upto_seq)}-{digest[:16]}"


def is_ours(path: str) -> bool:
    """Return whether a file has a name that runs use."""
    return _OURS.fullmatch(path) is not None


def schema_table(name: str) -> str:
    """Return the table of the bodies of a schema."""
    return f"{SILVER}/{name}"


def view_name(table: str) -> str:
    """Return the name of a table in SQL."""
    return table.replace("/", "_").replace(".", "_")


def commit_file(nth: int) -> str:
    """Return the name of a commit."""
    return f"{COMMITS}/{number(nth)}.json"


def snapshot_file(nth: int) -> str:
    """Return the name of the snapshot after a commit."""
    return f"{SNAPSHOTS}/{number(nth)}.json"


def slice_of(seq: int) -> int:
    """Return the index of an entry's slice in its label."""
    return (seq - 1) // SLICE


def cut(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Divide a range of entries at the bounds of slices."""
    while first <= last:
        end = min((slice_of(first) + 1) * SLICE, last)
        yield first, end
        first = end + 1


def tables_in(root: Path) -> Iterator[Path]:
    """Yield all files in the directories of tables."""
    for layer in ("bronze", "silver", "gold"):
        if (root / layer).is_dir():
            yield from (path for path in sorted((root / layer).rglob("*")) if path.is_file())


# Characters that are patterns where Spark reads files.
_PATTERN: Final = re.compile(r"[\\\[\]{}*?]")


def spark_paths(root: Path, paths: Iterable[str]) -> list[str]:
    """Return files below a directory for Spark to read, escaped so that no name is read as a pattern."""
    place = root.resolve()
    return [f"file://{_PATTERN.sub(_escaped, str(place / path))}" for path in paths]


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"
