"""What a lake is made of: names, commits, locks and files, without Spark."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests import builders
from tests.pipeline.lake.lake_builder import bytes_of
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity
from veen.overlays.registry import schemas
from veen.pipeline.errors import DamagedLakeError, LakeBusyError, LakeError
from veen.pipeline.lake import commits, layout, tables
from veen.pipeline.lake.commits import Changes, Commits, FileFact, LabelFact, Missing, Remade, State
from veen.pipeline.lake.lake import load, lock_lake
from veen.pipeline.lake.table_files import TableFile
from veen.pipeline.lake_jobs import gold
from veen.pipeline.open.records import RECORDS

HUB = builders.identity()
LABEL = builders.some_label()
TABLE = pa.schema([pa.field("stream_seq", pa.int64()), pa.field("text", pa.string())])


def fact(first: int, last: int, table: str = layout.ENTRIES) -> FileFact:
    path = layout.table_file(table, LABEL, first, last)
    return FileFact(path, table, LABEL.hex(), first, last, 1, 2, last - first + 1, 100, "00" * 32)


def label_fact(first: int, last: int, missing: tuple[Missing, ...] = ()) -> LabelFact:
    return LabelFact.of(LABEL, None, 0, span=(first, last), peaks=builders.peaks(last), missing=missing)


def test_ranges_are_cut_where_slices_begin() -> None:
    size = layout.SLICE
    assert list(layout.cut(1, 5)) == [(1, 5)]
    assert list(layout.cut(5, size + 3)) == [(5, size), (size + 1, size + 3)]
    assert list(layout.cut(size, size)) == [(size, size)]
    assert list(layout.cut(2, 1)) == []


def test_no_schema_has_a_field_that_is_named_as_a_column_of_every_table() -> None:
    for schema in schemas().values():
        names = tables.typed_schema(schema).names
        assert len(names) == len(set(names)), schema.name


def test_views_have_names_of_their_own() -> None:
    names = [layout.view_name(table) for table in tables.columns_by_table()]
    assert len(set(names)) == len(names)
    assert all(name.replace("_", "").isalnum() for name in names)
    assert layout.view_name("silver/crdt.lww.v1") == "silver_crdt_lww_v1"


# --- commits ------------------------------------------------------------------------------------------------


def commit(root: Path, state: State, *spans: tuple[int, int]) -> None:
    for first, last in spans:
        changes = Changes(kind="ingest", labels=[label_fact(first, last)], added=[fact(first, last)])
        Commits(root).add(state, changes, HUB)


def test_a_lake_is_what_its_commits_say(tmp_path: Path) -> None:
    state = State()
    commit(tmp_path, state, (1, 3), (4, 9))
    found = Commits(tmp_path).load()
    assert found == state
    assert found.labels[LABEL.hex()].from_seq == 1
    assert found.labels[LABEL.hex()].range == builders.peaks(9)
    Commits(tmp_path).add(
        state,
        Changes(kind="compact", added=[fact(1, 9)], removed=[fact(1, 3).path, fact(4, 9).path]),
        HUB,
    )
    assert list(Commits(tmp_path).load().files) == [fact(1, 9).path]


def test_what_is_missing_is_kept_with_the_peaks_after_it(tmp_path: Path) -> None:
    state = State()
    gone = Missing(1, 4, tuple(node.hex() for node in builders.peaks(4).hashes))
    changes = Changes(kind="ingest", labels=[label_fact(1, 9, (gone,))], added=[fact(5, 9)])
    Commits(tmp_path).add(state, changes, HUB)
    (found,) = Commits(tmp_path).load().labels.values()
    assert found.missing == (gone,)
    assert found.missing[0].range == builders.peaks(4)


@pytest.mark.parametrize("hub", [HUB, replace(HUB, routing_key=builders.routing_key("chosen"))])
def test_states_are_of_the_labels_that_the_hub_itself_gives(tmp_path: Path, hub: HubIdentity) -> None:
    stream = labels.stream_id("stock")
    found = []
    for routing, epoch in ((builders.routing_key("parent"), 0), (hub.routing_key, 1), (hub.routing_key, 0)):
        label = labels.label(routing, stream, epoch)
        found.append(LabelFact.of(label, stream, epoch, span=(1, 3), peaks=builders.peaks(3)))
    unknown = LabelFact.of(builders.some_label(), None, 0, span=(1, 3), peaks=builders.peaks(3))
    state = State()
    Commits(tmp_path).add(state, Changes(kind="ingest", labels=[*found, unknown]), hub)
    assert State().own_labels() == {}
    assert state.own_labels() == {stream.hex(): [found[2], found[1]]}
    assert Commits(tmp_path).load() == State.of_snapshot(state.snapshot()) == state


def test_what_is_sealed_is_counted_with_the_keyrings_that_were_tried_on_all_of_it(tmp_path: Path) -> None:
    state = State()

    def add(first: int, last: int, sealed: int, *tried: str) -> tuple[int, tuple[str, ...]]:
        made = LabelFact.of(
            LABEL, None, 0, span=(first, last), peaks=builders.peaks(last), sealed=sealed, tried=tried
        )
        Commits(tmp_path).add(state, Changes(kind="ingest", labels=[made]), HUB)
        assert Commits(tmp_path).load() == state
        return state.labels[LABEL.hex()].sealed, state.labels[LABEL.hex()].tried

    assert add(1, 2, 0, "aa") == (0, ())
    assert add(3, 4, 2, "bb", "aa") == (2, ("aa", "bb"))
    assert add(5, 6, 0, "cc") == (2, ("aa", "bb"))
    assert add(7, 8, 1, "bb") == (3, ("bb",))
    changes = Changes(kind="remake", remade=[Remade(LABEL.hex(), "11" * 32, 7, 1, ("bb", "cc"))])
    Commits(tmp_path).add(state, changes, HUB)
    known = Commits(tmp_path).load().labels[LABEL.hex()]
    assert (known.stream_id, known.epoch, known.sealed, known.tried) == ("11" * 32, 7, 1, ("bb", "cc"))
    assert (known.from_seq, known.upto_seq) == (1, 8)


def test_a_state_that_no_longer_holds_is_dropped(tmp_path: Path) -> None:
    state = State()
    Commits(tmp_path).add(state, Changes(kind="gold", gold=[{"overlay": "o", "stream_id": "s"}]), HUB)
    Commits(tmp_path).add(state, Changes(kind="ingest", dropped=[("o", "s")]), HUB)
    assert Commits(tmp_path).load().gold == {}


def test_equal_steps_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        commit(tmp_path / name, State(), (1, 3), (4, 9))
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "other")


def test_snapshots_say_the_same_and_can_be_lost(tmp_path: Path) -> None:
    state = State()
    commit(tmp_path, state, *((nth, nth) for nth in range(1, 70)))
    assert len(list((tmp_path / layout.SNAPSHOTS).iterdir())) == 2
    assert Commits(tmp_path).load() == Commits(tmp_path).load(snapshots=False) == state
    for path in (tmp_path / layout.SNAPSHOTS).iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert Commits(tmp_path).load() == state


@pytest.mark.parametrize("harm", ["changed", "removed", "swapped", "spaced"])
def test_a_commit_that_is_not_the_one_that_was_written_is_found(tmp_path: Path, harm: str) -> None:
    commit(tmp_path, State(), (1, 3), (4, 9), (10, 12))
    first, second = (tmp_path / layout.commit_file(nth) for nth in (1, 2))
    match harm:
        case "changed":
            document = json.loads(first.read_bytes())
            document["added"][0]["rows"] = 7
            first.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")
        case "removed":
            second.unlink()
        case "swapped":
            data = first.read_bytes()
            first.write_bytes(second.read_bytes())
            second.write_bytes(data)
        case _:
            first.write_bytes(first.read_bytes().replace(b",", b", ", 1))
    with pytest.raises(DamagedLakeError):
        Commits(tmp_path).load()


def test_a_lake_of_another_format_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "VERSION", commits.VERSION - 1)
    commit(tmp_path, State(), *((nth, nth) for nth in range(1, 33)))
    assert list((tmp_path / layout.SNAPSHOTS).iterdir()), "a snapshot must not hide the format of its commits"
    monkeypatch.undo()
    with pytest.raises(LakeError, match="ingest the log into a new directory") as error:
        Commits(tmp_path).load()
    assert not isinstance(error.value, DamagedLakeError)


def test_a_second_writer_of_a_commit_fails(tmp_path: Path) -> None:
    one, other = State(), State()
    commit(tmp_path, one, (1, 3))
    with pytest.raises(LakeBusyError):
        commit(tmp_path, other, (1, 4))
    assert Commits(tmp_path).load() == one


# --- holding ------------------------------------------------------------------------------------------------


def test_a_lake_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    busy = pytest.raises(LakeBusyError, match="another process writes to the lake")
    with lock_lake(tmp_path / "lake", create=True), busy, lock_lake(tmp_path / "lake"):
        pass
    with lock_lake(tmp_path / "lake"):
        pass


def test_what_is_no_lake_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        load(tmp_path)
    with pytest.raises(LakeError, match="is not a lake"), lock_lake(tmp_path):
        pass
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(LakeError, match="neither a lake nor empty"), lock_lake(tmp_path, create=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_what_a_killed_run_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with lock_lake(tmp_path, create=True) as lake:
        kept = tmp_path / fact(1, 3).path
        left = [
            tmp_path / fact(4, 9).path,
            kept.parent / f"{layout.UNFINISHED}{'1' * 32}",
            tmp_path / layout.HUB / ("aa" * 32),
            tmp_path / layout.again_file(fact(1, 3).path),
            tmp_path / gold.StaleState("crdt.lww", "11" * 32, (label_fact(1, 3),)).state_path,
        ]
        foreign = [tmp_path / "silver" / "NOTES.txt", tmp_path / layout.HUB / "aa", kept.parent / "x.parquet"]
        for path in (kept, *left, *foreign):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"rows")
        lake.commit(Changes(kind="ingest", labels=[label_fact(1, 3)], added=[fact(1, 3)]), HUB)
        with pytest.raises(KeyboardInterrupt), lake.writing():
            raise KeyboardInterrupt
    with lock_lake(tmp_path) as lake:
        assert kept.exists()
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in foreign)
        assert lake.foreign == sorted(str(path.relative_to(tmp_path)) for path in foreign)


def test_the_log_of_another_hub_is_refused_as_a_wrong_log_is(tmp_path: Path) -> None:
    with lock_lake(tmp_path, create=True) as lake:
        lake.commit(Changes(kind="ingest", labels=[label_fact(1, 3)], added=[fact(1, 3)]), HUB)
        with pytest.raises(DamagedLakeError, match="is of hub"):
            lake.require_hub(builders.hub_id("stranger"))


# --- files --------------------------------------------------------------------------------------------------


def batch(first: int, last: int) -> pa.RecordBatch:
    numbers = range(first, last + 1)
    columns = [pa.array(numbers, pa.int64()), pa.array([f"text {number % 100}" for number in numbers])]
    return pa.RecordBatch.from_arrays(columns, schema=TABLE)


def test_the_bytes_of_a_file_follow_from_its_rows_and_not_from_their_portions(tmp_path: Path) -> None:
    whole, pieces = TableFile(tmp_path, "whole", TABLE), TableFile(tmp_path, "pieces", TABLE)
    whole.add(batch(1, 10_000))
    for first in range(1, 10_001, 617):
        pieces.add(batch(first, min(first + 616, 10_000)))
    one, other = whole.finish(), pieces.finish()
    assert (one.rows, one.sha256) == (other.rows, other.sha256)
    groups = pa.parquet.ParquetFile(tmp_path / "whole").metadata
    assert [groups.row_group(nth).num_rows for nth in range(groups.num_row_groups)] == [4096, 4096, 1808]


def test_large_rows_end_a_row_group_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "GROUP_BYTES", 1_000)
    sizes = []
    for portion in (1, 7, 100):
        out = TableFile(tmp_path, f"by {portion}", TABLE)
        for first in range(1, 101, portion):
            out.add(batch(first, min(first + portion - 1, 100)))
        sizes.append(out.finish().sha256)
    assert len(set(sizes)) == 1
    assert pa.parquet.ParquetFile(tmp_path / "by 1").metadata.num_row_groups > 5


def test_a_file_that_was_given_up_leaves_nothing(tmp_path: Path) -> None:
    out = TableFile(tmp_path, "place/file", TABLE)
    out.add(batch(1, 5_000))
    out.discard()
    assert list((tmp_path / "place").iterdir()) == []


def test_records_keep_their_columns() -> None:
    assert tables.columns_by_table()[layout.RECORDS] is RECORDS
    assert Peaks.empty().size == 0
