"""The audit of queries: client, resources, time and purpose (QAL lines)."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from veen.core.types import JsonValue
from veen.overlays.event import Event
from veen.overlays.monoid import COUNT, MIN, Monoid
from veen.overlays.operations.schemas import QUERY, operation_body
from veen.overlays.overlay import Key, Lowered, Overlay, Tables, appended, sequence, sequence_tables
from veen.overlays.schema import Schema


class QueryAudit(Overlay):
    """Queries in log order, and the number of queries of each class."""

    name: ClassVar[str] = "query.audit"
    version: ClassVar[int] = 2
    about: ClassVar[str] = "The audit of queries: who asked for what, and when."
    schemas: ClassVar[tuple[Schema, ...]] = (QUERY,)
    tables: ClassVar[Mapping[str, Monoid]] = {
        "queries": MIN,
        "classes": COUNT,
        # The queries of each class.
        **sequence_tables("of_class"),
    }
    state_class: ClassVar[str] = "query.audit"
    grouped: ClassVar[bool] = True

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Add a query."""
        body, record = event.body, event.record
        entry = (event.position, record.hub_ts, record.client_id, operation_body(event))
        one = event.canonical_id
        of_class = appended(before, "of_class", body["resource_class"], (event.position, one))
        counted = (1, event.position, event.position)
        return Lowered((("queries", one, entry), ("classes", body["resource_class"], counted), *of_class))

    def group(self, event: Event) -> Key:
        """Return the class of resources."""
        resource_class: Key = event.body["resource_class"]
        return resource_class

    def queries(
        self, tables: Tables, *, resource_prefix: str = "", since: int = 0, until: int | None = None
    ) -> Iterator[dict[str, JsonValue]]:
        """Yield queries in log order: of resources with a prefix, in a time range (QAL-004)."""
        for key, entry in sorted(tables.items("queries"), key=lambda row: row[1][0]):
            query_json = _shown(key, entry)
            when = query_json["time"]
            assert isinstance(when, int)
            inside = since <= when and (until is None or when < until)
            if inside and any(name.startswith(resource_prefix) for name in _resources(query_json)):
                yield query_json

    def parse_key(self, text: str) -> Key:
        """Parse a class of resources."""
        return text

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the queries of a class."""
        counted = tables.get("classes", key)
        if counted is None:
            return None
        rows: list[JsonValue] = [
            _shown(one, tables.get("queries", one)) for _, one in sequence(tables, "of_class", key)
        ]
        return {"count": counted[0], "queries": rows}

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return all queries, and the number of each class."""
        return {
            "classes": {str(key): counted[0] for key, counted in tables.items("classes")},
            "queries": list(self.queries(tables)),
        }

    def serialized(self, tables: Tables) -> list[Any]:
        """Return the queries in log order."""
        rows = sorted(tables.items("queries"), key=lambda row: row[1][0])
        return [[key, entry[1], entry[3]] for key, entry in rows]


def _resources(query_json: Mapping[str, JsonValue]) -> list[str]:
    """Return the resources of a query; a query for several may list them in the metadata."""
    metadata = query_json.get("metadata")
    listed = metadata.get("resources") if isinstance(metadata, dict) else None
    others = listed if isinstance(listed, list) else []
    return [str(query_json["resource_identifier"]), *(name for name in others if isinstance(name, str))]


def _shown(key: Key, entry: Any) -> dict[str, JsonValue]:
    place, hub_ts, client_id, body = entry
    decoded = QUERY.decode(body)
    stated = decoded.get("request_time")
    assert isinstance(key, bytes)
    return {
        "stream_seq": place[1],
        "msg_id": key.hex(),
        "client_id": client_id.hex(),
        "time": hub_ts if stated is None else stated,  # QAL-006
        **QUERY.to_json(decoded),
    }
