"""The query service over HTTP: callers and handlers; errors are {error_code, message} (QRY-043 to QRY-054).

Requests arrive on the loop; access to files and to the store runs in a few threads.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from veen.core.encoding import canonical_json
from veen.core.errors import Code
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.net.byte_budget import ByteBudget
from veen.net.errors import MethodError, RoutingError, TooLargeError
from veen.net.http_message import JSON, Request, Response, status_of
from veen.net.http_router import Route, Router
from veen.query.descriptor import MAX_DESCRIPTOR_BYTES
from veen.query.errors import QueryError
from veen.query.policy import Principal
from veen.query_service.errors import BusyError, UnauthorizedError
from veen.query_service.openapi import document
from veen.query_service.service import DEFAULT_LIMIT, MOST_LIMIT, MOST_PAGE_BYTES, QueryService
from veen.stdx.json_log import LogEvent

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Both prefixes are the same interface; a breaking change would get another one (QRY-054).
_PREFIXES: Final = ("/api/query", "/api/v1/query")
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/=-]{1,512})", re.IGNORECASE)
# Digits of an offset: no answer has that many rows.
_MOST_DIGITS: Final = 15
_RETRY_SEC: Final = 5
# Codes of the connection in terms of this interface; all others are invalid requests.
_CODES: Final = {Code.FORBIDDEN.value: "forbidden", Code.UNAVAILABLE.value: "internal_error"}
_HEALTHZ, _READYZ = "/healthz", "/readyz"
# Answers are confidential to the caller.
_PRIVATE: Final = {"cache-control": "no-store"}


def encode(status: int, value: Any, **headers: str) -> Response:  # noqa: ANN401 - JSON
    """Return a response in JSON."""
    return Response(status, canonical_json.encode(value), JSON, {**_PRIVATE, **headers})


def failure(status: int, error_code: str, message: str, **headers: str) -> Response:
    """Return an error response in the common form (QRY-052)."""
    return encode(status, {"error_code": error_code, "message": message}, **headers)


def _invalid(message: str) -> QueryError:
    return QueryError("invalid_query_descriptor", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """Separate executors: status requests wait neither for submits nor for pages that are hashed."""

    looks: Executor
    submits: Executor
    pages: Executor
    # Maximum number of pages built concurrently.
    page_count: int


class Api:
    """The handlers of the interface."""

    def __init__(
        self,
        service: QueryService,
        threads: Threads,
        memory: ByteBudget,
        waits: "RecordWaits",
        *,
        record_wait_sec: float,
    ) -> None:
        """``memory`` is shared with the connections, which count unsent responses in it.

        ``record_wait_sec``: how long a submit waits for the hub before it reports that the query is stored.
        """
        self._service = service
        self._threads = threads
        self._memory = memory
        self._making = asyncio.Semaphore(threads.page_count)
        self._record_wait_sec = record_wait_sec
        self._waits = waits
        self._loop = asyncio.get_running_loop()

    def router(self) -> Router[Route]:
        """Return the routes; a request is authenticated before its path is resolved."""
        routes: dict[str, dict[str, Route]] = {
            _HEALTHZ: {"GET": Route(handler=lambda _: encode(200, {"ok": True}), guarded=False)},
            _READYZ: {"GET": Route(handler=self._readiness, guarded=False)},
        }
        for prefix in _PREFIXES:
            routes |= {
                f"{prefix}/submit": {"POST": Route(handler=self._submit)},
                f"{prefix}/openapi.json": {"GET": Route(handler=self._openapi)},
                f"{prefix}/status/": {"GET": Route(handler=self._status)},
                f"{prefix}/result/": {"GET": Route(handler=self._result)},
                f"{prefix}/descriptor/": {"GET": Route(handler=self._descriptor)},
                f"{prefix}/cancel/": {"POST": Route(handler=self._cancel)},
            }
        return Router(routes, ServiceErrors(), max_body=MAX_DESCRIPTOR_BYTES, guard=self._authenticate)

    async def _do(self, function: Callable[..., T], *args: Any) -> T:  # noqa: ANN401 - of any
        return await self._loop.run_in_executor(self._threads.looks, partial(function, *args))

    # --- requests -------------------------------------------------------------------------------------------

    def _readiness(self, _: Request) -> Response:
        ready = self._service.is_ready
        return encode(200 if ready else 503, {"ok": ready})

    async def _authenticate(self, request: Request) -> Principal:
        return await self._do(self._principal_of, request)

    def _principal_of(self, request: Request) -> Principal:
        """Return the principal of a request: by token if it has one, else by certificate."""
        policy = self._service.policy.now()
        authorization = request.headers.get("authorization")
        if authorization is not None:
            token = _BEARER.fullmatch(authorization.strip())
            principal = None if token is None else policy.by_token(token[1])
        else:
            certificate = request.certificate
            principal = None if certificate is None else policy.by_certificate(certificate)
        if principal is None:
            raise UnauthorizedError
        return principal

    async def _openapi(self, request: Request) -> Response:
        _options(request)
        return encode(200, await self._do(document))

    async def _status(self, request: Request) -> Response:
        _options(request)
        return encode(200, await self._do(self._service.status, _caller(request), request.last))

    async def _cancel(self, request: Request) -> Response:
        _options(request)
        return encode(200, await self._do(self._service.cancel, _caller(request), request.last))

    async def _descriptor(self, request: Request) -> Response:
        _options(request)
        body = await self._do(self._service.descriptor, _caller(request), request.last)
        return Response(200, body, JSON, _PRIVATE)

    async def _result(self, request: Request) -> None:
        """Send a page; its bytes are reserved until the connection has counted them as unsent."""
        page = await self._page(request)
        try:
            request.respond(Response(200, page, JSON, _PRIVATE))
        finally:
            self._memory.give(len(page))

    async def _page(self, request: Request) -> bytes:
        """Return a page; its maximum size is reserved while it is built, its actual size afterwards."""
        options = _options(request, "offset", "limit")
        limit = options.get("limit", DEFAULT_LIMIT)
        if not 1 <= limit <= MOST_LIMIT:
            raise _invalid(f"limit must be from 1 to {MOST_LIMIT}")
        make = partial(self._service.result, _caller(request), request.last, options.get("offset", 0), limit)
        async with self._making:  # waiting requests reserve no memory
            if self._memory.is_full:
                raise BusyError("response buffers are full because clients read too slowly; retry later")
            self._memory.take(MOST_PAGE_BYTES)
            try:
                page = await self._loop.run_in_executor(self._threads.pages, make)
                self._memory.take(len(page))
            finally:
                self._memory.give(MOST_PAGE_BYTES)
        return page

    async def _submit(self, request: Request) -> Response:
        _options(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise QueryError("invalid_json", f"a descriptor must be sent as {JSON}")
        submit = partial(self._service.submit, _caller(request), request.body)
        query = await self._loop.run_in_executor(self._threads.submits, submit)
        if not await self._is_recorded(query.result_id):
            raise QueryError(
                "internal_error",
                f"the hub does not answer: the query {query.query_id} is stored as {query.result_id}, and"
                " runs as soon as its request is recorded; ask for its status, do not submit it again",
            )
        answer = {"query_id": query.query_id, "result_id": query.result_id, "status": "pending"}
        return encode(202, answer)

    async def _is_recorded(self, result_id: str) -> bool:
        """Wait until the request of a query is in the log; False on timeout."""
        with self._waits.waiting(result_id) as recorded:
            try:
                if not await self._do(self._service.is_accepted, result_id):
                    await asyncio.wait_for(recorded.wait(), self._record_wait_sec)
            except TimeoutError:
                return await self._do(self._service.is_accepted, result_id)
        return True


class RecordWaits:
    """Submits that wait until their request is in the log. To be created on their event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: dict[str, asyncio.Event] = {}

    @contextmanager
    def waiting(self, result_id: str) -> Iterator[asyncio.Event]:
        """Register an event that ``notify`` sets."""
        self._events[result_id] = asyncio.Event()
        try:
            yield self._events[result_id]
        finally:
            del self._events[result_id]

    def notify(self, result_id: str) -> None:
        """End the wait for a query, if there is one. Thread-safe."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._set, result_id)

    def _set(self, result_id: str) -> None:
        if result_id in self._events:
            self._events[result_id].set()


class ServiceErrors:
    """Error responses of the query service (QRY-052)."""

    def reject(self, error: ErrorEnvelope, request: Request | None) -> Response:
        """Return the response to an invalid request, or one that must be rejected."""
        if request is not None:
            _log.info(LogEvent("turned-away", why=error.message))
        code = _CODES.get(error.code, "invalid_query_descriptor")
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        return failure(status_of(error), code, error.message, **headers)

    def answer(self, request: Request, error: Exception, route: Route | None) -> Response:  # noqa: ARG002 - of the protocol
        """Return the response to any error."""
        match error:
            case QueryError():
                return _query_failure(error)
            case BusyError():
                return failure(503, "internal_error", str(error), **{"retry-after": str(_RETRY_SEC)})
            case TooLargeError():
                return _query_failure(
                    _invalid(f"a descriptor has at most {error.limit} bytes, not {error.size}")
                )
            case MethodError() if request.path not in (_HEALTHZ, _READYZ):
                return failure(405, "invalid_query_descriptor", str(error), allow=error.allow)
            case RoutingError():
                return _query_failure(
                    QueryError(
                        "query_not_found", "nothing is served at this path; see /api/query/openapi.json"
                    )
                )
        _log.error(LogEvent("fault", path=request.path, error=f"{type(error).__name__}: {error}"))
        return failure(
            500, "internal_error", "the service failed to handle the request; the reason is in its log"
        )


def _query_failure(error: QueryError) -> Response:
    headers = {"www-authenticate": "Bearer"} if isinstance(error, UnauthorizedError) else {}
    return failure(error.status, error.error_code, error.message, **headers)


def _caller(request: Request) -> Principal:
    assert isinstance(request.caller, Principal), "the guard has authenticated the request"
    return request.caller


def _options(request: Request, *known: str) -> dict[str, int]:
    """Return the numeric parameters of a URL; unknown, repeated and invalid ones are rejected."""
    numbers: dict[str, int] = {}
    for name, value in parse_qsl(request.query_string, keep_blank_values=True):
        if name not in known:
            takes = f"takes {' and '.join(known)}" if known else "takes no parameters"
            raise _invalid(f"unknown parameter {name!r:.80}: this {takes}")
        if name in numbers:
            raise _invalid(f"{name} is repeated")
        if not (value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS):
            raise _invalid(f"{name} must be a whole number, not {value!r:.80}")
        numbers[name] = int(value)
    return numbers
