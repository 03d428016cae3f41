"""LMDB files of a client: whole ones are opened, others are named."""

import os
from pathlib import Path
from random import Random

import pytest

from tests.client.participants import QUICK, make_home
from tests.hub.hub_process import HubProcess, veen
from veen.client.client import Client
from veen.client.errors import ClientStateError, DamagedClientFileError
from veen.client.fold.interpret import typed
from veen.client.fold.summary_cache import OVERLAYS_DIR
from veen.client.home.lmdb_file import open_environment, remove_environment, settle
from veen.overlays.builtin.crdt import LWW

MAP_BYTES = 1 << 30


def _written(path: Path, rows: int = 400) -> None:
    environment = open_environment(path, MAP_BYTES)
    with environment.begin(write=True) as txn:
        for nth in range(rows):
            txn.put(b"%d" % nth, bytes(100))
    settle(environment, path)
    environment.close()


def test_a_file_is_made_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.lmdb"
    _written(path)
    assert path.stat().st_mode & 0o777 == 0o600
    environment = open_environment(path, MAP_BYTES)
    with environment.begin() as txn:
        assert txn.get(b"399") == bytes(100)
    environment.close()
    remove_environment(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [0, 1, 4096, 8192, 0.5, -4096, -1])
def test_a_file_that_was_cut_is_damaged(tmp_path: Path, left: float) -> None:
    path = tmp_path / "rows.lmdb"
    _written(path)
    size = path.stat().st_size
    os.truncate(path, int(size * left) if left == 0.5 else int(left) if left >= 0 else size + int(left))
    with pytest.raises(DamagedClientFileError, match=r"rows\.lmdb is damaged: "):
        open_environment(path, MAP_BYTES)


def test_rubbish_is_damaged_and_what_can_not_be_reached_is_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.lmdb"
    path.write_bytes(b"rubbish" * 5000)
    with pytest.raises(DamagedClientFileError, match="damaged"):
        open_environment(path, MAP_BYTES)
    for elsewhere in (tmp_path / "nowhere" / "rows.lmdb", tmp_path / ("long" * 100)):
        with pytest.raises(ClientStateError, match="cannot be used") as caught:
            open_environment(elsewhere, MAP_BYTES)
        assert not isinstance(caught.value, DamagedClientFileError)


def test_what_a_transaction_has_taken_and_given_back_is_not_missing(tmp_path: Path) -> None:
    """LMDB itself leaves files shorter than they say."""
    path = tmp_path / "rows.lmdb"
    environment = open_environment(path, MAP_BYTES)
    for nth in range(4):
        rng = Random(nth)
        with environment.begin(write=True) as txn:
            for _ in range(400):
                txn.put(b"%d" % rng.randrange(800), bytes(rng.choice([10, 500, 1900, 5000, 20000])))
            for name in list(txn.cursor().iternext(values=False)) if nth == 3 else ():
                txn.delete(name)
    before = path.stat().st_size
    settle(environment, path)
    assert path.stat().st_size > before, "this has tested nothing"
    environment.close()
    open_environment(path, MAP_BYTES).close()


@pytest.mark.parametrize("cut", ["empty", "two pages", "half", "one page", "a byte"])
def test_summaries_that_were_cut_are_made_anew(
    tmp_path: Path, hub: HubProcess, stream: str, cut: str
) -> None:
    """By a program of its own: touching what is missing would end it."""
    root = make_home(tmp_path / "alice", "alice").root
    drafts = [typed(LWW, LWW.make(key=b"k", ts=nth, value=b"%d" % nth)) for nth in range(300)]
    with Client.open(root, hub.url, retry=QUICK, rotation=None) as alice:
        list(alice.send_many(stream, drafts))
    words = ("interpret", "crdt.lww", "--stream", stream, "--client", root, "--hub", hub.url)
    assert veen(*words).returncode == 0
    (path,) = (root / OVERLAYS_DIR).glob("*.lmdb")
    size = path.stat().st_size
    sizes = {"empty": 0, "two pages": 8192, "half": size // 2, "one page": size - 4096, "a byte": size - 1}
    os.truncate(path, sizes[cut])
    found = veen(*words)
    assert (found.returncode, found.stderr) == (0, "")
    assert "299" in found.stdout
    assert path.stat().st_size > size // 2, "it is kept again"
    assert veen(*words).stdout == found.stdout
