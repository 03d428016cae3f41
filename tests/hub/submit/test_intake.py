"""Each message that is queued is answered, and each fault is reported, wherever it happens."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.hub.hub_without_sockets import Inside, inside
from tests.storage.checks import Faulty
from veen.admission.prefilter import sized
from veen.core.objects import labels
from veen.core.objects.msg import Msg
from veen.hub.config import Settings
from veen.hub.metrics import TimedFilesystem
from veen.hub.submit import sequencer as sequencer_module
from veen.hub.submit import verifier_process
from veen.hub.submit.submission import MessageForm, Submission
from veen.hub.submit.verifier_pool import VerifierPool

NOW = 1_900_000_000
COUNT = 5


class Story:
    """A hub with messages from clients of their own, so that each is accepted or rejected by itself."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside
        self.hub = inside.hub
        self.answered: list[Submission] = []
        self.faults: list[Exception] = []
        self.hub.bug = self.faults.append  # type: ignore[method-assign, assignment]
        routing = self.hub.home.identity.routing_key
        self.label = labels.label(routing, labels.stream_id("stream"), 0)
        self.sent = 0

    def message(self) -> Msg:
        self.sent += 1
        name = f"client {self.sent}"
        return builders.msg(builders.context(label=self.label, client=name), signer=name)

    def submit(self, count: int, on_done: Callable[[Submission], None] | None = None) -> list[Submission]:
        items = []
        for _ in range(count):
            body = sized(self.message().encode(), self.hub.limits, bare=True)
            items.append(Submission(MessageForm.MSG, len(body), on_done or self.answered.append))
            items[-1].accept(body)
        self.hub.intake.submit(items)
        return items

    async def done(self) -> None:
        while self.hub.intake.depth:  # noqa: ASYNC110 - nothing says when it is empty
            await asyncio.sleep(0.001)

    @property
    def outcomes(self) -> list[str]:
        return [item.error.code if item.error is not None else "accepted" for item in self.answered]


def play(
    place: Path,
    story: Callable[[Story], Any],
    *,
    workers: int = 0,
    fs: TimedFilesystem | None = None,
) -> None:
    settings = Settings.model_validate({"verify_workers": workers, "require_cap": "false"})

    async def run() -> None:
        async with inside(place, settings, NOW, fs=fs) as hub:
            await story(Story(hub))

    asyncio.run(asyncio.wait_for(run(), 60))


def failing_at(nth: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises an error in its nth call."""
    calls = 0

    def call(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise RuntimeError("a fault of ours")
        return function(*args, **options)

    return call


@pytest.mark.parametrize(
    ("module", "name"),
    [(verifier_process, "verify"), (sequencer_module, "admit"), (sequencer_module, "_append")],
)
def test_a_fault_in_one_message_is_reported_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    async def story(at: Story) -> None:
        monkeypatch.setattr(module, name, failing_at(2, getattr(module, name)))
        at.submit(COUNT)
        await at.done()
        assert sorted(at.outcomes) == ["E.UNAVAILABLE"] + (COUNT - 1) * ["accepted"]
        assert [str(error) for error in at.faults] == ["a fault of ours"]
        assert not at.inside.fatal

    play(tmp_path / "hub", story)


def test_an_answer_that_cannot_be_given_does_not_keep_the_others(tmp_path: Path) -> None:
    async def story(at: Story) -> None:
        at.submit(COUNT, failing_at(2, at.answered.append))
        await at.done()
        assert at.outcomes == (COUNT - 1) * ["accepted"]
        assert [str(error) for error in at.faults] == ["a fault of ours"]
        at.submit(1)
        await at.done()
        assert len(at.answered) == COUNT

    play(tmp_path / "hub", story)


def test_a_fault_behind_the_answers_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(at: Story) -> None:
        monkeypatch.setattr(at.hub.long_polls, "grown", failing_at(1, at.hub.long_polls.grown))
        at.submit(COUNT)
        await at.done()
        assert at.outcomes == COUNT * ["accepted"]
        await asyncio.sleep(0)
        assert [str(error) for error in at.faults] == ["a fault of ours"]

    play(tmp_path / "hub", story)


def test_a_fault_behind_a_job_is_reported_and_messages_go_on(tmp_path: Path) -> None:
    async def story(at: Story) -> None:
        at.hub.turn(lambda: None, failing_at(1, lambda _: None))
        at.submit(1)
        await at.done()
        assert at.outcomes == ["accepted"]
        assert [str(error) for error in at.faults] == ["a fault of ours"]

    play(tmp_path / "hub", story)


@pytest.mark.parametrize("where", ["batch", "commit"])
def test_an_error_of_the_writer_answers_all_and_ends_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async def story(at: Story) -> None:
        at.inside.abandoned = True
        monkeypatch.setattr(at.hub.writer, where, failing_at(1, getattr(at.hub.writer, where)))
        at.submit(COUNT)
        await at.done()
        assert at.outcomes == COUNT * ["E.UNAVAILABLE"]
        assert at.inside.fatal == ["a fault of ours"]

    play(tmp_path / "hub", story)


class FaultyDisk(Faulty, TimedFilesystem):
    """A disk that fails when the test says so."""


def test_no_receipt_leaves_without_its_sync(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path / "hub")

    async def story(at: Story) -> None:
        at.inside.abandoned = True
        disk.fail("sync", "journal", errno.EIO)
        at.submit(COUNT)
        at.submit(COUNT)
        await at.done()
        assert at.outcomes == 2 * COUNT * ["E.UNAVAILABLE"]
        assert not any(item.receipt or item.seq for item in at.answered)
        assert at.inside.fatal

    play(tmp_path / "hub", story, fs=disk)


def test_nothing_is_accepted_after_a_fault_in_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal may have an entry by then that memory does not know: its number must not be used again."""

    async def story(at: Story) -> None:
        at.inside.abandoned = True
        tail = type(at.hub.writer._active)
        monkeypatch.setattr(tail, "absorb", failing_at(1, tail.absorb))
        at.submit(1)
        await at.done()
        at.submit(1)
        await at.done()
        assert at.outcomes == 2 * ["E.UNAVAILABLE"]
        assert at.inside.fatal[0] == "a fault of ours"

    play(tmp_path / "hub", story)


def test_a_stop_answers_what_is_being_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if no verifier ever starts, and a batch waits for messages to share its sync with."""

    async def story(at: Story) -> None:
        monkeypatch.setattr(VerifierPool, "_check_one_here", lambda _: None)
        at.hub.intake._verifiers._size = 1  # as with workers, of which none has started
        at.submit(COUNT)
        await asyncio.sleep(0)
        assert at.hub.intake.depth == COUNT
        at.submit(1)

    stories: list[Story] = []

    async def kept(at: Story) -> None:
        stories.append(at)
        await story(at)

    play(tmp_path / "hub", kept)
    assert stories[0].outcomes == (COUNT + 1) * ["E.UNAVAILABLE"]
    assert stories[0].hub.intake.depth == 0
    assert not stories[0].faults


def test_verdicts_that_cannot_be_read_reject_their_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(at: Story) -> None:
        pool = at.hub.intake._verifiers
        await pool._task
        decode = verifier_process.decode_verdicts
        monkeypatch.setattr(verifier_process, "decode_verdicts", failing_at(1, decode))
        at.submit(4)
        await at.done()
        assert at.outcomes == 4 * ["E.UNAVAILABLE"]
        assert [str(error) for error in at.faults] == ["a fault of ours"]
        at.submit(4)
        await at.done()
        assert at.outcomes[4:] == 4 * ["accepted"]
        assert at.hub.metrics.lost_workers == 1

    play(tmp_path / "hub", story, workers=1)
