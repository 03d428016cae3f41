"""The input of a fold from a lake: records and positions."""

from pathlib import Path

from pyspark.sql import SparkSession

from veen.core.data_dir.hub_settings import SETTINGS, HubSettings
from veen.core.types import Label, NodeHash, StreamId
from veen.pipeline.fold.inputs import RECORDS_SCHEMA, FoldInput, last_position
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import LabelFact, State
from veen.pipeline.lake.hub_files import FILES, read_blob
from veen.pipeline.lake.lake import load
from veen.pipeline.lake.layout import spark_paths
from veen.pipeline.lake_jobs.file_hashes import require_committed
from veen.pipeline.log.log import LabelHead


def from_lake(
    spark: SparkSession, root: Path, stream: StreamId, *, upto: int | None = None, epoch: int | None = None
) -> FoldInput:
    """Return a stream of a lake, which was checked and decrypted at ingest.

    Its files must be as committed, which is checked here before they are read.
    """
    state = load(root)
    facts = state.own_labels().get(stream.hex(), [])  # a fork also has the labels of its parent
    heads = {fact.epoch: _head(fact) for fact in facts}
    target = last_position(heads, upto, epoch)
    epochs = {fact.label: fact.epoch for fact in facts}
    files = [
        fact
        for fact in state.of_table(layout.RECORDS)
        if fact.label in epochs and (epochs[fact.label], fact.from_seq) <= target
    ]
    require_committed(spark.sparkContext, root, files)
    reading, paths = spark.read.schema(RECORDS_SCHEMA), spark_paths(root, (fact.path for fact in files))
    records = reading.parquet(*paths) if paths else spark.createDataFrame([], RECORDS_SCHEMA)
    return FoldInput(records, heads, target, _epoch_sec(root, state))


def _head(fact: LabelFact) -> LabelHead:
    label, root = Label(bytes.fromhex(fact.label)), NodeHash(bytes.fromhex(fact.mmr_root))
    first = 1 if not fact.missing else fact.missing[-1][1] + 1
    return LabelHead(label, fact.stream, fact.epoch, first, fact.upto_seq, root)


def _epoch_sec(root: Path, state: State) -> int:
    """Return the length of epochs; estimated from epochs and times if the lake does not know the hub."""
    blob = state.hub.get(f"{FILES}/{SETTINGS}")
    if blob is not None:
        return HubSettings.decode(read_blob(root, blob)).epoch_sec
    epochs = {fact.label: fact.epoch for fact in state.labels.values() if fact.epoch}
    times = (
        fact.last_ts // epochs[fact.label] for fact in state.of_table(layout.RECORDS) if fact.label in epochs
    )
    return max(times, default=0)
