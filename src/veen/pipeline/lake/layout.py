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
label: slices begin every ``SLICE`` entries, whenever and in whatever portions they are taken in.
"""

from collections.abc import Iterator
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


def number(value: int) -> str:
    """Return a number as it stands in names."""
    return f"{value:020d}"


def table_file(table: str, label: Label, first: int, last: int) -> str:
    """Return the name of the file of a table that holds these entries of a label."""
    return f"{table}/label={label.hex()}/{number(first)}-{number(last)}.parquet"


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
