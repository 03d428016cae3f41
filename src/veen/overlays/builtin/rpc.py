"""RPC0: requests, replies, and which reply is the result of which request (RPC0 lines; C-111)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from veen.core.crypto.hash import sha256
from veen.core.encoding import cbor
from veen.core.encoding.cbor import Value
from veen.core.encoding.field_types import B32, BOOL, TEXT, UINT, hex_from_json
from veen.core.encoding.shape import Field, Fields
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Event
from veen.overlays.monoid import FIRST, Monoid, first
from veen.overlays.overlay import Key, Lowered, Overlay, Tables
from veen.overlays.schema import ANY, Inner, Schema

REQUEST: Final = Schema(
    "rpc.v1",
    Field("method", TEXT),
    Field("args", ANY),
    Field("timeout_ms", UINT, optional=True),
    # The key that the reply is sealed to.
    Field("reply_to", B32, optional=True),
    Field("idem", UINT, optional=True),
)


def _one_of_both(body: Fields) -> None:
    if body["ok"]:
        # A result may be null, so its presence is checked.
        right = "result" in body and body.get("error") is None
    else:
        right = body.get("error") is not None and body.get("result") is None
    if not right:
        raise InvalidBodyError("RPC.RESULT_OR_ERROR", "a reply has either ok and a result, or an error")


REPLY: Final = Schema(
    "rpc.res.v1",
    Field("ok", BOOL),
    Field("result", ANY, optional=True),
    Field("error", Inner("error", Field("code", TEXT), Field("detail", TEXT, optional=True)), optional=True),
    checks=(_one_of_both,),
)


def success(result: Value) -> bytes:
    """Return the body of a reply with a result, which may be null."""
    return REPLY.encode({"ok": True, "result": ANY.lower(result)})


def failure(code: str, detail: str = "") -> bytes:
    """Return the body of a reply with an error."""
    error = {"code": code, **({"detail": detail} if detail else {})}
    return REPLY.encode(REPLY.make(ok=False, error=error))


def call_key(method: str, client_id: bytes, idem: int | None, msg_id: bytes) -> tuple[Any, ...]:
    """Return the identity of a call for retries: its idempotency key, or else the message id (CTL-002)."""
    return (msg_id,) if idem is None else (method, client_id, idem)


class Calls(Overlay):
    """Calls, each with its first request and the first reply to it."""

    name: ClassVar[str] = "rpc"
    about: ClassVar[str] = "Calls and their results; a repeated call is one call."
    schemas: ClassVar[tuple[Schema, ...]] = (REQUEST, REPLY)
    # Calls by key, the call of each request, and the reply to each request.
    tables: ClassVar[Mapping[str, Monoid]] = {"calls": FIRST, "requests": FIRST, "replies": FIRST}
    state_class: ClassVar[str] = "rpc.calls"

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Add a request or a reply."""
        return _request(event, before) if event.schema is REQUEST else _reply(event, before)

    def parse_key(self, text: str) -> Key:
        """Parse the id of a request."""
        return hex_from_json(text)

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the call of a request."""
        request = tables.get("requests", key)
        if request is None:
            return None
        call = request[0][2]
        return _shown(tables, call, tables.get("calls", call))

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return all calls in the order of their first requests."""
        calls = sorted(tables.items("calls"), key=lambda item: item[1][0][0])
        return [_shown(tables, key, request) for key, request in calls]

    def serialized(self, tables: Tables) -> Value:
        """Return the first request of each call with the body of its reply."""
        return [
            [call[0][2], _result(tables, call)]
            for _, call in sorted(tables.items("calls"), key=lambda item: item[1][0][0])
        ]


def _request(event: Event, before: Tables) -> Lowered:
    body, msg_id = event.body, event.canonical_id
    key = call_key(body["method"], event.record.client_id, body.get("idem"), msg_id)
    content = sha256(cbor.write_text(body["method"]) + cbor.encode(body["args"]))
    known = before.get("calls", key)
    reports: tuple[tuple[str, str], ...] = ()
    if known is not None and known[0][1] != content:
        reports = (
            ("RPC.IDEM_REUSED", "the idem was used before with other arguments; the first call counts"),
        )
    return Lowered(
        (
            ("calls", key, first(event.position, content, msg_id, body["method"])),
            ("requests", msg_id, first(event.position, content, key)),
        ),
        reports,
    )


def _reply(event: Event, before: Tables) -> Lowered:
    request = event.record.parent_id
    if request is None:
        return Lowered((), (("RPC.UNCORRELATED", "the reply names no request"),))
    content = sha256(event.record.body)
    known = before.get("replies", request)
    reports: tuple[tuple[str, str], ...] = ()
    if known is not None and known[0][1] != content:
        reports = (("RPC.REPLY_DIFFERS", "a second reply to the request differs; the first counts"),)
    elif before.get("requests", request) is None:
        reports = (("RPC.UNCORRELATED", "the request is not in the log"),)
    return Lowered((("replies", request, first(event.position, content, event.record.body)),), reports)


def _result(tables: Tables, call: Any) -> bytes | None:
    reply = tables.get("replies", call[0][2])
    return None if reply is None else reply[0][2]


def _shown(tables: Tables, key: Key, call: Any) -> JsonValue:
    (_, stream_seq, _), _, msg_id, method = call[0]
    reply = _result(tables, call)
    return {
        "request": msg_id.hex(),
        "stream_seq": stream_seq,
        "method": method,
        "idem": key[2] if len(key) > 1 else None,
        "reply": None if reply is None else _reply_json(REPLY.decode(reply)),
        "reused": call[1] is not None,
    }


def _reply_json(body: Fields) -> JsonValue:
    """Return the JSON form of a reply, with its result even if that is null."""
    reply_json = REPLY.to_json(body)
    return {**reply_json, "result": ANY.to_json(body["result"])} if body["ok"] else reply_json
