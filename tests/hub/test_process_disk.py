"""A hub whose disk is full, or fails: writes are refused, reads go on, and nothing acknowledged is lost."""

import http.client
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.builders import some_label
from tests.hub.hub_process import TIMEOUT, Client, HubProcess, Refused, check_sound
from tests.storage.simulation.oneshots import start

_MOUNT: Final = ("unshare", "--map-root-user", "--mount")


def _can(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


_CAN_MOUNT: Final = _can(*_MOUNT, "mount", "-t", "tmpfs", "none", "/mnt")
_CAN_TRACE: Final = _can("strace", "-f", "-o", "/dev/null", "true")
pytestmark = pytest.mark.slow


@pytest.mark.skipif(not _CAN_MOUNT, reason="mounting in a namespace is not allowed here")
@pytest.mark.parametrize("kilobytes", [5400])
def test_a_full_disk(tmp_path: Path, kilobytes: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with start([*_MOUNT, sys.executable, "-m", "tests.hub.small_disk", str(disk), str(kilobytes)]) as process:
        said, error = process.communicate()
    assert process.returncode == 0, error[-3000:]
    assert said in ("refused\n", "stopped\n")


@pytest.mark.skipif(not _CAN_TRACE, reason="strace is not installed, or ptrace is not allowed here")
def test_a_disk_that_fails_stops_the_hub(tmp_path: Path) -> None:
    """What was answered is there after a restart; what was not, may be, and a retry finds out (C-63)."""
    place, client = tmp_path / "data", Client(some_label())
    with HubProcess(place) as hub, hub.api() as api:
        client.send(api)
        hub.stop()
    trace = ("strace", "-f", "-o", str(tmp_path / "trace"), "-e", "trace=fdatasync")
    inject = ("-e", "inject=fdatasync:error=EIO:when=40+")
    with HubProcess(place, wrapper=(*trace, *inject), config="verify_workers = 0\n") as hub:
        with pytest.raises((OSError, http.client.HTTPException, Refused)):
            send_on(hub, client)
        assert hub.process.wait(TIMEOUT) == 1
    assert "INJECTED" in (tmp_path / "trace").read_text(errors="replace")
    assert not (place / "hub.pid").exists()
    with HubProcess(place) as hub, hub.api() as api:
        client.send(api)
        for receipt in client.receipts[::5]:
            api.check(receipt, client.receipts[-1])
        hub.stop()
    assert len({receipt.stream_seq for receipt in client.receipts}) == len(client.receipts)
    check_sound(place)


def send_on(hub: HubProcess, client: Client) -> None:
    with hub.api() as api:
        for _ in range(2000):
            client.send(api)
