"""Bodies as another library reads them, for reference folds."""

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any

import cbor2

from tests.overlays.logs import BRIDGE
from veen.overlays.event import Record

Reference = Callable[[Iterable[Record]], Any]


def name_id(name: str) -> bytes:
    """Return the id of a schema that is hashed bare."""
    return sha256(name.encode()).digest()


def bodies(
    records: Iterable[Record], names: dict[bytes, str], *, by_parent: bool = False
) -> Iterator[tuple[str, Any, Record, bytes]]:
    """Yield (schema name, body, record, canonical id) of what decodes and is no copy of another."""
    seen: set[bytes] = set()
    origin: dict[bytes, bytes] = {}
    for record in records:
        name = names.get(record.schema or b"")
        if name is None:
            continue
        canonical = record.msg_id
        if record.parent_id is not None and (by_parent or record.client_id == BRIDGE):
            canonical = origin[record.msg_id] = origin.get(record.parent_id, record.parent_id)
            if canonical not in seen and record.client_id != BRIDGE:
                continue
        if canonical in seen:
            continue
        seen.add(canonical)
        try:
            body = cbor2.loads(record.body)
        except (cbor2.CBORError, ValueError, TypeError, OverflowError):
            continue
        if isinstance(body, dict) and cbor2.dumps(body) == record.body:
            yield name, body, record, canonical
