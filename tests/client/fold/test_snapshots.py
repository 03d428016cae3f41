"""Snapshots on a hub whose labels change: the root of one tells which label it is of."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.participants import QUICK, make_home
from tests.hub.hub_process import HubProcess
from veen.client.client import Client
from veen.client.errors import ClientStateError
from veen.client.fold.interpret import interpret, typed
from veen.client.fold.snapshots import SnapshotCheck, make_snapshot, verify_snapshot
from veen.client.models import Draft
from veen.core.encoding.shape import Fields
from veen.core.objects import labels
from veen.overlays.builtin.crdt import LWW
from veen.overlays.builtin.snapshot import Snapshots
from veen.overlays.operations.schemas import SNAPSHOT

STREAM, CLASS = "rotating", "lww.map"
WHOLE = bytes(labels.stream_id(STREAM))
_CONFIG = f'epoch_sec = 60\nstreams = ["{STREAM}"]\n[limits]\nmax_epoch_skew_sec = 6000\n'


class Author:
    """Somebody who writes registers and snapshots, some epochs ago."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._now = int(time.time())
        self.at(0)

    def at(self, back: int) -> None:
        """Let it be so many epochs ago."""
        self.client.session.clock = lambda: self._now - 60 * back

    def epoch(self, back: int) -> int:
        """Return the number of an epoch."""
        return self._now // 60 - back

    def write(self, back: int, *values: str) -> None:
        """Write a register."""
        self._send(back, *(typed(LWW, LWW.make(key=b"k", ts=1, value=value.encode())) for value in values))

    def put(self, back: int, body: Fields, **changed: object) -> None:
        """Send a snapshot."""
        self._send(back, typed(SNAPSHOT, {**body, **changed}))

    def _send(self, back: int, *drafts: Draft) -> None:
        self.at(back)
        list(self.client.send_many(STREAM, drafts))
        self.at(0)

    def make(self, upto: int | None = None) -> Fields:
        """Return a snapshot."""
        return make_snapshot(self.client, STREAM, state_class=CLASS, upto=upto)

    def verify(self, upto: int, expected_root: bytes | None = None) -> SnapshotCheck:
        """Check the last snapshot at a number."""
        return verify_snapshot(
            self.client, STREAM, state_class=CLASS, state_id=WHOLE, upto=upto, expected_root=expected_root
        )


@pytest.fixture
def author(tmp_path: Path) -> Iterator[Author]:
    with HubProcess(tmp_path / "rotating", config=_CONFIG) as hub:
        make_home(tmp_path / "author")
        with Client.open(tmp_path / "author", hub.url, retry=QUICK, rotation=None) as client:
            yield Author(client)
        hub.stop()


def test_a_snapshot_that_comes_in_a_later_label_is_of_the_one_whose_root_it_has(author: Author) -> None:
    author.write(40, "a", "b", "c")
    first = author.make()
    assert first["upto_stream_seq"] == 3
    author.put(30, first)  # as number 1 of its label
    assert list(interpret(author.client, Snapshots(), STREAM).reports) == []
    checked = author.verify(3)
    assert checked.consistent
    assert checked.state is not None
    assert (checked.state.epoch, checked.state.mmr_root) == (author.epoch(40), first["mmr_root"])

    author.write(20, "d", "e", "f")
    second = author.make(3)
    assert second["mmr_root"] != first["mmr_root"], "of the newest label with such an entry"
    author.put(10, second)
    checked = author.verify(3)
    assert checked.consistent
    assert checked.state is not None
    assert checked.state.epoch == author.epoch(20)
    earlier = author.verify(3, first["mmr_root"])
    assert earlier.consistent
    assert earlier.state is not None
    assert earlier.state.epoch == author.epoch(40)
    assert earlier.state.state_hash == first["state_hash"] != second["state_hash"]
    view = interpret(author.client, Snapshots(), STREAM).view()
    assert isinstance(view, list)
    assert len(view) == 2, "they are of two places"


def test_false_snapshots_are_found_out_in_whatever_label(author: Author) -> None:
    author.write(40, "a", "b", "c")
    author.write(20, "d", "e", "f")
    true = author.make()
    author.put(10, true)
    author.put(9, true, state_hash=bytes(32))
    found = author.verify(3).mismatch
    assert found is not None
    assert (found.field, found.actual) == ("state_hash", true["state_hash"].hex())
    author.put(8, true, mmr_root=bytes(32))
    found = author.verify(3).mismatch
    assert found is not None
    assert (found.field, found.actual) == ("mmr_root", true["mmr_root"].hex())
    author.put(7, true)
    assert author.verify(3).consistent, "the last one counts"
    found = author.verify(3, bytes(31) + b"x").mismatch
    assert found is not None
    assert found.field == "expected_root"
    with pytest.raises(ClientStateError):
        author.make(99)


def test_a_snapshot_is_not_of_what_is_behind_it(author: Author) -> None:
    author.write(40, "a", "b", "c")
    author.put(50, author.make())
    found = author.verify(3).mismatch
    assert found is not None
    assert found.field == "upto_stream_seq"
