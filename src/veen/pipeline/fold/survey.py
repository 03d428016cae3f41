"""A pass over a stream before it is folded: completeness, records of other schemas, and copies."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from veen.overlays.engine import Run
from veen.overlays.event import Outcome
from veen.overlays.overlay import Overlay
from veen.overlays.summary_tree.reader import Place
from veen.pipeline.errors import IncompleteStreamError
from veen.stdx.grammar import counted

_MOST: Final = 2**63 - 1
_LOW_BITS: Final = 16
_LOW: Final = (1 << _LOW_BITS) - 1


@dataclass(frozen=True, slots=True)
class Survey:
    """Facts about records before they are folded."""

    runs: list[Run]
    # Records that tasks do not read: unreadable ones, and those of other schemas.
    counts: dict[Outcome, int]
    # The number of records that tasks read.
    events: int
    # Whether some claim to be copies.
    has_copies: bool

    @property
    def records(self) -> int:
        return sum(last - first + 1 for _, first, last in self.runs)


def upto_place(place: Place) -> Column:
    """Return the condition for records up to a position."""
    epoch, seq = (sf.lit(min(number, _MOST)) for number in place)
    return (sf.col("epoch") < epoch) | ((sf.col("epoch") == epoch) & (sf.col("stream_seq") <= seq))


def from_place(place: Place) -> Column:
    """Return the condition for records from a position on."""
    return ~upto_place((place[0], place[1] - 1))


def is_one_of(name: str, values: Iterable[bytes]) -> Column:
    """Return the condition that a binary column has one of these values; false, not null, for null."""
    listed = sorted(bytes(value) for value in values)
    matches = sf.col(name).isin([sf.lit(value) for value in listed]) if listed else sf.lit(False)  # noqa: FBT003
    return sf.coalesce(matches, sf.lit(False))  # noqa: FBT003


def is_read(overlay: Overlay) -> Column:
    """Return the condition for records that an overlay reads."""
    return is_one_of("schema", (schema.schema_id for schema in overlay.schemas))


def is_copy(overlay: Overlay, bridges: frozenset[bytes]) -> Column:
    """Return the condition for records that claim to be copies (OVR-014)."""
    by_parent = is_one_of("schema", (schema.schema_id for schema in overlay.copies_by_parent))
    claims_copy = by_parent | is_one_of("client_id", bridges)
    return is_read(overlay) & sf.col("parent_id").isNotNull() & claims_copy


def survey(records: DataFrame, overlay: Overlay, *, bridges: frozenset[bytes], since: Place | None) -> Survey:
    """Survey records; ``counts`` are of those from ``since`` on."""
    counted = sf.lit(True) if since is None else from_place(since)  # noqa: FBT003
    sealed = sf.col("schema").isNull()
    low = sf.col("stream_seq").bitwiseAND(_LOW)
    rows: list[Any] = (
        records.groupBy("epoch")
        .agg(
            sf.count("*").alias("records"),
            sf.sum(low).alias("lows"),
            sf.sum(low * low).alias("squares"),
            sf.sum(sf.shiftright("stream_seq", _LOW_BITS)).alias("highs"),
            sf.min("stream_seq").alias("first"),
            sf.max("stream_seq").alias("last"),
            sf.count_if(counted & sealed).alias("unreadable"),
            sf.count_if(counted & ~sealed & ~is_read(overlay)).alias("unknown"),
            sf.count_if(is_read(overlay)).alias("events"),
            sf.count_if(is_copy(overlay, bridges)).alias("copies"),
        )
        .collect()
    )
    rows.sort(key=lambda row: row["epoch"])
    for row in rows:
        _check_whole(row)
    return Survey(
        [(row["epoch"], row["first"], row["last"]) for row in rows],
        {
            Outcome.UNREADABLE: sum(row["unreadable"] for row in rows),
            Outcome.UNKNOWN: sum(row["unknown"] for row in rows),
        },
        sum(row["events"] for row in rows),
        any(row["copies"] for row in rows),
    )


def _check_whole(row: Any) -> None:  # noqa: ANN401 - a row of Spark
    """Check that each position between the first and last of a label occurs exactly once."""
    epoch, first, last, records = row["epoch"], row["first"], row["last"], row["records"]
    missing = last - first + 1 - records
    where = f"between {first} and {last}"
    if missing > 0:
        raise IncompleteStreamError(f"{counted(missing, 'entry')} of epoch {epoch} missing {where}")
    if missing or number_sums(first, last) != (row["lows"], row["squares"], row["highs"]):
        raise IncompleteStreamError(f"duplicate entries of epoch {epoch} {where}")


def number_sums(first: int, last: int) -> tuple[int, int, int]:
    """Return the sums over a range of numbers of their low bits, the squares of these, and their high bits.

    Counting distinct numbers would need a shuffle of all of them; these sums do not.
    """
    after, before = _sums_below(last + 1), _sums_below(first)
    return (after[0] - before[0], after[1] - before[1], after[2] - before[2])


def _sums_below(end: int) -> tuple[int, int, int]:
    rounds, rest = divmod(end, _LOW + 1)
    lows = rounds * _triangle(_LOW + 1) + _triangle(rest)
    squares = rounds * _pyramid(_LOW + 1) + _pyramid(rest)
    return lows, squares, _triangle(rounds) * (_LOW + 1) + rounds * rest


def _triangle(end: int) -> int:
    return end * (end - 1) // 2


def _pyramid(end: int) -> int:
    return end * (end - 1) * (2 * end - 1) // 6


def check_begins(runs: list[Run], behind: list[Run]) -> None:
    """Check that records start where the stream does, or continue what was folded before."""
    for nth, (epoch, first, _) in enumerate(runs):
        expected = 1
        if behind and not nth:
            last_epoch, _, last = behind[-1]
            if epoch < last_epoch:
                raise IncompleteStreamError(f"epoch {epoch} comes after epoch {last_epoch} was folded")
            expected = last + 1 if epoch == last_epoch else 1
        if first != expected:
            raise IncompleteStreamError(f"epoch {epoch} starts with entry {first}, not with {expected}")
