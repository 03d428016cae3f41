"""The machine without its rules: calls that may fail, processes that may end, and what holds around them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from tests.storage.checks import reading
from tests.storage.simulation import machine_model
from tests.storage.simulation.machine_model import Model, Pending
from tests.storage.simulation.machine_parts import DATA, open_at
from tests.storage.simulation.machine_steps import Ending, Trouble, can_be_survived
from tests.storage.simulation.sim_sweep import EXPECTED, Aftermath, befall
from tests.storage.simulation.simdisk import Crash, Fault, Plan, SimDisk, SimFilesystem
from tests.storage.stores import HUB, counting_random
from veen.core.data_dir import paths
from veen.core.objects.finding import Level
from veen.storage.errors import WriterStoppedError
from veen.storage.fsck import check
from veen.storage.write.writer import Writer

T = TypeVar("T")

CLOSED: Final = Ending(closed=True)


class MachineBase(RuleBasedStateMachine):
    """A directory, its writer if there is one, and what everybody was told."""

    model: Model

    def __init__(self) -> None:
        super().__init__()
        self.scratch = TemporaryDirectory()
        self.disk = SimDisk(Path(self.scratch.name))
        self.fs: SimFilesystem | None = None
        self.writer: Writer | None = None
        self.plan: Plan | None = None
        self.aftermath: Aftermath = None
        self.error: BaseException | None = None
        self.clock = 1_000
        self.records = 0
        self.random = counting_random()
        #: The last writer has gone in peace, and nothing has happened since.
        self.clean = True
        #: Derived files are missing: nothing but a repair helps.
        self.unsound = False
        self.stopped = False

    # --- doing things ---------------------------------------------------------------------------------------

    def process(self) -> SimFilesystem:
        """Begin a process that will meet what is armed."""
        self.fs = self.disk.filesystem(*([] if self.plan is None else [self.plan]), seed=self.records)
        return self.fs

    def arm(self, trouble: Trouble | None) -> None:
        """Let the next call meet a fault; a disk that is full stays so until there is other trouble."""
        if trouble is None and self.plan is not None and self.plan.persistent:
            return
        if trouble is None:
            self.plan = None
        else:
            lasting = trouble.lasting and trouble.fault is Fault.ENOSPC
            self.plan = Plan(
                trouble.fault,
                trouble.at,
                persistent=lasting,
                seed=trouble.seed,
                where=can_be_survived(trouble.fault),
            )
            self.aftermath = trouble.aftermath
        if self.fs is not None:
            self.fs._plans = () if self.plan is None else (self.plan,)

    def attempt(self, call: Callable[[], T]) -> T | None:
        """Call the engine. An error must come from a fault that this call has met; it is in ``error``."""
        before = 0 if self.plan is None else len(self.plan.hits)
        self.error = None
        try:
            return call()
        except Crash as crash:
            self.error = crash
            self.end(self.aftermath)
        except EXPECTED as error:
            if self.plan is None or len(self.plan.hits) == before:
                raise
            self.error = error
            self.stopped = isinstance(error, WriterStoppedError)
        return None

    def end(self, aftermath: Aftermath) -> None:
        """End all processes, perhaps because the power fails."""
        befall(self.disk, aftermath)
        self.writer = self.fs = self.plan = None
        self.clean = self.stopped = False

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Let nothing go wrong while the test itself looks."""
        fs = self.fs
        plans = () if fs is None else fs._plans
        if fs is not None:
            fs._plans = ()
        try:
            yield
        finally:
            if fs is not None:
                fs._plans = plans

    @contextmanager
    def another_process(self) -> Iterator[SimFilesystem]:
        fs = self.disk.filesystem()
        yield fs
        fs.end("has looked")

    def told(self, pending: Pending) -> None:
        """Remember what a call was for: it has happened, it has not, or nobody knows."""
        if self.error is None:
            self.model.commit(pending)
        elif isinstance(self.error, Crash | WriterStoppedError):
            self.model.maybe = pending

    # --- opening and closing --------------------------------------------------------------------------------

    def repaired(self) -> None:
        """Make derived files anew, in peace."""
        raise NotImplementedError

    def at_work(self) -> Writer:
        """Return the writer; begin one, if there is none or if it has stopped."""
        if self.stopped:
            self.check_stopped()
            self.stop()
        if self.unsound:
            self.repaired()
        if self.writer is None:
            self.start(None)
        assert self.writer is not None
        return self.writer

    def start(self, trouble: Trouble | None, segment_bytes: int = 1 << 20, *, check: bool = True) -> None:
        self.arm(trouble)
        if trouble is None:
            self.plan = None
        fs = self.process()
        self.clean = False
        self.writer = self.attempt(lambda: open_at(fs, self.random, segment_bytes))
        self.stopped = False
        if self.writer is not None and check:
            with self.quiet():
                self.model.settle(self.writer.reader)
                machine_model.compare(self.model, self.writer.reader)
                assert self.writer.journal_bytes == 0

    def stop(self, ending: Ending = CLOSED) -> None:
        """Bring the writer to its end, one way or the other."""
        if not ending.closed:
            clean = self.clean
            self.end(ending.aftermath)
            self.clean = clean
        elif self.writer is not None:
            stopped = self.stopped
            self.arm(ending.trouble)
            self.attempt(self.writer.close)
            self.writer = self.fs = None
            self.stopped = False
            if self.error is None and not stopped:
                self.clean = True
                self.check_closed()

    def check_closed(self) -> None:
        """After a clean stop the chunk files alone hold everything."""
        with self.another_process() as fs:
            assert not any(name.startswith("journal") for name in fs.names(paths.STATE_DIR))
            report = check(fs, Level.FULL, [HUB.public_key])
        machine_model.compare_report(self.model, report)

    def check_stopped(self) -> None:
        """A writer that has met an error takes nothing more, and reading goes on."""
        writer = self.writer
        assert writer is not None
        with self.quiet():
            for call in (writer.batch, writer.flush, lambda: writer.prune(DATA[0], 1)):
                with pytest.raises(WriterStoppedError):
                    call()
            machine_model.compare(self.model, writer.reader)

    def look_before_recovery(self) -> None:
        """Whoever reads before anything is recovered sees everything that was acknowledged."""
        with self.another_process() as fs, reading(fs) as reader:
            self.model.fits(reader)
        with self.another_process() as fs:
            report = check(fs, Level.ROOTS)
        assert report.ok, [str(finding) for finding in report.findings]
        heads = {item.label: item.head_seq for item in report.labels}
        assert all(heads[label] >= len(log) for label, log in self.model.logs.items())
