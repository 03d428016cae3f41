"""States of a lake, folded again from its records and compared: hash, counts, rows, what they hold for."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from veen.core.errors import VeenError
from veen.overlays.event import Record
from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Commits, State
from veen.pipeline.lake_jobs import gold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veen.pipeline.fold.sql_form import Folded

Key = tuple[str, str]


def load_checked(root: Path) -> tuple[State, dict[Key, gold.StaleState]]:
    """Read all commits from the first; returns the lake, and what its states were made of.

    A state is of all that the lake had of its stream when it was committed.
    """
    commits, state = Commits(root), State()
    wanted: dict[Key, gold.StaleState] = {}
    for number in commits.numbers():
        document = commits.follow(state, number)
        for item in document["gold"]:
            key = item["overlay"], item["stream_id"]
            if key in state.gold:
                wanted[key] = _made_of(state, item)
    return state, {key: item for key, item in wanted.items() if key in state.gold}


def _made_of(state: State, known: Mapping[str, Any]) -> gold.StaleState:
    overlay, stream = known["overlay"], known["stream_id"]
    bare = replace(state, gold={})
    for item in gold.find_wanted(bare, [overlay]):
        if (item.overlay, item.stream_id) == (overlay, stream):
            if [gold.Reached(*one) for one in known["reached"]] != item.reached:
                raise _wrong(known, "does not reach to where the lake was when it was committed")
            return item
    raise _wrong(known, "is of a stream that the lake did not have all of when it was committed")


def _wrong(known: Mapping[str, Any], text: str) -> DamagedLakeError:
    return DamagedLakeError(f"the state of {known['overlay']} of stream {known['stream_id']} {text}")


def check_state(
    spark: "SparkSession", root: Path, state: State, wanted: gold.StaleState, known: Mapping[str, Any]
) -> None:
    """Require that a state is what folding the records again gives, in all that is said of it."""
    if known.get("fold") != wanted.fold:
        raise _wrong(known, "was folded by another version of the overlay; the next ingest rebuilds it")
    files = {path: _read(root, path, digest) for path, digest in known["files"].items()}
    if set(files) != {wanted.rows_path, wanted.state_path}:
        raise _wrong(known, "does not have the files that it should")
    overlay = gold.overlay_of(wanted.overlay)
    try:
        folded = _fold(spark, root, state, wanted)
        said = gold.hash_of(overlay, folded)
    except (VeenError, ValueError) as error:
        raise _wrong(known, f"cannot be folded again: {error}") from None
    assert folded.state is not None
    counts = {outcome.value: count for outcome, count in folded.counts.items()}
    if (said, counts, len(folded.reports)) != (known["state_hash"], known["counts"], known["reports"]):
        raise _wrong(known, "is not what its records amount to")
    if folded.state.encode() != files[wanted.state_path]:
        raise DamagedLakeError(f"{wanted.state_path} is not what the records amount to")
    made = pa.Table.from_batches(gold.row_batches(wanted, overlay, folded), gold.STATES)
    if not _rows(files[wanted.rows_path], wanted.rows_path).equals(made):
        raise DamagedLakeError(f"{wanted.rows_path} has rows that are not what the records amount to")


def _read(root: Path, path: str, digest: str) -> bytes:
    try:
        data = (root / path).read_bytes()
    except OSError as error:
        raise DamagedLakeError(f"{path} cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise DamagedLakeError(f"{path} is not the file that was committed: its hash differs")
    return data


def _rows(data: bytes, path: str) -> pa.Table:
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            return file.read()
    except pa.ArrowException as error:
        raise DamagedLakeError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _fold(spark: "SparkSession", root: Path, state: State, wanted: gold.StaleState) -> "Folded":
    """Fold what a state is made of; if the lake has gone on since, only up to there."""
    now = {fact.label: fact.upto_seq for fact in state.labels.values()}
    if all(now[fact.label] == fact.upto_seq for fact in wanted.labels):
        return gold.fold(spark, root, state, wanted, None)
    records = _records_upto(root, state, wanted)
    return gold.fold_here(gold.overlay_of(wanted.overlay), records, wanted.stream, None)


def _records_upto(root: Path, state: State, wanted: gold.StaleState) -> Iterator[Record]:
    for label in wanted.labels:
        for fact in state.of_table(layout.RECORDS):
            if fact.label == label.label and fact.from_seq <= label.upto_seq:
                found = gold.records_in(root, [fact])
                yield from (record for record in found if record.stream_seq <= label.upto_seq)
