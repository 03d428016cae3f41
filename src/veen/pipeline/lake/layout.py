"""Names in a lake, and where its files are cut: both follow from the log alone.

    bronze/entries/label=HEX/FROM-UPTO.parquet     verified entries, as the hub has them
    silver/records/...                             every entry, opened or with the reason why not
    silver/SCHEMA/...                              the bodies of a schema, in typed columns
    silver/rejected/...                            bodies that are not what their schema says
    gold/...                                       states of overlays
    _veen/commits/NUMBER.json                      which files are the lake, and what they hold
    _veen/snapshots/NUMBER.json                    all commits up to there in one; can be made again
    _veen/hub/HASH                                 what is needed to write the hub's directory again

Numbers in names have 20 digits, so that names sort as numbers do. A file holds entries of one slice of a
label: slices begin every ``SLICE`` entries, whenever and in whatever portions they are taken in. A file that
was made again, because more is known of its entries, has a number behind its range: how often.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from veen.core.types import Label

#: Entries of a slice: a power of two, so that a slice is a subtree of its label's range.
SLICE: Final = 1 << 15
#: A row group has so many rows, or is closed by the row that gives it so many bytes.
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
#: Is there while a run writes tables: if the next run finds it, an earlier one has left files behind.
WRITING: Final = f"{META}/writing"
#: How names of files begin that are not complete.
UNFINISHED: Final = ".unfinished-"

#: Names that a run gives to its files; nothing else is ever removed.
_OURS: Final = re.compile(
    r"(?:bronze|silver)/[^/]+/label=[0-9a-f]{64}/[0-9]{20}-[0-9]{20}(?:-[0-9]+)?\.parquet"
    r"|gold/[^/]+/stream=[0-9a-f]{64}/(?:[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\.parquet"
    r"|_[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\.state)"
    r"|_veen/hub/[0-9a-f]{64}"
    r"|(?:bronze|silver|gold|_veen)/(?:[^/]+/)*\.unfinished-[0-9a-f]{32}"
)
_MADE_AGAIN: Final = re.compile(r"(.*/[0-9]{20}-[0-9]{20})(?:-([0-9]+))?\.parquet")


def number(value: int) -> str:
    """Return a number as it stands in names."""
    return f"{value:020d}"


def table_file(table: str, label: Label, first: int, last: int) -> str:
    """Return the name of the file of a table that holds these entries of a label."""
    return f"{table}/label={label.hex()}/{number(first)}-{number(last)}.parquet"


def again_file(path: str) -> str:
    """Return the name of a file that takes the place of this one, which stays until then."""
    found = _MADE_AGAIN.fullmatch(path)
    assert found is not None
    return f"{found[1]}-{int(found[2] or 0) + 1}.parquet"


def state_name(epoch: int, upto_seq: int, digest: str) -> str:
    """Return how files of a state are named: by where it ends, and by a digest of all that it holds for."""
    return f"{number(epoch)}-{number(upto_seq)}-{digest[:16]}"


def is_ours(path: str) -> bool:
    """Tell whether a file of a lake has a name that a run gives."""
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
    """Return which slice of its label an entry is in."""
    return (seq - 1) // SLICE


def cut(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield a range of entries, cut where slices begin."""
    while first <= last:
        end = min((slice_of(first) + 1) * SLICE, last)
        yield first, end
        first = end + 1


def tables_in(root: Path) -> Iterator[Path]:
    """Yield all files in the places of tables."""
    for layer in ("bronze", "silver", "gold"):
        if (root / layer).is_dir():
            yield from (path for path in sorted((root / layer).rglob("*")) if path.is_file())


#: What stands for other names where Spark reads files.
_PATTERN: Final = re.compile(r"[\\\[\]{}*?]")


def spark_paths(root: Path, paths: Iterable[str]) -> list[str]:
    """Return files below a directory for Spark to read: these, and none that a pattern may fit."""
    place = root.resolve()
    return [f"file://{_PATTERN.sub(_escaped, str(place / path))}" for path in paths]


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"
