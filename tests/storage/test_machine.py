"""The engine on a disk that fails, against a plain model: any order of calls, faults, crashes and starts.

``VEEN_MACHINE_EXAMPLES=1000`` for long runs. A failure prints the steps that lead to it.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.storage import machine_damage, machine_model
from tests.storage.checks import reading
from tests.storage.machine_model import Kept, Model, Pending, new_model
from tests.storage.machine_parts import CLIENTS, DATA, LIMITS, STREAMS, TOKENS, next_message, open_at
from tests.storage.sim_plan import CRASHES
from tests.storage.sim_sweep import EXPECTED, Aftermath, befall
from tests.storage.simdisk import Crash, Fault, Op, Operation, Plan, SimDisk, SimFilesystem
from tests.storage.stores import (
    AUTHORIZE,
    CONTROL,
    HUB,
    TINY,
    counting_random,
    make,
    sign_checkpoint,
    signed_receipt,
)
from veen.core import layout
from veen.core.datadir import BZIP2, NO_COMPRESSION, Registry
from veen.core.errors import Code, ProtocolError
from veen.core.layout import Domain
from veen.storage.batch import Batch
from veen.storage.directory import open_store
from veen.storage.errors import BusyError, NotAStoreError, StaleIndexError, StoppedError
from veen.storage.fsck import Level, check
from veen.storage.journal import Binding
from veen.storage.migration import change_registry
from veen.storage.reader import Reader
from veen.storage.repair import repair
from veen.storage.staging import Record
from veen.storage.state import StreamEpoch
from veen.storage.writer import Writer

T = TypeVar("T")

EXAMPLES: Final = int(os.environ.get("VEEN_MACHINE_EXAMPLES", "40"))
STEPS: Final = 30
FORGETFUL = os.environ.get("FORGETFUL")
LABELS: Final = (*DATA, AUTHORIZE, CONTROL)

FAULTS: Final = (
    *CRASHES,
    Fault.EIO,
    Fault.EIO_AFTER,
    Fault.ENOSPC,
    Fault.SHORT,
    Fault.FAILED_SYNC,
    Fault.READ_EIO,
)
AFTERMATHS: Final = st.one_of(st.none(), st.integers(0, 2**32))
COMPRESSIONS: Final = st.sampled_from((NO_COMPRESSION, BZIP2))


#: How a writer comes to its end before something else is done to its directory.
HOWS: Final = st.sampled_from(("close", "crash"))


class Wish(NamedTuple):
    """A message to be sent."""

    stream: int
    client: str
    size: int
    token: int | None
    acknowledges: bool


class Round(NamedTuple):
    """Messages of one batch, after the clock has moved."""

    wishes: list[Wish]
    seconds: int
    bind: bool


class Trouble(NamedTuple):
    """A fault that the next call is to meet, and what follows if that ends the process."""

    fault: Fault
    at: int
    seed: int
    lasting: bool
    aftermath: Aftermath


WISHES: Final = st.builds(
    Wish,
    st.integers(0, len(DATA) - 1),
    st.sampled_from(CLIENTS),
    st.sampled_from((5, 5, 5, 700, 1_200)),
    st.sampled_from((None, None, *range(len(TOKENS)))),
    st.booleans(),
)
ROUNDS: Final = st.lists(
    st.builds(Round, st.lists(WISHES, min_size=1, max_size=5), st.integers(-9, 9), st.booleans()),
    min_size=1,
    max_size=3,
)


def troubles(most: int) -> st.SearchStrategy[Trouble | None]:
    """Return faults for a call that has about so many operations."""
    return st.none() | st.builds(
        Trouble,
        st.sampled_from(FAULTS),
        st.integers(1, most),
        st.integers(0, 2**16),
        st.booleans(),
        AFTERMATHS,
    )


def _can_be_survived(fault: Fault) -> Callable[[Operation], bool] | None:
    # A directory whose sync fails forgets names, and no later sync helps. A file system with a journal does
    # not go on after that; on any other one all that can be had is a refusal, or a repair.
    if fault is not Fault.FAILED_SYNC or FORGETFUL:
        return None
    return lambda operation: operation.op is not Op.SYNC_DIR


class StoreMachine(RuleBasedStateMachine):
    """A directory, its writer if there is one, and what everybody was told."""

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
        #: A pruned chunk may still be there, so a repair may find it.
        self.leftovers = False
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
                where=_can_be_survived(trouble.fault),
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
            self.stopped = isinstance(error, StoppedError)
        if self.plan is not None and self.plan.fault is Fault.FAILED_SYNC:
            self.leftovers = self.leftovers or any(hit.op is Op.SYNC_DIR for hit in self.plan.hits)
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
        elif isinstance(self.error, Crash | StoppedError):
            self.model.maybe = pending

    # --- opening and closing --------------------------------------------------------------------------------

    @initialize(compression=COMPRESSIONS, trouble=troubles(40))
    def create(self, compression: str, trouble: Trouble | None) -> None:
        self.model: Model = new_model(compression, Registry.of(TINY, compression=compression))
        self.arm(trouble)
        fs = self.process()
        self.attempt(lambda: make(fs, TINY, compression=compression))
        self.plan = None
        if self.error is not None:
            self.end(None)
            try:
                make(self.process(), TINY, compression=compression)
            except NotAStoreError:
                assert open_store(self.process()).registries == self.model.registries
        self.clean = True

    def at_work(self) -> Writer:
        """Return the writer; begin one, if there is none or if it has stopped."""
        if self.stopped:
            self.check_stopped()
            self.stop("close")
        if self.unsound:
            self.repair(None, "nothing", "close")
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

    def stop(self, how: str, aftermath: Aftermath = None, trouble: Trouble | None = None) -> None:
        """Bring the writer to its end, one way or the other."""
        if self.writer is not None and how == "close":
            stopped = self.stopped
            self.arm(trouble)
            self.attempt(self.writer.close)
            self.writer = self.fs = None
            self.stopped = False
            if self.error is None and not stopped:
                self.clean = True
                self.check_closed()
        elif how != "close":
            clean = self.clean
            self.end(aftermath)
            self.clean = clean

    def check_closed(self) -> None:
        """After a clean stop the chunk files alone hold everything."""
        with self.another_process() as fs:
            assert not any(name.startswith("journal") for name in fs.names(layout.STATE_DIR))
            report = check(fs, Level.FULL, [HUB.public_key])
        machine_model.compare_report(self.model, report, leftovers=self.leftovers)

    def check_stopped(self) -> None:
        """A writer that has met an error takes nothing more, and reading goes on."""
        writer = self.writer
        assert writer is not None
        with self.quiet():
            for call in (writer.batch, writer.flush, lambda: writer.prune(DATA[0], 1)):
                with pytest.raises(StoppedError):
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

    @rule(
        how=HOWS,
        after=AFTERMATHS,
        ending=troubles(40),
        look=st.booleans(),
        beginning=troubles(50),
        segment_bytes=st.sampled_from((1 << 20, 3_000)),
    )
    def restart(
        self,
        how: str,
        after: Aftermath,
        ending: Trouble | None,
        look: bool,  # noqa: FBT001
        beginning: Trouble | None,
        segment_bytes: int,
    ) -> None:
        self.stop(how, after, ending)
        if not self.unsound:
            if look:
                self.look_before_recovery()
            self.start(beginning, segment_bytes)

    # --- while nobody writes --------------------------------------------------------------------------------

    @rule(limits=st.integers(0, len(LIMITS) - 1), compression=COMPRESSIONS, trouble=troubles(12))
    def change_limits(self, limits: int, compression: str, trouble: Trouble | None) -> None:
        self.arm(None)
        if self.unsound or not self.clean or self.writer is not None:
            self.at_work()
            self.stop("close")
        if not self.clean:
            return
        self.arm(trouble)
        fs = self.process()
        self.attempt(lambda: change_registry(fs, LIMITS[limits], compression, owner="a test"))
        self.clean = True
        before = self.model.registries
        if self.error is None:
            with self.another_process() as other:
                found = open_store(other).registries
        else:  # which of the two is certain when a writer has begun
            self.start(None, check=False)
            assert self.writer is not None
            found = self.writer.store.registries
        changed = Registry.of(LIMITS[limits], effective_from=self.model.last_ts + 1, compression=compression)
        earlier = tuple(item for item in before if item.effective_from <= self.model.last_ts)
        same = Registry.of(LIMITS[limits], effective_from=before[-1].effective_from, compression=compression)
        expected = before if same == before[-1] else (*earlier, changed)
        assert found in ((expected,) if self.writer is None else (expected, before))
        self.model.registries = found
        self.model.ever_compressed = self.model.ever_compressed or found[-1].compression != NO_COMPRESSION

    @rule(trouble=troubles(80), lost=st.sampled_from(("nothing", "index", "derived")), how=HOWS)
    def repair(self, trouble: Trouble | None, lost: str, how: str) -> None:
        self.stop(how)
        self.arm(trouble)
        if trouble is None:
            self.plan = None
        self.lose(lost)
        fs = self.process()
        self.attempt(lambda: repair(fs, owner="a test"))
        self.stopped = False
        self.model.bindings_known = False
        self.unsound = self.error is not None
        if not self.unsound:
            with self.another_process() as other, reading(other) as reader:
                self.observe_leftovers(reader)
            self.look_before_recovery()

    def lose(self, lost: str) -> None:
        with self.another_process() as fs:
            if lost == "index":
                fs.remove_index(layout.INDEX)
                for opening in (Reader.open, partial(open_at, random=self.random)):
                    with pytest.raises(StaleIndexError, match=r"state/index.*veen repair"):
                        opening(fs)
            elif lost == "derived":
                for directory in ("", *Domain):
                    for name in filter(self.is_derived, fs.names(directory)):
                        fs.unlink(f"{directory}/{name}" if directory else name)
                    fs.sync_dir(directory)

    def is_derived(self, name: str) -> bool:
        parsed = layout.parse(name)
        if parsed is None:
            return name in (layout.RECEIPTS, layout.CHECKPOINTS)
        # Nodes of pruned entries are kept for ever: nothing else has them.
        kept = self.model.pruned.get(parsed.label) or parsed.label in self.model.prunable
        return parsed.kind is layout.Kind.CHECKPOINT_INDEX or (parsed.kind is layout.Kind.NODES and not kept)

    def observe_leftovers(self, reader: Reader) -> None:
        """A repair goes by what is there: of an interrupted prune the chunk may be."""
        if not self.leftovers:
            return
        model = self.model
        for label in {*model.pruned, *model.prunable}:
            upto = reader.manifest(label).first_seq - 1
            assert upto <= max(model.pruned.get(label, 0), model.prunable.get(label, 0))
            model.pruned[label] = upto
        self.model.prunable = {}

    @rule(choice=st.integers(0, 2**16), place=st.integers(0, 2**16), bit=st.integers(0, 7), how=HOWS)
    def a_bit_flips(self, choice: int, place: int, bit: int, how: str) -> None:
        self.stop(how)
        if not self.unsound:
            snapshot = self.disk.snapshot()
            machine_damage.flip(snapshot, self.model, self.random, choice=choice, place=place, bit=bit)

    # --- while a writer is at work --------------------------------------------------------------------------

    @rule(rounds=ROUNDS, trouble=troubles(12))
    def submit(self, rounds: list[Round], trouble: Trouble | None) -> None:
        writer = self.at_work()
        self.arm(trouble)
        for item in rounds:
            self.submit_round(writer, item)
            if self.error is not None:
                return

    def submit_round(self, writer: Writer, item: Round) -> None:
        self.clock = max(self.clock + item.seconds, 0)  # a clock may go back; hub_ts does not
        made: list[Kept] = []
        bound = item.wishes[0].stream
        bindings = {DATA[bound]: StreamEpoch(STREAMS[bound], 0)} if item.bind else {}

        def send() -> None:
            batch = writer.batch()
            for stream, client, size, token, acknowledges in item.wishes:
                record = next_message(batch, DATA[stream], client, size, token, acknowledges=acknowledges)
                made.append(self.place(batch, record))
            for label, stream_epoch in bindings.items():
                batch.bind(Binding(stream_epoch.stream_id, stream_epoch.epoch, label))
            writer.commit(batch)

        self.attempt(send)
        self.told(Pending(tuple(made), bindings))

    def place(self, batch: Batch, record: Record) -> Kept:
        hub_ts = max(self.clock, batch.floor_ts)
        receipt = batch.append(
            record, lambda seq, root: signed_receipt(record.label, seq, record.leaf_hash, root, hub_ts)
        )
        return Kept(record, receipt)

    @rule(
        tokens=st.lists(st.sampled_from((None, *range(len(TOKENS)))), min_size=1, max_size=6),
        trouble=troubles(8),
    )
    def log_tokens_and_control_records(self, tokens: list[int | None], trouble: Trouble | None) -> None:
        writer = self.at_work()
        self.arm(trouble)
        made: list[Kept] = []

        def send() -> None:
            batch = writer.batch()
            for token in tokens:
                self.records += 1
                record = Record.of_control(CONTROL, f"record {self.records}".encode())
                made.append(
                    self.place(batch, record if token is None else Record.of_token(AUTHORIZE, TOKENS[token]))
                )
            writer.commit(batch)

        self.attempt(send)
        self.told(Pending(tuple(made)))

    @rule(number=st.integers(0, len(LABELS) - 1), back=st.integers(0, 9), trouble=troubles(4))
    def ask_for_a_checkpoint(self, number: int, back: int, trouble: Trouble | None) -> None:
        label = LABELS[number]
        writer = self.at_work()
        upto = max(self.model.head(label) - back, 0)
        if not upto:
            with self.quiet(), pytest.raises(ProtocolError, match="no entry"):
                writer.checkpoint(label, upto)
            return
        with self.quiet():
            bound = writer.reader.binding(label)
        expected = sign_checkpoint(label, upto, self.model.logs[label][upto - 1].receipt.mmr_root, bound)
        self.arm(trouble)
        made = self.attempt(lambda: writer.checkpoint(label, upto))
        self.told(Pending(checkpoint=made or expected))

    @rule(trouble=troubles(60))
    def flush(self, trouble: Trouble | None) -> None:
        writer = self.at_work()
        self.arm(trouble)
        self.attempt(writer.flush)
        if self.error is None:
            assert writer.journal_bytes == 0

    @rule(stream=st.integers(0, len(DATA) - 1), part=st.integers(4, 8), trouble=troubles(12))
    def prune(self, stream: int, part: int, trouble: Trouble | None) -> None:
        label = DATA[stream]
        writer = self.at_work()
        with self.quiet():
            manifest = writer.reader.manifest(label) if self.model.head(label) else None
        upto = self.model.head(label) * part // 8
        if manifest is None or not manifest.chunks:
            with self.quiet(), pytest.raises(ProtocolError) as caught:
                writer.prune(label, upto)
            assert caught.value.code is Code.NOT_FOUND
            return
        stored = self.model.head(label) - manifest.journal_entries
        before = self.model.pruned.get(label, 0)
        ends = [row.end_seq for row in self.model.chunks(label, stored) if before < row.end_seq <= upto]
        self.arm(trouble)
        rows = self.attempt(lambda: writer.prune(label, upto))
        if rows is None:
            self.model.prunable[label] = upto
            self.leftovers = True
        else:
            assert [row.end_seq for row in rows] == ends
            self.model.pruned[label] = max(ends, default=before)

    @rule()
    def what_others_may_do(self) -> None:
        """Others read and do not write; tokens and control records are not pruned by anybody."""
        writer = self.at_work()
        with self.another_process() as fs:
            with reading(fs) as reader:
                self.model.fits(reader)
            with pytest.raises(BusyError):
                open_at(fs, self.random)
        for label in (AUTHORIZE, CONTROL):
            with self.quiet(), pytest.raises(ProtocolError) as caught:
                writer.prune(label, 100)
            assert caught.value.code in (Code.FORBIDDEN, Code.NOT_FOUND)

    # --- always ---------------------------------------------------------------------------------------------

    @invariant()
    def heads_agree(self) -> None:
        if self.writer is not None:
            with self.quiet():
                self.model.observe_pruned(self.writer.reader)
                machine_model.compare_heads(self.model, self.writer.reader)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None and hasattr(self, "model"):
                self.finish()
        finally:
            self.disk.close()
            self.scratch.cleanup()

    def finish(self) -> None:
        """Bring the directory to rest, whatever has happened, and look at all of it."""
        self.plan = None
        self.arm(None)
        for _ in range(2):
            if not (self.unsound or self.writer):
                self.look_before_recovery()
            self.at_work()
            self.stop("close")
            assert self.clean


TestMachine = StoreMachine.TestCase
TestMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
