"""What strangers write, and mistakes of every kind: one line, a code, and nothing that steers a terminal."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import User
from tests.hub.process import HubProcess, veen
from veen.cli.printing import plain
from veen.client.home import ClientHome
from veen.client.keystore import Secrets


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("strangers") / "data") as made:
        yield made


@pytest.fixture
def user(tmp_path: Path, hub: HubProcess) -> User:
    made = User(tmp_path, VEEN_HUB=hub.url)
    made.ok("keygen")
    return made


def test_a_text_for_a_terminal_does_not_steer_it() -> None:
    assert plain("plain, grüße, 語 👍🏽") == "plain, grüße, 語 👍🏽"
    assert plain("a\x1b[2J\n\x9b1m\x7f\u2028\u202e") == r"a\x1b[2J\x0a\x9b1m\x7f\u2028\u202e"


def test_bodies_and_names_of_strangers(user: User, tmp_path: Path) -> None:
    user.ok("send", "--stream", "steering", "--body", '"\\u009b2J \\u001b[2J \\u202e x"')
    line = user.run("stream", "--stream", "steering").stdout
    assert not set("\x9b\x1b\u202e") & set(line), ascii(line)
    mallory = Secrets.generate(os.urandom, 1, "bob\nid_sign: " + "ab" * 32)
    ClientHome.create(tmp_path / "mallory", mallory, now=1)
    shown = user.run("id", "card", tmp_path / "mallory").stdout
    assert shown.count("\nid_sign: ") == 1, "a name can not look like another line"


@pytest.mark.parametrize(
    "words",
    [
        ("send", "--body", "1", "--timeout-ms", "-5"),
        ("send", "--body", "1", "--timeout-ms", "0"),
        ("send", "--body", "1", "--timeout-ms", "9" * 25),
        ("send", "--body", "1", "--hub", "http://127.0.0.1/é"),
        ("send-with-attachment", "--body", '{"attachments": 1}', "--file", __file__),
    ],
)
def test_mistakes_are_told_in_one_line(words: tuple[str, ...], hub: HubProcess, tmp_path: Path) -> None:
    User(tmp_path).ok("keygen")
    done = veen(*words, "--stream", "mistakes", HOME=str(tmp_path), VEEN_HUB=hub.url)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("veen: ")


@pytest.mark.parametrize("name", ["http://" + "a" * 70 + ".example", "http://..", "http://\u2028"])
def test_names_that_no_host_has(user: User, name: str) -> None:
    user.fails(2, "send", "--stream", "a", "--body", "1", "--hub", name)


def test_saying_more_changes_neither_code_nor_document(user: User) -> None:
    more = user.run("verify-state", "--stream", "a", "--hub", "http://127.0.0.1:1", "--verbose", "--json")
    assert more.exit_code == 2
    assert '"ok": false' in more.stdout
    assert "Traceback" in more.stderr


def test_the_state_of_a_stream_that_was_never_seen(user: User) -> None:
    user.ok("send", "--stream", "seen", "--body", "1")
    assert user.ok("verify-state", "--stream", "never seen")["consistent"]


def test_strange_passphrases(tmp_path: Path) -> None:
    user = User(tmp_path, VEEN_KEYSTORE_PASSPHRASE=os.fsdecode(b"not utf-8: \xff"))
    assert user.ok("keygen")["protected_by"] == "passphrase"
    user.ok("id", "show")
    empty = tmp_path / "empty"
    empty.write_text("\n")
    careless = User(tmp_path / "other", VEEN_KEYSTORE_PASSPHRASE_FILE=str(empty))
    assert "no passphrase" in careless.fails(1, "keygen")["detail"]
