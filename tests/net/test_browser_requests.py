"""What browsers send for pages of strangers, to every server: nothing of it is handled (C-196).

The bytes are those of a browser. Whatever a test sends would be taken from a program: each of the servers is
given, in the end, the same request without what only a browser says, and that one alone is in the record.
"""

import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.builders import some_label
from tests.client.participants import make_home
from tests.hub.hub_process import Client, HubProcess
from tests.hub.hub_thread import Answer, Raw
from tests.query_service.service_process import APP, Service, make_place, recorded, until
from tests.recorder.feed.feed_reader import recorded as events_of
from tests.recorder.inputs.otlp_process import listening
from veen.cli.main import app
from veen.core.api.data_plane import SubmitRequest
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.query_service.store import Kind

EVIL, LISTED = "http://evil.example", "https://app.example"
NAME, STREAM = "logs.example", "record/app/pages"

Lines = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Server:
    """One of the servers, and a request that it takes from a program."""

    address: tuple[str, int]
    path: str
    content_type: str
    make: Callable[[], bytes]
    #: What programs show beside.
    shown: Lines
    #: A path that is only looked at, and the status that tells that it was.
    look: str
    seen: int
    #: All that is in the record, or in any log of refusals.
    taken: Callable[[], list[Any]]
    #: Returns an error in the words of this server: its code, and the field if it names one.
    read: Callable[[Answer], tuple[str, str]]

    @property
    def host(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def ask(
        self,
        method: str,
        path: str,
        lines: Lines,
        body: bytes | None = None,
        *,
        version: str = "1.1",
        hosts: Sequence[str] | None = None,
    ) -> Answer:
        """Send a request, and read the answer to its end."""
        named = [self.host] if hosts is None else hosts
        head = [f"{method} {path} HTTP/{version}", *(f"host: {host}".strip() for host in named)]
        head += [f"{name}: {value}" for name, value in (*self.shown, *lines)]
        head += [] if body is None else [f"content-length: {len(body)}"]
        with Raw(self.address) as raw:
            raw.send("\r\n".join(head).encode() + b"\r\n\r\n" + (body or b""))
            answer = raw.answer(method)
            if answer.status in {403, 415, 421}:
                assert (answer.headers["connection"], raw.ended()) == ("close", True)
            return answer

    def post(self, lines: Lines, *, typed: bool = True, **more: Any) -> Answer:
        """Send what a program sends, with some lines more."""
        kind = [("content-type", self.content_type)] if typed else []
        return self.ask("POST", self.path, [*kind, *lines], self.make(), **more)

    def glance(self, **more: Any) -> Answer:
        """Look at something that changes nothing."""
        return self.ask("GET", self.look, [], **more)


def read_hub(answer: Answer) -> tuple[str, str]:
    error = answer.error() if answer.status != 415 else ErrorEnvelope.decode(answer.body)
    return error.code, str((error.detail or {})["field"])


def read_query(answer: Answer) -> tuple[str, str]:
    assert set(answer.json()) == {"error_code", "message"}
    return answer.json()["error_code"], ""


def read_receiver(answer: Answer) -> tuple[str, str]:
    assert set(answer.json()) == {"code", "message"}
    return str(answer.json()["code"]), ""


def counted(hub: HubProcess, beginning: str) -> list[str]:
    with hub.api() as api:
        text = api.ask("GET", "/metrics")[2].decode()
    return [line for line in text.splitlines() if line.startswith(beginning)]


def serve_hub(hub: HubProcess) -> Server:
    client = Client(some_label("pages"))

    def entries() -> list[str]:
        (line,) = counted(hub, "veen_submit_ok_total")
        return ["entry"] * int(float(line.split()[-1]))

    def message() -> bytes:
        """Make a message that would be taken: the same one until it is."""
        return SubmitRequest(msg=client.message(len(entries()) + 1)).encode()

    def taken() -> list[Any]:
        refusals = hub.get("/tooling/admission_log")["failures"]
        return [*entries(), *counted(hub, "veen_submit_err_total"), *refusals]

    return Server(
        split(hub.url.partition("://")[2]),
        "/v1/submit",
        "application/cbor",
        message,
        (),
        "/healthz",
        200,
        taken,
        read_hub,
    )


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    place = tmp_path_factory.mktemp("pages")
    with HubProcess(place / "hub", "--host", NAME, config=f'origins = ["{LISTED}"]\n') as made:
        yield made


@pytest.fixture(scope="module")
def servers(hub: HubProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Server]]:
    """Start all of them: what receiver and query service record is in a hub of its own."""
    place = tmp_path_factory.mktemp("servers")
    make_home(place / "app")
    with HubProcess(place / "log") as log:
        tokens = make_place(place / "queries")
        options = ("--stream", STREAM, "--hub", log.url, "--client", place / "app", "--to", place / "app")
        with (
            listening(*options, "--host", NAME) as receiver,
            Service(place / "queries", log.url) as queries,
        ):
            yield {
                "hub": serve_hub(hub),
                "receiver": Server(
                    split(receiver),
                    "/jsonl",
                    "application/x-ndjson",
                    lambda: b'{"event_type": "page", "event_time": 5}\n',
                    (),
                    "/jsonl",
                    405,
                    lambda: [event["event_type"] for event in events_of(place / "app", log.url, STREAM)],
                    read_receiver,
                ),
                "queries": Server(
                    split(queries.url.partition("://")[2]),
                    "/api/query/submit",
                    "application/json",
                    lambda: json.dumps({"scope": [APP]}).encode(),
                    [("authorization", f"Bearer {tokens['alice']}")],
                    "/healthz",
                    200,
                    lambda: [found.position for found in recorded(place / "queries", log.url, Kind.REQUEST)],
                    read_query,
                ),
            }


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@pytest.fixture(params=["hub", "receiver", "queries"])
def server(request: pytest.FixtureRequest, servers: Mapping[str, Server]) -> Server:
    return servers[request.param]


FORBIDDEN = {("E.FORBIDDEN", "origin"), ("forbidden", ""), ("7", "")}
#: What Chromium says in each request, for whatever page.
_ALWAYS = [
    ("connection", "keep-alive"),
    ("sec-ch-ua-platform", '"Linux"'),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0"),
    ("accept", "*/*"),
    ("accept-language", "en-US,en;q=0.9"),
]


def page(site: str, mode: str = "no-cors", dest: str = "empty", origin: str | None = EVIL) -> Lines:
    """Return what a browser says of a request of a page."""
    said = [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]
    return [*_ALWAYS, *said, *([] if origin is None else [("origin", origin), ("referer", f"{origin}/")])]


#: Method, type of the body if there is one, and the rest.
PAGES: Mapping[str, tuple[str, str | None, Lines]] = {
    "fetch of text": ("POST", "text/plain;charset=UTF-8", page("cross-site")),
    "fetch of a blob without a type": ("POST", None, page("cross-site")),
    "form of text": ("POST", "text/plain", page("cross-site", "navigate", "document")),
    "form": ("POST", "application/x-www-form-urlencoded", page("cross-site", "navigate", "document")),
    "form of files": (
        "POST",
        "multipart/form-data; boundary=----W",
        page("cross-site", "navigate", "iframe"),
    ),
    "fetch of the right type": ("POST", "", page("cross-site", "cors")),
    "page of another port": ("POST", "", page("same-site", "cors", origin="http://127.0.0.1:1")),
    "page of another scheme": ("POST", "", page("cross-site", "cors", origin="https://127.0.0.1")),
    "sandboxed page": ("POST", "text/plain", page("cross-site", origin="null")),
    "page of a file": ("POST", "", page("cross-site", "cors", origin="null")),
    "extension": ("POST", "", page("none", "cors", origin="chrome-extension://abcdefgh")),
    "browser that says less": ("POST", "text/plain", [*_ALWAYS, ("origin", EVIL)]),
    "origin that is empty": ("POST", "", [*_ALWAYS, ("origin", "")]),
    "two origins": ("POST", "", [*_ALWAYS, ("origin", EVIL), ("origin", LISTED)]),
    "two origins in one": ("POST", "", [*_ALWAYS, ("origin", f"{LISTED} {EVIL}")]),
    "two sites": ("POST", "", [*_ALWAYS, ("sec-fetch-site", "cross-site"), ("sec-fetch-site", "none")]),
    "site that is not known": ("POST", "", [*_ALWAYS, ("sec-fetch-site", "same-planet")]),
}
#: Requests without a body.
LOOKS: Mapping[str, tuple[str, Lines]] = {
    "preflight": (
        "OPTIONS",
        [
            *page("cross-site", "cors"),
            ("access-control-request-method", "PUT"),
            ("access-control-request-headers", "content-type"),
        ],
    ),
    "fetch": ("GET", page("cross-site", "cors")),
    "fetch without an answer": ("GET", page("cross-site", origin=None)),
    "image": ("GET", page("cross-site", dest="image", origin=None)),
    "script of another port": ("GET", page("same-site", dest="script", origin=None)),
    "link": ("GET", page("cross-site", "navigate", "document", origin=None)),
    "socket": (
        "GET",
        [
            ("origin", EVIL),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
        ],
    ),
    "head": ("HEAD", page("cross-site", origin=None)),
}


def test_nothing_of_a_page_is_handled(server: Server) -> None:
    before = server.taken()
    for what, (method, kind, lines) in PAGES.items():
        typed = [] if kind is None else [("content-type", kind or server.content_type)]
        answer = server.ask(method, server.path, [*typed, *lines], server.make())
        assert answer.status == 403, what
        assert server.read(answer) in FORBIDDEN, what
    for what, (method, lines) in LOOKS.items():
        answer = server.ask(method, server.look, lines)
        assert answer.status == 403, what
        assert not {name for name in answer.headers if name.startswith("access-control")}, what
    assert server.taken() == before, "nor is it in the log of what was refused"
    assert server.post([]).status in {200, 202}
    until(lambda: len(server.taken()) > len(before), "the good one")
    assert len(server.taken()) == len(before) + 1


def test_pages_of_the_server_itself(server: Server) -> None:
    """There are none; who looks at its answers in a browser may do so."""
    before, own = len(server.taken()), f"http://{server.host}"
    assert server.ask("GET", server.look, page("none", "navigate", "document", None)).status == server.seen
    assert server.ask("GET", server.look, page("same-origin", "cors", "empty", None)).status == server.seen
    assert server.post(page("same-origin", "cors", origin=own)).status in {200, 202}
    assert server.post([("origin", own.upper())]).status in {200, 202}
    assert server.post([("origin", "http://localhost")], hosts=["localhost:80"]).status in {200, 202}
    assert server.post([("origin", "http://[::1]:9")], hosts=["[::1]:9"]).status in {200, 202}
    for wrong in (page("cross-site", origin=own), [("origin", "http://localhost.")]):
        assert server.post(wrong, hosts=[server.host]).status == 403
    untyped = server.post(page("same-origin", origin=own), typed=False)
    assert untyped.status == 415
    assert server.read(untyped) in {
        ("E.BAD_REQUEST", "content-type"),
        ("invalid_query_descriptor", ""),
        ("3", ""),
    }
    assert server.ask("POST", server.path, [("origin", own), ("content-type", "")], b"x").status == 415
    chunked = [("origin", own), ("transfer-encoding", "chunked")]
    assert server.ask("POST", server.path, chunked).status == 415
    until(lambda: len(server.taken()) >= before + 4, "what was taken")
    assert len(server.taken()) == before + 4


def test_a_name_that_was_rebound(server: Server) -> None:
    """To the browser the page and the server are one and the same: evil.example."""
    before = server.taken()
    host = f"evil.example:{server.address[1]}"
    own = page("same-origin", "cors", origin=f"http://{host}")
    for method, path, body in (("GET", server.look, None), ("POST", server.path, server.make())):
        kind = [("content-type", server.content_type)] if body else []
        answer = server.ask(method, path, [*own, *kind], body, hosts=[host])
        assert answer.status == 421
        assert server.read(answer) in {("E.FORBIDDEN", "host"), ("forbidden", ""), ("7", "")}
        assert b"evil.example is not one of the names" in answer.body
    assert server.taken() == before


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([], 400),
        (["localhost", "localhost"], 400),
        (["localhost", "evil.example"], 400),
        (["evil.example", "localhost"], 400),
        ([""], 400),
        (["user@localhost"], 400),
        (["a,b"], 400),
        (["localhost localhost"], 400),
        (["localhost:http"], 400),
        (["localhost:65536"], 400),
        (["[::1"], 400),
        (["[::1]x"], 400),
        (["http://localhost"], 400),
        (["localhost/"], 400),
        (["evil.example"], 421),
        (["evil.example:80"], 421),
        (["localhost.evil.example"], 421),
        (["127.0.0.1.evil.example"], 421),
        (["hub.localhost"], 421),
        (["127.1"], 421),
        (["2130706433"], 421),
        ([f"{NAME}.evil.example"], 421),
        (["localhost"], 0),
        (["LocalHost.:1"], 0),
        (["localhost:"], 0),
        (["127.0.0.1"], 0),
        (["192.0.2.7:1"], 0),
        (["[::1]"], 0),
        (["[2001:DB8::1]:65535"], 0),
    ],
)
def test_hosts(server: Server, hosts: list[str], status: int) -> None:
    answer = server.glance(hosts=hosts)
    assert answer.status == (status or server.seen)
    assert ("connection" in answer.headers) == bool(status), "who can not be understood is cut off"
    old = server.glance(hosts=hosts, version="1.0")
    assert old.status == (status or server.seen if hosts else server.seen)


@pytest.mark.parametrize("name", [NAME, f"{NAME.upper()}.:4318"])
def test_a_name_that_was_given(servers: Mapping[str, Server], name: str) -> None:
    for which in ("hub", "receiver"):
        assert servers[which].glance(hosts=[name]).status == servers[which].seen
    assert servers["queries"].glance(hosts=[name]).status == 421
    assert servers["queries"].glance(hosts=["queries"]).status == 200
    given = [socket.gethostname()]
    assert servers["hub"].glance(hosts=given).status == 421, (
        "names that are given replace those of the machine"
    )


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost{}", "localhost", 0),
        ("HTTP://LOCALHOST:1{}", "localhost", 0),
        ("http://evil.example{}", "localhost", 421),
        ("HTTP://evil.example{}", "localhost", 421),
        ("http://localhost{}", "evil.example", 421),
        ("http://user@localhost{}", "localhost", 400),
        ("http://a,b{}", "localhost", 400),
    ],
)
def test_targets_that_are_a_whole_url(server: Server, target: str, host: str, status: int) -> None:
    answer = server.ask("GET", target.format(server.look), [], hosts=[host])
    assert answer.status == (status or server.seen)


def test_a_refused_request_is_not_read_on(server: Server) -> None:
    """Its answer comes before its body; what is behind it on the connection is nobody's."""
    before = server.taken()
    body = server.make()
    head = f"POST {server.path} HTTP/1.1\r\ncontent-type: {server.content_type}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in server.shown)
    good = f"{head}host: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    bad = f"{head}host: localhost\r\norigin: {EVIL}\r\ncontent-length: {len(body)}\r\n"
    with Raw(server.address) as raw:
        raw.send(f"{bad}expect: 100-continue\r\n\r\n")
        assert raw.answer().status == 403
        assert raw.ended()
    with Raw(server.address) as raw:
        raw.send(f"{bad}\r\n".encode() + body + good)
        assert raw.answer().status == 403
        assert raw.ended()
    assert server.taken() == before
    look = f"GET {server.look} HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with Raw(server.address) as raw:
        raw.send(f"{look}{bad}\r\n".encode() + body + good)
        assert raw.answer("GET").status == server.seen, "what came before is answered"
        assert b"HTTP/1.1 200" not in raw._incoming.read()
    assert server.taken() == before


def test_each_request_of_a_connection_is_looked_at(server: Server) -> None:
    look = f"GET {server.look} HTTP/1.1\r\nhost: {{}}\r\n\r\n"
    with Raw(server.address) as raw:
        for host in ("localhost", "localhost", "127.0.0.1", "localhost"):
            raw.send(look.format(host))
            assert raw.answer("GET").status == server.seen
        raw.send(look.format("evil.example"))
        assert raw.answer("GET").status == 421
        assert raw.ended()
    with Raw(server.address) as raw:
        raw.send(look.format("localhost"))
        assert raw.answer("GET").status == server.seen
        raw.send(f"GET {server.look} HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n")
        assert raw.answer("GET").status == 400


def test_who_asks_a_query_service_under_another_name_is_told_what_to_do(
    servers: Mapping[str, Server],
) -> None:
    """127.1 leads to 127.0.0.1 on every machine, but is not how an address is written: it is a name."""
    url = f"http://127.1:{servers['queries'].address[1]}"
    done = CliRunner().invoke(app, ["query", "status", "r-1", "--url", url], prog_name="veen")
    assert (done.exit_code, done.stdout) == (4, "")
    assert "127.1 is not one of the names that are served here" in done.stderr
    assert "--host NAME" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# --- the hub ------------------------------------------------------------------------------------------------


def test_pages_of_an_origin_that_was_named(servers: Mapping[str, Server]) -> None:
    hub = servers["hub"]
    for site in ("cross-site", "same-site"):
        assert hub.ask("GET", hub.look, page(site, "cors", origin=LISTED)).status == 200
    assert hub.post(page("cross-site", "cors", origin=LISTED)).status == 200
    assert hub.post(page("cross-site", origin=LISTED), typed=False).status == 415
    plain = hub.ask(
        "POST", hub.path, [*page("cross-site", origin=LISTED), ("content-type", "text/plain")], b"x"
    )
    assert (plain.status, hub.read(plain)) == (400, ("E.FORMAT", "content-type"))
    for other in ("http://app.example", "https://app.example:444", "https://www.app.example"):
        assert hub.post([("origin", other)]).status == 403
    assert hub.ask("GET", hub.look, page("cross-site", origin=None)).status == 403, "who does not say it"


@pytest.mark.parametrize("path", ["/submit", "/authorize"])
@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/json"])
def test_the_older_paths_take_cbor_only(servers: Mapping[str, Server], path: str, kind: str) -> None:
    before = servers["hub"].taken()
    answer = servers["hub"].ask("POST", path, [("content-type", kind)], b"x")
    assert (answer.status, servers["hub"].read(answer)) == (400, ("E.FORMAT", "content-type"))
    assert servers["hub"].taken() == before


def test_what_a_hub_says_of_those_it_turned_away(servers: Mapping[str, Server], hub: HubProcess) -> None:
    server = servers["hub"]
    server.glance(hosts=["evil.example"])
    server.post([("origin", EVIL)])
    found = dict(line.rsplit(" ", 1) for line in counted(hub, "veen_turned_away_total"))
    assert {
        float(found[f'veen_turned_away_total{{header="{name}"}}']) > 0 for name in ("host", "origin")
    } == {True}
    lines = [json.loads(line) for line in hub.log.read_text().splitlines()]
    why = [line["why"] for line in lines if line["event"] == "turned-away"]
    assert any("evil.example is not one of the names" in text for text in why)
    assert any(f"pages of '{EVIL}'" in text for text in why)


def test_the_operators_socket_has_the_same_rule(hub: HubProcess) -> None:
    for host, status in ((b"localhost", b"200"), (b"evil.example", b"421"), (b"", b"400")):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(hub.place / "state" / "admin.sock"))
            sock.sendall(b"GET /admin/trust HTTP/1.1\r\nhost: " + host + b"\r\nconnection: close\r\n\r\n")
            assert sock.recv(12).endswith(status)


def test_a_hub_goes_by_the_names_of_its_machine(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub:
        server = serve_hub(hub)
        for name in (socket.gethostname(), socket.getfqdn(), "localhost", "127.0.0.1"):
            assert server.glance(hosts=[name]).status == 200
        assert server.glance(hosts=[NAME]).status == 421
