"""A table of routes with one error boundary: whatever a handler raises becomes a response.

Responses to errors differ from interface to interface, and are an argument.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from veen.core.objects.error_envelope import ErrorEnvelope
from veen.net.errors import MethodError, TooLargeError, UnknownPathError
from veen.net.http_message import Request, Response

# A handler returns its response or an awaitable of it; or None, and responds later by itself.
Handler = Callable[[Request], Response | Awaitable[Response | None] | None]
# Accepts or rejects a request before its path is looked up; returns the caller of the request.
Guard = Callable[[Request], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path."""

    handler: Handler
    # The maximum size of a body, by its content type; None for the router's default.
    max_body: Callable[[str], int] | None = None
    # Served through the operator's socket only.
    local: bool = False
    # Whether the router's guard, if it has one, is called first.
    guarded: bool = True


R = TypeVar("R", bound=Route)
_R_contra = TypeVar("_R_contra", bound=Route, contravariant=True)

# Path to method to route; a path that ends in ``/`` has one more segment, which the handler receives.
Routes = Mapping[str, Mapping[str, R]]


class ErrorAnswers(Protocol[_R_contra]):
    """How an interface responds to errors."""

    def reject(self, error: ErrorEnvelope, request: Request | None) -> Response:
        """Return the response to invalid HTTP, or to a request that must not be accepted."""

    def answer(self, request: Request, error: Exception, route: _R_contra | None) -> Response:
        """Return the response to an error of a handler, of the guard, or of the router (``RoutingError``)."""


class Router(Generic[R]):
    """The application of an interface: calls the handler of a request, and responds to what it raises."""

    def __init__(
        self, routes: Routes[R], errors: ErrorAnswers[R], *, max_body: int, guard: Guard | None = None
    ) -> None:
        """``max_body`` bounds requests to unknown paths too: those are rejected only once they are read."""
        self.routes = routes
        self._errors = errors
        self._max_body = max_body
        self._guard = guard
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what connections call ------------------------------------------------------------------------------

    def max_body(self, method: str, target: str, content_type: str) -> int:
        methods, _ = self._find(target.partition("?")[0])
        route = None if methods is None else methods.get(method)
        if route is None or route.max_body is None:
            return self._max_body
        return route.max_body(content_type.partition(";")[0].strip().lower())

    def too_large(self, request: Request, size: int, limit: int) -> Response:
        return self.answer_error(request, TooLargeError(size, limit))

    def reject(self, error: ErrorEnvelope, request: Request | None = None) -> Response:
        return self._errors.reject(error, request)

    def handle(self, request: Request) -> None:
        try:
            answer = self._dispatch(request) if self._is_open(request) else self._dispatch_guarded(request)
        except Exception as error:  # noqa: BLE001 - the boundary
            answer = self.answer_error(request, error)
        if isinstance(answer, Response):
            request.respond(answer)
        elif answer is not None:
            task = asyncio.get_running_loop().create_task(self._respond(request, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # --- handlers -------------------------------------------------------------------------------------------

    def answer_error(self, request: Request, error: Exception) -> Response:
        return self._errors.answer(request, error, self._route(request))

    async def _respond(self, request: Request, answer: Awaitable[Response | None]) -> None:
        try:
            response = await answer
        except Exception as error:  # noqa: BLE001 - the same boundary, for handlers that await
            response = self.answer_error(request, error)
        if response is not None:
            request.respond(response)

    def _is_open(self, request: Request) -> bool:
        if self._guard is None:
            return True
        route = self._route(request)
        return route is not None and not route.guarded

    async def _dispatch_guarded(self, request: Request) -> Response | None:
        assert self._guard is not None
        request.caller = await self._guard(request)
        answer = self._dispatch(request)
        return answer if answer is None or isinstance(answer, Response) else await answer

    def _dispatch(self, request: Request) -> Response | Awaitable[Response | None] | None:
        methods, request.last = self._find(request.path)
        route = None if methods is None else methods.get(request.method)
        if route is not None and (request.local or not route.local):
            return route.handler(request)
        visible = [name for name, other in (methods or {}).items() if request.local or not other.local]
        if not visible:
            raise UnknownPathError(request.path)
        raise MethodError(request.path, request.method, tuple(sorted(visible)))

    def _route(self, request: Request) -> R | None:
        methods, _ = self._find(request.path)
        return None if methods is None else methods.get(request.method)

    def _find(self, path: str) -> tuple[Mapping[str, R] | None, str]:
        methods = self.routes.get(path)
        if methods is not None and not path.endswith("/"):
            return methods, ""
        parent, _, last = path.rpartition("/")
        return (self.routes.get(parent + "/"), last) if last else (None, "")
