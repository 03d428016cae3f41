"""The audit of queries, and records of mirrors."""

from typing import Any

import pytest

from tests.overlays.logs import T0, WRITERS, ident
from tests.overlays.operation_log import Operations
from veen.overlays import registry
from veen.overlays.builtin.mirror import Mirrors
from veen.overlays.operations.query_audit import QueryAudit
from veen.overlays.operations.schemas import MIRROR, QUERY


class Desk(Operations):
    """Queries."""

    def ask(self, resource: str, kind: str = "health", **more: Any) -> None:
        """Append a query."""
        values: dict[str, Any] = {
            "requester_identity": WRITERS[1],
            "resource_identifier": resource,
            "resource_class": kind,
        }
        self.op(QUERY, WRITERS[0], **values, **more)


@pytest.fixture
def desk() -> Desk:
    log = Desk()
    log.ask("p/1", request_time=500, purpose_code="care")
    log.ask("p/2", "money")
    log.ask("q/1", request_time=100)
    return log


def test_queries_are_in_the_order_of_the_log(desk: Desk) -> None:
    overlay = QueryAudit()
    rows = list(overlay.queries(desk.fold(overlay)[0]))
    assert [row["resource_identifier"] for row in rows] == ["p/1", "p/2", "q/1"]
    assert [row["time"] for row in rows] == [500, T0 + 2, 100], "the hub's time stands in for none"


def test_queries_about_several_resources_are_found_by_each(desk: Desk) -> None:
    desk.ask("r/1,s/1", metadata={"resources": ["r/1", "s/1", 7]})
    overlay = QueryAudit()
    tables = desk.fold(overlay)[0]
    found = [[row["stream_seq"] for row in overlay.queries(tables, resource_prefix=name)] for name in "rst"]
    assert found == [[4], [4], []]


@pytest.mark.parametrize(
    ("filters", "places"),
    [
        ({"resource_prefix": "p/"}, [1, 2]),
        ({"since": 100}, [1, 2, 3]),
        ({"since": 101}, [1, 2]),
        ({"until": 500}, [3]),
        ({"since": T0, "resource_prefix": "p/"}, [2]),
        ({"resource_prefix": "none"}, []),
    ],
)
def test_filters(desk: Desk, filters: Any, places: list[int]) -> None:
    overlay = QueryAudit()
    rows = overlay.queries(desk.fold(overlay)[0], **filters)
    assert [row["stream_seq"] for row in rows] == places


def test_classes_are_counted(desk: Desk) -> None:
    overlay = registry.overlay_class("audit")()
    tables = desk.fold(overlay)[0]
    found: Any = overlay.view_key(tables, overlay.parse_key("health"))
    assert (found["count"], [row["stream_seq"] for row in found["queries"]]) == (2, [1, 3])
    assert overlay.view_key(tables, "none") is None
    view: Any = overlay.view(tables)
    assert view["classes"] == {"money": 1, "health": 2}


# --- mirrors ------------------------------------------------------------------------------------------------

SOURCE, TARGET = ident("source"), ident("target")


class Road(Operations):
    """Records of a mirror."""

    def saw(self, seq: int, leaf: str = "leaf", **more: Any) -> None:
        """Append a record."""
        values: dict[str, Any] = {
            "source_hub_identifier": "hub",
            "source_label": SOURCE,
            "source_stream_seq": seq,
            "source_leaf_hash": ident(leaf, seq),
            "source_receipt_root": ident("root", seq),
            "target_label": TARGET,
            **more,
        }
        self.op(MIRROR, WRITERS[0], **values)


def _seen(log: Road) -> Any:
    overlay = registry.overlay_class("mirror")()
    key = overlay.parse_key(f"hub,{SOURCE.hex()},{TARGET.hex()}")
    return overlay.view_key(log.fold(overlay)[0], key)


def test_gaps_are_found_in_whatever_order_records_come() -> None:
    log = Road()
    for seq in (7, 3, 2, 8):
        log.saw(seq)
    found = _seen(log)
    assert (found["ranges"], found["gaps"]) == ([[2, 3], [7, 8]], [[1, 1], [4, 6]])
    assert (found["records"], found["duplicates"], found["conflicts"]) == (4, 0, [])


def test_the_first_record_of_an_entry_counts() -> None:
    log = Road()
    log.saw(1)
    log.saw(1)
    log.saw(1, leaf="another")
    assert log.codes(Mirrors()) == [(2, "OP.MIRROR_DUPLICATE"), (3, "OP.MIRROR_CONFLICT")]
    found = _seen(log)
    assert (found["records"], found["duplicates"]) == (3, 2)
    (conflict,) = found["conflicts"]
    assert conflict["first"]["source_leaf_hash"] == ident("leaf", 1).hex()
    assert conflict["other"]["source_leaf_hash"] == ident("another", 1).hex()


def test_a_label_is_no_mirror_of_itself() -> None:
    log = Road()
    log.saw(1, target_label=SOURCE)
    assert log.codes(Mirrors()) == [(1, "OP.MIRROR_LOOP")]
    assert _seen(log) is None


def test_roads_are_apart() -> None:
    log = Road()
    log.saw(1)
    log.saw(2, target_label=ident("third"))
    log.saw(3, source_hub_identifier="other")
    assert _seen(log)["ranges"] == [[1, 1]]
    view: Any = Mirrors().view(log.fold(Mirrors())[0])
    assert len(view) == 3
