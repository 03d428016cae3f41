"""Names, addresses and origins as they are written, and which of them are ours (C-196)."""

import pytest

from tests.expect import refused
from veen.core.errors import Code, Detail
from veen.net.host_names import (
    Authority,
    Head,
    Names,
    parse_authority,
    parse_host,
    parse_origin,
    split_target,
)

NAMES = Names(hosts=frozenset({"hub.example"}), origins=frozenset({"https://app.example"}), advice="list it")


@pytest.mark.parametrize(
    ("text", "name", "port"),
    [
        ("hub", "hub", None),
        ("Hub.Example:8080", "hub.example", 8080),
        ("hub.example.", "hub.example.", None),
        ("my_hub-1", "my_hub-1", None),
        ("hub:", "hub", None),
        ("hub:0", "hub", 0),
        ("hub:65535", "hub", 65535),
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("[::1]", "[::1]", None),
        ("[2001:DB8::1]:443", "[2001:db8::1]", 443),
        ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]", None),
    ],
)
def test_hosts(text: str, name: str, port: int | None) -> None:
    assert parse_authority(text) == Authority(name, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        ".hub",
        "-hub",
        "hub-",
        "hub..",
        "user@hub",
        "a,b",
        "a b",
        "hub/x",
        "hub:x",
        "hub:80:80",
        "hub:65536",
        "hub:100000",
        "hub:-1",
        "hub:+1",
        "hub:٣",
        "hüb",
        "\u212aelvin",
        "h%75b",
        "::1",
        "[::1",
        "[::1]x",
        "[::1].",
        "[1.2.3.4]",
        "[:::]",
        "[fe80::1%eth0]",
        "[v1.x]",
        "a" * 64,
        "a." * 130,
    ],
)
def test_what_is_no_host(text: str) -> None:
    assert parse_authority(text) is None
    assert parse_host(text) is None


def test_a_name_has_no_port_and_no_last_dot() -> None:
    assert parse_host("Hub.Example.") == "hub.example"
    assert parse_host("[::1]") == "[::1]"
    assert parse_host("hub:80") is None
    assert parse_host("[::1]:80") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://hub", "http://hub"),
        ("HTTP://Hub:80", "http://hub"),
        ("https://hub:443", "https://hub"),
        ("https://hub:80", "https://hub:80"),
        ("http://[::1]:37411", "http://[::1]:37411"),
        ("null", None),
        ("", None),
        ("hub", None),
        ("http://hub/", None),
        ("http://user@hub", None),
        ("http://a http://b", None),
        ("http://", None),
        ("file://hub", None),
        ("chrome-extension://abcdef", None),
    ],
)
def test_origins(text: str, found: str | None) -> None:
    assert parse_origin(text) == found


@pytest.mark.parametrize(
    ("target", "authority", "path"),
    [
        ("/healthz?a=http://b", None, "/healthz?a=http://b"),
        ("//evil/healthz", None, "//evil/healthz"),
        ("*", None, "*"),
        ("http://hub/healthz", "hub", "/healthz"),
        ("HTTP://hub:1/a/b?c", "hub:1", "/a/b?c"),
        ("https://hub", "hub", "/"),
        ("http://hub?a=/b", "hub", "/?a=/b"),
        ("http://user@hub/", "user@hub", "/"),
        ("http:///healthz", "", "/healthz"),
        ("ftp://hub/healthz", None, "ftp://hub/healthz"),
    ],
)
def test_targets(target: str, authority: str | None, path: str) -> None:
    assert split_target(target) == (authority, path)


def check(
    headers: dict[str, str], *, authority: str | None = None, version: str = "1.1", secure: bool = False
) -> None:
    """Check a head; the value of a header that is repeated has a bar."""
    repeated = {name for name, value in headers.items() if "|" in value}
    NAMES.check(Head(headers, repeated, authority, version, secure))


def test_the_first_failing_check_wins() -> None:
    """Each of these has everything wrong that comes after what it is refused for."""
    page = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    with refused(Detail.VALUE, code=Code.BAD_REQUEST, field="host"):
        check({"host": "a|b", **page}, authority="evil.example")
    with refused(Detail.VALUE, code=Code.BAD_REQUEST, field="host"):
        check({**page}, authority="evil.example")
    with refused(Detail.VALUE, code=Code.BAD_REQUEST, field="host"):
        check({"host": "", **page}, authority="evil.example")
    with refused(Detail.VALUE, code=Code.FORBIDDEN, field="host"):
        check({"host": "evil.example", **page}, authority="user@hub")
    with refused(Detail.VALUE, code=Code.BAD_REQUEST, field="host"):
        check({"host": "hub.example", **page}, authority="user@hub")
    with refused(Detail.VALUE, code=Code.FORBIDDEN, field="host"):
        check({"host": "hub.example", **page}, authority="evil.example")
    with refused(Detail.VALUE, code=Code.FORBIDDEN, field="origin"):
        check({"host": "hub.example", **page}, authority="hub.example")
    check({"host": "hub.example"}, authority="hub.example")


def test_the_refusal_of_a_name_says_what_to_do() -> None:
    with refused(Detail.VALUE, code=Code.FORBIDDEN) as caught:
        check({"host": "Evil.Example.:80"})
    assert caught.value.message == "evil.example is not one of the names that are served here: list it"


def test_the_origin_of_a_request_is_that_of_its_target() -> None:
    """RFC 9112 3.2.2: a target that is a whole URL counts in place of Host."""
    check({"host": "localhost", "origin": "http://hub.example"}, authority="hub.example")
    with refused(Detail.VALUE, code=Code.FORBIDDEN, field="origin"):
        check({"host": "localhost", "origin": "http://localhost"}, authority="hub.example")


def test_the_origin_of_a_request_has_its_scheme_and_port() -> None:
    check({"host": "hub.example:443", "origin": "https://hub.example"}, secure=True)
    check({"host": "hub.example", "origin": "https://hub.example:443"}, secure=True)
    for wrong in ("http://hub.example", "https://hub.example:444", "https://hub.example."):
        with refused(Detail.VALUE, code=Code.FORBIDDEN, field="origin"):
            check({"host": "hub.example", "origin": wrong}, secure=True)
    with refused(Detail.VALUE, code=Code.FORBIDDEN, field="origin"):
        check({"host": "hub.example:80", "origin": "https://hub.example"}, secure=True)


def test_who_says_no_host_has_no_origin() -> None:
    check({}, version="1.0")
    with refused(Detail.VALUE, code=Code.FORBIDDEN, field="origin"):
        check({"origin": "http://localhost"}, version="1.0")
    check({"origin": "https://app.example"}, version="1.0")


def test_an_origin_that_was_named_may_be_on_another_site() -> None:
    for site in ("cross-site", "same-site", "same-origin"):
        check({"host": "hub.example", "origin": "https://APP.example:443", "sec-fetch-site": site})
    for more in ({"origin": "https://app.example|x"}, {"sec-fetch-site": "none|none"}):
        with refused(Detail.VALUE, code=Code.FORBIDDEN, field="origin"):
            check({"host": "hub.example", "origin": "https://app.example", **more})
