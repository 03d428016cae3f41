"""The engine on a disk that fails, against a plain model: any order of calls, faults, crashes and starts.

``VEEN_MACHINE_EXAMPLES=1000`` for long runs. A failure prints the steps that lead to it.
"""

import os
import sys
from functools import partial
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.storage.checks import reading
from tests.storage.simulation import machine_damage, machine_model
from tests.storage.simulation.machine_base import CLOSED, MachineBase
from tests.storage.simulation.machine_model import Kept, Pending, new_model
from tests.storage.simulation.machine_parts import DATA, LIMITS, STREAMS, TOKENS, next_message, open_at
from tests.storage.simulation.machine_steps import (
    COMPRESSIONS,
    ENDINGS,
    LABELS,
    RESTARTS,
    ROUNDS,
    Ending,
    Restart,
    Round,
    Trouble,
    troubles,
)
from tests.storage.stores import AUTHORIZE, CONTROL, TINY, counted, make, sign_checkpoint, signed_receipt
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import NO_COMPRESSION, Registry, StreamEpoch
from veen.core.errors import Code, ProtocolError
from veen.core.objects.new_entry import NewEntry
from veen.storage.directory import change_registry, open_store
from veen.storage.errors import NotAStoreError, StaleIndexError, StoreBusyError
from veen.storage.journal.journal import Binding
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader
from veen.storage.write.batch import Batch
from veen.storage.write.writer import Writer

pytestmark = pytest.mark.sweep

EXAMPLES: Final = int(os.environ.get("VEEN_MACHINE_EXAMPLES", "15"))
STEPS: Final = 30


class StoreMachine(MachineBase):
    """Everything that can be done to a store, in any order."""

    @initialize(compression=COMPRESSIONS, trouble=troubles(40))
    def create(self, compression: str, trouble: Trouble | None) -> None:
        self.model = new_model(compression, Registry.of(TINY, compression=compression))
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

    @rule(restart=RESTARTS)
    def restart(self, restart: Restart) -> None:
        self.stop(restart.ending)
        if not self.unsound:
            if restart.look:
                self.look_before_recovery()
            self.start(restart.trouble, restart.segment_bytes)

    # --- while nobody writes --------------------------------------------------------------------------------

    @rule(limits=st.integers(0, len(LIMITS) - 1), compression=COMPRESSIONS, trouble=troubles(12))
    def change_limits(self, limits: int, compression: str, trouble: Trouble | None) -> None:
        self.arm(None)
        if self.unsound or not self.clean or self.writer is not None:
            self.at_work()
            self.stop()
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

    @rule(trouble=troubles(80), lost=st.sampled_from(("nothing", "index", "derived")), ending=ENDINGS)
    def repair(self, trouble: Trouble | None, lost: str, ending: Ending) -> None:
        self.stop(ending)
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

    def repaired(self) -> None:
        self.repair(None, "nothing", CLOSED)

    def lose(self, lost: str) -> None:
        with self.another_process() as fs:
            if lost == "index":
                fs.remove_index(paths.INDEX)
                for opening in (Reader.open, partial(open_at, random=self.random)):
                    with pytest.raises(StaleIndexError, match=r"state/index.*veen repair"):
                        opening(fs)
            elif lost == "derived":
                for directory in ("", *Domain):
                    for name in filter(self.is_derived, fs.names(directory)):
                        fs.unlink(f"{directory}/{name}" if directory else name)
                    fs.sync_dir(directory)

    def is_derived(self, name: str) -> bool:
        parsed = paths.parse(name)
        if parsed is None:
            return name in (paths.RECEIPTS, paths.CHECKPOINTS)
        # Nodes of pruned entries are kept for ever: nothing else has them.
        kept = self.model.pruned.get(parsed.label) or parsed.label in self.model.prunable
        return parsed.kind is paths.FileKind.CHECKPOINT_INDEX or (
            parsed.kind is paths.FileKind.NODES and not kept
        )

    def observe_leftovers(self, reader: Reader) -> None:
        """A repair goes by what is there: of an interrupted prune the chunk may be."""
        model = self.model
        for label in model.leftovers:
            upto = reader.manifest(label).first_seq - 1
            assert upto <= max(model.pruned.get(label, 0), model.prunable.get(label, 0))
            model.pruned[label] = upto
        model.prunable = {}

    @rule(choice=st.integers(0, 2**16), place=st.integers(0, 2**16), bit=st.integers(0, 7), ending=ENDINGS)
    def a_bit_flips(self, choice: int, place: int, bit: int, ending: Ending) -> None:
        self.stop(ending)
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

    def place(self, batch: Batch, record: NewEntry) -> Kept:
        hub_ts = max(self.clock, batch.floor_ts)
        receipt = batch.append(
            counted(batch, record, hub_ts),
            lambda seq, root: signed_receipt(record.label, seq, record.leaf_hash, root, hub_ts),
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
                record = NewEntry.of_control(CONTROL, f"record {self.records}".encode())
                made.append(
                    self.place(
                        batch, record if token is None else NewEntry.of_token(AUTHORIZE, TOKENS[token])
                    )
                )
            writer.commit(batch)

        self.attempt(send)
        self.told(Pending(tuple(made)))

    @rule(number=st.integers(0, len(LABELS) - 1), back=st.integers(0, 9), trouble=troubles(4))
    def ask_for_a_checkpoint(self, number: int, back: int, trouble: Trouble | None) -> None:
        writer = self.at_work()
        for label in LABELS:
            with self.quiet(), pytest.raises(ProtocolError, match="no entry"):
                writer.checkpoint(label, self.model.head(label) + 1)
        known = [label for label in LABELS if self.model.head(label)]
        if not known:
            return
        label = known[number % len(known)]
        upto = max(self.model.head(label) - back, 1)
        with self.quiet():
            bound = writer.reader.binding(label)
        expected = sign_checkpoint(label, upto, self.model.logs[label][upto - 1].receipt.mmr_root, bound)
        self.arm(trouble)
        made = self.attempt(lambda: writer.checkpoint(label, upto))
        self.told(Pending(checkpoint=made or expected))

    @rule(rounds=ROUNDS, trouble=troubles(60))
    def flush(self, rounds: list[Round], trouble: Trouble | None) -> None:
        self.submit(rounds, None)
        if self.error is None and self.writer is not None:
            writer = self.writer
            self.arm(trouble)
            self.attempt(writer.flush)
            if self.error is None:
                assert writer.journal_bytes == 0

    @rule(stream=st.integers(0, len(DATA) - 1), part=st.integers(4, 8), trouble=troubles(12))
    def prune(self, stream: int, part: int, trouble: Trouble | None) -> None:
        writer = self.at_work()
        with self.quiet():
            self.arm(None)
            manifests = {label: writer.reader.manifest(label) for label in DATA if self.model.head(label)}
        # One that has something to lose, if there is any.
        ready = [
            label for label, manifest in manifests.items() if any(row.end_seq for row in manifest.chunks)
        ]
        label = ready[stream % len(ready)] if ready else DATA[stream]
        upto = self.model.head(label) * part // 8
        if label not in manifests or not manifests[label].chunks:
            with self.quiet(), pytest.raises(ProtocolError) as caught:
                writer.prune(label, upto)
            assert caught.value.code is Code.NOT_FOUND
            return
        stored = self.model.head(label) - manifests[label].journal_entries
        before = self.model.pruned.get(label, 0)
        ends = [row.end_seq for row in self.model.chunks(label, stored) if before < row.end_seq <= upto]
        self.arm(trouble)
        rows = self.attempt(lambda: writer.prune(label, upto))
        if rows is None:
            self.model.prunable[label] = upto
            self.model.leftovers.add(label)
        else:
            assert [row.end_seq for row in rows] == ends
            self.model.pruned[label] = max(ends, default=before)
            self.model.leftovers.discard(label)

    @rule()
    def what_others_may_do(self) -> None:
        """Others read and do not write; tokens and control records are not pruned by anybody."""
        writer = self.at_work()
        with self.another_process() as fs:
            with reading(fs) as reader:
                self.model.fits(reader)
            with pytest.raises(StoreBusyError):
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
            self.stop()
            assert self.clean


TestMachine = StoreMachine.TestCase
TestMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
