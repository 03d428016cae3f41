"""Every overlay beside its reference, over many random logs, and over logs of several epochs.

``make folds`` does the same for millions of events.
"""

import os
from random import Random

import pytest

from tests.overlays.histories import BRIDGE, HISTORIES, PARAMETERS, stream_of
from tests.overlays.references import refer
from veen.overlays import registry
from veen.overlays.engine import Fold, annotate, fold
from veen.overlays.errors import FoldOrderError
from veen.overlays.event import Record
from veen.overlays.overlay import Overlay

#: For all overlays together.
EVENTS = int(os.environ.get("VEEN_FOLD_EVENTS", "100000"))
BRIDGES = frozenset({BRIDGE})
LOG = 400


def _made(name: str) -> Overlay:
    return registry.overlay_class(name)(**PARAMETERS.get(name, {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names())
def test_folds_agree_with_their_references(name: str) -> None:
    overlay = _made(name)
    rounds = max(1, EVENTS // len(registry.names()) // LOG)
    for seed in range(rounds):
        rng = Random(f"{name}/{seed}")
        records, stream = HISTORIES[name](rng, LOG), stream_of(seed)
        for upto in (rng.randrange(LOG), LOG):
            found = Fold(overlay).view(fold(overlay, records[:upto], stream, BRIDGES))
            assert found == refer(name, records[:upto], stream), (seed, upto)


def _in_epochs(records: list[Record], cuts: list[int]) -> list[Record]:
    """Spread a log over labels: each has numbers of its own."""
    made = []
    for epoch, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(records)], strict=True)):
        for seq, record in enumerate(records[first:last], 1):
            made.append(record._replace(epoch=10 + epoch, stream_seq=seq))
    return made


@pytest.fixture(params=registry.names())
def overlay(request: pytest.FixtureRequest) -> Overlay:
    return _made(request.param)


def test_a_stream_is_the_product_of_its_labels(overlay: Overlay) -> None:
    folding = Fold(overlay)
    records = _in_epochs(HISTORIES[overlay.name](Random(3), 90), [30, 31, 70])
    items = list(annotate(overlay, records, stream_of(3), BRIDGES))
    whole = fold(overlay, records, stream_of(3), BRIDGES)
    parts = []
    for epoch in (10, 11, 12, 13):
        part = folding.empty()
        for item in items:
            if item.epoch == epoch:
                folding.step(part, item)
        parts.append(part)
    left = folding.merge(folding.merge(parts[0], parts[1]), folding.merge(parts[2], parts[3]))
    assert folding.encode(left) == folding.encode(whole)
    assert [run[0] for run in whole.runs] == [10, 11, 12, 13]
    with pytest.raises(FoldOrderError):
        folding.merge(parts[2], parts[1])


def test_a_later_label_begins_at_its_first_entry(overlay: Overlay) -> None:
    folding = Fold(overlay)
    records = _in_epochs(HISTORIES[overlay.name](Random(3), 20), [10])
    items = list(annotate(overlay, records, stream_of(3), BRIDGES))
    left, right = folding.empty(), folding.empty()
    for item in items[:10]:
        folding.step(left, item)
    for item in items[11:]:
        folding.step(right, item)
    with pytest.raises(FoldOrderError):
        folding.merge(left, right)
