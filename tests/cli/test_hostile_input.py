"""What strangers write, and mistakes of every kind: one line, a code, and nothing that steers a terminal."""

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.command_runner import User
from tests.client.proxy import Answer, Passing, Proxy
from tests.hub.hub_process import TIMEOUT, VEEN, HubProcess, environment, veen
from veen.cli.output import plain
from veen.client.home.directory import ClientHome
from veen.client.keys.keystore import Secrets
from veen.core.api.data_plane import StreamResponse
from veen.core.types import Signature


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
    assert shown.count("\nid_sign: ") == 1, "a name cannot look like another line"


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


def test_resume_goes_on_behind_a_limit(user: User) -> None:
    user.ok("bench", "send", "--stream", "portions", "--count", "5")
    seen = [user.ok("stream", "--stream", "portions", "--resume", "--limit", "2") for _ in range(4)]
    assert [[item["stream_seq"] for item in page] for page in seen] == [[1, 2], [3, 4], [5], []]
    followed = user.run("stream", "--stream", "portions", "--follow", "--limit", "3")
    assert len(followed.stdout.splitlines()) == 3


def test_good_entries_before_a_bad_one_are_in_the_document_of_the_error(user: User, hub: HubProcess) -> None:
    def after(passing: Passing, answer: Answer) -> Answer:
        if passing.path != "/v1/stream":
            return answer
        page = StreamResponse.decode(answer.body)
        items = [
            replace(item, receipt=replace(item.receipt, hub_sig=Signature(bytes(64))))
            if item.stream_seq == 3 and item.receipt is not None
            else item
            for item in page.items
        ]
        return Answer(200, answer.content_type, replace(page, items=tuple(items)).encode())

    user.ok("bench", "send", "--stream", "bad", "--count", "4")
    with Proxy(hub.url) as between:
        between.after = after
        done = user.run("stream", "--stream", "bad", "--hub", between.url, "--json")
    assert done.exit_code == 4
    found = json.loads(done.stdout)
    assert (found["ok"], found["code"]) == (False, "E.SIG")
    assert [item["stream_seq"] for item in found["entries"]] == [1, 2]


@pytest.mark.parametrize("follow", [True, False])
def test_an_interrupt_ends_with_1(user: User, hub: HubProcess, tmp_path: Path, follow: bool) -> None:  # noqa: FBT001 - which
    stream = f"interrupted {follow}"
    user.ok("send", "--stream", stream, "--body", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent, contextlib.ExitStack() as stack:
        words = ["stream", "--stream", stream, "--json"]
        words += ["--follow"] if follow else ["--hub", f"http://127.0.0.1:{silent.getsockname()[1]}"]
        with subprocess.Popen(
            [*VEEN, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(HOME=str(tmp_path), VEEN_HUB=hub.url),
        ) as running:
            assert running.stdout is not None
            silent.settimeout(TIMEOUT)
            begun = running.stdout.readline() if follow else stack.enter_context(silent.accept()[0])
            running.send_signal(signal.SIGINT)
            told, errors = running.communicate(timeout=TIMEOUT)
    assert begun
    assert running.returncode == 1, errors
    assert "Traceback" not in errors
    if follow:
        assert not told
    else:
        assert json.loads(told)["code"] == "E.INTERRUPTED"


def test_no_writer_can_stop_an_export(user: User, tmp_path: Path) -> None:
    place = tmp_path / ".local/share/veen/client"
    (tmp_path / "file").write_text("attached")
    user.ok("send", "--stream", "exported", "--body", "1", "--attach", tmp_path / "file")
    user.ok("send", "--stream", "exported", "--body", '{"attachments": [1, 2]}')
    user.ok("send", "--stream", "exported", "--body", '{"attachments": [{"coid": 1, "size": 2}]}')
    words = ("--stream", "exported", "--out", tmp_path / "set", "--attachments", place)
    assert user.ok("export", *words)["attachments"] == 1
