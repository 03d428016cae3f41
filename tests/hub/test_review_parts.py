"""Parts of a hub by themselves: the log's bound, loopback, checkpoints' keys, rules of then, attachments."""

import errno
import io
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import pytest

from tests import builders
from tests.hub.serving import eventually
from tests.storage.checks import Faulty
from veen.core.checkpoint import Checkpoint
from veen.core.ed25519 import SEED_BYTES, SigningKey
from veen.core.hashing import h
from veen.core.hubfiles import EarlierRule, HubSettings
from veen.core.limits import Limits
from veen.core.types import Coid, Label, NodeHash
from veen.hub import logs
from veen.hub.config import Settings
from veen.hub.keyring import CheckpointSigner, KeyRing, new_identity
from veen.hub.logs import LogWriter
from veen.storage import Attachments, FullError, RealFilesystem, StreamEpoch
from veen.storage.errors import not_found
from veen.storage.fs import Write

# --- the log ------------------------------------------------------------------------------------------------


class Blocking(io.BytesIO):
    """A sink whose reader takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.met = Event()
        self.free = Event()

    def write(self, data: bytes, /) -> int:  # type: ignore[override] # only bytes come here
        self.met.set()
        assert self.free.wait(30)
        return super().write(data)


@pytest.mark.parametrize("together", [1, 3])
def test_lines_that_nobody_takes_are_dropped_beyond_a_bound_in_bytes(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(logs, "_MAX_WAITING_BYTES", 3000)
    sink = Blocking()
    writer = LogWriter(sink)
    try:
        lines = [f"{number:099}" for number in range(60)]
        for at in range(0, 60, together):
            writer.write(lines[at : at + together])
            assert sink.met.wait(30)
        assert writer.dropped == 30, "a line is 100 bytes with its end"
    finally:
        sink.free.set()
        writer.close()
    assert sink.getvalue().decode().splitlines() == lines[:30]


def test_what_was_written_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MAX_WAITING_BYTES", 3000)
    sink = Blocking()
    sink.free.set()
    for _ in range(10):
        writer = LogWriter(sink)
        writer.write(["x" * 2998])
        writer.close()
        assert writer.dropped == 0
    writer = LogWriter(sink)
    writer.write(["y" * 3000])
    writer.close()
    assert writer.dropped == 1, "one line alone can be too long"
    again = LogWriter(sink)

    def taken() -> bool:
        before = again.dropped
        again.write(["z" * 1499])
        return again.dropped == before

    for _ in range(20):  # each is half of the bound: the third fits only if the first was written
        eventually(taken)
    again.close()
    assert sink.getvalue().count(b"z\n") == 20


# --- loopback -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:80", True),
        ("127.0.0.5:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("127.example.org:80", False),
        ("localhost.example.org:80", False),
        ("127.0.0.1.example.org:80", False),
        ("0.0.0.0:80", False),
        ("[::]:80", False),
        ("128.0.0.1:80", False),
    ],
)
def test_only_loopback_goes_without_tokens(address: str, *, loopback: bool) -> None:
    assert Settings.model_validate({"listen": [address]}).resolved_require_cap is not loopback
    assert Settings.model_validate({"listen": ["127.0.0.1:0", address]}).resolved_require_cap is not loopback


# --- keys of checkpoints ------------------------------------------------------------------------------------

_LABEL = builders.some_label()
_SEEDS = tuple(builders.digest(name)[:SEED_BYTES] for name in ("first", "second"))
_STREAM = builders.stream()


def _ring() -> KeyRing:
    """Two keys: one until 1100, one from 1000 on."""
    first = SigningKey.from_seed(_SEEDS[0])
    old = KeyRing.of(new_identity(first, builders.reader_public(), None), _SEEDS[:1])
    return old.rotated(_SEEDS[1], 1000, 100)


def _made(*, now: int, hub_ts: int | None, epoch_sec: int = 0, epoch: int = 0) -> tuple[KeyRing, Checkpoint]:
    """Make a checkpoint of an entry of a time; None: it is pruned."""
    ring = _ring()
    signer = CheckpointSigner(ring, epoch_sec=epoch_sec, max_skew_sec=10, clock=lambda: now)

    def hub_ts_of(label: Label, seq: int) -> int:
        assert (label, seq) == (_LABEL, 7)
        if hub_ts is None:
            raise not_found("stream_seq", "it is pruned")
        return hub_ts

    signer.hub_ts_of = hub_ts_of
    return ring, signer(_LABEL, 7, NodeHash(builders.digest("root")), StreamEpoch(_STREAM, epoch))


def _signed_by(ring: KeyRing, made: Checkpoint, *, epoch_sec: int) -> int:
    used = ring.identity.verify_checkpoint(made, epoch_sec=epoch_sec, max_skew_sec=10)
    return ring.identity.hub_keys.index(used)


@pytest.mark.parametrize(
    ("now", "hub_ts", "key"),
    [
        (5000, 999, 0),
        (5000, 1000, 1),  # of those that may, the newest
        (5000, 4000, 1),
        (500, 1200, 1),  # the clock has gone back since
        (5000, None, 1),
        (500, None, 0),
    ],
)
def test_a_checkpoint_has_the_key_of_its_last_entry(now: int, hub_ts: int | None, key: int) -> None:
    ring, made = _made(now=now, hub_ts=hub_ts)
    assert _signed_by(ring, made, epoch_sec=0) == key


@pytest.mark.parametrize(
    ("epoch", "hub_ts", "key"),
    [
        (9, 950, 0),  # both count for the epoch 900 to 1000, with its skew
        (9, 1005, 1),
        (9, None, 1),
        (10, 1050, 1),
        (3, 5000, 0),  # only one counts, and the entry is none of its time
        (20, 500, 1),
    ],
)
def test_with_epochs_it_is_one_that_counts_for_the_epoch(epoch: int, hub_ts: int | None, key: int) -> None:
    ring, made = _made(now=5000, hub_ts=hub_ts, epoch_sec=100, epoch=epoch)
    assert _signed_by(ring, made, epoch_sec=100) == key


# --- the rules of then --------------------------------------------------------------------------------------


def test_what_held_before_is_known_for_its_time() -> None:
    kept = HubSettings(
        epoch_sec=0,
        pad_blocks=(256,),
        require_cap=False,
        earlier=(EarlierRule(until=100, require_cap=False), EarlierRule(until=200, require_cap=True)),
    )
    assert HubSettings.decode(kept.encode()) == kept
    found = {time: kept.require_cap_at(time) for time in (0, 99, 101, 199, 201, 10_000)}
    assert found == {0: False, 99: False, 101: True, 199: True, 201: False, 10_000: False}
    # In the second of a change both held: what is in the log was taken, with or without a token.
    assert not kept.require_cap_at(100)
    assert not kept.require_cap_at(200)


# --- attachments --------------------------------------------------------------------------------------------


class CutShort(Faulty):
    """A disk that gets full while it writes."""

    def write_all(self, writes: Sequence[Write]) -> None:
        RealFilesystem.write_all(self, [write._replace(data=write.data[:5]) for write in writes])
        self.meet("write", writes[0].path)


@pytest.mark.parametrize("call", ["write", "rename"])
def test_an_attachment_that_could_not_be_written_leaves_nothing_behind(tmp_path: Path, call: str) -> None:
    fs = CutShort(tmp_path)
    store = Attachments(fs, Limits(), 1000)
    data = b"an attachment"
    coid = Coid(h(data))
    fs.fail(call, "attachments", errno.ENOSPC)
    for _ in range(3):
        with pytest.raises(FullError):
            store.put(coid, data)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    fs.close()
