"""The table of routes, and the one place where errors become answers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.error_envelope import ErrorEnvelope, envelope_of, unavailable
from veen.hub.api.bodies import in_family, wants_json
from veen.net.http_message import Request, Response, error_response
from veen.storage import DamagedStoreError, StorageError, StoreFullError

_VERSION: Final = re.compile(r"/v[0-9]+(/|$)")
#: Enough for any request that is not a message, a token or an attachment.
SMALL_BODY: Final = 64 << 10

Handler = Callable[[Request], Response | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What one method of one path does. A handler returns its answer, or None and answers later."""

    handler: Handler
    #: How many bytes a body may have, by its content type.
    max_body: Callable[[str], int] = lambda _: SMALL_BODY
    #: Submit and authorize have codes of their own (C-61).
    admission: bool = False
    #: Only through the socket in the data directory.
    local: bool = False


#: Path to method to route; a path that ends in ``/`` has one more part, which the handler gets.
Routes = Mapping[str, Mapping[str, Route]]


class App:
    """Finds the handler of a request, and turns what it raises into an answer."""

    def __init__(
        self,
        routes: Routes,
        on_bug: Callable[[Exception], None],
        on_turned_away: Callable[[ErrorEnvelope], None],
    ) -> None:
        self.routes = routes
        self._on_bug = on_bug
        self._on_turned_away = on_turned_away

    def max_body(self, method: str, target: str, content_type: str) -> int:
        """Return how many bytes a request may have; one that is refused anyway may have a few."""
        methods, _ = self._find(target.partition("?")[0])
        route = None if methods is None else methods.get(method)
        return SMALL_BODY if route is None else route.max_body(content_type.partition(";")[0].strip().lower())

    def oversize(self, request: Request, size: int, most: int) -> Response:
        """Return the answer to a request that is too large; nothing of it has been read."""
        route = self._route(request)
        code = None if route is not None and route.admission else Code.LIMIT
        error = ProtocolError(
            Detail.SIZE_PREFILTER if code is None else Detail.FIELD_SIZE,
            f"request of {size} bytes exceeds {most}",
            code=code,
            actual=size,
            max_allowed=most,
        )
        return error_response(envelope_of(error), as_json=wants_json(request))

    def refuse(self, error: ErrorEnvelope, request: Request | None = None) -> Response:
        """Return the answer to what can not be taken as a request, or is a request that we must not take."""
        if request is None:
            return error_response(error, as_json=False)
        self._on_turned_away(error)
        return error_response(error, as_json=wants_json(request, default=True))

    def handle(self, request: Request) -> None:
        """Answer a request."""
        try:
            response = self._dispatch(request)
        except Exception as error:  # noqa: BLE001 - this is the one place
            response = self.answer_error(request, error)
        if response is not None:
            request.respond(response)

    def answer_error(self, request: Request, error: Exception) -> Response:
        """Return the answer to any error."""
        route = self._route(request)
        admission = route is not None and route.admission
        return error_response(
            self._envelope(error, admission=admission), as_json=wants_json(request, default=True)
        )

    def _envelope(self, error: Exception, *, admission: bool) -> ErrorEnvelope:
        match error:
            case ProtocolError():
                return envelope_of(in_family(error, admission=admission))
            case StoreFullError():
                return unavailable(str(error), retry_after=5)
            case DamagedStoreError():
                self._on_bug(error)
                return unavailable(str(error), retry_after=60)
            case StorageError():
                return unavailable(str(error))
        self._on_bug(error)
        return unavailable("the request met a fault of the hub; see its log")

    def _route(self, request: Request) -> Route | None:
        methods, _ = self._find(request.path)
        return None if methods is None else methods.get(request.method)

    def _find(self, path: str) -> tuple[Mapping[str, Route] | None, str]:
        found = self.routes.get(path)
        if found is not None and not path.endswith("/"):
            return found, ""
        before, _, last = path.rpartition("/")
        return (self.routes.get(before + "/"), last) if last else (None, "")

    def _dispatch(self, request: Request) -> Response | None:
        methods, request.last = self._find(request.path)
        route = None if methods is None else methods.get(request.method)
        if route is not None and (request.local or not route.local):
            return route.handler(request)
        allowed = sorted(name for name, route in (methods or {}).items() if request.local or not route.local)
        if not allowed:
            raise _unknown(request.path)
        return self._wrong_method(request, allowed)

    def _wrong_method(self, request: Request, allowed: list[str]) -> Response:
        """Return 405 with the code of a bad request: the one status that a code does not decide (C-70)."""
        message = f"{request.path} takes {', '.join(allowed)}, not {request.method}"
        envelope = ErrorEnvelope(code=Code.BAD_REQUEST.value, message=message)
        answer = error_response(envelope, as_json=wants_json(request, default=True))
        return Response(405, answer.body, answer.content_type, {"allow": ", ".join(allowed)})


def _unknown(path: str) -> ProtocolError:
    if _VERSION.match(path) and not (path + "/").startswith("/v1/"):
        return ProtocolError(
            Detail.VERSION, "this hub speaks version 1 of the protocol: /v1/", code=Code.VERSION, expected=1
        )
    return ProtocolError(Detail.VALUE, "there is nothing at this path", code=Code.NOT_FOUND, field="path")
