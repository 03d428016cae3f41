"""One hub for a module, and people who use it."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.client.participants import Person, make_home, person
from tests.hub.hub_process import HubProcess

_names = count(1)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as made:
        yield made


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stream() -> str:
    """Return a stream that no other test writes to."""
    return f"stream/{next(_names)}"


Opens = Callable[..., Person]


@pytest.fixture
def opens(tmp_path: Path, hub: HubProcess, kind: str) -> Iterator[Opens]:
    """Return what opens somebody's client: made at the first time."""
    opened: list[Person] = []

    def open_one(name: str = "alice", url: str = "", **more: Any) -> Person:
        place = tmp_path / name
        if not place.exists():
            make_home(place, name)
        made = person(kind, place, url or hub.url, **{"rotation": None, **more})
        opened.append(made)
        return made

    yield open_one
    for item in opened:
        item.close()
