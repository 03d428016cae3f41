"""A change of keys that is cut short: the hub stops, the next start finishes it, and no seed is lost."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import builders
from tests.hub.hub_without_sockets import FatalErrors
from tests.storage.checks import Faulty
from veen.core.data_dir.hub_settings import (
    IDENTITY,
    IDENTITY_JSON,
    IDENTITY_SIG,
    KEY_MAP,
    PENDING,
    HubSettings,
)
from veen.core.objects import labels
from veen.core.objects.control_record import TrustRecord
from veen.core.objects.receipt import Receipt
from veen.hub.config import Settings
from veen.hub.home import SECRETS, Home, HubSecrets, create_home, open_home, rotate
from veen.hub.hub import Hub
from veen.hub.metrics import TimedFilesystem
from veen.hub.read.thread_pool import Job
from veen.storage import WriterStoppedError
from veen.storage.directory import read_public

NOW = 1_900_000_000
SETTINGS = Settings.model_validate({"verify_workers": 0})
#: What is written, in this order, once the secret is on disk.
_PUBLISHED = (PENDING, IDENTITY, IDENTITY_SIG, IDENTITY_JSON, KEY_MAP)


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[Faulty]:
    made = Faulty(tmp_path / "hub")
    yield made
    made.close()


def make(fs: Faulty) -> Home:
    chosen = HubSettings(epoch_sec=0, pad_blocks=(256,), require_cap=False)
    return create_home(fs, chosen, SETTINGS.registry(), builders.counted_random())


def seeds(fs: Faulty) -> tuple[bytes, ...]:
    return HubSecrets.decode((fs.root / SECRETS).read_bytes()).seeds


def contents(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("call", ["write_all", "rename"])
@pytest.mark.parametrize("file", _PUBLISHED)
def test_an_error_while_a_key_is_published_stops_the_hub_and_the_next_start_knows(
    fs: Faulty, file: str, call: str
) -> None:
    home = make(fs)
    fs.fault = lambda name, path: errno.EIO if name == call and path.removesuffix(".tmp") == file else None
    with pytest.raises(WriterStoppedError, match="start the hub again"):
        rotate(fs, home, os.urandom, at=NOW, overlap_sec=10)
    fs.heal()
    assert len(seeds(fs)) == 2
    again = open_home(fs)
    keys = 1 if file == PENDING else 2
    assert len(again.identity.hub_keys) == keys
    assert len(again.ring.keys) == keys
    assert not (fs.root / PENDING).exists()
    assert read_public(fs) == (again.identity, again.settings)


def test_a_seed_of_an_attempt_that_failed_is_kept(fs: Faulty) -> None:
    home = make(fs)
    fs.fail("rename", PENDING, errno.ENOSPC)
    with pytest.raises(WriterStoppedError):
        rotate(fs, home, os.urandom, at=NOW, overlap_sec=10)
    fs.heal()
    before = seeds(fs)
    made = rotate(fs, home, os.urandom, at=NOW, overlap_sec=10)  # by whoever has the old state still
    assert seeds(fs) == (*before, made.secrets.seeds[-1])
    assert len(seeds(fs)) == 3
    assert len(open_home(fs).identity.hub_keys) == 2


def test_who_only_reads_finishes_nothing(fs: Faulty) -> None:
    home = make(fs)
    fs.fail("rename", IDENTITY_SIG, errno.EIO)
    with pytest.raises(WriterStoppedError):
        rotate(fs, home, os.urandom, at=NOW, overlap_sec=10)
    fs.heal()
    before = contents(fs.root)
    fs.fault = lambda name, path: pytest.fail(f"{name} {path}")
    identity, _ = read_public(fs)
    assert open_home(fs, locked=False).identity == identity
    assert contents(fs.root) == before
    fs.heal()
    assert len(identity.hub_keys) == 2, "what will be is what is said"
    assert open_home(fs).identity == identity
    assert not (fs.root / PENDING).exists()


class FaultyHubFiles(Faulty, TimedFilesystem):
    """The files of a hub at work, with errors for chosen calls."""


def open_hub(fs: TimedFilesystem, home: Home, fatal: FatalErrors) -> Hub:
    return Hub(
        fs,
        home,
        SETTINGS,
        clock=lambda: NOW,
        random=os.urandom,
        owner="the test",
        events=fatal,
    )


async def turn(hub: Hub, run: object) -> Job:
    future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
    hub.turn(run, future.set_result)  # type: ignore[arg-type] # a function
    return await future


async def record(hub: Hub, note: str) -> Receipt:
    """Have the hub sign something."""
    made = TrustRecord(issuer_pk=builders.verify_key("issuer"), trusted=True, note=note)
    assert (await turn(hub, lambda: hub.control(made))).error is None
    label = labels.control_label(hub.home.identity.hub_id)
    return hub.reader.entry(label, hub.reader.last_seq(label)).receipt


def test_in_a_hub_at_work_it_is_fatal_and_receipts_of_before_and_after_verify(tmp_path: Path) -> None:
    fs = FaultyHubFiles(tmp_path / "hub")
    home = make(fs)
    fatal = FatalErrors()

    async def run() -> list[Receipt]:
        hub = open_hub(fs, home, fatal)
        receipts = [await record(hub, "before")]
        fs.fail("rename", IDENTITY_SIG, errno.EIO)
        job = await turn(hub, lambda: hub.rotate(10))
        assert isinstance(job.error, WriterStoppedError)
        assert fatal.found == [str(job.error)]
        fs.heal()
        await hub.stop(abandon=True)
        hub = open_hub(fs, open_home(fs), fatal)
        receipts.append(await record(hub, "after"))
        await hub.stop()
        return receipts

    receipts = asyncio.run(run())
    assert len(fatal.found) == 1
    identity, _ = read_public(fs)
    old, new = identity.hub_keys
    assert [identity.verify_receipt(item) for item in receipts] == [old, new]
    fs.close()
