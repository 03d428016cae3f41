"""What overlays say of themselves, so that folds can be done in parts: who needs no past, who has groups."""

import pickle
from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from tests.overlays.histories import HISTORIES, PARAMETERS, STREAM
from veen.core.errors import CborError
from veen.overlays import registry
from veen.overlays.builtin.crdt import GCounter, LwwMap
from veen.overlays.engine import Annotator, Fold, Summary, fold, memory_of
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Decoder, Event, Record
from veen.overlays.operations.agreement import Agreements
from veen.overlays.operations.delegation import Delegated
from veen.overlays.operations.paid_ledger import PaidLedger
from veen.overlays.operations.publication import Publications
from veen.overlays.operations.recovery import Recoveries
from veen.overlays.overlay import Key, Lowered, Overlay, Tables
from veen.overlays.wallet.overlay import Wallets

SEEDS = range(6)


def made(name: str) -> Overlay:
    return registry.overlay_class(name)(**PARAMETERS.get(name, {}))


@pytest.fixture(params=registry.names())
def overlay(request: pytest.FixtureRequest) -> Overlay:
    return made(request.param)


class _NoPast:
    """Tables that nobody may look at."""

    def get(self, table: str, key: Key) -> Any:
        raise AssertionError(f"{table} was looked at: {key!r}")

    def items(self, table: str) -> Iterable[tuple[Key, Any]]:
        raise AssertionError(f"{table} was looked at")


def _event(overlay: Overlay, record: Record) -> Event | None:
    decoder = Decoder(overlay.schemas)
    schema = decoder.schema_of(record)
    if schema is None:
        return None
    try:
        return Event(record, schema, decoder.decode(record, schema), record.msg_id, STREAM)
    except InvalidBodyError:
        return None


def _lowered(overlay: Overlay, event: Event, before: Tables) -> Lowered:
    cells, reports = overlay.lower(event, before)
    return Lowered(list(cells), list(reports))


NEED_NO_PAST = ["crdt.gcnt", "crdt.lww", "delegated", "label.class", "recorder", "snapshot"]
GROUPED = ["access", "agreement", "federation.mirror", "paid.ledger", "publication", "query.audit"]


def test_which_overlays_need_no_past_and_which_have_groups() -> None:
    assert sorted(name for name in registry.names() if not made(name).needs_past) == NEED_NO_PAST
    assert sorted(name for name in registry.names() if made(name).grouped) == GROUPED


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NEED_NO_PAST)
def test_who_needs_no_past_does_not_look_at_it(name: str, seed: int) -> None:
    overlay = made(name)
    head = memory_of(overlay)
    annotator = Annotator(overlay, head, STREAM)
    done = 0
    for record in HISTORIES[overlay.name](Random(seed), 80):
        event = _event(overlay, record)
        if event is not None:
            assert _lowered(overlay, event, _NoPast()) == _lowered(overlay, event, head)
            done += 1
        annotator.annotate(record)
    assert done > 20
    assert not overlay.indexes


def _grouped(overlay: Overlay, records: list[Record], parts: int, rng: Random) -> Summary:
    """Fold the groups in several heaps, each by itself, and put the heaps together."""
    heap_of: dict[Key, int] = defaultdict(lambda: rng.randrange(parts))
    heads = [memory_of(overlay) for _ in range(parts)]
    annotators = [Annotator(overlay, head, STREAM) for head in heads]
    whole = Fold(overlay).empty()
    items = []
    for record in records:
        event = _event(overlay, record)
        heap = 0 if event is None else heap_of[overlay.group(event)]
        items.append(annotators[heap].annotate(record))
    for item in items:
        whole.counts[item.outcome] += 1
        whole.reports += item.reports
    for name, kind in overlay.tables.items():
        table = whole.tables[name]
        for head in heads:
            for key, value in head.tables[name].items():
                if key in table:
                    assert kind.commutes
                    table[key] = kind.merge(table[key], value)
                else:
                    table[key] = value
    return whole


def _other_parameters(overlay: Overlay) -> list[Overlay]:
    if isinstance(overlay, PaidLedger):
        return [overlay, PaidLedger(forbid_negative=True, default_currency="EUR"), PaidLedger()]
    return [overlay]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", GROUPED)
def test_groups_folded_apart_make_up_the_whole(name: str, seed: int) -> None:
    overlay = made(name)
    records = HISTORIES[overlay.name](Random(seed), 120)
    for each in _other_parameters(overlay):
        whole = fold(each, records, STREAM)
        whole.runs = []
        for parts in (1, 2, 5):
            found = _grouped(each, records, parts, Random(seed))
            assert Fold(each).encode(found) == Fold(each).encode(whole)


@pytest.mark.parametrize("name", sorted({*registry.names()} - {*GROUPED}))
def test_who_has_no_groups_names_none(name: str) -> None:
    overlay = made(name)
    found = (_event(overlay, record) for record in HISTORIES[name](Random(0), 80))
    with pytest.raises((NotImplementedError, AssertionError)):
        overlay.group(next(event for event in found if event is not None))


class TestDelegated:
    """What a delegated fold says is what its inner one does."""

    def test_alone_it_needs_no_past(self) -> None:
        assert not Delegated().needs_past
        assert not Delegated().grouped

    def test_with_another_it_is_as_that_one(self) -> None:
        assert not Delegated(inner=GCounter()).needs_past
        assert Delegated(inner=Publications()).needs_past
        assert Delegated(inner=Publications()).grouped
        assert not Delegated(inner=Recoveries()).grouped
        assert Delegated(inner=Wallets()).copies_by_parent

    @pytest.mark.parametrize("seed", SEEDS)
    def test_its_groups_are_those_of_what_is_carried(self, seed: int) -> None:
        inner = Agreements(**PARAMETERS.get("agreement", {}))
        overlay = Delegated(**{**PARAMETERS["delegated"], "inner": inner})
        carriers = HISTORIES["delegated"](Random(seed), 120)
        own = HISTORIES["agreement"](Random(seed), 120)
        records = []
        for nth, (one, other) in enumerate(zip(carriers, own, strict=True)):
            records += [_carrying(overlay, one, other), other._replace(msg_id=other.msg_id[::-1])]
            records[-2:] = [
                item._replace(stream_seq=2 * nth + place, hub_ts=one.hub_ts)
                for place, item in enumerate(records[-2:], 1)
            ]
        whole = fold(overlay, records, STREAM)
        whole.runs = []
        assert len(whole.tables["executions"]) > 20
        assert whole.tables["inner.definitions"]
        found = _grouped(overlay, records, 4, Random(seed))
        assert Fold(overlay).encode(found) == Fold(overlay).encode(whole)


def _carrying(overlay: Overlay, record: Record, other: Record) -> Record:
    """Let an execution carry another operation."""
    event = _event(overlay, record)
    if event is None or other.schema is None or event.name != overlay.schemas[0].name:
        return record
    body = {**event.body, "operation_schema": other.schema, "operation_body": other.body}
    try:
        return record._replace(body=overlay.schemas[0].encode(body))
    except (InvalidBodyError, CborError):
        return record


def test_an_overlay_travels_as_its_parameters(overlay: Overlay) -> None:
    again = pickle.loads(pickle.dumps(overlay))  # noqa: S301 - our own
    assert again == overlay
    assert again.identity == overlay.identity
    assert all(mine is other for mine, other in zip(overlay.schemas, again.schemas, strict=True))


def test_what_was_worked_out_does_not_travel() -> None:
    overlay = made("delegated")
    Fold(overlay).view(fold(overlay, HISTORIES["delegated"](Random(1), 60), STREAM))
    assert "_tokens" in vars(overlay)
    assert "_tokens" not in vars(pickle.loads(pickle.dumps(overlay)))  # noqa: S301 - our own
    assert LwwMap() == pickle.loads(pickle.dumps(LwwMap()))  # noqa: S301 - our own
