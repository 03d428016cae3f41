"""What a query does beside Spark: how much is read here, which copies count."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.log_builder import Hub, Sent
from veen.core.objects import labels
from veen.core.types import HubId
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import FileFact, LabelFact, State
from veen.pipeline.lake.table_files import TableFile
from veen.pipeline.query.columns import ROWS
from veen.pipeline.query.event_sources import EVENTS_TABLE, Sources
from veen.pipeline.query.local_backend import pick
from veen.pipeline.query.result_rows import ResultRows
from veen.pipeline.query.scope import resolve
from veen.query.descriptor import Filter
from veen.query.errors import QueryError
from veen.query_service.errors import IngestBusyError
from veen.query_service.spark_runner import LakeRefresh

HUB = HubId(bytes(range(32)))
OWN, COPIES = "record/app", "import/app"


def label(stream: str, epoch: int = 0) -> str:
    return labels.label(labels.routing_key(HUB), labels.stream_id(stream), epoch).hex()


def state(*streams: tuple[str, int, int]) -> State:
    """Return a lake: streams, epochs, and when the first entry of each was committed."""
    made = State(hub_id=HUB.hex(), routing_key=labels.routing_key(HUB).hex())
    for stream, epoch, first_ts in streams:
        name = label(stream, epoch)
        stream_id = labels.stream_id(stream).hex()
        made.labels[name] = LabelFact(name, stream_id, epoch, 1, 5, "00" * 32, ())
        path = f"{name}.parquet"
        made.files[path] = FileFact(path, layout.ENTRIES, name, 1, 5, first_ts, first_ts, 5, 1, "")
    return made


# --- copies -------------------------------------------------------------------------------------------------


def taken(scope: Sequence[str], called: dict[str, str]) -> dict[bytes, Any]:
    lake = state((COPIES, 0, 10))
    found = resolve(Path(), lake, scope, called=called)
    return dict(Sources(Path(), lake, found, Filter()).taken().named)


def test_copies_of_several_streams_in_one_are_all_taken() -> None:
    called = {"east/a": COPIES, "east/b": COPIES}
    here = bytes.fromhex(label(COPIES))
    assert taken(["east/a", "east/b"], called) == {here: {"east/a", "east/b"}}
    assert taken(["east/b"], called) == {here: {"east/b"}}
    assert taken(["east/a", COPIES, "east/b"], called) == {here: None}, "of any, if all is asked for"


# --- how much is read ---------------------------------------------------------------------------------------

_TABLE = pa.schema([pa.field("stream_seq", pa.int64()), pa.field("payload", pa.string())])


def test_what_is_read_here_is_bounded_by_bytes_too(tmp_path: Path) -> None:
    file = TableFile(tmp_path, "a.parquet", _TABLE)
    file.add(pa.RecordBatch.from_pydict({"stream_seq": [1, 2], "payload": ["x" * 50_000] * 2}, _TABLE))
    written = file.finish()
    lake = state((OWN, 0, 10))
    lake.files["a.parquet"] = FileFact(
        "a.parquet", EVENTS_TABLE, label(OWN), 1, 2, 10, 10, 2, written.size, written.sha256
    )
    sources = Sources(tmp_path, lake, resolve(tmp_path, lake, [OWN], called={}), Filter())
    assert pick(sources, 2) is not None
    assert pick(sources, 1) is None
    assert pick(sources, 2, most_bytes=90_000) is None
    assert written.size < 50_000, "what counts is the size in memory"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Write rows 0 to 9 to two files, in row groups of three."""
    for first, values in ((0, range(6)), (6, range(6, 10))):
        path = tmp_path / f"{layout.number(first)}.parquet"
        table = pa.table({"row": pa.array([b"%d" % value * 10 for value in values], pa.binary())}, ROWS)
        pq.write_table(table, path, row_group_size=3)
    return tmp_path


def test_a_page_ends_where_it_gets_too_long_but_has_a_row(rows: Path) -> None:
    every = list(ResultRows(rows).iterate())
    found = ResultRows(rows)
    assert found.page(0, 100) == every == [b"%d" % value * 10 for value in range(10)]
    for offset in range(11):
        for limit in range(5):
            assert found.page(offset, limit) == every[offset : offset + limit]
    assert found.page(2, 10, most_bytes=3 * 11) == every[2:5]
    assert found.page(2, 10, most_bytes=3 * 11 - 1) == every[2:4]
    assert found.page(2, 10, most_bytes=1) == every[2:3]


def test_a_long_page_opens_no_more_than_it_needs(rows: Path) -> None:
    found = ResultRows(rows)
    (rows / f"{layout.number(6)}.parquet").unlink()
    assert len(found.page(3, 10, most_bytes=2 * 11)) == 2
    with pytest.raises(QueryError, match="is damaged") as caught:
        found.page(3, 10)
    assert str(rows) not in caught.value.message


# --- intake -------------------------------------------------------------------------------------------------


def test_who_asks_for_a_stream_does_not_wait_for_an_intake(tmp_path: Path) -> None:
    with Hub(tmp_path / "hub") as hub:
        hub.send(OWN, [Sent(b"one")])
    spark: Any = None  # nothing is taken in
    with closing(
        LakeRefresh(spark, tmp_path / "lake", str(tmp_path / "hub"), None, None, patience_sec=0)
    ) as intake:
        assert (intake.has(OWN), intake.has("record/none")) == (True, False)
        with intake._lock:  # as while the log is taken in
            assert intake.has(OWN)
            with pytest.raises(IngestBusyError):
                intake.has("record/none")
        assert not intake.has("record/none")
