"""What is decided while the disk is busy: it counts if the disk takes what came before, and only then."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from threading import Event
from typing import TYPE_CHECKING

import pytest

from tests import builders
from tests.hub.hub_without_sockets import Inside, Outcome, inside
from tests.hub.submit.silent_events import NoEvents
from tests.storage.checks import Faulty
from veen.admission.prefilter import sized
from veen.core.objects import labels
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.hub.config import Settings
from veen.hub.metrics import Metrics, TimedFilesystem
from veen.hub.submit.sequencer import Sequencer
from veen.hub.submit.submission import MessageForm, Submission
from veen.hub.submit.verifier_process import verify

if TYPE_CHECKING:
    from veen.hub.read.thread_pool import Job

NOW = 1_900_000_000
SETTINGS = Settings.model_validate({"verify_workers": 0, "require_cap": "false"})


class SlowDisk(Faulty, TimedFilesystem):
    """The journal's disk waits for the test at each sync; then it does as the test says."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reached, self.released = Event(), Event()
        self.released.set()
        self.then: Callable[[], None] = lambda: None

    def meet(self, call: str, path: str) -> None:
        if call == "append" and "journal" in path:
            self.reached.set()
            self.released.wait()
            self.then()
        super().meet(call, path)

    def hold(self) -> None:
        self.reached.clear()
        self.released.clear()

    def go_on(self, then: Callable[[], None] = lambda: None) -> None:
        self.then = then
        self.released.set()


Story = Callable[[Inside, SlowDisk, Label], Awaitable[None]]


def tell(story: Story, place: Path) -> None:
    """Open a hub on a slow disk, and let a story happen to it."""

    async def run() -> None:
        disk = SlowDisk(place)
        async with inside(place, SETTINGS, NOW, fs=disk) as hub:
            routing = hub.hub.home.identity.routing_key
            await story(hub, disk, labels.label(routing, labels.stream_id("stream"), 0))

    asyncio.run(run())


def message(label: Label, client_seq: int, prev_ack: int = 0) -> Msg:
    context = builders.context(label=label, client_seq=client_seq, prev_ack=prev_ack)
    return builders.msg(context)


async def at_the_disk(disk: SlowDisk) -> None:
    await asyncio.get_running_loop().run_in_executor(None, disk.reached.wait, 10)


async def place(hub: Inside, *messages: Msg) -> asyncio.Task[list[Outcome]]:
    """Submit, and let the hub decide; the answer comes when the disk has it."""
    task = asyncio.create_task(hub.submit(messages))
    for _ in range(5):  # turns of the loop: they are taken, checked, placed
        await asyncio.sleep(0)
    return task


def seqs(outcomes: list[Outcome]) -> list[int]:
    return [item.stream_seq for item in outcomes if isinstance(item, Receipt)]


def codes(outcomes: list[Outcome]) -> list[str]:
    return [item.code for item in outcomes if isinstance(item, ErrorEnvelope)]


def test_a_batch_waits_for_messages_that_are_being_verified(tmp_path: Path) -> None:
    """They share its sync; if they are rejected, it waits no longer."""

    async def story(inside: Inside, _disk: SlowDisk, label: Label) -> None:
        hub = inside.hub
        answered: asyncio.Queue[Submission] = asyncio.Queue()

        def verified(client_seq: int) -> Submission:
            body = sized(message(label, client_seq, client_seq - 1).encode(), hub.limits, bare=True)
            made = Submission(MessageForm.MSG, len(body), lambda _: None)
            made.record = verify(made.form, body, hub.intake.rules)
            return made

        def decided(messages: Sequence[Submission]) -> None:
            for item in messages:
                answered.put_nowait(item)

        async def next_seqs(count: int) -> list[int]:
            return [(await asyncio.wait_for(answered.get(), 30)).seq for _ in range(count)]

        metrics = Metrics(hub.clock, hub.fs.sync_ms)
        sequencer = Sequencer(
            hub.writer,
            hub.home.ring,
            hub.policy,
            hub.sequencer.authority,
            clock=hub.clock,
            decided=decided,
            events=NoEvents(),
            metrics=metrics,
        )
        sequencer.put([verified(1)], pending=2)
        sequencer.put([verified(2)], pending=1)
        assert await next_seqs(2) == [1, 2]
        sequencer.put([verified(3)], pending=2)
        sequencer.put([], pending=0)
        assert await next_seqs(1) == [3]
        await sequencer.stop()
        text = metrics.text().decode()
        assert "veen_batch_size_count 2.0" in text
        assert "veen_batch_size_sum 3.0" in text

    tell(story, tmp_path / "hub")


def test_messages_are_decided_behind_what_the_disk_has_not_taken_yet(tmp_path: Path) -> None:
    async def story(hub: Inside, disk: SlowDisk, label: Label) -> None:
        disk.hold()
        first = await place(hub, message(label, 1))
        await at_the_disk(disk)
        second = await place(hub, message(label, 2, 1), message(label, 2, 1))
        assert hub.hub.reader.last_seq(label) == 0
        disk.go_on()
        assert seqs(await first) == [1]
        outcomes = await second
        assert (seqs(outcomes), codes(outcomes)) == ([2], ["E.SEQ"])

    tell(story, tmp_path / "hub")


def test_what_was_decided_behind_a_batch_falls_with_it(tmp_path: Path) -> None:
    """A full disk: refusals that rested on what did not happen are taken back too."""

    async def story(hub: Inside, disk: SlowDisk, label: Label) -> None:
        disk.hold()
        first = await place(hub, message(label, 1))
        await at_the_disk(disk)
        second = await place(hub, message(label, 2, 1), message(label, 1))
        disk.go_on(lambda: disk.fail("append", "journal", errno.ENOSPC))
        assert codes(await first) == ["E.UNAVAILABLE"]
        assert codes(await second) == ["E.UNAVAILABLE"] * 2
        disk.heal()
        disk.go_on()
        assert seqs(await hub.submit([message(label, 1), message(label, 2, 1)])) == [1, 2]

    tell(story, tmp_path / "hub")


def test_nothing_is_answered_with_a_receipt_once_the_disk_has_failed(tmp_path: Path) -> None:
    async def story(hub: Inside, disk: SlowDisk, label: Label) -> None:
        hub.abandoned = True
        disk.hold()
        first = await place(hub, message(label, 1))
        await at_the_disk(disk)
        second = await place(hub, message(label, 2, 1))
        disk.go_on(lambda: disk.fail("append", "journal", errno.EIO))
        assert codes(await first) + codes(await second) == ["E.UNAVAILABLE"] * 2
        assert hub.fatal
        disk.heal()
        disk.go_on()
        assert codes(await hub.submit([message(label, 1)])) == ["E.UNAVAILABLE"]

    tell(story, tmp_path / "hub")


def test_a_job_finds_everything_that_came_before_it(tmp_path: Path) -> None:
    async def story(hub: Inside, disk: SlowDisk, label: Label) -> None:
        disk.hold()
        first = await place(hub, message(label, 1))
        await at_the_disk(disk)
        second = await place(hub, message(label, 2, 1))
        found: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        hub.hub.turn(lambda: hub.hub.reader.last_seq(label), found.set_result)
        third = await place(hub, message(label, 3, 2))
        disk.go_on()
        assert (await found).result == 2
        assert seqs(await first + await second + await third) == [1, 2, 3]

    tell(story, tmp_path / "hub")


def test_a_job_behind_messages_that_are_all_refused_has_its_turn(tmp_path: Path) -> None:
    async def story(hub: Inside, disk: SlowDisk, label: Label) -> None:
        disk.hold()
        first = await place(hub, message(label, 1))
        await at_the_disk(disk)
        second = await place(hub, message(label, 1))
        found: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        hub.hub.turn(lambda: hub.hub.reader.last_seq(label), found.set_result)
        disk.go_on()
        assert codes(await second) == ["E.SEQ"]
        assert seqs(await first) == [1]
        assert (await asyncio.wait_for(found, 10)).result == 1

    tell(story, tmp_path / "hub")


@pytest.mark.parametrize("seed", range(12))
def test_everything_is_answered_once_and_the_log_has_what_was_acknowledged(tmp_path: Path, seed: int) -> None:
    """Messages, repeats and jobs in any order, on a disk that is slow, and full now and then."""
    chance = Random(seed)

    async def story(hub: Inside, disk: SlowDisk, label: Label) -> None:
        answers: list[asyncio.Task[list[Outcome]]] = []
        jobs: list[asyncio.Future[Job]] = []
        sent: list[Msg] = []
        client_seq = 0

        def full() -> None:
            disk.fail("append", "journal", errno.ENOSPC)

        for _ in range(60):
            match chance.choice(["send", "send", "send", "repeat", "job", "hold", "go on", "full"]):
                case "send":
                    fresh = [message(label, client_seq + nth) for nth in range(1, chance.randint(2, 4))]
                    client_seq += len(fresh)
                    sent += fresh
                    answers.append(await place(hub, *fresh))
                case "repeat" if sent:
                    answers.append(await place(hub, chance.choice(sent)))
                case "job":
                    jobs.append(asyncio.get_running_loop().create_future())
                    hub.hub.turn(lambda: hub.hub.reader.last_seq(label), jobs[-1].set_result)
                case "hold":
                    disk.hold()
                case "full":
                    disk.go_on(full)
                case "go on":
                    disk.heal()
                    disk.go_on()
                    # Whatever was refused is to be sent again: a client goes on behind what is in the log.
                    await asyncio.gather(*answers)
                    client_seq = hub.hub.reader.client(label, builders.verify_key()).client_seq
        disk.heal()
        disk.go_on()
        outcomes = [item for part in await asyncio.gather(*answers) for item in part]
        heads = [job.result for job in await asyncio.gather(*jobs)]
        acknowledged = sorted(item.stream_seq for item in outcomes if isinstance(item, Receipt))
        assert acknowledged == list(range(1, hub.hub.reader.last_seq(label) + 1))
        assert heads == sorted(heads)
        for item in outcomes:
            if isinstance(item, Receipt):
                assert hub.hub.reader.entry(label, item.stream_seq).receipt == item
        assert hub.hub.intake.depth == 0

    tell(story, tmp_path / "hub")
