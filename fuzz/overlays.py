"""Bodies of events, and folds over them: both come from untrusted senders."""

from collections.abc import Iterator
from random import Random

from fuzz.runner import Run, Skipped, Target
from tests import builders as make
from tests.overlays.histories import BRIDGE, HISTORIES, PARAMETERS
from tests.overlays.histories_wallet import OWN_STREAM
from tests.overlays.logs import WRITERS
from veen.overlays import registry
from veen.overlays.builtin.crdt import LwwMap
from veen.overlays.certificate import StateCertificate
from veen.overlays.engine import Annotator, Fold, memory_of
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Record
from veen.overlays.overlay import Overlay
from veen.overlays.schema import Schema

_BEFORE = 30
_SEEDS = 3


def _records(name: str) -> list[Record]:
    return HISTORIES[name](Random(1), 200)  # noqa: S311 - the same ones each time


def _bodies(schema: Schema, overlay: str) -> tuple[bytes, ...]:
    """Return valid bodies of a schema."""
    bodies: dict[bytes, None] = {}
    for record in _records(overlay):
        if record.schema == schema.schema_id:
            try:
                schema.decode(record.body)
            except InvalidBodyError:
                continue
            bodies[record.body] = None
    return tuple(bodies)[:_SEEDS]


def _body_target(schema: Schema) -> Run:
    def run(data: bytes) -> None:
        try:
            body = schema.decode(data)
        except InvalidBodyError:
            raise Skipped from None
        assert schema.encode(body) == data
        schema.to_json(body)

    return run


def _fold_target(overlay: Overlay, before: list[Record], schema: Schema) -> Run:
    """Return a function that folds a log with an unchecked body, and reads the whole state."""

    def run(data: bytes) -> None:
        head = memory_of(overlay)
        annotator = Annotator(overlay, head, OWN_STREAM, frozenset({BRIDGE}))
        last = Record(_BEFORE + 1, b"\x07" * 32, WRITERS[0], 999, 2**32, schema.schema_id, data)
        for record in (*before, last):
            annotator.annotate(record)
        overlay.view(head, 2**32)
        folding = Fold(overlay)
        summary = folding.empty()
        summary.tables = {name: head.tables[name] for name in overlay.tables}
        assert folding.encode(folding.decode(folding.encode(summary))) == folding.encode(summary)

    return run


def overlay_targets() -> Iterator[Target]:
    """Yield body: for every schema, and fold: for every overlay and schema."""
    seen: set[str] = set()
    for name in registry.names():
        overlay = registry.overlay_class(name)(**PARAMETERS.get(name, {}))
        before = _records(name)[:_BEFORE]
        for schema in overlay.schemas:
            seeds = _bodies(schema, name)
            if not seeds:
                continue
            if schema.name not in seen:
                seen.add(schema.name)
                yield Target(f"body:{schema.name}", _body_target(schema), seeds)
            yield Target(f"fold:{name}:{schema.name}", _fold_target(overlay, before, schema), seeds)


def certificate() -> StateCertificate:
    """Return a certificate of a state."""
    return StateCertificate.issue(
        make.signing_key("alice"),
        LwwMap(),
        stream_id=make.stream(),
        labels=[],
        state_hash=make.digest("state"),
        bridges=frozenset(),
    )
