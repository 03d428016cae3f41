"""Flush: moves a tail into chunk files, after the commit point, in steps that can be repeated.

    1  entries to chunk files, nodes to node stores, receipts to the derived file: written and synced
    2  summaries, peaks and checkpoints of sealed chunks: temporary files written and renamed
    3  sealed chunks renamed
    4  directories synced
    5  one transaction of the index commits all of this
    6  journal segment deleted

Until step 5 the index has the previous length of every file, so an interrupted flush is repeated from the
start (``redo``): what it wrote is removed first, as far as the journal covers it. All files are renamed again
too, because a directory whose sync failed may be reported as synced afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from veen.core.data_dir import paths
from veen.core.data_dir.chunk_artifacts import PeakSnapshot
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import NO_COMPRESSION, StoreRecord, StreamEpoch
from veen.core.errors import ProtocolError
from veen.core.merkle.mmr import Peaks, read_peaks
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import Label, NodeHash
from veen.storage.atomic_file import read_file, replace_files
from veen.storage.chunk_lookup import node_reader
from veen.storage.directory import limits_by_time
from veen.storage.errors import DamagedStoreError, StaleIndexError
from veen.storage.fs import Filesystem, Write
from veen.storage.index.index import Changes, Index, Meta, Snapshot
from veen.storage.index.label_state import LabelState
from veen.storage.index.rows import CheckpointRow
from veen.storage.journal.tail import Tail
from veen.storage.write.chunk_plan import Growth, Slice, grow


def record_entries(changes: Changes, growths: Sequence[Growth], tail: Tail) -> None:
    """Write the rows of ``growths``, and of the clients and tokens of ``tail``.

    Leaves are not included: ``Index.add_leaves`` writes them first.
    """
    for growth in growths:
        number = growth.before.number
        changes.put_label(growth.state)
        changes.put_blocks(number, growth.blocks)
        for hub_ts, seq in growth.times:
            changes.put_time(number, hub_ts, seq)
        for row in growth.chunks:
            changes.put_chunk(number, row)
    numbers = {growth.before.label: growth.before.number for growth in growths}
    for (label, client_id), cursor in tail.clients.items():
        changes.put_client(numbers[label], client_id, cursor)
    for client_id, since in tail.since.items():
        changes.put_client_since(client_id, since)
    for auth_ref, record in tail.auths.items():
        changes.put_auth(auth_ref, record)


# Signs the checkpoint of a label: (label, upto_seq, mmr_root, its stream and epoch if known).
SignCheckpoint = Callable[[Label, int, NodeHash, StreamEpoch | None], Checkpoint]


# Files that a repair can rebuild.
_DERIVED = (".mmr", ".cborseq")
# Files that are created with the directory.
_ALWAYS_THERE = (paths.RECEIPTS, paths.CHECKPOINTS)


@dataclass(slots=True)
class _Plan:
    """All steps of a flush, determined before the first is taken."""

    redo: bool
    writes: list[Write] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    renames: list[tuple[str, str]] = field(default_factory=list)
    # Renames of an interrupted flush to undo first.
    undone: list[tuple[str, str]] = field(default_factory=list)
    rows: list[tuple[int, CheckpointRow]] = field(default_factory=list)
    receipts: list[bytes] = field(default_factory=list)
    checkpoints: list[bytes] = field(default_factory=list)
    domains: set[Domain] = field(default_factory=set)


class Flush:
    """Flushes tails of one directory."""

    def __init__(
        self,
        fs: Filesystem,
        index: Index,
        store: StoreRecord,
        sign_checkpoint: SignCheckpoint,
        domain_of: Callable[[Label], Domain],
    ) -> None:
        self._fs = fs
        self._index = index
        self._limits_at = limits_by_time(store)
        self._compress = store.registries[-1].compression != NO_COMPRESSION
        self._sign = sign_checkpoint
        self._domain_of = domain_of

    def run(self, tail: Tail, *, redo: bool, clean: bool | None = None) -> None:
        """Flush one tail and delete its segment. ``clean`` sets the index's mark, unless None."""
        with self._index.view() as view:
            meta = view.meta()
            plan = None if meta.journal > tail.segment else self._plan(tail, view, meta, _Plan(redo))
        if plan is not None:  # otherwise an earlier attempt has committed the index
            self._carry_out(plan, tail, meta, clean=clean)
        self._fs.unlink(paths.journal(tail.segment))
        self._fs.sync_dir(paths.STATE_DIR)

    def _carry_out(self, plan: _Plan, tail: Tail, meta: Meta, *, clean: bool | None) -> None:
        if plan.redo:
            self._take_back(plan)
        self._fs.write_all(plan.writes)
        replace_files(self._fs, plan.files)
        for old, new in plan.renames:
            self._fs.rename(old, new)
        self._sync_domains(plan)
        self._index.add_leaves(leaf for growth in plan.growths for leaf in growth.leaves)
        with self._index.change() as changes:
            self._record(plan, tail, meta, changes, clean)

    def _sync_domains(self, plan: _Plan) -> None:
        for domain in sorted(plan.domains):
            self._fs.sync_dir(domain)

    def _plan(self, tail: Tail, view: Snapshot, meta: Meta, plan: _Plan) -> _Plan:
        numbers = meta.labels
        for label in dict.fromkeys((*tail.labels, *tail.bindings, *tail.checkpoints)):
            state = view.label(label)
            if state is None:
                state = LabelState.new(label, self._domain_of(label), numbers)
                numbers += 1
            if label in tail.bindings:
                state = state.bound_to(tail.bindings[label])
            label_tail = tail.labels.get(label)
            growth = grow(state, label_tail.entries if label_tail else (), self._limits_at)
            plan.growths.append(growth)
            self._plan_label(plan, growth)
            if state.domain is Domain.DATA and label_tail:
                plan.receipts += [staged.receipt.encode() for staged in label_tail.entries]
            self._plan_checkpoints(plan, growth, tail.checkpoints.get(label, {}), view)
        for path, size, added in (
            (paths.RECEIPTS, meta.receipts_bytes, plan.receipts),
            (paths.CHECKPOINTS, meta.checkpoints_bytes, plan.checkpoints),
        ):
            if added:
                plan.writes.append(Write(path, size, b"".join(added)))
        return plan

    def _plan_label(self, plan: _Plan, growth: Growth) -> None:
        state, domain, label = growth.before, growth.before.domain, growth.before.label
        for item in growth.slices:
            self._plan_slice(plan, domain, label, item)
        if growth.nodes:
            plan.writes.append(Write(paths.nodes(domain, label), state.node_bytes, b"".join(growth.nodes)))
            plan.domains.add(domain)

    def _plan_slice(self, plan: _Plan, domain: Domain, label: Label, item: Slice) -> None:
        data = b"".join(item.frames)
        growing = paths.open_chunk(domain, label, item.chunk_start)
        plan.domains.add(domain)
        if item.seal is not None:
            end = item.seal.summary.end_seq
            sealed = paths.chunk(domain, label, item.chunk_start, end)
            self._add_file(
                plan, paths.summary(domain, label, item.chunk_start, end), item.seal.summary.encode()
            )
            plan.renames.append((growing, sealed))
            if self._fs.size(sealed) is not None:  # by an interrupted flush
                if not plan.redo or self._fs.size(growing) is not None:
                    raise DamagedStoreError(sealed, 0, "a chunk of this name exists already")
                plan.undone.append((sealed, growing))
        if data:
            plan.writes.append(Write(growing, item.offset, data))

    def _add_file(self, plan: _Plan, path: str, data: bytes) -> None:
        stored = read_file(self._fs, path)
        if stored is not None and stored != data:
            raise DamagedStoreError(path, 0, "the existing file has other content")
        if stored is None or plan.redo:
            plan.files[path] = data

    def _plan_checkpoints(
        self, plan: _Plan, growth: Growth, requested: dict[int, Checkpoint], view: Snapshot
    ) -> None:
        state = growth.before
        due: dict[int, tuple[Peaks, int]] = {}
        for seal in growth.seals:
            due[seal.summary.end_seq] = seal.peaks, seal.summary.start_seq
        for upto in requested:
            if upto not in due:
                due[upto] = self._peaks_at(growth, upto), self._chunk_start(growth, upto, view)
        for upto, (peaks, chunk_start) in sorted(due.items()):
            domain, label = state.domain, state.label
            path = paths.checkpoint(domain, label, upto)
            self._add_file(plan, paths.peaks(domain, label, upto), PeakSnapshot(peaks.hashes).encode())
            known = view.checkpoint_at(state.number, upto)
            recorded = known is not None and known.upto_seq == upto
            stored = self._stored_checkpoint(path, peaks)
            checkpoint = stored if recorded and stored else requested.get(upto)
            if checkpoint is None:
                checkpoint = self._sign(label, upto, peaks.root, state.binding)
            if stored != checkpoint or (plan.redo and not recorded):
                plan.files[path] = checkpoint.encode()
            plan.domains.add(domain)
            if not recorded:
                plan.rows.append((state.number, CheckpointRow(upto, peaks.root, chunk_start)))
                if domain is Domain.DATA:
                    plan.checkpoints.append(checkpoint.encode())
            growth.state = replace(growth.state, last_checkpoint=max(growth.state.last_checkpoint, upto))

    def _stored_checkpoint(self, path: str, peaks: Peaks) -> Checkpoint | None:
        stored = read_file(self._fs, path)
        if stored is None:
            return None
        try:
            checkpoint = Checkpoint.decode(stored)
            checkpoint.verify_prefix(peaks)
        except ProtocolError as error:
            raise DamagedStoreError(path, 0, str(error)) from error
        return checkpoint

    def _peaks_at(self, growth: Growth, upto: int) -> Peaks:
        """Return the peaks after an entry, which may be flushed now or stored already."""
        state = growth.before
        read_stored = node_reader(self._fs, state.domain, state.label)
        first = state.node_bytes // 32

        def read(position: int) -> NodeHash:
            if position >= first:
                return NodeHash(growth.nodes[position - first])
            return read_stored(position)

        return read_peaks(read, upto)

    def _chunk_start(self, growth: Growth, upto: int, view: Snapshot) -> int:
        started = [item.start_seq for item in growth.chunks if item.start_seq <= upto]
        if started:
            return max(started)
        row = view.chunk_at(growth.before.number, upto)
        if row is None:
            raise StaleIndexError(paths.INDEX, None, f"no chunk holds entry {upto}")
        return row.start_seq

    def _take_back(self, plan: _Plan) -> None:
        """Undo an interrupted flush: all that it added is in the journal, and is written again."""
        for sealed, growing in plan.undone:
            self._fs.rename(sealed, growing)
        if plan.undone:  # durable before any truncation: a sealed chunk is always complete
            self._sync_domains(plan)
        for write in plan.writes:
            actual = self._fs.size(write.path) or 0
            if actual < write.offset:
                derived = write.path.endswith(_DERIVED)
                error_class = StaleIndexError if derived else DamagedStoreError
                raise error_class(write.path, actual, f"file is shorter than the {write.offset} bytes known")
            if actual > write.offset + len(write.data):
                raise StaleIndexError(
                    write.path, write.offset, "file is longer than index and journal together record"
                )
            if not write.offset and write.path not in _ALWAYS_THERE:
                if self._fs.size(write.path) is not None:
                    self._fs.unlink(write.path)
            elif actual > write.offset:
                self._fs.truncate(write.path, write.offset)

    def _record(self, plan: _Plan, tail: Tail, meta: Meta, changes: Changes, clean: bool | None) -> None:  # noqa: FBT001
        record_entries(changes, plan.growths, tail)
        numbers = [growth.before.number for growth in plan.growths]
        for growth in plan.growths:
            for seal in growth.seals if self._compress else ():
                changes.put_unpacked(growth.before.label, seal.summary.start_seq)
        for number, stored in plan.rows:
            changes.put_checkpoint(number, stored)
            changes.put_stale(changes.label_numbered(number))
        changes.put_meta(
            Meta(
                clean=meta.clean if clean is None else clean,
                journal=tail.segment + 1,
                last_ts=max(meta.last_ts, tail.last_ts),
                receipts_bytes=meta.receipts_bytes + sum(map(len, plan.receipts)),
                checkpoints_bytes=meta.checkpoints_bytes + sum(map(len, plan.checkpoints)),
                labels=max([meta.labels, *(number + 1 for number in numbers)]),
            )
        )
