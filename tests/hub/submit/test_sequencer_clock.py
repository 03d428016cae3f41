"""A clock that goes back: hub_ts never does, and the operator can see how far it is behind (C-15)."""

import asyncio
import os
from functools import partial
from pathlib import Path
from time import time

import pytest

from tests import builders
from tests.builders import some_label, verify_key
from tests.hub.hub_process import Client, HubProcess, check_sound
from tests.hub.submit.silent_events import NoEvents
from veen.admission.authority import Authority
from veen.admission.label_scope import Scopes
from veen.admission.stateful import Policy
from veen.core.data_dir.hub_settings import HubSettings
from veen.core.limits import default_limits
from veen.core.objects import labels
from veen.core.objects.control_record import TrustRecord
from veen.core.objects.new_entry import NewEntry
from veen.hub.control.offline_orders import Offline
from veen.hub.home import create_home
from veen.hub.keyring import CheckpointSigner
from veen.hub.metrics import Metrics, TimedFilesystem
from veen.hub.submit.sequencer import Sequencer
from veen.stdx.lru import LruCache
from veen.storage import RealFilesystem, Writer

_AHEAD = 5000


@pytest.mark.slow
def test_a_hub_whose_clock_went_back(tmp_path: Path) -> None:
    """Its newest entry is from a time that is not yet."""
    place, client = tmp_path / "data", Client(some_label())
    with HubProcess(place) as hub, hub.api() as api:
        client.send(api)
        assert hub.metric("veen_clock_behind_seconds") == 0
        hub.stop()
    now = int(time())
    fs = RealFilesystem(place)
    ahead = Offline(fs, clock=lambda: now + _AHEAD, random=os.urandom, owner="a test")
    assert ahead.trust(verify_key("issuer"), trusted=True, note=None).hub_ts == now + _AHEAD
    fs.close()
    with HubProcess(place) as hub, hub.api() as api:
        for _ in range(3):
            client.send(api)
        assert _AHEAD - 100 < hub.metric("veen_clock_behind_seconds") <= _AHEAD
        assert hub.get("/tooling/status")["hub_ts"] == now + _AHEAD
        hub.stop()
    assert [receipt.hub_ts for receipt in client.receipts[1:]] == [now + _AHEAD] * 3
    check_sound(place)


def test_the_sequencer_holds_on_to_the_latest_time(tmp_path: Path) -> None:
    assert asyncio.run(stamps(tmp_path)) == [1000, 1000, 1005, 1005, 3000, 3000, *[3005] * 6]


async def stamps(tmp_path: Path) -> list[int]:
    """Return the times of entries that a sequencer makes while its clock jumps; three times opened anew."""
    fs = TimedFilesystem(tmp_path / "data")
    limits = default_limits(0)
    chosen = HubSettings(epoch_sec=0, pad_blocks=(256,), require_cap=False)
    home = create_home(fs, chosen, limits, builders.counted_random())
    now = [0]
    clock = partial(now.__getitem__, 0)
    signer = CheckpointSigner(home.ring, epoch_sec=0, max_skew_sec=0, clock=clock)
    scopes = Scopes(home.identity.routing_key, rotates=False, new_cache=LruCache)
    policy = Policy(limits=limits, scopes=scopes, epoch_sec=0, require_cap=False)
    made = TrustRecord(issuer_pk=verify_key("issuer"), trusted=True, note=None)
    record = NewEntry.of_control(labels.control_label(home.identity.hub_id), made.encode())
    found = []
    for start in (1000, 3000, 10):
        writer = Writer.open(fs, sign_checkpoint=signer, random=os.urandom, owner="a test")
        sequencer = Sequencer(
            writer,
            home.ring,
            policy,
            Authority(),
            clock=clock,
            decided=lambda _: None,
            events=NoEvents(),
            metrics=Metrics(clock, fs.sync_ms),
        )
        for step in (0, -500, 5, -1000):
            now[0] = start + step
            found.append(sequencer.append(record).hub_ts)
            assert sequencer.hub_ts() == found[-1]
        writer.close()
    fs.close()
    return found
