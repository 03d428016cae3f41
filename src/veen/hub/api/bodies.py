"""Bodies of requests and responses, in CBOR or JSON (C-75)."""

import json
from typing import Final

from veen.core.encoding import cbor
from veen.core.encoding.canonical_json import Described, for_json
from veen.core.encoding.wire_object import W, Wire
from veen.core.errors import CborError, Code, Detail, Fault, ProtocolError
from veen.core.limits import Limits
from veen.core.types import JsonValue
from veen.net.http_message import CBOR, JSON, Request, Response, encode_json
from veen.stdx.json_object import unique_names

# Upper bound of JSON size over CBOR size: hex has two characters per byte, names and quotes add some.
JSON_FACTOR: Final = 3


def wants_json(request: Request, *, default: bool = False) -> bool:
    """Return whether the response is JSON: as ``Accept`` says, otherwise in the form of the request."""
    if request.accepts(JSON):
        return True
    if request.accepts(CBOR):
        return False
    return request.content_type == JSON if request.method == "POST" else default


def decode(request: Request, cls: type[W], limits: Limits) -> W:
    """Read the body of a request."""
    match request.content_type:
        case "application/cbor":
            return cls.decode(request.body, limits)
        case "application/json":
            return cls.from_json(parse_json(request.body), limits)
    raise ProtocolError(
        Detail.CBOR_INVALID, f"send {CBOR} or {JSON}, not {request.content_type[:80]!r}", field="content-type"
    )


def require_cbor(request: Request) -> None:
    """Reject a body of another content type, for routes that accept CBOR only."""
    if request.content_type != CBOR:
        raise ProtocolError(
            Detail.CBOR_INVALID, f"send {CBOR}, not {request.content_type[:80]!r}", field="content-type"
        )


def parse_json(body: bytes) -> JsonValue:
    """Parse JSON as strictly as CBOR: no duplicate names, and integers only."""
    try:
        value: JsonValue = json.loads(
            body.decode(), object_pairs_hook=_unique, parse_float=_no_number, parse_constant=_no_number
        )
    except ValueError as error:  # not UTF-8, not JSON, or a number with thousands of digits
        raise CborError(Fault.TYPE, 0, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise CborError(Fault.DEPTH, 0) from None
    return value


_unique = unique_names(lambda _: CborError(Fault.DUPLICATE_KEY, 0))


def _no_number(text: str) -> JsonValue:
    raise CborError(Fault.FLOAT, 0, f"{text[:40]} is not an integer")


def encode(request: Request, answer: Wire, status: int = 200) -> Response:
    """Return a response in CBOR or JSON, whichever the request asks for."""
    if wants_json(request):
        return Response(status, encode_json(answer.to_json()), JSON)
    return Response(status, answer.encode(), CBOR)


def describe(request: Request, answer: Described, status: int = 200) -> Response:
    """Return a description: JSON by default, or CBOR with the same names."""
    if wants_json(request, default=True):
        return Response(status, encode_json(for_json(answer)), JSON)
    return Response(status, cbor.encode(_without_null(answer)), CBOR)


def _without_null(value: Described) -> cbor.Value:
    match value:
        case dict():
            return {name: _without_null(item) for name, item in value.items() if item is not None}
        case list():
            return [_without_null(item) for item in value]
        case None:
            raise TypeError("null has no CBOR form")
    return value


def in_family(error: ProtocolError, *, admission: bool) -> ProtocolError:
    """Return an error in the code family of its operation (C-61, C-69)."""
    outside = {Code.FORMAT, Code.SIZE, Code.SIG, Code.CAP, Code.AUTH, Code.RATE, Code.SEQ, Code.TIME}
    if admission or error.code not in outside | {Code.PROOF, Code.OPEN}:
        return error
    return error.in_request()
