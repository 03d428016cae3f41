"""The summary tree: what it gives is what a fresh fold gives, at every position, from few rows."""

import math
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.overlays.histories import BRIDGE, HISTORIES, STREAM, WRITERS, ident
from veen.overlays import registry
from veen.overlays.builtin.crdt import LWW, GCounter, LwwMap
from veen.overlays.engine import Annotated, Annotator, Fold, hash_state, memory_of
from veen.overlays.errors import DamagedTreeError, FoldOrderError, InvalidBodyError
from veen.overlays.event import Event, Outcome, Record, Report
from veen.overlays.keyed_overlay import KeyedOverlay
from veen.overlays.monoid import SET
from veen.overlays.overlay import Key, Overlay, Tables
from veen.overlays.summary_tree import rows as layout
from veen.overlays.summary_tree.reader import Place, TreeReader
from veen.overlays.summary_tree.rows import CHUNK, MemoryRows
from veen.overlays.summary_tree.writer import Meta, TreeWriter

BRIDGES = frozenset({BRIDGE})
#: Several chunks and a part of one, in each of several epochs with gaps between them.
EPOCHS = {3: CHUNK + 40, 4: 30, 9: CHUNK, 20: 3 * CHUNK + 100}


@pytest.fixture(scope="module", params=registry.names())
def overlay(request: pytest.FixtureRequest) -> Overlay:
    """Every overlay, with its default parameters."""
    return registry.overlay_class(request.param)()


def history(overlay: Overlay) -> list[Record]:
    """Return a history of the overlay, laid over several epochs."""
    flat = iter(HISTORIES[overlay.name](Random(1), sum(EPOCHS.values())))
    return [
        next(flat)._replace(epoch=epoch, stream_seq=seq)
        for epoch, count in EPOCHS.items()
        for seq in range(1, count + 1)
    ]


def root_of(record: Record) -> bytes:
    return ident("root", record.epoch, record.stream_seq)


def grow(rows: MemoryRows, overlay: Overlay, records: list[Record]) -> list[Annotated]:
    writer = TreeWriter(rows, overlay, STREAM, BRIDGES)
    items = [writer.append(record, ident("label", record.epoch), root_of(record)) for record in records]
    writer.flush()
    return items


class Grown(NamedTuple):
    """A history and its tree; nobody adds to either."""

    records: list[Record]
    rows: MemoryRows
    items: list[Annotated]


@pytest.fixture(scope="module")
def grown(overlay: Overlay) -> Grown:
    """The tree of the history of the overlay."""
    records, rows = history(overlay), MemoryRows()
    return Grown(records, rows, grow(rows, overlay, records))


def sampled(records: list[Record], rng: Random) -> set[int]:
    """Return positions: around the ends of chunks and epochs, and some at random."""
    found = set(rng.sample(range(len(records)), 8)) | {0, len(records) - 1}
    for nth, record in enumerate(records):
        if record.stream_seq % CHUNK in (0, 1, 2) and rng.random() < 0.3:
            found.add(nth)
        if record.stream_seq == 1 and nth:
            found.add(nth - 1)
    return found


@pytest.mark.sweep
def test_it_is_what_a_fresh_fold_is_at_every_position_and_for_every_key(
    overlay: Overlay, grown: Grown
) -> None:
    records, rows = grown.records, grown.rows
    tree = TreeReader(rows, overlay)
    fresh = memory_of(overlay)
    annotator = Annotator(overlay, fresh, STREAM, BRIDGES)
    counts, reports = dict.fromkeys(Outcome, 0), list[Report]()
    positions = sampled(records, Random(2))
    for nth, record in enumerate(records):
        item = annotator.annotate(record)
        counts[item.outcome] += 1
        reports += item.reports
        if nth not in positions:
            continue
        place = (record.epoch, record.stream_seq)
        tables = tree.tables(place)
        for table in overlay.tables:
            assert list(tables.items(table)) == list(fresh.items(table)), (table, place)
            for key, summary in fresh.items(table):
                assert tables.get(table, key) == summary
        assert tree.tally(place) == counts
        assert list(tree.reports(place)) == reports
        assert hashed(overlay, tables) == hashed(overlay, fresh)
        assert tree.labels(place)[-1] == (
            record.epoch,
            ident("label", record.epoch),
            record.stream_seq,
            root_of(record),
        )


def hashed(overlay: Overlay, tables: Tables) -> bytes | str:
    """Return the hash of a state, or why it can not be written."""
    try:
        return hash_state(overlay, tables)
    except InvalidBodyError as error:
        return error.code


@pytest.mark.sweep
def test_every_position_of_one_overlay() -> None:
    overlay = GCounter()
    records, rows = history(overlay), MemoryRows()
    grow(rows, overlay, records)
    tree, fresh = TreeReader(rows, overlay), memory_of(overlay)
    annotator = Annotator(overlay, fresh, STREAM, BRIDGES)
    for record in records:
        annotator.annotate(record)
        tables = tree.tables((record.epoch, record.stream_seq))
        assert list(tables.items("shards")) == list(fresh.items("shards"))


@pytest.mark.sweep
def test_a_range_is_the_fold_of_its_records_as_they_counted(overlay: Overlay, grown: Grown) -> None:
    records, rows, items = grown
    rng = Random(3)
    tree, folding = TreeReader(rows, overlay), Fold(overlay)
    cuts = [sorted(rng.sample(range(len(records)), 2)) for _ in range(5)]
    cuts += [[5, 5], [0, len(records) - 1], [CHUNK, 2 * CHUNK - 1], [CHUNK + 3, CHUNK + 9]]
    for first, last in cuts:
        expected: dict[str, dict[Key, object]] = {name: {} for name in overlay.tables}
        counts = dict.fromkeys(Outcome, 0)
        for item in items[first : last + 1]:
            counts[item.outcome] += 1
            for table, key, summary in item.cells:
                known = expected[table].get(key)
                kind = folding.kinds[table]
                expected[table][key] = summary if known is None else kind.merge(known, summary)
        since, upto = place_of(records[first]), place_of(records[last])
        tables = tree.tables(upto, since)
        for table, found in expected.items():
            assert dict(tables.items(table)) == found
            for key, summary in found.items():
                assert tables.get(table, key) == summary
        assert tree.tally(upto, since) == counts
        told = [report for item in items[first : last + 1] for report in item.reports]
        assert list(tree.reports(upto, since)) == told


def place_of(record: Record) -> Place:
    return record.epoch, record.stream_seq


def test_rows_are_the_same_bytes_in_whatever_portions_the_log_came(overlay: Overlay, grown: Grown) -> None:
    records, whole, rng = grown.records, grown.rows, Random(5)
    rows, at = MemoryRows(), 0
    while at < len(records):
        step = rng.choice([1, 3, 50, CHUNK, 400])
        grow(rows, overlay, records[at : at + step])
        at += step
    assert rows.values == whole.values


def test_rows_over_others_are_as_one(overlay: Overlay, grown: Grown) -> None:
    records, whole = grown.records, grown.rows
    below = MemoryRows()
    grow(below, overlay, records[:700])
    kept = dict(below.values)
    above = MemoryRows(below)
    grow(above, overlay, records[700:])
    assert below.values == kept, "what is below is not changed"
    assert {**below.values, **above.values} == whole.values
    place = place_of(records[900])
    for table in overlay.tables:
        assert list(TreeReader(above, overlay).tables(place).items(table)) == list(
            TreeReader(whole, overlay).tables(place).items(table)
        )


class Counting(MemoryRows):
    """Rows that count what is asked of them."""

    asked = 0

    def get(self, key: bytes) -> bytes | None:
        self.asked += 1
        return super().get(key)

    def seek(self, key: bytes) -> bytes | None:
        self.asked += 1
        return super().seek(key)

    def seek_back(self, key: bytes) -> bytes | None:
        self.asked += 1
        return super().seek_back(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.asked += 1
        super().put(key, value)


def registers(count: int, keys: int, start: int = 1) -> Iterator[Record]:
    """Yield writes to registers, one after the other."""
    for seq in range(start, start + count):
        body = LWW.encode({"key": b"k%d" % (seq * seq % keys), "ts": seq, "value": b"v"})
        yield Record(seq, ident(seq), WRITERS[0], seq, 0, LWW.schema_id, body)


@pytest.mark.sweep
@pytest.mark.parametrize("keys", [1, 300, 5000])
def test_a_key_at_a_position_is_logarithmically_many_rows(keys: int) -> None:
    rows, overlay, rng = Counting(), LwwMap(), Random(4)
    count = 16_000
    grow(rows, overlay, list(registers(count, keys)))
    tree = TreeReader(rows, overlay)
    levels = math.ceil(math.log2(count / CHUNK))
    worst = 0
    for _ in range(100):
        first, last = sorted(rng.choices(range(1, count + 1), k=2))
        for since in (None, (0, first)):
            tables = tree.tables((0, last), since)
            rows.asked = 0
            tables.get("registers", b"k%d" % (rng.randrange(count) ** 2 % keys))
            worst = max(worst, rows.asked)
    assert worst <= 6 * levels + 4
    worst = 0
    for _ in range(200):
        rows.asked = 0
        tree.tables((0, rng.randrange(1, count))).get("registers", b"k0")
        worst = max(worst, rows.asked)
    assert worst <= levels + 2, "what is small is one row, once it is found"
    rows.asked = 0
    assert tree.tables(tree.end).get("registers", b"k0") is not None
    assert rows.asked == 1, "the latest state is one row"


def test_keys_that_are_touched_here_and_there_lose_nothing() -> None:
    rows, overlay, rng = MemoryRows(), Seen(), Random(8)
    log, places = [], dict[bytes, list[int]]()
    for record in registers(15_000, 1):
        key = rng.choices([b"", b"rare", b"k%d" % rng.randrange(100)], [0.95, 0.01, 0.04])[0]
        body = LWW.encode({"key": key, "ts": 1, "value": b""})
        log.append(record._replace(body=body, schema=LWW.schema_id if key else None))
        places.setdefault(key, []).append(record.stream_seq)
    grow(rows, overlay, log)
    tree = TreeReader(rows, overlay)
    for _ in range(400):
        first, last = sorted(rng.choices(range(1, len(log) + 1), k=2))
        key = rng.choice([b"rare", b"k%d" % rng.randrange(100)])
        mine = [seq for seq in places[key] if first <= seq <= last]
        found = tree.tables((0, last), (0, first)).get("registers", key)
        assert sorted((found or {}).values()) == mine


class Seen(KeyedOverlay):
    """What was ever written to a register: summaries that grow."""

    name, schemas, monoid = "seen", (LWW,), SET
    table = "registers"

    def cell(self, event: Event) -> tuple[Key, Any]:
        return event.body["key"], {event.canonical_id: event.record.stream_seq}


@pytest.mark.sweep
@pytest.mark.parametrize("keys", [1, 40])
def test_summaries_that_grow_are_not_repeated_in_every_chunk(keys: int) -> None:
    rows, overlay, rng = Counting(), Seen(), Random(6)
    count = 5_000
    records = list(registers(count, keys))
    records = [*records, *(record._replace(epoch=1) for record in records[: 3 * CHUNK + 5])]
    grow(rows, overlay, records)
    assert sum(map(len, rows.values.values())) < 100 * count * math.log2(count / CHUNK)
    tree = TreeReader(rows, overlay)
    key = b"k%d" % (1 % keys)
    mine = [record for record in records if b"k%d" % (record.stream_seq**2 % keys) == key]
    levels = math.ceil(math.log2(count / CHUNK))
    for nth in [*rng.sample(range(len(records)), 40), CHUNK - 1, count - 1, count]:
        place = place_of(records[nth])
        expected = {record.msg_id: record.stream_seq for record in mine if place_of(record) <= place}
        rows.asked = 0
        assert tree.tables(place).get("registers", key) == expected
        assert rows.asked <= 6 * levels + 4
    assert tree.tables((1, 0)).get("registers", key) == {
        record.msg_id: record.stream_seq for record in mine if record.epoch == 0
    }


@pytest.mark.sweep
def test_adding_costs_the_same_however_long_the_log_is() -> None:
    rows, overlay = Counting(), LwwMap()
    costs = []
    for nth in range(30):
        rows.asked = 0
        grow(rows, overlay, list(registers(1000, 500, 1 + nth * 1000)))
        costs.append(rows.asked)
    levels = math.ceil(math.log2(30_000 / CHUNK))
    assert max(costs) <= 1000 * levels
    assert max(costs[20:]) <= 1.5 * max(costs[5:10])


def test_a_record_costs_at_most_a_row_for_each_level() -> None:
    rows, overlay = Counting(), LwwMap()
    writer = TreeWriter(rows, overlay, STREAM)
    worst = 0
    for record in registers(20_000, 1):
        rows.asked = 0
        writer.append(record)
        worst = max(worst, rows.asked)
    assert worst <= 3 + math.ceil(math.log2(20_000 / CHUNK))


def test_places_that_are_not_there(overlay: Overlay, grown: Grown) -> None:
    rows = MemoryRows()
    assert TreeReader(rows, overlay).clamp((4, 7)) == (0, 0)
    assert not any(TreeReader(rows, overlay).tally((0, 0)).values())
    tree = TreeReader(grown.rows, overlay)
    assert tree.clamp(None) == tree.clamp((21, 1)) == tree.end == (20, EPOCHS[20])
    assert tree.clamp((4, 1000)) == (4, 30)
    assert tree.clamp((8, 1)) == (4, 30)
    assert tree.clamp((2, 9)) == (0, 0)
    assert [item.epoch for item in tree.labels()] == list(EPOCHS)
    whole, later = tree.tally(tree.end), tree.tally(tree.end, (9, 1))
    assert later == tree.tally(tree.end, (5, 7)) == tree.tally(tree.end, (4, 31)), "nothing is between them"
    assert sum(whole.values()) - sum(later.values()) == EPOCHS[3] + EPOCHS[4]
    assert not any(tree.tally((4, 30), (4, 31)).values())
    assert len(tree.reports((4, 30), (6, 1))) == 0
    assert [item.epoch for item in tree.labels((9, 0))] == [3, 4]


def test_records_out_of_order_are_refused() -> None:
    writer = TreeWriter(MemoryRows(), LwwMap(), STREAM)
    records = list(registers(5, 1))
    with pytest.raises(FoldOrderError):
        writer.append(records[1])
    writer.append(records[0])
    for wrong in (records[0], records[2], records[1]._replace(epoch=1)):
        with pytest.raises(FoldOrderError):
            writer.append(wrong)


def test_rows_that_are_missing_or_damaged_are_told() -> None:
    rows, overlay = MemoryRows(), LwwMap()
    grow(rows, overlay, list(registers(2000, 3)))
    chunk = layout.chunk_key(0, 2)
    rows.values[chunk] = rows.values[chunk][:-1]
    with pytest.raises(DamagedTreeError):
        TreeReader(rows, overlay).tally((0, 600))
    del rows.values[layout.chunk_key(0, 7)]
    with pytest.raises(DamagedTreeError):
        TreeWriter(rows, overlay, STREAM)


def test_a_tree_of_another_format_is_no_tree() -> None:
    rows = MemoryRows()
    grow(rows, LwwMap(), list(registers(5, 1)))
    assert Meta.load(rows) is not None
    rows.values[layout.META] = b"\x84\x18\x63" + rows.values[layout.META][2:]
    assert Meta.load(rows) is None
