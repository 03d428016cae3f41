"""The handler for logging and the middleware for ASGI, as applications adopt them."""

import asyncio
import logging
import logging.config
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import veen.recorder
from tests.hub.hub_process import HubProcess
from tests.recorder.feed.feed_reader import recorded
from veen.client.errors import ContextError
from veen.recorder import Feed, RecorderHandler, RecorderMiddleware
from veen.recorder.inputs.asgi import App, Message, Receive, Scope, Send


def test_a_handler(hub: HubProcess, place: Path, stream: str) -> None:
    log = logging.getLogger("shop.orders")
    log.setLevel(logging.INFO)
    handler = RecorderHandler(place, hub=hub.url, stream=stream)
    log.addHandler(handler)
    try:
        extra = {"subject_id": "anna", "total": 9, "request": object(), "logger": "somebody.else"}
        log.info("order %d for %s", 17, "anna", extra=extra)
        log.debug("not at this level")
        logging.getLogger("veen.recorder").addHandler(handler)
        logging.getLogger("veen.recorder").error("about ourselves")
        try:
            raise ValueError("bad")  # noqa: TRY301 - what is logged
        except ValueError:
            log.exception("it failed")
        assert handler.feed.flush(20)
    finally:
        log.removeHandler(handler)
        logging.getLogger("veen.recorder").removeHandler(handler)
        handler.close()
    first, second = recorded(place, hub.url, stream)
    assert (first["event_type"], first["subject_id"]) == ("log.info", "anna")
    assert first["payload"] == {"logger": "shop.orders", "message": "order 17 for anna", "total": 9}
    assert second["event_type"] == "log.error"
    assert second["payload"]["exception"].splitlines()[-1] == "ValueError: bad"


def test_a_handler_by_configuration(hub: HubProcess, place: Path, stream: str) -> None:
    recorder = {
        "class": "veen.recorder.RecorderHandler",
        "home": str(place),
        "hub": hub.url,
        "stream": stream,
        "origin": "configured",
        "event_type": "shop.log",
        "level": "WARNING",
    }
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"recorder": recorder},
            "loggers": {"configured": {"handlers": ["recorder"], "level": "DEBUG"}},
        }
    )
    log = logging.getLogger("configured")
    log.info("too low")
    log.warning("here")
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    (event,) = recorded(place, hub.url, stream)
    assert (event["event_type"], event["origin"]) == ("shop.log.warning", "configured")


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        await send({"type": f"{scope['type']}.seen"})
        return
    if scope["path"] == "/raises":
        raise RuntimeError("with a secret")
    message = await receive()
    if message["type"] == "http.disconnect":
        return
    if scope["path"] == "/slow":
        await asyncio.Event().wait()
    await send({"type": "http.response.start", "status": 201, "headers": [(b"x-answer", b"1")]})
    await send({"type": "http.response.body", "body": b"hello", "more_body": True})
    await send({"type": "http.response.body", "body": b"!"})


async def _ask(app: RecorderMiddleware, path: str, *messages: Message, kind: str = "http") -> list[Message]:
    scope: dict[str, Any] = {
        "type": kind,
        "method": "POST",
        "path": path,
        "query_string": b"token=secret",
        "headers": [(b"authorization", b"secret"), (b"User-Agent", b"test")],
        "client": ("127.0.0.1", 1234),
        "user": "anna",
    }
    waiting = iter(messages)
    sent: list[Message] = []

    async def receive() -> Message:
        return next(waiting)

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def test_middleware(hub: HubProcess, place: Path, stream: str) -> None:
    body = {"type": "http.request", "body": b"abc"}

    async def requests(app: RecorderMiddleware) -> None:
        plain = await _ask(app, "/things", body)
        assert [item["type"] for item in plain] == ["http.response.start", *["http.response.body"] * 2]
        assert plain[0]["headers"] == [(b"x-answer", b"1")]
        with pytest.raises(RuntimeError, match="with a secret"):
            await _ask(app, "/raises", body)
        assert await _ask(app, "/gone", {"type": "http.disconnect"}) == []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await _ask(app, "/slow", body)
        assert await _ask(app, "/", kind="websocket") == [{"type": "websocket.seen"}]
        assert await _ask(app, "/", kind="lifespan") == [{"type": "lifespan.seen"}]

    with Feed.open(place, hub.url, stream=stream) as feed:
        app = RecorderMiddleware(_app, feed, stream=stream, subject_of=lambda scope: str(scope["user"]))
        asyncio.run(requests(app))
        broken = RecorderMiddleware(
            _app,
            feed,
            stream=stream,
            subject_of=lambda scope: str(scope["none"]),
            query=True,
            headers=["user-agent"],
            event_type="shop.request",
        )
        asyncio.run(_ask(broken, "/more", body))
        assert feed.flush(20)
    events = recorded(place, hub.url, stream)
    assert [event["event_type"] for event in events] == ["http.request"] * 4 + ["shop.request"]
    first, raised, gone, slow, more = (event["payload"] for event in events)
    duration = first.pop("duration_ms")
    assert 0 <= duration < 20_000
    assert first == {
        "method": "POST",
        "path": "/things",
        "status": 201,
        "client": "127.0.0.1",
        "request_bytes": 3,
        "response_bytes": 6,
    }
    assert events[0]["subject_id"] == "anna"
    assert (raised["status"], raised["error"]) == (None, "RuntimeError")
    assert gone["disconnected"] is True
    assert slow["error"] == "CancelledError"
    assert "secret" not in str(events[:4])
    assert (more["query"], more["headers"]) == ("token=secret", {"User-Agent": "test"})
    assert events[4]["subject_id"] != "anna"


class _Framework:
    """An application that builds its middleware from classes and options, as web frameworks do."""

    def __init__(self) -> None:
        self._middleware: list[tuple[Callable[..., App], dict[str, Any]]] = []

    def add_middleware(self, middleware: Callable[..., App], **options: Any) -> None:
        self._middleware.append((middleware, options))

    def build(self) -> App:
        app: App = _app
        for middleware, options in self._middleware:
            app = middleware(app, **options)
        return app


def test_middleware_of_a_framework_opens_a_feed_of_its_own(hub: HubProcess, place: Path, stream: str) -> None:
    app = _Framework()
    app.add_middleware(veen.recorder.RecorderMiddleware, home=place, hub=hub.url, stream=stream, origin="web")
    built = app.build()
    assert isinstance(built, RecorderMiddleware)
    asyncio.run(_ask(built, "/things", {"type": "http.request", "body": b"abc"}))
    assert built.feed.flush(20)
    built.feed.close()
    (event,) = recorded(place, hub.url, stream)
    assert (event["payload"]["path"], event["origin"], event["subject_id"]) == ("/things", "web", "web")


def test_without_client_and_hub_the_defaults_of_the_command_line_are_used(
    hub: HubProcess, place: Path, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VEEN_CLIENT", raising=False)
    monkeypatch.delenv("VEEN_HUB", raising=False)
    with pytest.raises(ContextError):
        Feed.open(stream=stream)
    monkeypatch.setenv("VEEN_CLIENT", str(place))
    with pytest.raises(ContextError):
        RecorderHandler(stream=stream)
    config = tmp_path / "config" / "veen" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'hub = "{hub.url}"\n')
    with Feed.open(stream=stream) as feed:
        feed.record("test.default", {"n": 1})
        assert feed.flush(20)
    assert len(recorded(place, hub.url, stream)) == 1
