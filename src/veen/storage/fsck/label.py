"""The check of one label: its log, what can be checked only after its last entry, its checkpoint index."""

from bisect import bisect_left
from dataclasses import dataclass

from veen.core.data_dir import paths
from veen.core.data_dir.chunk_artifacts import CheckpointIndex, IndexedCheckpoint
from veen.core.errors import ProtocolError
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding, Level, Location
from veen.storage.errors import FindingError
from veen.storage.fsck.context import Context
from veen.storage.fsck.files import LabelFiles
from veen.storage.fsck.journal import Run
from veen.storage.fsck.label_log import node_bytes
from veen.storage.fsck.label_walk import LabelWalk
from veen.storage.fsck.report import Reason, damage, stale


def check_index(context: Context, files: LabelFiles, ends: list[tuple[int, int]]) -> Finding | None:
    """Return the first error in an index; newer checkpoints may be missing from it."""
    path = files.index
    assert path is not None
    try:
        index = CheckpointIndex.decode(context.source.read(path))
    except ProtocolError as error:
        return stale(path, 0, error.detail, error.message)
    for upto, item in index.checkpoints.items():
        mistake = _mistake(context, files, ends, upto, item)
        if mistake is not None:
            text = f"checkpoint {upto}: {mistake}"
            return stale(path, 0, Reason.CHECKPOINT_INDEX, text)
    return None


def _mistake(
    context: Context, files: LabelFiles, ends: list[tuple[int, int]], upto: int, item: IndexedCheckpoint
) -> str | None:
    checkpoint_path = files.checkpoints.get(upto)
    if checkpoint_path is None:
        return "there is no such checkpoint"
    try:
        checkpoint = Checkpoint.decode(context.source.read(checkpoint_path))
    except ProtocolError:
        return None  # reported separately
    if item.mmr_root != checkpoint.mmr_root:
        return "mmr_root is not that of the checkpoint"
    # Its chunk begins after the end of the one before; the last chunk may be open.
    number = bisect_left(ends, upto, key=lambda chunk: chunk[1])
    start = ends[number - 1][1] + 1 if number else 1
    if (item.chunk_range.start_seq, item.chunk_range.end_seq) != (start, upto):
        return "the range is not from the start of its chunk"
    if item.peaks_ref != paths.peaks(files.domain, files.label, upto).removeprefix(f"{files.domain}/"):
        return "peaks_ref is not the name of its peaks file"
    return None


@dataclass(slots=True)
class LabelFacts:
    """What the check of the derived files needs of a label."""

    files: LabelFiles
    run: Run | None
    # Checkpoints whose files may not exist yet: a flush that the journal can redo writes them.
    unfinished: frozenset[int]
    pruned_to: int
    # Entries up to here are in chunk files and not in the journal: derived files must have them.
    settled: int
    # Hash over the receipts from the end of the pruned range up to ``settled``; None if damage was found.
    receipts_hash: bytes | None
    head: int
    # Path of the chunk file for the next entry.
    next_chunk: str
    # There is no finding that could also make derived files differ.
    sound: bool


class LabelCheck(LabelWalk):
    """The check of one label."""

    def check(self) -> None:
        """Check everything; FileNotFoundError if a running hub moved a file meanwhile."""
        try:
            self.walk_pruned()
            self.walk_log()
            if self.moved:
                self.notes.append(
                    f"{self.files.label.hex()}: a hub is running; derived files were not compared"
                )
            elif not self.broken:
                self._end()
        except FindingError as error:
            self.found.add(error.finding)
            self.broken = True

    def _end(self) -> None:
        """Check what depends on all entries."""
        chunk = self.chunk
        if chunk is not None and chunk.sealed and not chunk.full:
            text = f"the chunk should not end with entry {chunk.end}"
            self.found.add(damage(chunk.path, None, Reason.BOUNDARY, text))
        for doubtful in self.doubtful:
            self.found.add(doubtful)
        if self.log.whole:
            self._leftovers()
        if self.context.level >= Level.ROOTS:
            self._check_nodes()
            if self.files.index is not None and self.log.whole:
                finding = check_index(self.context, self.files, self.ends)
                if finding is not None:
                    self.found.add(finding)

    def _leftovers(self) -> None:
        """Report sidecar files and checkpoints of entries that do not exist."""
        files, head = self.files, self.log.seq
        for (start, end), path in sorted(files.summaries.items()):
            if path in self.claimed:
                continue
            chunk = paths.chunk(files.domain, files.label, start, end)
            if end > head:
                self.found.add(damage(chunk, None, Reason.MISSING, f"its summary exists: {path}"))
            else:
                self.found.add(damage(path, None, Reason.UNEXPECTED, "no chunk has this range"))
        for upto, path in sorted((files.peaks | files.checkpoints).items()):
            if upto > head and path not in self.claimed:
                detail = f"the log ends with entry {head}, but there is {path}"
                self.found.add(damage(self.next_chunk, None, Reason.MISSING, detail))
                break
        for upto, requested in self.asked_for.items():
            if upto > head:
                detail = f"checkpoint of entry {upto}, the log ends with entry {head}"
                self.found.add(damage(requested.path, requested.offset, Reason.GAP, detail))
        if self.copied is not None and self.copied.upto_seq != head:
            reason = Reason.MISSING if self.copied.upto_seq > head else Reason.UNEXPECTED
            detail = f"the log ends with entry {head}, {paths.FORK} has it up to {self.copied.upto_seq}"
            self.found.add(damage(self.next_chunk, None, reason, detail))
        lone = files.peaks.keys() - files.checkpoints.keys() - self.asked_for.keys() - self.unfinished
        for upto in sorted(lone):
            if upto <= head:
                self.notes.append(f"{files.peaks[upto]}: no checkpoint belongs to it")

    @property
    def next_chunk(self) -> str:
        """Path of the chunk for the next entry: the open one, or one that does not exist yet."""
        last = self.files.chunks[-1] if self.files.chunks else None
        if last is not None and last.end is None:
            return last.path
        return paths.open_chunk(self.files.domain, self.files.label, self.in_chunks + 1)

    @property
    def settled(self) -> int:
        """The last entry that is in chunk files and not in the journal."""
        return min(self.in_chunks, self.first - 1)

    def _check_nodes(self) -> None:
        nodes, needed = self.nodes, node_bytes(self.settled)
        nodes.finish()
        path = self.files.nodes
        if path is None:
            if needed and not self.context.archived:
                name = paths.nodes(self.files.domain, self.files.label)
                self.found.add(stale(name, None, Reason.MISSING, "the node store is missing"))
            return
        differs = nodes.differs_at
        if differs is not None and differs < needed:
            text = "not the nodes of the log" if differs < nodes.size else "the node store is too short"
            self.found.add(stale(path, differs, Reason.NODES, text))
        elif nodes.size < needed:
            self.found.add(stale(path, nodes.size, Reason.NODES, "the node store is too short"))
        elif self.run is None and nodes.size > needed:
            self._longer_nodes(path, needed)
        elif self.run is not None and (
            nodes.size != node_bytes(self.in_chunks) or differs not in (None, nodes.size)
        ):
            self.interrupted(Location(path, needed), "the node store is not complete")

    def _longer_nodes(self, path: str, needed: int) -> None:
        """Classify nodes beyond the log: if they end with an entry, the log has lost it."""
        count = max(self.settled, self.nodes.size // node_bytes(2))
        while node_bytes(count) < self.nodes.size:
            count += 1
        if node_bytes(count) == self.nodes.size:
            detail = f"the log ends with entry {self.settled}, {path} with entry {count}"
            size = self.context.source.size(self.next_chunk)
            self.found.add(damage(self.next_chunk, size, Reason.MISSING, detail))
        else:
            text = "the node store is longer than the log"
            self.found.add(stale(path, needed, Reason.NODES, text))

    def facts(self) -> LabelFacts:
        """Return what derived files must match."""
        sound = self.log.whole and not self.broken and not self.moved and self.context.level >= Level.ROOTS
        return LabelFacts(
            files=self.files,
            run=self.run,
            unfinished=frozenset(self.asked_for) | self.unfinished,
            pruned_to=self.pruned_to,
            settled=self.settled,
            receipts_hash=self.log.receipts_hash if sound else None,
            head=self.log.seq,
            next_chunk=self.next_chunk,
            sound=sound and not self.found.damages,
        )
