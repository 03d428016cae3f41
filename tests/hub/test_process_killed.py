"""The hub killed under load, again and again: what it has answered is there, and clients go on (OS-035)."""

import contextlib
import http.client
import os
import random
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Condition, Thread
from typing import Final

import pytest

from tests.builders import some_label
from tests.hub.hub_process import TIMEOUT, Api, Client, HubProcess, Refused, check_no_secrets, check_sound
from veen.core.objects.receipt import Receipt

#: ``make kills`` asks for more.
_ROUNDS: Final = int(os.environ.get("VEEN_KILLS", "5"))
_BULK: Final = 25
#: Of the receipts of earlier rounds, so many are looked at after each; in the end all are.
_SAMPLE: Final = 60
_CUT: Final = (OSError, http.client.HTTPException)


class Load:
    """Clients that send until the hub is gone, each in a thread."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self._answered = 0
        self._grown = Condition()
        self._errors: list[BaseException] = []
        self._ending = False

    @contextlib.contextmanager
    def on(self, hub: HubProcess) -> Iterator[None]:
        """Send to a hub; all have given up at the end."""
        self._answered, self._ending = 0, False
        threads = [
            Thread(target=self._run, args=(hub.url, client, nth)) for nth, client in enumerate(self.clients)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ending = True
            for thread in threads:
                thread.join(TIMEOUT)
        assert not any(thread.is_alive() for thread in threads)
        assert not self._errors, self._errors

    def wait_for(self, number: int) -> None:
        """Wait until so many receipts more have come."""
        with self._grown:
            aim = self._answered + number
            assert self._grown.wait_for(lambda: self._answered >= aim or self._errors, TIMEOUT)
            assert not self._errors, self._errors

    def _run(self, url: str, client: Client, nth: int) -> None:
        send: Callable[[Api], object] = client.send if nth % 2 else lambda api: client.send_many(api, _BULK)
        try:
            with Api(url) as api:
                while not self._ending:
                    before = len(client.receipts)
                    send(api)
                    with self._grown:
                        self._answered += len(client.receipts) - before
                        self._grown.notify_all()
        except _CUT:
            pass  # the hub was killed: what was not answered is sent again to the next
        except Refused as refused:
            if refused.envelope.code != "E.UNAVAILABLE":
                self._fail(refused)
        except BaseException as error:  # noqa: BLE001 - the test tells it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._grown:
            self._errors.append(error)
            self._grown.notify_all()

    @property
    def receipts(self) -> list[Receipt]:
        return [receipt for client in self.clients for receipt in client.receipts]


def a_load() -> Load:
    return Load([Client(some_label(f"kill {nth % 3}"), f"killed {nth}") for nth in range(6)])


def newest_of(receipts: list[Receipt]) -> dict[bytes, Receipt]:
    found: dict[bytes, Receipt] = {}
    for receipt in receipts:
        if receipt.label not in found or found[receipt.label].stream_seq < receipt.stream_seq:
            found[receipt.label] = receipt
    return found


def check(hub: HubProcess, receipts: list[Receipt], of: list[Receipt]) -> None:
    """Check some receipts of all."""
    newest = newest_of(receipts)
    with hub.api() as api:
        for receipt in of:
            api.check(receipt, newest[receipt.label])


def check_gone(pids: list[int], fds: list[int]) -> None:
    """Check that processes end; they are known by descriptors, as numbers may be anybody's by now."""
    for pid, fd in zip(pids, fds, strict=True):
        assert select.select([fd], [], [], TIMEOUT)[0], f"{pid} has outlived its hub"
        os.close(fd)


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * _ROUNDS)
def test_no_receipt_is_lost_by_kills(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("VEEN_KILLS_SEED", "11")))
    place, load = tmp_path / "data", a_load()
    known: set[Receipt] = set()
    for _ in range(_ROUNDS):
        if chance.random() < 0.4:
            HubProcess(place).interrupt(chance.uniform(0.2, 0.9))  # also while it starts and recovers
        with HubProcess(place, config="verify_workers = 1\n") as hub:
            receipts = load.receipts
            sample = chance.sample(receipts, min(_SAMPLE, len(receipts)))
            check(hub, receipts, [*(set(receipts) - known), *sample])
            known = set(receipts)
            with load.on(hub):
                load.wait_for(chance.randint(1, 250))
                children = hub.children()
                fds = [os.pidfd_open(pid) for pid in children]
                if chance.random() < 0.3:
                    os.kill(hub.pid, signal.SIGTERM)  # also while it stops
                hub.kill()
            check_gone(children, fds)
    with HubProcess(place) as hub:
        check(hub, load.receipts, load.receipts)
        for client in load.clients:
            with hub.api() as api:
                client.send(api)
        hub.stop()
    places = {(receipt.label, receipt.stream_seq) for receipt in load.receipts}
    assert len(places) == len(load.receipts)
    check_sound(place)
    check_no_secrets(place, hub.log.read_bytes())


@pytest.mark.slow
def test_a_stop_under_load_loses_nothing(tmp_path: Path) -> None:
    place, load = tmp_path / "data", a_load()
    for number in (signal.SIGTERM, signal.SIGINT):
        with HubProcess(place) as hub, load.on(hub):
            load.wait_for(150)
            assert hub.terminate(number) == 0
        assert '"clean": true' in hub.log.read_text().splitlines()[-1]
    with HubProcess(place) as hub:
        check(hub, load.receipts, load.receipts[::3])
        for client in load.clients:
            with hub.api() as api:
                client.send(api)
        hub.stop()
    check_sound(place)


@pytest.mark.slow
def test_messages_outlive_the_processes_that_check_them(tmp_path: Path) -> None:
    load = a_load()
    with HubProcess(tmp_path / "data", config="verify_workers = 2\n") as hub:
        with load.on(hub):
            for _ in range(3):
                load.wait_for(100)
                for pid in hub.children():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                load.wait_for(300)
        assert hub.get("/healthz")["ok"]
        check(hub, load.receipts, load.receipts[::7])
        assert hub.metric("veen_verifier_lost_total") >= 1
        text = hub.log.read_text()
        assert "fault" not in text
        assert "Traceback" not in text
        hub.stop()
    check_sound(tmp_path / "data")


def test_no_process_outlives_a_killed_hub(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data", config="verify_workers = 2\n") as hub:
        with hub.api() as api:
            Client(some_label()).send_many(api, _BULK)  # the workers are at work, so they have been started
        children = hub.children()
        fds = [os.pidfd_open(pid) for pid in children]
        hub.kill()
    assert children
    check_gone(children, fds)
