"""The tasks of a fold, without Spark: in whatever parts records come to them, the bytes are the same."""

import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.overlays.histories import HISTORIES
from tests.overlays.histories_wallet import OWN_STREAM
from tests.overlays.test_overlay_groups import GROUPED, NEED_NO_PAST
from tests.pipeline.fold.histories import BRIDGES, NONE, batch, expected, history, made
from veen.cli.overlay import load_module
from veen.core.encoding import cbor
from veen.overlays import registry
from veen.overlays.builtin.crdt import LWW, LwwMap
from veen.overlays.engine import Annotator, Fold, Summary, memory_of
from veen.overlays.errors import FoldOrderError
from veen.overlays.event import Event, Outcome, Record
from veen.overlays.keyed_overlay import KeyedOverlay
from veen.overlays.monoid import SET
from veen.overlays.overlay import Key, Overlay
from veen.pipeline.errors import FoldStateError
from veen.pipeline.fold.job import merge_task_rows
from veen.pipeline.fold.kernels import GROUP, INVOLVED, Job, folding_kernel, grouping_kernel, joining_kernel
from veen.pipeline.fold.portable_overlay import Portable
from veen.pipeline.fold.rows import ROWS, TABLE, Row, key_of
from veen.pipeline.fold.state import FoldState, Layered, PackedTables, whole_fold
from veen.pipeline.fold.survey import number_sums

PARTS = (1, 2, 7, 64)


def _read(overlay: Overlay, records: Iterable[Record]) -> list[Record]:
    known = {schema.schema_id for schema in overlay.schemas}
    return [record for record in records if record.schema in known]


def _rows(records: list[Record], *, involved: bool) -> pa.RecordBatch:
    return batch(records).append_column(INVOLVED, pa.array([involved] * len(records), pa.bool_()))


def _run(job: Job, records: list[Record], *, involved: bool = False, size: int = 9) -> list[pa.RecordBatch]:
    """Run a task over records, which come in small batches."""
    rows = _rows(records, involved=involved)
    parts = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
    return list(folding_kernel(job)(iter(parts)))


def _same(overlay: Overlay, handed: list[pa.RecordBatch], wanted: Summary) -> None:
    summary = merge_task_rows(pa.Table.from_batches(handed, ROWS), overlay)
    summary.tables = {name: summary.tables[name] for name in overlay.tables}
    summary.runs = wanted.runs
    for outcome in (Outcome.UNKNOWN, Outcome.UNREADABLE):
        summary.counts[outcome] = wanted.counts[outcome]
    assert Fold(overlay).encode(summary) == Fold(overlay).encode(wanted)


def _shuffled(items: list[Any], seed: int) -> list[Any]:
    return Random(seed).sample(items, len(items))


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", NEED_NO_PAST)
def test_what_needs_no_past_is_summarized_in_parts(name: str, parts: int) -> None:
    overlay, records = made(name), history(name, copies=False)
    job = Job(Portable(overlay), OWN_STREAM, NONE, is_sorted=False)
    heaps = [_shuffled(_read(overlay, records), parts)[nth::parts] for nth in range(parts)]
    handed = [each for heap in heaps for each in _run(job, heap)]
    _same(overlay, _shuffled(handed, 3), expected(overlay, records))
    handed = [each for heap in heaps for each in _run(replace(job, is_last=False), heap)]
    joined = list(joining_kernel(job)(iter(_sorted(handed))))
    _same(overlay, joined, expected(overlay, records))


def _sorted(handed: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    names = ("kind", "name", "key", "epoch", "seq")
    table = pa.Table.from_batches(handed, ROWS).sort_by([(name, "ascending") for name in names])
    found: list[pa.RecordBatch] = table.to_batches()
    return found


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", GROUPED)
def test_groups_are_folded_apart(name: str, parts: int) -> None:
    overlay, records = made(name), history(name, copies=False)
    job = Job(Portable(overlay), OWN_STREAM, NONE)
    (rows,) = grouping_kernel(job)(iter([batch(_read(overlay, records))]))
    groups = [int.from_bytes(group, "big") % parts for group in rows.column(GROUP).to_pylist()]
    handed = []
    for part in range(parts):
        mine = [
            record for record, group in zip(_read(overlay, records), groups, strict=True) if group == part
        ]
        handed += _run(job, mine)
    _same(overlay, _shuffled(handed, 3), expected(overlay, records))


@pytest.mark.parametrize("name", registry.names())
def test_anything_is_folded_in_order(name: str) -> None:
    overlay, records = made(name), history(name)
    for bridges in (NONE, BRIDGES):
        handed = _run(Job(Portable(overlay), OWN_STREAM, bridges), _read(overlay, records), involved=True)
        _same(overlay, handed, expected(overlay, records, bridges))


@pytest.mark.parametrize("name", registry.names())
@pytest.mark.parametrize("since", [(9, 1), (10, 1), (10, 17), (11, 2), (14, 1), (14, 30), (99, 1)])
def test_a_range_is_folded_with_its_past(name: str, since: tuple[int, int]) -> None:
    overlay, records = made(name), history(name)
    handed = _run(Job(Portable(overlay), OWN_STREAM, BRIDGES, since), _read(overlay, records), involved=True)
    _same(overlay, handed, expected(overlay, records, BRIDGES, since=since))


def test_records_that_are_out_of_order_are_a_fault_of_the_program() -> None:
    overlay = made("rpc")
    with pytest.raises(FoldOrderError):
        _run(Job(Portable(overlay), OWN_STREAM, NONE), _read(overlay, history("rpc"))[::-1])


class _Firsts(KeyedOverlay):
    """Of each key the first value: needs no past, and order matters."""

    name, schemas, monoid = "firsts", (LWW,), SET

    def cell(self, event: Event) -> tuple[Key, Any]:
        return b"all", {event.body["key"]: event.body["value"]}


@pytest.mark.parametrize("parts", PARTS)
def test_where_order_matters_runs_are_joined_in_it(parts: int) -> None:
    overlay, records = _Firsts(), history("crdt.lww", copies=False)
    job = Job(Portable(overlay), OWN_STREAM, NONE, run=5)
    heaps: list[list[Record]] = [[] for _ in range(parts)]
    for record in _read(overlay, records):
        heaps[hash((record.epoch, (record.stream_seq - 1) // 5)) % parts].append(record)
    handed = [each for heap in heaps for each in _run(job, heap)]
    _same(overlay, _shuffled(handed, 4), expected(overlay, records))
    handed = [each for heap in heaps for each in _run(replace(job, is_last=False), heap)]
    _same(overlay, list(joining_kernel(job)(iter(_sorted(handed)))), expected(overlay, records))


class TestHeads:
    @pytest.mark.parametrize("name", registry.names())
    def test_a_past_in_layers_is_as_one(self, name: str) -> None:
        overlay, records = made(name), history(name)
        plain = memory_of(overlay)
        layered = Layered(plain.kinds)
        whole, parts = (
            Annotator(overlay, plain, OWN_STREAM, BRIDGES),
            Annotator(overlay, layered, OWN_STREAM, BRIDGES),
        )
        for nth, record in enumerate(records):
            if nth % 25 == 24:
                layered.settle()
            assert parts.annotate(record) == whole.annotate(record)
        for table in plain.kinds:
            assert list(layered.items(table)) == list(plain.items(table))

    @pytest.mark.parametrize("name", registry.names())
    def test_a_past_in_bytes_is_as_it_was(self, name: str) -> None:
        overlay, records = made(name), history(name)
        plain = memory_of(overlay)
        whole = Annotator(overlay, plain, OWN_STREAM, BRIDGES)
        for record in records:
            whole.annotate(record)
        state = FoldState(overlay, Summary(tables=plain.tables))
        kept = PackedTables(plain.kinds, state.packed())
        for table in plain.kinds:
            assert list(kept.items(table)) == list(plain.items(table))
            assert all(kept.get(table, key) == value for key, value in plain.items(table))
            assert kept.get(table, b"nobody's") is None


def _state(overlay: Overlay, records: list[Record]) -> FoldState:
    """Return the state after some records, with its indexes."""
    head = memory_of(overlay)
    annotator, summary = Annotator(overlay, head, OWN_STREAM, BRIDGES), whole_fold(overlay).empty()
    for record in records:
        item = annotator.annotate(record)
        whole_fold(overlay).step(summary, item._replace(cells=()))
    summary.tables = head.tables
    return FoldState(overlay, summary, BRIDGES)


class TestState:
    @pytest.mark.parametrize("name", registry.names())
    def test_it_is_its_bytes(self, name: str) -> None:
        overlay = made(name)
        state = _state(overlay, history(name))
        data = state.encode()
        again = FoldState.decode(overlay, data, BRIDGES)
        assert again.encode() == data
        assert again.place == (14, 79)
        assert Fold(overlay).view(again.summary, 0) == Fold(overlay).view(state.summary, 0)

    def test_before_any_record_it_is_at_no_place(self) -> None:
        assert FoldState.initial(LwwMap()).place == (0, 0)

    def test_that_of_another_fold_is_refused(self) -> None:
        data = FoldState.initial(LwwMap()).encode()
        with pytest.raises(FoldStateError, match="another fold"):
            FoldState.decode(made("crdt.gcnt"), data)
        with pytest.raises(FoldStateError, match="another fold"):
            FoldState.decode(LwwMap(), data, BRIDGES)

    @pytest.mark.parametrize("cut", range(0, 200, 7))
    def test_a_damaged_one_is_refused(self, cut: int) -> None:
        data = _state(LwwMap(), history("crdt.lww", 30)).encode()
        with pytest.raises(FoldStateError):
            FoldState.decode(LwwMap(), data[:cut], BRIDGES)


_MODULE = """
from veen.overlays import BYTES, SUM, Field, KeyedOverlay, Schema

WORD = Schema("word.v1", Field("word", BYTES))

class Words(KeyedOverlay):
    name, schemas, monoid = "words", (WORD,), SUM
    step: int = 1
    def cell(self, event):
        assert event.schema is WORD
        return event.body["word"], self.step
"""


def users_overlay(place: Path, **values: Any) -> Overlay:
    """Return an overlay of a user's file."""
    file = place / "words.py"
    file.write_text(_MODULE)
    found: Overlay = load_module(str(file)).Words(**values)
    return found


def test_an_overlay_of_a_users_file_takes_its_code_along(tmp_path: Path) -> None:
    overlay = users_overlay(tmp_path, step=3)
    again = pickle.loads(pickle.dumps(Portable(overlay))).overlay  # noqa: S301 - our own
    assert type(again) is not type(overlay)
    assert again.identity == overlay.identity
    schema = overlay.schemas[0]
    body = schema.encode(schema.make(word=b"hello"))
    records = [HISTORIES["crdt.lww"](Random(1), 3)[0]._replace(schema=schema.schema_id, body=body)]
    _same(overlay, _run(Job(Portable(again), OWN_STREAM, NONE), records), expected(overlay, records))


def test_one_of_ours_travels_by_its_name() -> None:
    again = pickle.loads(pickle.dumps(Portable(made("delegated")))).overlay  # noqa: S301 - our own
    assert again == made("delegated")
    assert type(again) is type(made("delegated"))


def test_keys_of_any_shape_are_keys_again() -> None:
    keys: list[Key] = [b"", "text", (b"a", "b", 3), ((b"a", 1), 2)]
    assert [key_of(Row(TABLE, "", cbor.encode(key), 0, 0, b"")) for key in keys] == keys


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 65_535), (1, 65_536), (65_530, 200_000), (7, 6)])
def test_what_numbers_add_up_to_is_known_without_them(first: int, last: int) -> None:
    numbers = range(first, last + 1)
    lows = [number % 65_536 for number in numbers]
    highs = sum(number // 65_536 for number in numbers)
    assert number_sums(first, last) == (sum(lows), sum(low * low for low in lows), highs)
