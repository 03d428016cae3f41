"""The laws of folds, for every overlay of the registry."""

import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.overlays.histories import BRIDGE, HISTORIES, PARAMETERS, ident, stream_of
from tests.overlays.reference_wallet import STREAM_REFERENCES
from tests.overlays.references import REFERENCES, refer
from veen.overlays import registry
from veen.overlays.engine import Annotated, Fold, Summary, annotate, fold
from veen.overlays.errors import FoldOrderError
from veen.overlays.event import Outcome, Record
from veen.overlays.overlay import Overlay

BRIDGES = frozenset({BRIDGE})
#: Small enough to try all splits, large enough for every kind of event to meet every other.
COUNT = 60
#: Each another history; ``make folds`` tries more.
SEEDS = int(os.environ.get("VEEN_FOLD_SEEDS", "6"))
QUICK_SEEDS = 2


def _made(name: str) -> Overlay:
    return registry.overlay_class(name)(**PARAMETERS.get(name, {}))


@pytest.fixture(params=registry.names())
def overlay(request: pytest.FixtureRequest) -> Overlay:
    """Every overlay, configured as its history needs it."""
    return _made(request.param)


def _annotated(overlay: Overlay, seed: int, count: int = COUNT) -> list[Annotated]:
    return list(annotate(overlay, HISTORIES[overlay.name](Random(seed), count), stream_of(seed), BRIDGES))


def _joined(folding: Fold, items: list[Annotated]) -> Summary:
    summary = folding.empty()
    for item in items:
        folding.step(summary, item)
    return summary


def _tree(folding: Fold, items: list[Annotated], rng: Random) -> Summary:
    """Join in a random grouping."""
    if len(items) <= 1:
        return _joined(folding, items)
    cut = rng.randrange(len(items) + 1)
    if cut in (0, len(items)):
        return _joined(folding, items)
    return folding.merge(_tree(folding, items[:cut], rng), _tree(folding, items[cut:], rng))


def test_every_overlay_has_a_history_and_a_reference() -> None:
    assert set(HISTORIES) == {*REFERENCES, *STREAM_REFERENCES} == set(registry.names())


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=[pytest.mark.sweep] if seed >= QUICK_SEEDS else []) for seed in range(SEEDS)],
)
class TestLaws:
    def test_no_records_change_nothing(self, overlay: Overlay, seed: int) -> None:
        folding = Fold(overlay)
        whole = _joined(folding, _annotated(overlay, seed))
        expected = folding.encode(whole)
        assert folding.encode(folding.merge(folding.empty(), whole)) == expected
        assert folding.encode(folding.merge(whole, folding.empty())) == expected

    def test_two_parts_join_to_the_whole_wherever_it_is_cut(self, overlay: Overlay, seed: int) -> None:
        folding = Fold(overlay)
        items = _annotated(overlay, seed)
        expected = folding.encode(_joined(folding, items))
        for cut in range(len(items) + 1):
            left, right = _joined(folding, items[:cut]), _joined(folding, items[cut:])
            assert folding.encode(folding.merge(left, right)) == expected

    def test_three_parts_join_in_either_order_of_joining(self, overlay: Overlay, seed: int) -> None:
        folding, rng = Fold(overlay), Random(seed)
        items = _annotated(overlay, seed)
        for _ in range(20):
            low, high = sorted(rng.sample(range(len(items) + 1), 2))
            a, b, c = (_joined(folding, part) for part in (items[:low], items[low:high], items[high:]))
            left = folding.merge(folding.merge(a, b), c)
            right = folding.merge(a, folding.merge(b, c))
            assert folding.encode(left) == folding.encode(right)

    def test_any_tree_gives_the_same_bytes(self, overlay: Overlay, seed: int) -> None:
        folding, rng = Fold(overlay), Random(seed)
        items = _annotated(overlay, seed, 200)
        expected = folding.encode(_joined(folding, items))
        for _ in range(5):
            assert folding.encode(_tree(folding, items, rng)) == expected

    def test_joining_changes_neither_part(self, overlay: Overlay, seed: int) -> None:
        folding = Fold(overlay)
        items = _annotated(overlay, seed)
        left, right = _joined(folding, items[:30]), _joined(folding, items[30:])
        before = folding.encode(left), folding.encode(right)
        folding.merge(left, right)
        assert (folding.encode(left), folding.encode(right)) == before

    def test_a_summary_is_its_bytes(self, overlay: Overlay, seed: int) -> None:
        folding = Fold(overlay)
        data = folding.encode(_joined(folding, _annotated(overlay, seed)))
        again = folding.decode(data)
        assert folding.encode(again) == data
        assert folding.view(again) == folding.view(_joined(folding, _annotated(overlay, seed)))

    def test_a_range_that_is_not_the_next_is_refused(self, overlay: Overlay, seed: int) -> None:
        folding = Fold(overlay)
        items = _annotated(overlay, seed)
        left, right = _joined(folding, items[:20]), _joined(folding, items[30:])
        with pytest.raises(FoldOrderError):
            folding.merge(left, right)
        with pytest.raises(FoldOrderError):
            folding.merge(right, left)

    def test_the_fold_is_what_the_reference_says_at_every_position(self, overlay: Overlay, seed: int) -> None:
        records = HISTORIES[overlay.name](Random(seed), COUNT)
        stream = stream_of(seed)
        for upto in range(0, COUNT + 1, 7):
            found = Fold(overlay).view(fold(overlay, records[:upto], stream, BRIDGES))
            assert found == refer(overlay.name, records[:upto], stream)

    def test_a_copy_of_every_event_changes_nothing(self, overlay: Overlay, seed: int) -> None:
        records = HISTORIES[overlay.name](Random(seed), COUNT)
        folding, stream = Fold(overlay), stream_of(seed)
        once = fold(overlay, records, stream, BRIDGES)
        twice = fold(overlay, [*records, *_copies(records)], stream, BRIDGES)
        assert folding.view(twice) == folding.view(once)
        assert folding.state_hash(twice) == folding.state_hash(once)
        assert twice.counts[Outcome.EVENT] == once.counts[Outcome.EVENT]

    def test_counts_are_of_all_records(self, overlay: Overlay, seed: int) -> None:
        summary = fold(overlay, HISTORIES[overlay.name](Random(seed), COUNT), stream_of(seed), BRIDGES)
        assert sum(summary.counts.values()) == COUNT
        assert sum(summary.counts[kind] > 0 for kind in Outcome) >= 3, "a history has more than events"


def _copies(records: list[Record]) -> Iterator[Record]:
    for nth, record in enumerate(records):
        yield record._replace(
            stream_seq=len(records) + 1 + nth,
            msg_id=ident("copy", nth),
            client_id=BRIDGE,
            client_seq=10_000 + nth,
            parent_id=record.parent_id if record.client_id == BRIDGE and record.parent_id else record.msg_id,
        )


def test_another_parameter_or_version_is_another_fold(overlay: Overlay) -> None:
    identity = overlay.identity
    other: Any = type("Other", (type(overlay),), {"version": overlay.version + 1})
    assert other(**PARAMETERS.get(overlay.name, {})).identity != identity
    assert _made(overlay.name).identity == identity
