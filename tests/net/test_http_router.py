"""The router: which handler a request gets, who is asked first, and what errors become."""

import asyncio

import pytest

from veen.core.objects.error_envelope import ErrorEnvelope
from veen.net.errors import MethodError, TooLargeError, UnknownPathError
from veen.net.http_message import TEXT, Request, Response, error_response
from veen.net.http_router import Guard, Route, Router


class Plain:
    """Answers errors with their types, and notes the route that they belong to."""

    def __init__(self) -> None:
        self.routes: list[Route | None] = []

    def reject(self, error: ErrorEnvelope, request: Request | None) -> Response:  # noqa: ARG002 - of the protocol
        return error_response(error, as_json=True)

    def answer(self, request: Request, error: Exception, route: Route | None) -> Response:  # noqa: ARG002 - of the protocol
        self.routes.append(route)
        match error:
            case UnknownPathError():
                return Response(404)
            case MethodError():
                return Response(405, headers={"allow": error.allow})
            case TooLargeError():
                return Response(413, b"%d of %d" % (error.size, error.limit))
            case PermissionError():
                return Response(403)
        return Response(500, type(error).__name__.encode())


def text(value: str) -> Response:
    return Response(200, value.encode(), TEXT)


async def later(request: Request) -> Response:
    await asyncio.sleep(0)
    return text(f"later {request.path}")


async def broken_later(request: Request) -> Response:
    await asyncio.sleep(0)
    raise KeyError(request.path)


def broken(request: Request) -> Response:
    raise ValueError(request.path)


ROUTES = {
    "/now": {"GET": Route(handler=lambda _: text("now")), "PUT": Route(handler=lambda _: text("put"))},
    "/later": {"GET": Route(handler=later)},
    "/item/": {"GET": Route(handler=lambda request: text(request.last))},
    "/broken": {"GET": Route(handler=broken)},
    "/broken_later": {"GET": Route(handler=broken_later)},
    "/local": {"POST": Route(handler=lambda _: text("local"), local=True), "GET": Route(handler=later)},
    "/only_local": {"POST": Route(handler=lambda _: text("local"), local=True)},
    "/large": {"POST": Route(handler=lambda _: text(""), max_body=len)},
    "/open": {"GET": Route(handler=lambda _: text("open"), guarded=False)},
    "/caller": {"GET": Route(handler=lambda request: text(str(request.caller)))},
}


def answer(
    path: str, method: str = "GET", *, local: bool = False, guard: Guard | None = None, body: bytes = b""
) -> Response:
    """Return the answer to one request."""

    async def ask() -> Response:
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        router = Router(ROUTES, Plain(), max_body=10, guard=guard)
        router.handle(Request(method, path, {}, body, answered.set_result, local=local))
        return await answered

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("path", "method", "status", "body"),
    [
        ("/now", "GET", 200, b"now"),
        ("/now?x=1", "GET", 200, b"now"),
        ("/now", "PUT", 200, b"put"),
        ("/later", "GET", 200, b"later /later"),
        ("/item/a", "GET", 200, b"a"),
        ("/item/", "GET", 404, b""),
        ("/item", "GET", 404, b""),
        ("/item/a/b", "GET", 404, b""),
        ("/", "GET", 404, b""),
        ("", "GET", 404, b""),
        ("/broken", "GET", 500, b"ValueError"),
        ("/broken_later", "GET", 500, b"KeyError"),
        ("/local", "POST", 405, b""),
        ("/only_local", "POST", 404, b""),
        ("/only_local", "GET", 404, b""),
    ],
)
def test_a_request_gets_its_handler_or_an_error(path: str, method: str, status: int, body: bytes) -> None:
    got = answer(path, method)
    assert (got.status, got.body) == (status, body)


def test_what_is_local_is_served_to_the_operator() -> None:
    assert answer("/local", "POST", local=True).body == b"local"
    assert answer("/only_local", "GET", local=True).headers == {"allow": "POST"}


def test_other_methods_of_a_path_are_listed_in_order_if_they_are_to_be_seen() -> None:
    assert answer("/now", "POST").headers == {"allow": "GET, PUT"}
    assert answer("/local", "PUT").headers == {"allow": "GET"}
    assert answer("/local", "PUT", local=True).headers == {"allow": "GET, POST"}


@pytest.mark.parametrize("path", ["/now", "/later", "/caller", "/unknown", "/broken"])
def test_a_guard_is_asked_before_the_path_is_looked_at(path: str) -> None:
    async def guard(_: Request) -> object:
        raise PermissionError

    assert answer(path, guard=guard).status == 403
    assert answer("/open", guard=guard).body == b"open"
    assert answer("/open", "PUT", guard=guard).status == 403


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/caller", 200, b"alice"),
        ("/later", 200, b"later /later"),
        ("/broken", 500, b"ValueError"),
        ("/unknown", 404, b""),
    ],
)
def test_what_a_guard_accepts_goes_on_with_its_caller(path: str, status: int, body: bytes) -> None:
    async def guard(_: Request) -> object:
        return "alice"

    got = answer(path, guard=guard)
    assert (got.status, got.body) == (status, body)


def test_a_body_is_bounded_by_its_route_and_its_type() -> None:
    router = Router(ROUTES, Plain(), max_body=10)
    assert router.max_body("POST", "/large?x", "Text/Plain ; charset=x") == len("text/plain")
    assert router.max_body("POST", "/now", "text/plain") == 10
    assert router.max_body("GET", "/unknown", "") == 10
    got = router.too_large(Request("POST", "/large", {}, b"", print), 11, 10)
    assert (got.status, got.body) == (413, b"11 of 10")


def test_an_error_is_answered_for_its_route() -> None:
    errors = Plain()
    router = Router(ROUTES, errors, max_body=10)
    router.handle(Request("GET", "/broken", {}, b"", print))
    router.handle(Request("GET", "/unknown", {}, b"", print))
    assert errors.routes == [ROUTES["/broken"]["GET"], None]
