"""A hub for all tests of feeds in a process, and for each test a client and a stream of its own."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.client.participants import make_home
from tests.hub.hub_process import HubProcess

_names = count(1)


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    make_home(tmp_path / "app")
    return tmp_path / "app"


@pytest.fixture
def stream() -> str:
    """Return a stream that no other test writes to."""
    return f"record/app/{next(_names)}"
