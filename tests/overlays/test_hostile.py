"""Bodies that are as large, as deep and as odd as a schema allows: no fold stumbles over any of them."""

from random import Random
from typing import Any

import pytest

from tests.overlays.histories import BRIDGE, PARAMETERS
from tests.overlays.logs import STREAM, Log
from veen.core.encoding import cbor
from veen.core.encoding.field_types import Kind, ListOf
from veen.core.errors import ProtocolError
from veen.overlays import registry
from veen.overlays.engine import Fold, annotate, fold
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Outcome
from veen.overlays.schema import ANY, ANY_MAP, Inner, OrNull, Schema

_DEEP: Any = 0
for _ in range(cbor.MAX_DEPTH):
    _DEEP = {"a": _DEEP}
_WIDE = [b"\x00" * 32] * 5000
_TEXTS = ["", "\x00", "\u202e", "\U0010ffff" * 50, "a" * 5000, "accept", "approve", "EUR"]


def _value(kind: Kind, rng: Random) -> Any:
    """Return a value of a kind, from its edges."""
    if isinstance(kind, OrNull):
        return None if rng.random() < 0.2 else _value(kind.kind, rng)
    if isinstance(kind, ListOf):
        return [_value(kind.kind, rng) for _ in range(rng.choice([0, 1, 3, 40]))]
    if isinstance(kind, Inner):
        return {item.name: _value(item.kind, rng) for item in kind.shape.fields}
    if kind is ANY or kind is ANY_MAP:
        return rng.choice([_DEEP, {"": _WIDE}, {}, *([] if kind is ANY_MAP else [None, 2**64 - 1, "", []])])
    made: dict[str, Any] = {
        "uint": rng.choice([0, 1, 86_399, 2**63, 2**64 - 1]),
        "int": rng.choice([0, -1, -(2**64) + 1, 2**64 - 1]),
        'text = "sdr0"': "sdr0",
        "text": rng.choice(_TEXTS),
        "bool": rng.random() < 0.5,
        "bytes(32)": bytes([rng.randrange(3)]) * 32,
    }
    return made.get(kind.name, rng.randbytes(rng.choice([0, 1, 32, 4000])))


def _body(schema: Schema, rng: Random) -> bytes | None:
    made = {
        field.name: _value(OrNull(field.kind) if field.optional else field.kind, rng)
        for field in schema.fields
    }
    try:
        data = schema.encode(made)
        schema.decode(data)
    except (InvalidBodyError, ProtocolError, TypeError):
        return None
    return data


@pytest.mark.sweep
@pytest.mark.parametrize("name", registry.names())
def test_no_body_stops_a_fold(name: str) -> None:
    overlay = registry.overlay_class(name)(**PARAMETERS.get(name, {}))
    rng, log = Random(name), Log(Random(name))
    while len(log.records) < 300:
        schema = rng.choice(overlay.schemas)
        data = _body(schema, rng)
        if data is not None:
            parent = rng.choice([None, None, *(record.msg_id for record in log.records[-3:])])
            log.add(schema, data, parent_id=parent, client_id=rng.choice([None, None, bytes(32), BRIDGE]))
    folding = Fold(overlay)
    whole = fold(overlay, log.records, STREAM, frozenset({BRIDGE}))
    assert whole.counts[Outcome.EVENT] > 20
    items = list(annotate(overlay, log.records, STREAM, frozenset({BRIDGE})))
    left, right = folding.empty(), folding.empty()
    for item in items[:150]:
        folding.step(left, item)
    for item in items[150:]:
        folding.step(right, item)
    data = folding.encode(folding.merge(left, right))
    assert data == folding.encode(whole)
    assert folding.encode(folding.decode(data)) == data
    folding.view(whole, now=2**63)
    for now in (None, 0, 2**64):
        folding.view(whole, now)
