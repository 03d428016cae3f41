"""``Client.fold`` and ``AsyncClient.fold``: the state, where it is of, and its hash."""

import asyncio
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.participants import QUICK, make_home
from tests.hub.hub_process import HubProcess
from veen.client.async_client import AsyncClient
from veen.client.client import Client
from veen.client.errors import ClientError
from veen.client.fold.interpret import FoldedState, typed
from veen.client.fold.summary_cache import OVERLAYS_DIR
from veen.overlays.builtin.crdt import LWW, LwwMap
from veen.overlays.engine import hash_state

EVENTS = """
from veen.overlays import SUM, KeyedOverlay
from veen.overlays.builtin.crdt import LWW


class Events(KeyedOverlay):
    name, schemas, monoid = "events", (LWW,), SUM

    def cell(self, event):
        return "n", 1
"""


def _fill(client: Client, stream: str) -> None:
    bodies = [{"key": b"a", "value": b"1", "ts": 1}, {"key": b"b", "value": b"2", "ts": 2}]
    client.send_many(stream, [typed(LWW, LWW.make(**body)) for body in bodies])


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    return make_home(tmp_path / "alice").root


def test_a_fold_of_both_clients(alice: Path, hub: HubProcess, stream: str) -> None:
    with Client.open(alice, hub.url, retry=QUICK, rotation=None) as client:
        _fill(client, stream)
        state = client.fold(LwwMap(), stream)
        assert (state.position, state.epoch) == (2, 0)
        assert state.hash == hash_state(LwwMap(), state.tables)
        first = client.fold(LwwMap(), stream, upto=1)
        assert (first.position, first[b"b"]) == (1, None)
        assert first.hash != state.hash
        assert client.fold(LwwMap(), "a stream without entries").position == 0

    async def main() -> None:
        async with AsyncClient.open(alice, hub.url, retry=QUICK) as client:
            again = await client.fold(LwwMap(), stream)
            assert (again.position, again.hash, again[b"a"]) == (state.position, state.hash, state[b"a"])

    asyncio.run(main())


def test_a_fold_that_is_cancelled_asks_the_hub_no_more(alice: Path, hub: HubProcess, stream: str) -> None:
    with Client.open(alice, hub.url, retry=QUICK, rotation=None) as client:
        _fill(client, stream)

    async def main() -> None:
        async with AsyncClient.open(alice, hub.url, retry=QUICK) as client:
            task = asyncio.ensure_future(client.fold(LwwMap(), stream))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, ClientError)):
                await task
            assert (await client.fold(LwwMap(), stream)).position == 2

    asyncio.run(main())


def test_the_class_of_an_overlay_is_not_an_overlay(alice: Path, hub: HubProcess) -> None:
    with (
        Client.open(alice, hub.url, retry=QUICK) as client,
        pytest.raises(TypeError, match=r"did you mean LwwMap\(\)"),
    ):
        client.fold(LwwMap, "anything")  # type: ignore[arg-type]


@pytest.fixture
def client(alice: Path, hub: HubProcess, stream: str) -> Iterator[Client]:
    """Return a client that has sent two events."""
    with Client.open(alice, hub.url, retry=QUICK, rotation=None) as client:
        _fill(client, stream)
        yield client


def test_summaries_are_discarded_if_the_source_of_the_overlay_changed(
    client: Client, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a .pyc of the same second and size would be used
    source = tmp_path / "users_overlay.py"

    def fold_with(text: str) -> FoldedState:
        source.write_text(text)
        monkeypatch.delitem(sys.modules, source.stem, raising=False)
        importlib.invalidate_caches()
        return client.fold(importlib.import_module(source.stem).Events(), stream)

    assert fold_with(EVENTS)["n"] == 2
    assert fold_with(EVENTS).notes == ()
    changed = fold_with(EVENTS.replace('"n", 1', '"n", 7'))
    assert changed["n"] == 14
    assert "other code" in changed.notes[0]
    assert len(list((client.home / OVERLAYS_DIR).glob("*.lmdb"))) == 1, "it leaves no file behind"


def test_summaries_of_an_overlay_without_source_are_not_cached(
    client: Client, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed_in = types.ModuleType("typed_in")
    monkeypatch.setitem(sys.modules, "typed_in", typed_in)
    exec(compile(EVENTS, "<stdin>", "exec"), vars(typed_in))  # noqa: S102 - as an interactive shell does
    assert client.fold(typed_in.Events(), stream)["n"] == 2
    assert not (client.home / OVERLAYS_DIR).exists()
