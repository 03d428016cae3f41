"""Check the states of a lake by folding its records again: hash, counts, rows and positions."""

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
    """Read all commits from the first; return the lake and the inputs of its states.

    A state covers all entries of its stream that the lake had when it was committed.
    """
    commits, state = Commits(root), State()
    stale: dict[Key, gold.StaleState] = {}
    for number in commits.numbers():
        document = commits.follow(state, number)
        for item in document["gold"]:
            key = item["overlay"], item["stream_id"]
            if key in state.gold:
                stale[key] = _made_of(state, item)
    return state, {key: item for key, item in stale.items() if key in state.gold}


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
    spark: "SparkSession", root: Path, state: State, target: gold.StaleState, known: Mapping[str, Any]
) -> None:
    """Fold the records of a state again, and require the same state in all respects."""
    if known.get("fold") != target.fold:
        raise _wrong(known, "was folded by another version of the overlay; the next ingest rebuilds it")
    files = {path: _read(root, path, digest) for path, digest in known["files"].items()}
    if set(files) != {target.rows_path, target.state_path}:
        raise _wrong(known, "does not have the files that it should")
    overlay = gold.overlay_of(target.overlay)
    try:
        folded = _fold(spark, root, state, target)
        state_hash = gold.hash_of(overlay, folded)
    except (VeenError, ValueError) as error:
        raise _wrong(known, f"cannot be folded again: {error}") from None
    assert folded.state is not None
    counts = {outcome.value: count for outcome, count in folded.counts.items()}
    if (state_hash, counts, len(folded.reports)) != (known["state_hash"], known["counts"], known["reports"]):
        raise _wrong(known, "does not follow from its records")
    if folded.state.encode() != files[target.state_path]:
        raise DamagedLakeError(f"{target.state_path} does not follow from the records")
    rebuilt = pa.Table.from_batches(gold.row_batches(target, overlay, folded), gold.STATES)
    if not _rows(files[target.rows_path], target.rows_path).equals(rebuilt):
        raise DamagedLakeError(f"{target.rows_path} has rows that do not follow from the records")


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


def _fold(spark: "SparkSession", root: Path, state: State, target: gold.StaleState) -> "Folded":
    """Fold the inputs of a state, up to its end if the lake has grown since."""
    now = {fact.label: fact.upto_seq for fact in state.labels.values()}
    if all(now[fact.label] == fact.upto_seq for fact in target.labels):
        return gold.fold(spark, root, state, target, None)
    records = _records_upto(root, state, target)
    return gold.fold_here(gold.overlay_of(target.overlay), records, target.stream, None)


def _records_upto(root: Path, state: State, target: gold.StaleState) -> Iterator[Record]:
    for label in target.labels:
        for fact in state.of_table(layout.RECORDS):
            if fact.label == label.label and fact.from_seq <= label.upto_seq:
                records = gold.records_in(root, [fact])
                yield from (record for record in records if record.stream_seq <= label.upto_seq)
