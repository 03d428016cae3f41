"""``veen.testing.hub``: a hub process that lives as long as a block."""

import http.client
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import veen
from tests.client.participants import make_home


def _answers(url: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()


def test_messages_go_through_it_and_it_ends_with_the_block(tmp_path: Path) -> None:
    make_home(tmp_path / "alice")
    with veen.testing.hub() as url:
        assert urlsplit(url).hostname == "127.0.0.1"
        with veen.Client.open(tmp_path / "alice", url) as client:
            client.send("orders", {"item": "tea"})
            assert [message.body for message in client.read("orders")] == [{"item": "tea"}]
        assert _answers(url)
    assert not _answers(url)


def test_it_ends_when_the_block_raises() -> None:
    with pytest.raises(KeyError), veen.testing.hub() as url:
        raise KeyError
    assert not _answers(url)


_PROGRAM = """
import sys, veen
with veen.testing.hub() as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_when_the_program_is_killed(number: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        text=True,
    ) as program:
        assert program.stdout is not None
        url = program.stdout.readline().strip()
        assert _answers(url)
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        descriptors = [os.pidfd_open(int(pid)) for pid in children]
        program.send_signal(number)
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], 30)[0], "it runs on"
        os.close(descriptor)
    assert len(descriptors) == 2, "the hub, and what ends it"
    assert not _answers(url)
    assert list(tmp_path.iterdir()) == []


def test_two_at_once() -> None:
    with veen.testing.hub() as one, veen.testing.hub() as other:
        assert one != other
        assert _answers(one)
        assert _answers(other)


def test_a_hub_that_does_not_start_says_why() -> None:
    with pytest.raises(veen.errors.ServerStartError), veen.testing.hub(config="nonsense = 1\n"):
        pass


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "httptools.py").write_text("raise ModuleNotFoundError(name='httptools')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    with pytest.raises(veen.errors.ServerStartError, match=r"PATH_OF_THE_CLONE\[hub\]"), veen.testing.hub():
        pass
