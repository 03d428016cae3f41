"""The operations of the adapter on overlays: ids, and folds of events in the request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from veen.conformance.arguments import Arguments
from veen.conformance.errors import MalformedRequestError
from veen.core.crypto.hash import ZERO_32, tagged_hash, u64be
from veen.core.encoding.hexadecimal import is_hex32, parse_hex32
from veen.core.encoding.shape import Fields
from veen.core.objects import labels
from veen.core.types import JsonValue, RealmId, StreamId
from veen.overlays import registry
from veen.overlays.engine import Annotator, hash_state, memory_of
from veen.overlays.event import Outcome, Record, operation_id
from veen.overlays.schema import Schema
from veen.overlays.wallet import schemas

Answer = dict[str, JsonValue]


def _schema(text: str) -> bytes:
    return parse_hex32(text) if is_hex32(text, lower=True) else labels.schema_id(text)


def _record(args: Arguments) -> Record:
    """Return the record of an event; without an id it gets one derived from its writer and number."""
    client_id, client_seq = args.key("client_id"), args.uint("client_seq")
    schema = _schema(args.text("schema"))
    return Record(
        stream_seq=args.uint("stream_seq"),
        msg_id=args.hex_or_none("msg_id")
        or tagged_hash("veen/conformance-event", client_id + u64be(client_seq)),
        client_id=client_id,
        client_seq=client_seq,
        hub_ts=args.uint("hub_ts"),
        schema=schema,
        body=_body(args, schema),
        epoch=args.uint("epoch") if args.has("epoch") else 0,
        parent_id=args.hex_or_none("parent_id"),
        auth_ref=args.hex_or_none("auth_ref"),
        cap_ref=args.hex_or_none("cap_ref"),
        expires_at=args.uint("expires_at") if args.has("expires_at") else None,
    )


def _body(args: Arguments, schema: bytes) -> bytes:
    """Return the body: bytes in hex, or the JSON form of a known schema."""
    value = args.json("body")
    if isinstance(value, str):
        return args.hex("body")
    known = registry.schemas_by_id().get(schema)
    if known is None:
        raise MalformedRequestError("the body of an unknown schema must be hex")
    return known.encode(known.from_json(value))


def _records(args: Arguments) -> list[Record]:
    """Return the records in log order; repeated ones count once."""
    records: dict[tuple[int, int], Record] = {}
    for item in args.objects("events"):
        record = _record(item)
        place = (record.epoch, record.stream_seq)
        if records.setdefault(place, record) != record:
            raise MalformedRequestError(f"two events have stream_seq {record.stream_seq}")
    if not records or not args.has("upto"):
        return [records[place] for place in sorted(records)]
    end = (max(records)[0], args.uint("upto"))  # the last number within the last epoch
    return [records[place] for place in sorted(records) if place <= end]


@dataclass(frozen=True, slots=True)
class Body:
    """A body of a schema, for ``decode`` and ``encode``."""

    schema: Schema
    fields: Fields

    def encode(self) -> bytes:
        return self.schema.encode(self.fields)

    def to_json(self) -> JsonValue:
        return self.schema.to_json(self.fields)


def body_parsers(
    name: str,
) -> tuple[Callable[[bytes], Body], Callable[[JsonValue], Body]] | None:
    """Return the parsers for bodies of a schema; None if the schema is unknown."""
    schema = registry.schemas().get(name)
    if schema is None:
        return None
    return lambda data: Body(schema, schema.decode(data)), lambda value: Body(schema, schema.from_json(value))


def fold(args: Arguments) -> Answer:
    """Fold events by an overlay with its default parameters."""
    try:
        overlay = registry.overlay_class(args.text("overlay"))()
    except KeyError:
        known = ", ".join(registry.names())
        raise MalformedRequestError(f"unknown overlay {args.text('overlay')!r}; there are {known}") from None
    bridges = frozenset(args.keys("bridges")) if args.has("bridges") else frozenset()
    now = args.uint("now") if args.has("now") else None
    head = memory_of(overlay)
    stream_id = StreamId(args.key("stream_id") if args.has("stream_id") else ZERO_32)
    annotator = Annotator(overlay, head, stream_id, bridges)
    counts = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    rejected: list[JsonValue] = []
    for record in _records(args):
        item = annotator.annotate(record)
        counts[item.outcome.value] += 1
        rejected += [
            {"stream_seq": report.stream_seq, "code": report.code, "detail": report.detail}
            for report in item.reports
        ]
    return {
        "state": overlay.view(head, now),
        "state_hash": hash_state(overlay, head).hex(),
        "rejected": rejected,
        "counts": {**counts},
    }


def _realm(args: Arguments) -> RealmId:
    return RealmId(args.key("realm_id")) if args.has("realm_id") else labels.realm_id(args.text("realm"))


def _wallet(args: Arguments) -> bytes:
    if args.has("wallet_id"):
        return args.key("wallet_id")
    return schemas.wallet_id(_realm(args), args.key("ctx_id"), args.text("currency"))


# Each id with the fields that it is derived from; of those in a tuple one is enough.
_IDS: Final[Mapping[str, tuple[tuple[tuple[str, ...], ...], Callable[[Arguments], bytes]]]] = {
    "schema_id": ((("name",),), lambda args: labels.schema_id(args.text("name"))),
    "operation_id": ((("msg_id",),), lambda args: operation_id(args.key("msg_id"))),
    "realm_id": ((("realm",),), _realm),
    "wallet_id": ((("realm", "realm_id"), ("ctx_id",), ("currency",)), _wallet),
    "transfer_id": (
        (("label",), ("client_id",), ("client_seq",)),
        lambda args: schemas.transfer_id(args.key("label"), args.key("client_id"), args.uint("client_seq")),
    ),
    "approval_hash": (
        (("wallet_id",), ("to_wallet_id",), ("amount",), ("ts",), ("transfer_id",)),
        lambda args: schemas.approval_hash(
            args.key("wallet_id"),
            args.key("to_wallet_id"),
            args.uint("amount"),
            args.uint("ts"),
            args.key("transfer_id"),
        ),
    ),
}


def overlay_ids(args: Arguments) -> Answer:
    """Return every id that can be derived from the fields of the request."""
    ids: Answer = {}
    for name, (needed, make) in _IDS.items():
        if all(any(args.has(field) for field in choice) for choice in needed):
            ids[name] = make(args).hex()
    if "wallet_id" in ids or args.has("wallet_id"):
        ids["wallet_stream"] = schemas.wallet_stream(_wallet(args)).hex()
    if not ids:
        raise MalformedRequestError("no id can be derived from these fields")
    return ids
