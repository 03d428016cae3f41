"""A hub without its sockets, on a clock and a chance of the test's own: equal inputs, equal bytes."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import builders
from veen.admission.prefilter import sized
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.control_record import RevocationRecord
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.hub.config import Settings
from veen.hub.home import SECRETS
from veen.hub.hub import Hub
from veen.hub.metrics import TimedFilesystem
from veen.hub.server import prepare
from veen.hub.submit.submission import MessageForm, Submission
from veen.storage import Reader, RealFilesystem, clone

if TYPE_CHECKING:
    from veen.hub.read.thread_pool import Job

Outcome = Receipt | ErrorEnvelope


class FatalErrors:
    """Collects what a hub reports."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def fatal(self, why: str) -> None:
        self.found.append(why)


class Inside:
    """An open hub, and ways to make it do something."""

    def __init__(self, hub: Hub, now: list[int], fatal: list[str]) -> None:
        self.hub = hub
        self.now = now
        #: Why it must not go on.
        self.fatal = fatal
        #: Whether its log is left as it is at the end, as that of a hub whose disk has failed.
        self.abandoned = False

    async def submit(self, messages: Sequence[Msg]) -> list[Outcome]:
        """Submit messages together; return what became of each."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Submission]] = [loop.create_future() for _ in messages]
        items = []
        for message, future in zip(messages, futures, strict=True):
            body = sized(message.encode(), self.hub.limits, bare=True)
            items.append(Submission(MessageForm.MSG, len(body), future.set_result))
            items[-1].accept(body)
        self.hub.intake.submit(items)
        done = await asyncio.gather(*futures)
        return [item.error or Receipt.decode(item.receipt) for item in done]

    async def authorize(self, token: CapToken) -> Receipt:
        """Write a token into the authorize log."""
        label = labels.authorize_label(self.hub.home.identity.hub_id)
        made: Receipt = await self._turn(lambda: self.hub.sequencer.append(NewEntry.of_token(label, token)))
        return made

    async def revoke(self, record: RevocationRecord) -> None:
        """Write a revocation into the control log."""
        await self._turn(lambda: self.hub.control(record))

    async def trust(self, name: str, *, trusted: bool = True) -> None:
        """Trust an issuer, or no longer."""
        await self._turn(lambda: self.hub.trust(builders.verify_key(name), trusted=trusted, note=None))

    async def _turn(self, run: Any) -> Any:
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self.hub.turn(run, future.set_result)
        job = await future
        if job.error is not None:
            raise job.error
        return job.result


@asynccontextmanager
async def inside(
    place: Path, settings: Settings, now: int, *, fs: TimedFilesystem | None = None
) -> AsyncIterator[Inside]:
    """Open a hub; its clock stands still until the test moves it."""
    moment = [now]
    fs = fs or TimedFilesystem(place)
    fs.make_dir("")
    home, _ = prepare(fs, settings, builders.counted_random(), "the test")
    events = FatalErrors()
    hub = Hub(
        fs,
        home,
        settings,
        clock=lambda: moment[0],
        random=builders.counted_random("journal"),
        owner="the test",
        events=events,
    )
    made = Inside(hub, moment, events.found)
    try:
        yield made
    finally:
        await hub.stop(abandon=made.abandoned)
        fs.close()


def copy_with_secrets(source: Path, target: Path) -> None:
    """Clone a stopped hub for replacement: its log, and by hand its secrets."""
    before, after = RealFilesystem(source), RealFilesystem(target)
    reader = Reader.open(before)
    try:
        clone(reader, after)
    finally:
        reader.close()
        before.close()
        after.close()
    shutil.copy(source / SECRETS, target / SECRETS)
