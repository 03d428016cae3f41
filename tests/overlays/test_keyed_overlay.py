"""Overlays of users: what a class declares, what it becomes, and how mistakes are reported."""

import dataclasses
import pickle
from random import Random
from typing import Any

import pytest

from tests.overlays.logs import STREAM, WRITERS, Log, spoil
from veen import overlays
from veen.overlays import (
    COUNT,
    FIRST,
    MAX,
    SET,
    SUM,
    TEXT,
    Event,
    Field,
    InvalidBodyError,
    KeyedOverlay,
    OverlayError,
    Schema,
    first,
)
from veen.overlays.builtin.crdt import GCounter, LwwMap
from veen.overlays.engine import Fold, Summary, annotate, fold, state_hash
from veen.overlays.errors import ParameterError
from veen.overlays.event import Outcome
from veen.overlays.parameters import configured

VOTE = Schema("example.vote.v1", Field("choice", TEXT))


class Votes(KeyedOverlay):
    name, schemas, monoid = "votes", (VOTE,), SUM

    weight: int = 1
    ignored: str = ""

    def cell(self, event: Event) -> tuple[str, int] | None:
        choice = event.body["choice"]
        return None if choice == self.ignored else (choice, self.weight)


def poll(*choices: str) -> Log:
    log = Log(Random(1))
    for choice in choices:
        log.event(VOTE, choice=choice)
    return log


def folded(overlay: KeyedOverlay, log: Log) -> Summary:
    return fold(overlay, log.records, STREAM)


class TestVotes:
    def test_values_of_one_key_are_joined(self) -> None:
        summary = folded(Votes(), poll("tea", "coffee", "tea"))
        assert Fold(Votes()).view(summary) == {"tea": 2, "coffee": 1}
        tables = Fold(Votes()).tables_of(summary)
        assert Votes().view_key(tables, Votes().parse_key("tea")) == 2
        assert Votes().view_key(tables, "water") is None
        assert Fold(Votes()).state_hash(summary) == state_hash("votes", {"tea": 2, "coffee": 1})

    def test_an_event_that_does_not_count_is_none(self) -> None:
        summary = folded(Votes(ignored="tea"), poll("tea", "coffee", "tea"))
        assert Fold(Votes()).view(summary) == {"coffee": 1}
        assert summary.counts[Outcome.EVENT] == 3

    def test_annotated_attributes_are_parameters_of_a_frozen_class(self) -> None:
        overlay = configured(Votes, {"weight": "3"})
        assert overlay == Votes(weight=3)
        assert overlay.identity != Votes().identity
        assert overlay.parameters() == {"weight": 3, "ignored": ""}
        assert pickle.loads(pickle.dumps(overlay)) == overlay  # noqa: S301 - our own
        with pytest.raises(dataclasses.FrozenInstanceError):
            overlay.weight = 4  # type: ignore[misc] # that it is frozen is the test
        with pytest.raises(ParameterError):
            configured(Votes, {"width": "3"})

    def test_ranges_join_to_the_whole_wherever_they_are_cut(self) -> None:
        log = Log(Random(2))
        for _ in range(60):
            if log.rng.random() < 0.3:
                spoil(log, (VOTE,), by_parent=False)
            else:
                log.event(VOTE, choice=log.rng.choice(["tea", "coffee", "water"]))
        folding = Fold(Votes())
        items = list(annotate(Votes(), log.records, STREAM))
        whole = folding.encode(folded(Votes(), log))
        for cut in range(len(items) + 1):
            left, right = folding.empty(), folding.empty()
            for item in items[:cut]:
                folding.step(left, item)
            for item in items[cut:]:
                folding.step(right, item)
            assert folding.encode(folding.merge(left, right)) == whole


def test_a_subclass_with_another_name_is_another_state() -> None:
    class Other(Votes):
        name = "others"

    class Newer(Votes):
        version = 2

    assert (Other.state_class, Newer.state_class) == ("others", "votes")
    assert Newer().identity != Votes().identity


def test_a_name_may_come_from_a_class_that_is_not_an_overlay() -> None:
    class Named:
        name = "named"

    class Declared(Named, Votes):
        state_class = "kept"

    unnamed = {attribute: value for attribute, value in RIGHT.items() if attribute != "name"}
    mixed: Any = type("Mixed", (Named, KeyedOverlay), unnamed)
    assert (mixed.name, mixed.state_class) == ("named", "named")
    assert Declared.state_class == "kept"


class TestKeysAndSummaries:
    def test_bytes_are_shown_and_named_in_hex(self) -> None:
        class Last(KeyedOverlay):
            name, schemas, monoid = "last", (VOTE,), MAX

            def cell(self, event: Event) -> Any:
                return event.record.client_id, (event.position, event.body["choice"])

        log = Log(Random(1))
        log.event(VOTE, WRITERS[0], choice="tea")
        record = log.event(VOTE, WRITERS[0], choice="coffee")
        summary = folded(Last(), log)
        who = f"0x{WRITERS[0].hex()}"
        shown = [[0, 2, record.msg_id.hex()], "coffee"]
        assert Fold(Last()).view(summary) == {who: shown}
        assert Last().view_key(Fold(Last()).tables_of(summary), Last().parse_key(who)) == shown
        assert Last().parse_key("0xyz") == "0xyz"

    def test_tuples_are_keys_too(self) -> None:
        class Pairs(KeyedOverlay):
            name, schemas, monoid = "pairs", (VOTE,), SET

            def cell(self, event: Event) -> Any:
                return (event.record.client_id, event.body["choice"]), {event.record.msg_id: 1}

        log = Log(Random(1))
        record = log.event(VOTE, WRITERS[0], choice="tea")
        shown = Fold(Pairs()).view(folded(Pairs(), log))
        assert shown == {f"{WRITERS[0].hex()},tea": {record.msg_id.hex(): 1}}

    def test_ids_of_a_set_may_be_tuples(self) -> None:
        overlay = _returning(("tea", {(b"\x01", 2): "x"}), SET)
        assert Fold(overlay).view(folded(overlay, poll("tea"))) == {"tea": {"01,2": "x"}}

    def test_a_key_of_text_that_looks_like_hex_is_found(self) -> None:
        summary = folded(Votes(), poll("0xab", "0xab"))
        assert Fold(Votes()).view(summary) == {"0xab": 2}
        assert Votes().view_key(Fold(Votes()).tables_of(summary), Votes().parse_key("0xab")) == 2


def _returning(result: object, kind: Any = SUM) -> KeyedOverlay:
    class Wrong(KeyedOverlay):
        name, schemas, monoid = "wrong", (VOTE,), kind

        def cell(self, event: Event) -> Any:  # noqa: ARG002 - whatever the event is
            return result

    return Wrong()


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (1, "returned 1: return (key, value), or None"),
        (("tea",), "return (key, value)"),
        (["tea", 1], "return (key, value)"),
        ((1, 1), "the key 1: a key is text, bytes"),
        (((), 1), "a key is text, bytes"),
        ((("tea", 1.5), 1), "a key is text, bytes"),
        (("tea", "1"), "the value '1': SUM joins integers"),
        (("tea", True), "SUM joins integers"),
        (("tea", 0.5), "SUM joins integers"),
        ((("tea", -1), 1), "integers from 0"),
        ((("tea", 2**64), 1), "integers from 0"),
    ],
)
def test_a_wrong_cell_is_one_clear_line(result: object, told: str) -> None:
    with pytest.raises(OverlayError) as caught:
        folded(_returning(result), poll("tea"))
    assert told in str(caught.value)
    assert str(caught.value).startswith("Wrong.cell returned")
    assert "\n" not in str(caught.value)


PLACE = (0, 1, b"m")


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (MAX, (PLACE, 1), 1),
        (MAX, ((5, *PLACE), "x"), ()),
        (FIRST, first(PLACE, b"content"), (PLACE, b"content", 3)),
        (COUNT, (1, PLACE, PLACE), 1),
        (SET, {b"a": 1}, {b"a"}),
        (overlays.LOWEST, (-1, -1), (1, None)),
    ],
)
def test_each_monoid_knows_its_summaries(kind: Any, right: object, wrong: object) -> None:
    folded(_returning(("tea", right), kind), poll("tea", "tea"))
    with pytest.raises(OverlayError, match="the value"):
        folded(_returning(("tea", wrong), kind), poll("tea"))


@pytest.mark.parametrize("content", [0.5, -1, 2**64, object(), {1}, [0.5], {"a": 0.5}, {b"a": 1}, {0.5: 1}])
@pytest.mark.parametrize("kind", [MAX, FIRST, SET])
def test_a_value_without_an_encoding_is_one_clear_line(kind: Any, content: Any) -> None:
    value = (
        {b"id": content} if kind is SET else first(PLACE, b"", content) if kind is FIRST else (PLACE, content)
    )
    with pytest.raises(OverlayError, match=r"^Wrong.cell returned the value .*: it may contain null, bool"):
        folded(_returning(("tea", value), kind), poll("tea"))


def test_what_a_value_may_contain_is_stored() -> None:
    content = (None, True, "a", b"b", 2**64 - 1, [1, {"a": {3: b""}}])
    summary = folded(_returning(("tea", (PLACE, content)), MAX), poll("tea"))
    data = Fold(_returning(None, MAX)).encode(summary)
    assert Fold(_returning(None, MAX)).encode(Fold(_returning(None, MAX)).decode(data)) == data


def test_a_sum_beyond_64_bits_has_no_hash_but_a_state() -> None:
    summary = folded(_returning(("tea", 2**63)), poll("tea", "tea"))
    folding = Fold(_returning(None))
    assert folding.view(summary) == {"tea": 2**64}
    with pytest.raises(InvalidBodyError) as caught:
        folding.state_hash(summary)
    assert caught.value.code == "STATE.OVERFLOW"


def _cell(_: object, event: Event) -> Any:
    return event.body["choice"], 1


RIGHT: dict[str, Any] = {"name": "votes", "schemas": (VOTE,), "monoid": SUM, "cell": _cell}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": None}, "Declared has no name"),
        ({"name": ""}, "has no name"),
        ({"name": 5}, "has no name"),
        ({"schemas": None}, "has no schemas"),
        ({"schemas": ()}, "has no schemas"),
        ({"schemas": VOTE}, "has no schemas"),
        ({"schemas": ("example.vote.v1",)}, "has no schemas"),
        ({"monoid": None}, "not a monoid"),
        ({"monoid": sum}, "not a monoid"),
        ({"monoid": type(SUM)}, "not a monoid"),
        ({"tables": {"a": SUM, "b": SUM}}, "has one table"),
        ({"version": 1.5}, "Declared: version is 1.5: write an integer"),
        ({"table": 5}, "Declared: table is 5: write a text"),
        ({"state_class": b"x"}, "Declared: state_class is b'x': write a text"),
        ({"cell": None}, "no method cell"),
        ({"__annotations__": {"name": str}}, "write name = ... without an annotation"),
    ],
)
def test_a_wrong_declaration_is_one_clear_line(changes: dict[str, Any], told: str) -> None:
    declared = {name: value for name, value in {**RIGHT, **changes}.items() if value is not None}
    with pytest.raises(OverlayError) as caught:
        type("Declared", (KeyedOverlay,), declared)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert type("Declared", (KeyedOverlay,), RIGHT)().name == "votes"


def test_built_in_overlays_of_one_table_are_declared_the_same_way() -> None:
    assert issubclass(LwwMap, KeyedOverlay)
    assert issubclass(GCounter, KeyedOverlay)
    assert (dict(LwwMap.tables), LwwMap.state_class) == ({"registers": MAX}, "lww.map")
    assert (dict(GCounter.tables), GCounter.state_class) == ({"shards": SUM}, "counter.map")


def test_every_public_name_is_there_and_the_list_is_sorted() -> None:
    assert all(getattr(overlays, name) is not None for name in overlays.__all__)
    assert set(overlays.__all__) <= set(dir(overlays))
