"""Places for data directories on the real file system."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from veen.storage.fs import RealFilesystem


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[RealFilesystem]:
    """A place for a data directory; nothing is there yet."""
    made = RealFilesystem(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[RealFilesystem]:
    """Another place, for copies."""
    made = RealFilesystem(tmp_path / "copy")
    yield made
    made.close()
