"""Views of ranges: what the events of a part of the log have done, as they counted in the whole."""

import os
from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement
from random import Random
from typing import Any

import pytest

from tests.overlays.histories import BRIDGE, HISTORIES, PARAMETERS, T0
from tests.overlays.histories_wallet import OWN_STREAM
from veen.overlays import registry
from veen.overlays.engine import Annotated, Fold, Summary, hash_state
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Record
from veen.overlays.overlay import Key, Overlay, Tables
from veen.overlays.summary_tree.reader import TreeReader
from veen.overlays.summary_tree.rows import CHUNK, MemoryRows
from veen.overlays.summary_tree.writer import TreeWriter

pytestmark = pytest.mark.sweep

BRIDGES = frozenset({BRIDGE})
#: So few that every range can be tried; ``make folds`` tries those of more.
SHORT = int(os.environ.get("VEEN_FOLD_RANGES", "30"))


def made(name: str) -> Overlay:
    return registry.overlay_class(name)(**PARAMETERS.get(name, {}))


@pytest.fixture(params=registry.names())
def overlay(request: pytest.FixtureRequest) -> Overlay:
    """Every overlay, configured as its history needs it."""
    return made(request.param)


@cache
def _records(name: str, count: int) -> list[Record]:
    return HISTORIES[name](Random(7), count)


def grown(overlay: Overlay, count: int) -> tuple[TreeReader, list[Annotated]]:
    rows = MemoryRows()
    writer = TreeWriter(rows, overlay, OWN_STREAM, BRIDGES)
    items = [writer.append(record) for record in _records(overlay.name, count)]
    writer.flush()
    return TreeReader(rows, overlay), items


def _of_cells(folding: Fold, items: list[Annotated]) -> Summary:
    summary = folding.empty()
    for item in items:
        folding.step(summary, item)
    return summary


def _hashed(overlay: Overlay, tables: Tables) -> bytes | str:
    """Return the hash of what a range has done, or why it can not be written: balances may be negative."""
    try:
        return hash_state(overlay, tables)
    except InvalidBodyError as error:
        return error.code


def _same(overlay: Overlay, tree: TreeReader, items: list[Annotated], first: int, last: int) -> None:
    folding = Fold(overlay)
    expected = folding.tables_of(_of_cells(folding, items[first - 1 : last]))
    tables = tree.tables((0, last), (0, first))
    assert overlay.view(tables, T0) == overlay.view(expected, T0), (first, last)
    assert _hashed(overlay, tables) == _hashed(overlay, expected)


def test_the_view_of_every_range_is_that_of_its_cells(overlay: Overlay) -> None:
    tree, items = grown(overlay, SHORT)
    for first, last in combinations_with_replacement(range(1, SHORT + 1), 2):
        _same(overlay, tree, items, first, last)


def test_views_of_ranges_that_cross_a_chunk(overlay: Overlay) -> None:
    count, rng = CHUNK + 20, Random(8)
    tree, items = grown(overlay, count)
    for _ in range(4):
        first, last = sorted(rng.choices(range(1, count + 1), k=2))
        _same(overlay, tree, items, first, last)


def _places(shown: Any) -> set[int]:
    """Return the numbers of all events that a view lists; not those of the last words of parties."""
    if isinstance(shown, list):
        return set[int]().union(*map(_places, shown))
    if isinstance(shown, dict):
        own = {shown["stream_seq"]} if "stream_seq" in shown else set[int]()
        return own.union(*(_places(item) for name, item in shown.items() if name != "parties"))
    return set()


@pytest.mark.parametrize("name", ["access", "agreement", "publication", "query.audit", "recovery"])
def test_a_range_lists_what_happened_in_it_and_nothing_else(name: str) -> None:
    overlay = made(name)
    count = 30
    tree, _ = grown(overlay, count)
    whole = _places(overlay.view(tree.tables(tree.end)))
    assert len(whole) > 3
    for first, last in combinations_with_replacement(range(1, count + 1), 2):
        found = _places(overlay.view(tree.tables((0, last), (0, first))))
        assert found == {seq for seq in whole if first <= seq <= last}


class _OnlyKeys:
    """Tables of which single keys are asked for."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, table: str, key: Key) -> Any:
        return self._tables.get(table, key)

    def items(self, table: str) -> Iterator[tuple[Key, Any]]:
        raise AssertionError(f"all of {table} is read for one key")


#: The table whose keys are those of ``view_key``.
_KEYS = {
    "crdt.lww": "registers",
    "crdt.orset": "members.count",
    "crdt.gcnt": "shards",
    "wallet": "wallets",
    "wallet.literal": "wallets",
    "paid.ledger": "balances",
    "rpc": "requests",
    "access": "grants.count",
    "delegated": "executions",
    "agreement": "versions.count",
    "publication": "latest",
    "snapshot": "snapshots",
    "recovery": "histories.count",
    "query.audit": "classes",
    "federation.mirror": "seen.count",
    "recorder": "types",
    "label.class": "classes",
}


def test_one_key_is_read_without_the_others(overlay: Overlay) -> None:
    tree, _ = grown(overlay, SHORT)
    for since in (None, (0, SHORT // 2)):
        tables = tree.tables(tree.end, since)
        keys = [key for key, _ in tables.items(_KEYS[overlay.name])]
        assert keys
        for key in keys:
            assert overlay.view_key(_OnlyKeys(tables), key, T0) == overlay.view_key(tables, key, T0)


@pytest.mark.parametrize("name", ["publication", "federation.mirror", "query.audit"])
def test_one_key_is_as_it_is_among_all(name: str) -> None:
    overlay = made(name)
    tree, _ = grown(overlay, 200)
    tables = tree.tables(tree.end)
    keys = [key for key, _ in tables.items(_KEYS[name])]
    shown: Any = overlay.view(tables)
    found: list[Any] = [overlay.view_key(tables, key) for key in keys]
    assert len(found) > 1
    if name == "publication":
        assert shown == {
            key.hex(): one for key, one in zip(keys, found, strict=True) if isinstance(key, bytes)
        }
    elif name == "federation.mirror":
        assert shown == found
        assert any(one["conflicts"] for one in found)
    else:
        assert {key: one["count"] for key, one in zip(keys, found, strict=True)} == shown["classes"]
        for one in found:
            assert one["queries"] == [
                row
                for row in shown["queries"]
                if row["resource_class"] == one["queries"][0]["resource_class"]
            ]
            assert len(one["queries"]) == one["count"]
