"""Answers beside the log they are of: what was not read, passed over or cut off, and what nobody can tell."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.log_builder import Hub
from tests.pipeline.query.event_log import EPOCH_SEC, Recorded, asked, record_some
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity
from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake.lake import load
from veen.pipeline.query.coverage import Coverage, standing
from veen.pipeline.query.engine import Answer, Engine
from veen.pipeline.query.event_sources import EVENTS_TABLE
from veen.query.comparison import compare
from veen.query.descriptor import Descriptor
from veen.query.digest import Position, ResultDigest
from veen.query.errors import QueryError

OWN, SECOND = "record/a", "record/b"
EXPORTED, IMPORTED = "export/east/app", "import/east/app"
STREAMS = (OWN, SECOND, EXPORTED, IMPORTED)
#: Later than all that the hubs of these tests have committed.
NOW = 1_900_000_000


class World:
    """A log of two epochs, the lake of it, and a lake in another zone that has copies."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark = spark
        self.place = place
        self.made = Recorded(Hub(place / "hub", epoch_sec=EPOCH_SEC))
        record_some(self.made, (OWN, SECOND, EXPORTED), 45, seed=3)
        self.made.hub.tick(EPOCH_SEC)
        record_some(self.made, (OWN, SECOND, EXPORTED), 30, seed=4)
        self.engine = Engine(spark, self.made.lake(spark, place / "lake", STREAMS))
        self.zone = Recorded(Hub(place / "zone", epoch_sec=EPOCH_SEC, name="another hub"))
        copied = [event for event in self.made.events if event.stream == EXPORTED]
        self.zone.import_from(self.made, copied, IMPORTED)
        self.there = Engine(spark, self.zone.lake(spark, place / "there", STREAMS))
        self.origins = {bytes(self.made.hub.hub_id): self.made.hub.home.identity}
        self.count = 0

    def run(
        self, query: Descriptor, engine: Engine | None = None, again: ResultDigest | None = None
    ) -> Answer:
        self.count += 1
        out = self.place / f"answer {self.count}"
        return (engine or self.engine).run(query, result_id="r-1", out=out, executed_at=NOW, replay_of=again)

    def stand(self, digest: ResultDigest, scope: Sequence[str], engine: Engine | None = None) -> Coverage:
        where = engine or self.engine
        return standing(
            where.root, load(where.root), scope, digest, called=where.names, origins=where.origins
        )


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(spark, tmp_path_factory.mktemp("world"))


def cut(digest: ResultDigest, *upto: Position, executed_at: int = NOW) -> ResultDigest:
    return dataclasses.replace(digest, upto=upto, executed_at=executed_at)


# --- what a digest names ------------------------------------------------------------------------------------


def test_an_answer_of_all_there_was_leaves_nothing_out(world: World) -> None:
    digest = world.run(asked([OWN])).digest
    assert digest.unread == 0
    found = world.stand(digest, [OWN])
    assert (found.left_out, found.behind, found.unchecked) == ((), 0, ())
    assert 0 < found.newest < NOW
    assert world.stand(dataclasses.replace(digest, upto=None), [OWN]).left_out == ()


def test_labels_that_a_digest_passes_over_are_told_whatever_time_it_claims(world: World) -> None:
    digest = world.run(asked([OWN])).digest
    assert digest.upto is not None
    first, *_, last = digest.upto
    for when in (NOW, 0):
        found = world.stand(cut(digest, last, executed_at=when), [OWN])
        assert first.label in [fact.label for fact in found.left_out]
        assert last.label not in [fact.label for fact in found.left_out]
    assert len(world.stand(cut(digest), [OWN]).left_out) == len(digest.upto)
    # What began later than the answer was given is not missing in it.
    assert world.stand(cut(digest, first, executed_at=0), [OWN]).left_out == ()


def test_entries_behind_the_named_ones_are_counted(world: World) -> None:
    digest = world.run(asked([OWN])).digest
    assert digest.upto is not None
    root = next(
        receipt.mmr_root.hex()
        for receipt in world.made.receipts.values()
        if receipt.label.hex() == digest.upto[0].label and receipt.stream_seq == 2
    )
    early = dataclasses.replace(digest.upto[0], upto_seq=2, mmr_root=root)
    found = world.stand(cut(digest, early, *digest.upto[1:]), [OWN])
    assert (found.left_out, found.behind) == ((), digest.upto[0].upto_seq - 2)
    assert world.stand(cut(digest, early, executed_at=0), [OWN]).behind == 0


def test_a_label_that_the_lake_does_not_have_is_not_believed(world: World) -> None:
    digest = world.run(asked([OWN])).digest
    assert digest.upto is not None
    for stream in (OWN, "record/secret", IMPORTED):
        invented = Position(stream, 7, "ab" * 32, 77, "00" * 32)
        with pytest.raises(QueryError, match="ingest more of the log first"):
            world.run(asked([OWN]), again=cut(digest, *digest.upto, invented))
    there = world.run(asked([IMPORTED]), world.there).digest
    with pytest.raises(QueryError, match="ingest more of the log first"):
        world.run(
            asked([IMPORTED]), world.there, again=cut(there, Position(IMPORTED, 0, "ab" * 32, 1, "00" * 32))
        )


def test_ids_are_no_names_of_streams(world: World) -> None:
    for engine, name in ((world.engine, OWN), (world.there, IMPORTED)):
        with pytest.raises(QueryError, match="is not a stream that you may query"):
            world.run(asked([labels.stream_id(name).hex()]), engine)


# --- positions of another zone ------------------------------------------------------------------------------


def known(world: World, origins: dict[bytes, HubIdentity]) -> Engine:
    return dataclasses.replace(world.there, origins=origins)


def test_positions_of_another_zone_are_compared_with_its_copies(world: World) -> None:
    query = asked([EXPORTED])
    digest = world.run(query).digest
    assert digest.upto is not None
    again = world.run(query, world.there, digest)
    assert compare(query, digest, query, again.digest).equal
    assert (again.digest.row_count, again.digest.unread) == (digest.row_count, 0)
    last_copied = {
        (receipt.label.hex(), receipt.stream_seq)
        for event in world.made.events
        if event.stream == EXPORTED
        for receipt in (world.made.receipts[event.receipt_id],)
    }
    found = world.stand(digest, [EXPORTED], world.there)
    assert found.is_elsewhere
    assert [item for item in digest.upto if (item.label, item.upto_seq) not in last_copied] == list(
        found.unchecked
    )
    seen = next(item for item in digest.upto if item not in found.unchecked)
    with pytest.raises(QueryError, match="has another root"):
        world.run(query, world.there, cut(digest, dataclasses.replace(seen, mmr_root="00" * 32)))
    stranger = cut(digest, dataclasses.replace(seen, epoch=seen.epoch + 1))
    with pytest.raises(QueryError, match="no --origin does"):
        world.run(query, known(world, world.origins), stranger)
    assert world.run(query, known(world, world.origins), digest).digest.rows_hash == digest.rows_hash


# --- what nobody could read ---------------------------------------------------------------------------------


def test_what_could_not_be_read_is_counted_and_no_forgery_is_equal(world: World, tmp_path: Path) -> None:
    query = asked([OWN, SECOND])
    honest = world.run(query).digest
    assert honest.upto is not None
    blind = Engine(world.spark, world.made.lake(world.spark, tmp_path / "blind", [SECOND]))
    found = world.run(query, blind, honest).digest
    assert found.unread == sum(item.upto_seq for item in honest.upto if item.stream == OWN)
    assert compare(query, honest, query, found).differing == ("row_count", "rows_hash", "unread")
    # An answer without these rows, which says that it knew all, is what somebody without keys gets.
    forged = dataclasses.replace(found, unread=0)
    assert compare(query, forged, query, found).differing == ("unread",)
    assert compare(query, dataclasses.replace(found, unread=None), query, found).differing == ("unread",)
    assert compare(query, found, query, found).equal, "who says so is believed"
    assert compare(query, dataclasses.replace(honest, unread=3), query, honest).equal, "rows tell the rest"

    position = next(item for item in honest.upto if item.stream == OWN)
    receipt = next(
        receipt
        for receipt in world.made.receipts.values()
        if receipt.label.hex() == position.label and 1 < receipt.stream_seq < position.upto_seq
    )
    early = dataclasses.replace(position, upto_seq=receipt.stream_seq, mmr_root=receipt.mmr_root.hex())
    assert world.run(query, blind, cut(honest, early)).digest.unread == receipt.stream_seq


# --- tables that have changed -------------------------------------------------------------------------------


@pytest.mark.parametrize("few_rows", [1 << 16, -1])
def test_a_damaged_page_is_no_answer_without_evidence_either(
    world: World, tmp_path: Path, few_rows: int
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(world.engine.root, lake)
    fact = load(lake).of_table(EVENTS_TABLE)[0]
    with pq.ParquetFile(lake / fact.path) as file:
        group = file.metadata.row_group(0)
        column = next(
            group.column(nth)
            for nth in range(group.num_columns)
            if group.column(nth).path_in_schema == "payload"
        )
    data = bytearray((lake / fact.path).read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 2] ^= 1
    (lake / fact.path).write_bytes(data)
    engine = Engine(world.spark, lake, few_rows=few_rows)
    with pytest.raises(Exception, match=r"(?i)crc|checksum") as caught:
        world.run(asked([OWN, SECOND, EXPORTED], projection=["payload"]), engine)
    assert few_rows < 0 or isinstance(caught.value, DamagedLakeError)


def tampered(path: Path) -> pa.Table:
    """Return the rows of a file with other payloads."""
    table = pq.read_table(path, partitioning=None)
    payload = table.column_names.index("payload")
    column = [json.dumps("tampered")] * len(table)
    return table.set_column(payload, table.schema.field("payload"), [column])


def write_of_size(table: pa.Table, path: Path, size: int) -> None:
    """Write rows, and something that nobody reads, so that the file is so long."""
    more = 0
    for _ in range(5):
        with pq.ParquetWriter(path, table.schema, compression="zstd", write_statistics=False) as out:
            out.write_table(table)
            out.add_key_value_metadata({"padding": "x" * more})
        more += size - path.stat().st_size
    assert path.stat().st_size == size


@pytest.mark.parametrize("few_rows", [1 << 16, -1])
def test_a_table_of_another_size_is_no_answer_without_evidence_either(
    world: World, tmp_path: Path, few_rows: int
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(world.engine.root, lake)
    fact = load(lake).of_table(EVENTS_TABLE)[0]
    pq.write_table(tampered(lake / fact.path), lake / fact.path)
    with pytest.raises(QueryError, match=f"{fact.path} is not the file .* bytes, not {fact.bytes}") as caught:
        world.run(asked([OWN, SECOND, EXPORTED]), Engine(world.spark, lake, few_rows=few_rows))
    assert caught.value.error_code == "execution_failed"


def test_whoever_repeats_an_answer_is_told_of_changed_tables(world: World, tmp_path: Path) -> None:
    """The rows of the table that was changed are those of the digest, and not those of the log."""
    lake = tmp_path / "lake"
    shutil.copytree(world.engine.root, lake)
    query = asked([OWN], projection=["payload"])
    for fact in load(lake).of_table(EVENTS_TABLE):
        write_of_size(tampered(lake / fact.path), lake / fact.path, fact.bytes)
    engine = Engine(world.spark, lake)
    changed = world.run(query, engine)
    assert b"tampered" in next(changed.rows.iterate())
    with pytest.raises(QueryError, match="is not the file that was committed"):
        world.run(query, engine, changed.digest)
