"""Tables made again when a stream or a key becomes known: of the lake alone; nothing is lost. No Spark."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import builders
from tests.pipeline.lake.lake_builder import LWW, keyring, put
from tests.pipeline.log_builder import Hub, Sent
from veen.core.objects import labels
from veen.core.types import StreamId
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Changes, Commits, LabelFact, State
from veen.pipeline.lake.lake import Lake, lock_lake
from veen.pipeline.lake_jobs.ingest_plan import Binder, Step, find_work, plan_slices, steps
from veen.pipeline.lake_jobs.ingest_task import SliceSettings, take_in
from veen.pipeline.lake_jobs.rebuild import (
    RebuildResult,
    Remake,
    changes_of,
    files_of,
    find_remakes,
    make_again,
)
from veen.pipeline.log.log import Log
from veen.pipeline.log.open import open_log
from veen.pipeline.open.keyring import ReaderKeys

ALPHA = labels.stream_id("alpha")
RIGHT = keyring(["alpha"]).reader_keys()
OTHER = keyring(["alpha"], reader="other").reader_keys()
NOBODY = ReaderKeys({}, ())


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """Make a log of one label, for two readers in turns, with something of each table."""
    made = Hub(tmp_path / "hub")
    for number in range(6):
        made.send("alpha", [put(f"key {number}", number), Sent(b"for the other", reader="other")])
    made.send("alpha", [Sent(b"nonsense", schema=LWW.schema_id)])
    made.close()
    return made


class Taking:
    """A lake that takes in a log without Spark, and makes its tables again."""

    def __init__(self, root: Path, log: Log) -> None:
        self.root = root
        self.log = log
        self.setting = SliceSettings(str(root), log.keys, tuple(log.profiles), None)

    def take(self, keys: ReaderKeys, name: str, *, known: bool = True) -> State:
        with lock_lake(self.root, create=True) as lake:
            (work,) = find_work(lake.state, self.log, Binder(self.log))
            (step,) = steps([work if known else replace(work, stream_id=None)])
            self._commit(lake, step, keys, name)
            return lake.state

    def _commit(self, lake: Lake, step: Step, keys: ReaderKeys, name: str) -> None:
        setting = replace(self.setting, shared=OpenKeys(keys))  # type: ignore[arg-type]
        done = list(take_in(plan_slices(self.log, step, list), setting))
        peaks = done[-1].peaks
        assert peaks is not None
        (work,) = step.works.values()
        span, sealed = (done[0].first, done[-1].last), sum(item.sealed for item in done)
        fact = LabelFact.of(
            work.label, work.stream_id, work.epoch, span=span, peaks=peaks, sealed=sealed, tried=[name]
        )
        files = [file for item in done for file in item.files]
        lake.commit(Changes(kind="ingest", labels=[fact], added=files), self.log.keys.identity)

    def again(
        self, keys: ReaderKeys, name: str | None, bound: dict[str, tuple[StreamId, int]] | None = None
    ) -> tuple[list[Remake], list[RebuildResult]]:
        """Make again what there is to be made, and commit it."""
        with lock_lake(self.root) as lake:
            remakes = find_remakes(lake.state, bound or {}, lambda _: name)
            made = [make_again(item, self.setting, keys) for item in files_of(lake.state, remakes)]
            lake.commit(changes_of(lake.state, remakes, made), self.log.keys.identity)
            return remakes, made

    @property
    def state(self) -> State:
        return Commits(self.root).load()

    @property
    def fact(self) -> LabelFact:
        (found,) = self.state.labels.values()
        return found

    def rows(self) -> dict[str, list[dict[str, object]]]:
        """Return the rows of all tables; every file that is there must be part of the lake."""
        state = self.state
        assert {str(path.relative_to(self.root)) for path in layout.tables_in(self.root)} == {*state.files}
        return {
            table: [
                row
                for fact in state.of_table(table)
                for row in pq.read_table(self.root / fact.path, partitioning=None).to_pylist()
            ]
            for table in state.tables()
        }


class OpenKeys:
    """Keys as a task has them, without a broadcast."""

    def __init__(self, keys: ReaderKeys) -> None:
        self._keys = keys

    def open(self) -> ReaderKeys:
        return self._keys


@pytest.fixture
def log(hub: Hub) -> Log:
    return open_log(str(hub.root))


def test_keys_that_come_later_open_what_was_sealed_and_close_nothing(tmp_path: Path, log: Log) -> None:
    whole, lake = Taking(tmp_path / "whole", log), Taking(tmp_path / "lake", log)
    whole.take(ReaderKeys({ALPHA: (*RIGHT.shared[ALPHA], *OTHER.shared[ALPHA])}, ()), "both")
    lake.take(NOBODY, "nobody")
    log.close()
    assert (whole.fact.sealed, lake.fact.sealed) == (0, 13)
    assert lake.again(NOBODY, None) == ([], [])
    lake.again(RIGHT, "right")
    assert (lake.fact.sealed, lake.fact.tried) == (6, ("nobody", "right"))
    assert lake.again(RIGHT, "right") == ([], [])
    _, made = lake.again(OTHER, "other")
    assert [(item.sealed, item.opened) for item in made] == [(0, 6)]
    assert (lake.fact.sealed, lake.fact.tried) == (0, ())
    assert lake.rows() == whole.rows()
    assert {"silver/crdt.lww.v1", layout.REJECTED} < lake.rows().keys()


def test_keys_that_open_nothing_change_no_file_and_are_not_tried_again(tmp_path: Path, log: Log) -> None:
    lake = Taking(tmp_path / "lake", log)
    before = {*lake.take(RIGHT, "right").files}
    log.close()
    stranger = ReaderKeys({ALPHA: (bytes(builders.reader_secret("stranger")),)}, ())
    _, made = lake.again(stranger, "stranger")
    assert [(item.sealed, item.opened, item.added) for item in made] == [(6, 0, ())]
    assert {*lake.state.files} == before
    assert lake.again(stranger, "stranger") == ([], [])
    lake.rows()


def test_a_stream_that_becomes_known_is_in_every_row(tmp_path: Path, log: Log) -> None:
    whole, lake = Taking(tmp_path / "whole", log), Taking(tmp_path / "lake", log)
    whole.take(RIGHT, "right")
    lake.take(RIGHT, "right", known=False)
    assert lake.fact.stream is None
    found = Binder(log).newly_bound(lake.state)
    assert found == {lake.fact.label: (ALPHA, 0)}
    log.close()
    lake.again(NOBODY, None, found)
    assert lake.fact == whole.fact
    assert lake.rows() == whole.rows()
    assert not {*lake.state.files} & {*whole.state.files}


def test_files_that_are_not_what_was_committed_are_not_made_again(tmp_path: Path, log: Log) -> None:
    lake = Taking(tmp_path / "lake", log)
    state = lake.take(NOBODY, "nobody")
    log.close()
    (fact,) = state.of_table(layout.RECORDS)
    path = lake.root / fact.path
    path.write_bytes(path.read_bytes() + b"more")
    remakes = find_remakes(state, {}, lambda _: "right")
    (made,) = (make_again(item, lake.setting, RIGHT) for item in files_of(state, remakes))
    assert made.problem is not None
    assert "its hash differs" in made.problem
