"""Routes of the hub, and its error responses: one envelope, in CBOR or JSON."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.error_envelope import ErrorEnvelope, envelope_of, unavailable
from veen.hub.api.bodies import in_family, wants_json
from veen.net.errors import MethodError, TooLargeError, UnknownPathError
from veen.net.http_message import Request, Response, error_response
from veen.net.http_router import Route
from veen.storage import DamagedStoreError, StorageError, StoreFullError

_VERSION: Final = re.compile(r"/v[0-9]+(/|$)")
# Bytes; enough for any request that is not a message, a token or an attachment.
SMALL_BODY: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class HubRoute(Route):
    """The handler of one method of one path."""

    # Submit and authorize have their own family of codes (C-61).
    admission: bool = False


class HubErrors:
    """Maps errors to responses."""

    def __init__(
        self, on_bug: Callable[[Exception], None], on_rejected: Callable[[ErrorEnvelope], None]
    ) -> None:
        self._on_bug = on_bug
        self._on_rejected = on_rejected

    def reject(self, error: ErrorEnvelope, request: Request | None) -> Response:
        """Return the response to a malformed request, or one that must not be accepted."""
        if request is None:
            return error_response(error, as_json=False)
        self._on_rejected(error)
        return error_response(error, as_json=wants_json(request, default=True))

    def answer(self, request: Request, error: Exception, route: HubRoute | None) -> Response:
        """Return the response to any error."""
        admission = route is not None and route.admission
        match error:
            case MethodError():
                return _wrong_method(request, error)
            case TooLargeError():
                envelope = envelope_of(_too_large(error, admission=admission))
                return error_response(envelope, as_json=wants_json(request))
        envelope = self._envelope(error, admission=admission)
        return error_response(envelope, as_json=wants_json(request, default=True))

    def _envelope(self, error: Exception, *, admission: bool) -> ErrorEnvelope:
        match error:
            case ProtocolError():
                return envelope_of(in_family(error, admission=admission))
            case UnknownPathError():
                return envelope_of(_unknown(error))
            case StoreFullError():
                return unavailable(str(error), retry_after=5)
            case DamagedStoreError():
                self._on_bug(error)
                return unavailable(str(error), retry_after=60)
            case StorageError():
                return unavailable(str(error))
        self._on_bug(error)
        return unavailable("the hub failed to handle the request; the reason is in its log")


def _wrong_method(request: Request, error: MethodError) -> Response:
    """Return 405 with the code of a bad request: the one status that does not follow from a code (C-70)."""
    envelope = ErrorEnvelope(code=Code.BAD_REQUEST.value, message=str(error))
    answer = error_response(envelope, as_json=wants_json(request, default=True))
    return Response(405, answer.body, answer.content_type, {"allow": error.allow})


def _too_large(error: TooLargeError, *, admission: bool) -> ProtocolError:
    return ProtocolError(
        Detail.SIZE_PREFILTER if admission else Detail.FIELD_SIZE,
        str(error),
        code=None if admission else Code.LIMIT,
        actual=error.size,
        max_allowed=error.limit,
    )


def _unknown(error: UnknownPathError) -> ProtocolError:
    if _VERSION.match(error.path) and not (error.path + "/").startswith("/v1/"):
        return ProtocolError(
            Detail.VERSION, "this hub speaks version 1 of the protocol: /v1/", code=Code.VERSION, expected=1
        )
    return ProtocolError(Detail.VALUE, str(error), code=Code.NOT_FOUND, field="path")
