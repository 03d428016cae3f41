"""The set: which additions make up an element, at the end, at a position, and over a range."""

from itertools import combinations_with_replacement
from random import Random

import pytest

from tests.overlays.histories import BRIDGE, HISTORIES, STREAM, Log, ident
from veen.overlays.builtin.crdt import ORSET, OrSet
from veen.overlays.engine import Fold, annotate, fold
from veen.overlays.event import Record

COUNT = 40


def _plain(records: list[Record], first: int, last: int) -> dict[bytes, set[bytes]]:
    """Return the additions of each element that a range makes and does not remove, one by one."""
    seen: set[bytes] = set()
    tombs: set[bytes] = set()
    found: dict[bytes, set[bytes]] = {}
    for record in records[:last]:
        body = ORSET.decode(record.body)
        if body.get("tomb") is not None:
            tombs.update(body["tomb"])
            for ids in found.values():
                ids.difference_update(body["tomb"])
        elif body["id"] not in seen:
            seen.add(body["id"])
            if body["id"] not in tombs and record.stream_seq >= first:
                found.setdefault(body["elem"], set()).add(body["id"])
    return {elem: ids for elem, ids in found.items() if ids}


def _history(seed: int) -> list[Record]:
    rng = Random(seed)
    log = Log(rng)
    for _ in range(COUNT):
        if rng.random() < 0.6:
            log.event(ORSET, id=ident(rng.randrange(COUNT)), elem=b"e%d" % rng.randrange(3))
        else:
            log.event(ORSET, tomb=tuple(ident(rng.randrange(COUNT)) for _ in range(rng.randrange(6))))
    return log.records


@pytest.mark.parametrize("seed", range(4))
def test_a_range_has_what_it_adds_and_does_not_remove(seed: int) -> None:
    overlay, records = OrSet(), _history(seed)
    folding, items = Fold(overlay), list(annotate(overlay, records, STREAM))
    emptied = 0
    for first, last in combinations_with_replacement(range(1, COUNT + 1), 2):
        summary = folding.empty()
        for item in items[first - 1 : last]:
            folding.step(summary, item)
        tables, expected = folding.tables_of(summary), _plain(records, first, last)
        assert overlay.serialized(tables) == sorted(expected)
        for elem in (b"e0", b"e1", b"e2"):
            ids = sorted(expected.get(elem, ()))
            assert overlay.ids(tables, elem) == tuple(ids)
            shown = {"present": bool(ids), "ids": [one.hex() for one in ids]}
            assert overlay.view_key(tables, elem) == shown
            emptied += not ids
    assert emptied > COUNT, "elements go as well"


def test_what_a_removal_names_goes_and_nothing_else() -> None:
    log, overlay = Log(Random(1)), OrSet()
    one, two, late = ident(1), ident(2), ident(3)
    log.event(ORSET, id=one, elem=b"e")
    log.event(ORSET, id=two, elem=b"e")
    ids = overlay.ids(Fold(overlay).tables_of(fold(overlay, log.records, STREAM)), b"e")
    assert ids == tuple(sorted((one, two)))
    log.event(ORSET, id=late, elem=b"e")
    log.event(ORSET, tomb=ids)
    found = fold(overlay, log.records, STREAM)
    assert overlay.ids(Fold(overlay).tables_of(found), b"e") == (late,)
    assert Fold(overlay).view(found) == ["e"]
    log.event(ORSET, tomb=(late,))
    log.event(ORSET, id=late, elem=b"e")  # an id that was used
    assert Fold(overlay).view(fold(overlay, log.records, STREAM)) == []


def test_nothing_is_known_of_what_was_never_added() -> None:
    tables = Fold(OrSet()).tables_of(
        fold(OrSet(), HISTORIES["crdt.orset"](Random(1), 30), STREAM, frozenset({BRIDGE}))
    )
    assert OrSet().ids(tables, b"another") == ()
