"""``veen.testing.hub``: a hub process that lives as long as a block."""

import http.client
import os
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


def test_a_hub_that_does_not_start_says_why() -> None:
    with pytest.raises(veen.errors.ServerStartError), veen.testing.hub(config="nonsense = 1\n"):
        pass


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "httptools.py").write_text("raise ModuleNotFoundError(name='httptools')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    with pytest.raises(veen.errors.ServerStartError, match=r"veen\[hub\]"), veen.testing.hub():
        pass
