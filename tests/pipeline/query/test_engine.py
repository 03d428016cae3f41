"""Queries over lakes: the same answer as a plain reference, however and wherever they are executed."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tests.pipeline.lake.lake_builder import keyring
from tests.pipeline.lake_jobs.test_check import flipped, forge, next_to, zeroed
from tests.pipeline.log_builder import Hub
from tests.pipeline.query.event_log import EPOCH_SEC, Recorded, asked, record_some
from tests.query import reference, strategies
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity
from veen.pipeline.lake import layout
from veen.pipeline.lake.lake import load, lock_lake
from veen.pipeline.lake_jobs.compact import compact
from veen.pipeline.query.engine import Answer, Engine
from veen.pipeline.query.event_sources import EVENTS_TABLE
from veen.pipeline.query.result_rows import ResultRows
from veen.query.comparison import compare
from veen.query.descriptor import Descriptor, Mode, normalize
from veen.query.digest import NONE_HASH, sampled
from veen.query.errors import QueryError
from veen.query_service.errors import RunCancelledError
from veen.query_service.spark_runner import LakeRefresh, SparkRuns

STREAMS = strategies.STREAMS
EXPORTED = "export/east/app"
IMPORTED = "import/east/app"
ALL = (*STREAMS, EXPORTED, IMPORTED)


class World:
    """A log, the lake of it, and an engine."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark = spark
        self.place = place
        self.made = Recorded(Hub(place / "hub", epoch_sec=EPOCH_SEC))
        record_some(self.made, (*STREAMS, EXPORTED), 60, seed=1)
        self.lake = self.made.lake(spark, place / "lake", ALL)
        self.engine = Engine(spark, self.lake)
        #: Does everything on Spark, however little it is.
        self.spark_engine = Engine(spark, self.lake, few_rows=-1)
        self.count = 0

    @staticmethod
    def stranger(place: Path) -> HubIdentity:
        """Return the identity of another hub."""
        with Hub(place / "stranger", name="a stranger") as hub:
            return hub.home.identity

    def run(self, descriptor: Descriptor, engine: Engine | None = None, **options: Any) -> Answer:
        self.count += 1
        out = self.place / f"answer {self.count}"
        options.setdefault("result_id", "r-1")
        return (engine or self.engine).run(descriptor, out=out, executed_at=1_700_000_000, **options)


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(spark, tmp_path_factory.mktemp("world"))


def evidence_hash(descriptor: Descriptor, hub_id: bytes, made: Recorded, result_id: str = "r-1") -> str:
    """What evidence is about, worked out from the events that are known to be there."""
    form: Any = json.loads(descriptor.encode())
    policy = descriptor.evidence
    if policy.mode is Mode.NONE:
        return NONE_HASH
    events = reference.contributing(form, made.events)
    if policy.sample_rate is not None:
        rows = reference.answer(form, made.events)
        chosen = sampled(descriptor.query_id, range(len(rows)), policy.sample_rate)
        if descriptor.aggregate is None:
            events = [events[nth] for nth in chosen]
        else:
            names = descriptor.aggregate.group_by
            keys = [[rows[nth][name] for name in names] for nth in chosen]
            events = [e for e in events if [reference.field(e, name) for name in names] in keys]
    verified = [
        {
            "hub_id": hub_id.hex(),
            "mmr_root": made.receipts[event.receipt_id].mmr_root.hex(),
            "receipt_id": event.receipt_id.hex(),
        }
        for event in events
    ]
    summary = {
        "query_id": descriptor.query_id,
        "result_id": result_id,
        "mode": policy.mode.value,
        "verified": verified,
    }
    text = reference.canonical(summary)
    if policy.sample_rate is not None:
        rate = f"{policy.sample_rate.normalize():f}"  # 1, and not 1.0
        text = text.replace(',"verified":', f',"sample_rate":{rate},"verified":', 1)
    return hashlib.sha256(text.encode()).hexdigest()


def require_answer(world: World, descriptor: Descriptor, answer: Answer) -> None:
    """Compare an answer with that of the reference."""
    rows = reference.answer(json.loads(descriptor.encode()), world.made.events)
    assert [json.loads(row) for row in answer.rows.iterate()] == rows
    assert answer.digest.row_count == len(rows)
    assert answer.digest.rows_hash == reference.rows_hash(rows)
    assert answer.digest.evidence_hash == evidence_hash(descriptor, world.made.hub.hub_id, world.made)
    answer.rows.require(answer.digest)


def of_form(form: dict[str, Any]) -> Descriptor:
    return normalize({**form, "query_id": "q-1"}, lambda: "q-1")


@given(form=strategies.descriptors())
def test_answers_are_those_of_the_reference(world: World, form: dict[str, Any]) -> None:
    require_answer(world, of_form(form), world.run(of_form(form)))


@settings(max_examples=4)
@given(form=strategies.descriptors())
def test_answers_of_spark_are_those_of_the_reference(world: World, form: dict[str, Any]) -> None:
    require_answer(world, of_form(form), world.run(of_form(form), world.spark_engine))


def same(one: Answer, other: Answer) -> bool:
    """Tell whether two answers are the same, row by row and in their digests."""
    return one.digest == other.digest and list(one.rows.iterate()) == list(other.rows.iterate())


SELECTED = asked(
    (EXPORTED, *STREAMS), projection=["receipt_id", "payload", "stream"], evidence={"mode": "full"}
)
GROUPED = asked(
    STREAMS,
    aggregate={"group_by": ["payload.a", "subject_id"], "metrics": ["count", "max(event_time)"]},
)
_DIVIDING = (
    "spark.sql.adaptive.enabled",
    "spark.sql.shuffle.partitions",
    "spark.sql.files.maxPartitionBytes",
)


def test_a_second_try_leaves_nothing_of_the_first(world: World, tmp_path: Path) -> None:
    settled: dict[str, Any] = {"result_id": "r-1", "out": tmp_path / "out", "executed_at": 1}
    query = asked(STREAMS)
    name = "spark.sql.shuffle.partitions"
    before = world.spark.conf.get(name)
    try:
        world.spark.conf.set(name, "3")
        world.spark.conf.set("spark.sql.adaptive.enabled", "false")
        first = world.spark_engine.run(query, **settled)
        assert len(list((tmp_path / "out").iterdir())) > 1
        assert world.engine.run(query, **settled).digest == first.digest
    finally:
        world.spark.conf.set(name, str(before))
        world.spark.conf.set("spark.sql.adaptive.enabled", "true")


def test_how_the_work_is_divided_does_not_show(world: World) -> None:
    conf = world.spark.conf
    before = {name: conf.get(name) for name in _DIVIDING}
    try:
        for adaptive, partitions, query in (("true", "9", SELECTED), ("false", "3", GROUPED)):
            for name, value in zip(_DIVIDING, (adaptive, partitions, "2048"), strict=True):
                conf.set(name, value)
            assert same(world.run(query), world.run(query, world.spark_engine))
    finally:
        for name, was in before.items():
            assert was is not None
            conf.set(name, was)


class Compacting(dict[str, str]):
    """Names of no streams; when the first is looked for, the files of the lake are replaced."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._root = root
        self.slices = 0

    def __contains__(self, name: object) -> bool:
        if not self.slices:
            with lock_lake(self._root) as held:
                self.slices = compact(self._spark, held).slices
        return False


def test_lakes_of_one_log_give_one_answer_now_and_later(world: World, tmp_path: Path) -> None:
    """In portions, compacted, and when the log has grown: an answer is of the positions that it names."""
    spark, made = world.spark, Recorded(Hub(tmp_path / "hub", epoch_sec=EPOCH_SEC))
    lakes = [tmp_path / name for name in ("portions", "compacted")]
    for seed in range(3):
        record_some(made, STREAMS[:2], 14, seed)
        for lake in lakes:
            made.lake(spark, lake, ALL)
    query = asked(STREAMS[:2], evidence={"mode": "full"})
    first = world.run(query, Engine(spark, lakes[0]))
    compacting = Compacting(spark, lakes[1])
    assert same(first, world.run(query, Engine(spark, lakes[1], names=compacting)))
    assert same(first, world.run(query, Engine(spark, lakes[1])))
    assert compacting.slices
    assert first.digest.upto is not None
    assert [item.upto_seq for item in first.digest.upto] == [
        fact.upto_seq for name in STREAMS[:2] for fact in load(lakes[0]).own_labels()[_stream(name)]
    ]

    before = len(made.events)
    record_some(made, STREAMS[:2], 30, seed=4)
    made.lake(spark, lakes[0], ALL)
    engine = Engine(spark, lakes[0])
    again = world.run(query, engine, result_id="r-2", replay_of=first.digest)
    assert again.digest == dataclasses.replace(first.digest, result_id="r-2")
    grown = world.run(query, engine)
    assert grown.digest.row_count == len(made.events) > before
    assert grown.digest.rows_hash == reference.rows_hash(
        reference.answer(json.loads(query.encode()), made.events)
    )

    position = first.digest.upto[0]
    cases = [
        (dataclasses.replace(position, mmr_root="00" * 32), "has another root here"),
        (dataclasses.replace(position, upto_seq=position.upto_seq - 1), "has another root here"),
        (dataclasses.replace(position, upto_seq=10_000), "ingest more of the log first"),
        (dataclasses.replace(position, stream=STREAMS[2]), "which it is not"),
        (dataclasses.replace(position, epoch=position.epoch + 1), "which it is not"),
    ]
    for wrong, text in cases:
        with pytest.raises(QueryError, match=text):
            world.run(query, engine, upto=[wrong])
    with pytest.raises(QueryError, match="twice"):
        world.run(query, engine, upto=[position, position])


def test_a_copy_of_what_is_read_itself_is_no_row(world: World, tmp_path: Path) -> None:
    """Whoever may append could else put words in the mouth of others, at the place of their events."""
    made = Recorded(Hub(tmp_path / "hub", epoch_sec=EPOCH_SEC))
    record_some(made, STREAMS[:1], 6, seed=1)
    made.import_from(made, made.events[:2], STREAMS[0])
    engine = Engine(world.spark, made.lake(world.spark, tmp_path / "lake", STREAMS[:1]))
    query = asked(STREAMS[:1], evidence={"mode": "full"})
    assert world.run(query, engine).digest.row_count == len(made.events)


def _stream(name: str) -> str:
    return labels.stream_id(name).hex()


def test_another_zone_gives_the_same_answer_from_copies(world: World, tmp_path: Path) -> None:
    """Copies count once, in whatever order they came, as what they are copies of (QRY-036, QRY-061)."""
    query = asked([EXPORTED], projection=["*"], evidence={"mode": "full"})
    counted = asked(
        [EXPORTED],
        aggregate={"group_by": ["event_type", "hub_commit_time"], "metrics": ["count"]},
        evidence={"mode": "spot", "sample_rate": Decimal("0.5")},
    )
    events = [event for event in world.made.events if event.stream == EXPORTED]
    zone = Recorded(Hub(tmp_path / "hub", epoch_sec=EPOCH_SEC, name="another hub"))
    shuffled = Random(5).sample(events, len(events))
    zone.import_from(world.made, [*shuffled, *shuffled[:3]], IMPORTED)
    zone.hub.tick(EPOCH_SEC)
    zone.import_from(world.made, shuffled[2:6], IMPORTED)
    zone.import_from(world.made, shuffled[:1], STREAMS[0])  # by a producer, who can not vouch for others
    lake = zone.lake(world.spark, tmp_path / "lake", ALL)
    origins = {bytes(world.made.hub.hub_id): world.made.hub.home.identity}
    engine = Engine(world.spark, lake, origins=origins)
    for asking in (query, counted):
        original = world.run(asking)
        assert original.digest.row_count
        for few_rows in (1 << 16, -1):
            there = dataclasses.replace(engine, few_rows=few_rows)
            repeated = world.run(asking, there, result_id="r-2", replay_of=original.digest)
            found = compare(asking, original.digest, asking, repeated.digest)
            assert found.equal, found.to_json()
            assert list(repeated.rows.iterate()) == list(original.rows.iterate())

    earlier = (world.run(query).digest.upto or ())[:1]
    part = world.run(query, engine, upto=earlier)
    assert part.digest.row_count == sum(event.epoch == earlier[0].epoch for event in events)
    assert world.run(asked([IMPORTED]), engine).digest.row_count == len(events)
    assert world.run(asked(STREAMS[:1]), engine).digest.row_count == 0
    assert world.run(asked(["their/app"]), Engine(world.spark, lake, {"their/app": IMPORTED})).rows.count == 0
    with pytest.raises(QueryError, match="whose identity is not known"):
        world.run(query, Engine(world.spark, lake), replay_of=world.run(query).digest)
    stranger = World.stranger(tmp_path)
    with pytest.raises(QueryError, match="the receipt of the original"):
        world.run(query, Engine(world.spark, lake, origins=dict.fromkeys(origins, stranger)))


def test_what_is_not_there_is_refused_and_what_is_empty_is_answered(world: World) -> None:
    for name in ("record/unknown", "export/unknown"):
        with pytest.raises(QueryError) as caught:
            world.run(asked([name]))
        assert caught.value.error_code == "forbidden_scope"
    assert world.engine.knows(EXPORTED)
    assert not world.engine.knows("record/unknown")
    nothing = world.run(asked(STREAMS, filter={"subject_id": "nobody"}, evidence={"mode": "full"}))
    assert (nothing.digest.row_count, nothing.rows.page(0, 10)) == (0, [])
    assert nothing.digest.rows_hash == hashlib.sha256(b"[]").hexdigest()


def test_pages_are_the_rows_in_their_order(world: World) -> None:
    answer = world.run(asked(STREAMS))
    rows = list(answer.rows.iterate())
    again = ResultRows(world.place / f"answer {world.count}")
    assert (again.count, again.page(0, 10**6)) == (len(rows), rows)
    for offset, limit in ((0, 1), (5, 7), (len(rows) - 1, 5), (len(rows), 5), (3, 0)):
        assert again.page(offset, limit) == rows[offset : offset + limit]


@pytest.mark.parametrize(
    "forgery",
    [
        (layout.ENTRIES, "hub_sig", zeroed, "signature"),
        (layout.ENTRIES, "leaf_hash", flipped, "leaf_hash"),
        (EVENTS_TABLE, "hub_ts", next_to, "the table of events does not follow from it"),
        (EVENTS_TABLE, "receipt_id", flipped, "the table of events does not follow from it"),
    ],
)
def test_forged_rows_fail_the_query_though_all_hashes_are_right(
    world: World, tmp_path: Path, forgery: tuple[str, str, Callable[[Any], Any], str]
) -> None:
    table, name, value, text = forgery
    lake = tmp_path / "lake"
    shutil.copytree(world.lake, lake)
    forge(lake, load(lake).of_table(table)[0].path, name, value, 1)
    with pytest.raises(QueryError, match=f"evidence: entry [0-9]+ of .*{text}") as caught:
        world.run(SELECTED, Engine(world.spark, lake))
    assert caught.value.error_code == "execution_failed"


@pytest.mark.parametrize("table", [layout.ENTRIES, EVENTS_TABLE])
def test_files_that_are_not_those_of_the_commit_fail_the_query(
    world: World, tmp_path: Path, table: str
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(world.lake, lake)
    path = lake / load(lake).of_table(table)[-1].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(QueryError, match="is not the file that was committed"):
        world.run(SELECTED, Engine(world.spark, lake))


def test_rows_that_were_changed_on_disk_are_found(world: World) -> None:
    answer = world.run(asked(STREAMS))
    out = world.place / f"answer {world.count}"
    other = world.run(asked(STREAMS[:1]))
    with pytest.raises(QueryError, match="are not those of its digest"):
        other.rows.require(answer.digest)
    path = min(out.glob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(QueryError, match=r"is damaged|are not those of its digest"):
        ResultRows(out).require(answer.digest)
    path.unlink()
    with pytest.raises(QueryError, match=r"are gone|are not those"):
        ResultRows(out).require(answer.digest)


def test_a_service_takes_in_what_an_earlier_one_has_accepted(spark: SparkSession, tmp_path: Path) -> None:
    made = Recorded(Hub(tmp_path / "hub", epoch_sec=EPOCH_SEC))
    record_some(made, STREAMS[:1], 8, seed=1)
    made.hub.close()
    intake = LakeRefresh(spark, tmp_path / "lake", str(made.hub.root), None, keyring(STREAMS))
    runs = SparkRuns(Engine(spark, tmp_path / "lake", keys=intake.keys), intake)
    asking: dict[str, Any] = {
        "out": tmp_path / "out",
        "executed_at": 1,
        "progress": lambda _done, _total: None,
    }
    try:
        intake.run()  # of no stream
        runs.cancel("r-0")
        with pytest.raises(RunCancelledError):
            runs.run(asked(STREAMS[:1]), result_id="r-0", **asking)
        digest = runs.run(asked(STREAMS[:1]), result_id="r-1", **asking)
    finally:
        intake.close()
    assert digest.row_count == len(made.events)
    rows = runs.page(tmp_path / "out", digest, 0, 100, 1 << 20)
    assert len(rows) == digest.row_count
    later = SparkRuns(Engine(spark, tmp_path / "lake"), None)
    assert later.page(tmp_path / "out", digest, 0, 100, 1 << 20) == rows
    other = dataclasses.replace(digest, rows_hash="00" * 32)
    with pytest.raises(QueryError, match="are not those of its digest"):
        SparkRuns(Engine(spark, tmp_path / "lake"), None).page(tmp_path / "out", other, 0, 1, 1 << 20)


def test_a_query_can_be_cancelled_by_the_name_of_its_result(world: World) -> None:
    context = world.spark.sparkContext
    told: list[tuple[int, int]] = []

    def cancel(done: int, total: int) -> None:
        told.append((done, total))
        context.cancelJobGroup("r-9")

    before = context.getLocalProperty("spark.jobGroup.id")
    with pytest.raises(Py4JError, match="cancelled"):
        world.run(SELECTED, world.spark_engine, result_id="r-9", progress=cancel)
    assert told
    assert context.getLocalProperty("spark.jobGroup.id") == before
