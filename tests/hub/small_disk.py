"""A hub on a small disk: ``small_disk.py DIR KILOBYTES``, in a mount namespace of its own.

It mounts a file system of this size, starts a hub on it, and sends messages until there is no space. Then it
reads, makes space, goes on and stops. At the end every receipt that it was given is checked.
"""

import contextlib
import sys
from pathlib import Path
from subprocess import run
from time import monotonic

from tests.builders import some_label
from tests.hub.hub_process import TIMEOUT, Api, Client, HubProcess, Refused, check_sound, veen

#: Given back when the disk is full: enough to move all that is in the journal.
_BALLAST_BYTES = 4 << 20
_BULK = 50
_REFUSALS = 3


def main() -> None:
    """Fill, read, make space, go on."""
    disk = Path(sys.argv[1])
    run(["mount", "-t", "tmpfs", "-o", f"size={int(sys.argv[2])}k", "none", str(disk)], check=True)  # noqa: S607
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(_BALLAST_BYTES))
    client = Client(some_label())
    log = disk.with_name("hub.log")  # elsewhere: it would fill the disk, and what is left at the end
    with HubProcess(disk / "data", log=log) as hub:
        with hub.api() as api:
            for _ in range(_REFUSALS):
                check_refusal(until_full(client, api))
            check_reads(client, api)
        ballast.unlink()
        # A write that was cut in the index ends the hub; then it is started again.
        stopped = hub.process.poll() is not None
        if not stopped:
            with hub.api() as api:
                go_on(client, api)
                check_reads(client, api)
            wait_well(hub)
            hub.stop()
    with HubProcess(disk / "data", log=log) as hub:
        with hub.api() as api:
            go_on(client, api)
            check_reads(client, api)
        hub.stop()
    check_start_without_space(disk, log)
    check_sound(disk / "data")
    places = [receipt.stream_seq for receipt in client.receipts]
    assert places == list(range(1, len(places) + 1)), "nothing was kept that was refused"
    sys.stdout.write("stopped\n" if stopped else "refused\n")


def check_start_without_space(disk: Path, log: Path) -> None:
    """Check that a hub that can not start says so, and starts when it can."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    done = veen("hub", "start", "--foreground", "--data-dir", disk / "data", "--listen", "127.0.0.1:0")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "space" in done.stderr, done.stderr
    ballast.unlink()
    with HubProcess(disk / "data", log=log) as hub:
        hub.stop()


def until_full(client: Client, api: Api) -> Refused | None:
    """Send until the hub has no space; each message apart when many do not fit any more."""
    while True:
        try:
            client.send_many(api, _BULK)
        except Refused as refused:
            return refused
        except AssertionError:  # some of the bulk were taken
            break
    while True:
        try:
            client.pending = client.pending[:1]
            client.send(api)
        except Refused as refused:
            return refused


def check_refusal(refused: Refused | None) -> None:
    """Check that a client is told to come back."""
    assert refused is not None
    assert (refused.status, refused.envelope.code) == (503, "E.UNAVAILABLE"), refused
    assert int(refused.headers["retry-after"]) >= 1


def check_reads(client: Client, api: Api) -> None:
    """Check that everything that was acknowledged is served."""
    for receipt in client.receipts[:: max(1, len(client.receipts) // 50)]:
        api.check(receipt, client.receipts[-1])


def go_on(client: Client, api: Api) -> None:
    """Send again, with the same messages."""
    end = monotonic() + TIMEOUT
    for _ in range(20):
        while True:
            try:
                client.send(api)
            except Refused as refused:
                check_refusal(refused)
                assert monotonic() < end
            else:
                break


def wait_well(hub: HubProcess) -> None:
    """Wait until the hub has noticed that there is space."""
    end = monotonic() + TIMEOUT
    while not hub.get("/healthz")["ok"]:
        assert monotonic() < end


if __name__ == "__main__":
    main()
