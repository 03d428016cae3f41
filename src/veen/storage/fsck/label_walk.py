"""The log of one label: its chunk files, then its entries in the journal, and the sidecar files.

A flush moves entries from the journal into chunk files and deletes the journal segment last. So files of
entries that are still in the journal may be incomplete, and are redone when a hub starts: a truncated chunk,
a missing summary, a complete chunk that was not renamed. These are noted. Without the journal's copy they
are damage.

A pruned beginning is checked by its tombstones, summaries and nodes.
"""

from collections.abc import Callable
from typing import Final

from veen.core.crypto.hash import HASH_BYTES
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import Tombstone
from veen.core.errors import Detail, ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding, Level, Location
from veen.core.types import NodeHash
from veen.storage.errors import FindingError
from veen.storage.fsck.chunk_bytes import read_chunk
from veen.storage.fsck.context import Context, Rule
from veen.storage.fsck.entry import Item, is_whole, read_item
from veen.storage.fsck.files import ChunkFile, LabelFiles
from veen.storage.fsck.label_log import Chunk, LabelLog, NodeStore
from veen.storage.fsck.report import Findings, Reason, damage, refused, wrong
from veen.storage.fsck.sidecars import (
    check_checkpoint,
    check_commitment,
    check_peaks,
    check_summary,
    missing,
    read_peaks,
    read_summary,
    read_tombstone,
)
from veen.storage.fsck.sidecars import read_peaks as read_peaks_file

# Returns the findings about the checkpoint and peaks files of an entry.
CheckPoint = Callable[[int, Peaks], list[Finding]]


def check_pruned(context: Context, files: LabelFiles, log: LabelLog, claimed: set[str]) -> Chunk | None:
    """Check all tombstones and set the log to the end of the last; return the last pruned chunk."""
    last: Chunk | None = None
    for start, end in sorted(files.tombstones):
        path = files.tombstones[start, end]
        if start != log.seq + 1:
            reason = Reason.GAP if start > log.seq else Reason.OVERLAP
            raise wrong(path, None, reason, f"a pruned range starts at {start}, not at {log.seq + 1}")
        tombstone = read_tombstone(context, path, files.label, start, end)
        log.peaks = _check_remains(context, files, tombstone, path, claimed)
        _follow(context, files.domain, log, tombstone, path)
        last = Chunk(start, path, sealed=True, count=end - start + 1, size=tombstone.total_bytes, closed=True)
        last.full = last.count >= context.rule_at(tombstone.last_ts).max_entries
        log.seq, log.root, log.newest_ts = end, tombstone.mmr_root_end, tombstone.last_ts
    return last


def _check_remains(
    context: Context, files: LabelFiles, tombstone: Tombstone, path: str, claimed: set[str]
) -> Peaks:
    """Check summary, peaks and checkpoint, which pruning retains; return the peaks at the chunk's end."""
    domain, label, start, end = files.domain, files.label, tombstone.start_seq, tombstone.end_seq
    summary_path = files.summaries.get((start, end))
    if summary_path is None:
        raise missing(paths.summary(domain, label, start, end), "the summary of a pruned chunk must remain")
    summary = read_summary(context, summary_path, label, start, end)
    if summary.total_bytes != tombstone.total_bytes:
        raise wrong(path, 0, Reason.TOMBSTONE, f"total_bytes is not that of {summary_path}")
    peaks_path, checkpoint_path = files.peaks.get(end), files.checkpoints.get(end)
    if peaks_path is None:
        raise missing(paths.peaks(domain, label, end), "the peaks file of a pruned chunk must remain")
    if checkpoint_path is None:
        raise missing(paths.checkpoint(domain, label, end), "the checkpoint of a pruned chunk must remain")
    claimed.update((summary_path, peaks_path, checkpoint_path))
    peaks = read_peaks(context, peaks_path, end)
    # Three files have the root; the one that differs from the other two is wrong.
    if summary.mmr_root_end != tombstone.mmr_root_end:
        if peaks.root == tombstone.mmr_root_end:
            raise wrong(summary_path, 0, Reason.SUMMARY, f"mmr_root_end is not that of {path}")
        raise wrong(path, 0, Reason.TOMBSTONE, f"mmr_root_end is not that of {summary_path}")
    if peaks.root != tombstone.mmr_root_end:
        raise wrong(peaks_path, 0, Reason.PEAKS, f"the peaks do not lead to the root of {path}")
    check_checkpoint(context, checkpoint_path, label, end, tombstone.mmr_root_end)
    return peaks


def _follow(context: Context, domain: Domain, log: LabelLog, tombstone: Tombstone, path: str) -> None:
    """Check times and clients: every entry of a chunk advances one client by one."""
    if log.newest_ts is not None and tombstone.first_ts < log.newest_ts:
        raise wrong(path, 0, Reason.HUB_TS, f"first_ts is before {log.newest_ts}")
    if any(not tombstone.first_ts <= use.hub_ts <= tombstone.last_ts for use in tombstone.first_uses):
        raise wrong(path, 0, Reason.TOMBSTONE, "a token was used outside of the chunk's time")
    if context.level < Level.FULL or domain is not Domain.DATA:
        return
    moved = 0
    for client in tombstone.clients:
        seq, acked = log.clients.get(client.client_id, (0, 0))
        if client.client_seq <= seq or not acked <= client.prev_ack < tombstone.end_seq:
            raise wrong(
                path, 0, Reason.TOMBSTONE, f"the position of client {client.client_id.hex()} went back"
            )
        moved += client.client_seq - seq
        log.clients[client.client_id] = (client.client_seq, client.prev_ack)
    if moved != tombstone.end_seq - tombstone.start_seq + 1:
        raise wrong(path, 0, Reason.TOMBSTONE, "the clients' positions do not add up to the entries")


def check_pruned_nodes(
    context: Context, files: LabelFiles, log: LabelLog, nodes: NodeStore, point: CheckPoint
) -> list[Finding]:
    """Check the nodes of the pruned range for consistency, and that they lead to its peaks.

    They cannot be rebuilt: the leaves are in no other file. With them, checkpoints inside of the range are
    checked; their findings are returned.
    """
    findings: list[Finding] = []
    if not log.seq or context.level < Level.ROOTS:
        return findings
    path = files.nodes
    if path is None:
        raise missing(paths.nodes(files.domain, files.label), "the nodes of pruned chunks must remain")
    peaks = Peaks.empty()
    for offset, length, stored in nodes.by_entry(log.seq):
        if len(stored) != length:
            raise wrong(path, offset, Reason.NODES, "the file ends in the nodes of pruned entries")
        peaks, completed = peaks.grow(stored[:HASH_BYTES])
        if b"".join(completed) != stored:
            raise wrong(path, offset, Reason.NODES, "a node is not the hash of the two below it")
        findings += point(peaks.size, peaks)
    if peaks != log.peaks:
        raise wrong(path, 0, Reason.NODES, "the nodes do not lead to the peaks of the pruned chunks")
    nodes.skip_to(log.seq)
    return findings


# First entry of an absent journal: nothing is unfinished.
_NEVER: Final = 1 << 64
# How often the walk rereads the directory after a running hub moved files.
_LOOKS: Final = 5


class LabelWalk:
    """Checks the log of one label from its first entry to its last."""

    def __init__(self, context: Context, files: LabelFiles, look_again: Callable[[], LabelFiles]) -> None:
        self.context = context
        self._look_again = look_again
        self.found = Findings()
        self.notes: list[str] = []
        self._see(files)
        self.nodes = NodeStore(context.source, files.nodes)
        self.log = LabelLog(context, files.domain, self.nodes, self.first)
        # The chunk of the last entry; None if its beginning is unknown after damage.
        self.chunk: Chunk | None = Chunk(1)
        self.ends: list[tuple[int, int]] = []
        # Chunk ends whose files may not exist yet.
        self.unfinished: set[int] = set()
        self.pruned_to = 0
        self.in_chunks = 0
        self.broken = False
        # A running hub has moved files: the listing and what was read later are not consistent.
        self.moved = False
        self.claimed: set[str] = set()
        self.doubtful: list[Finding] = []

    def _see(self, files: LabelFiles) -> None:
        """Set the current files and journal."""
        self.files = files
        journal, self.copied = self.context.journal, self.context.keys.copied.get(files.label)
        self.run = journal.runs.get(files.label)
        # The journal has entries ``first`` to ``last``; their files may be unfinished.
        self.first = _NEVER if self.run is None else self.run.first
        self.last = 0 if self.run is None else self.run.last
        self.asked_for = journal.checkpoints.get(files.label, {})
        self._points = {*files.peaks, *files.checkpoints, *self.asked_for}
        if self.copied is not None:
            self._points.add(self.copied.upto_seq)

    # --- reporting ------------------------------------------------------------------------------------------

    def interrupted(self, where: Location, text: str) -> None:
        """Add a note about an interrupted flush."""
        self.notes.append(f"{where}: {text}: interrupted flush, will be redone at start")

    def _report(self, finding: Finding, *, unfinished: bool) -> None:
        if unfinished:
            self.interrupted(finding.where, finding.text)
        else:
            self.found.add(finding)

    # --- pruned chunks --------------------------------------------------------------------------------------

    def walk_pruned(self) -> None:
        """Check what remains of pruned chunks."""
        files = self.files
        for path in files.interrupted:
            self.notes.append(f"{path}: pruning was interrupted, the chunk is still there; prune again")
        if not files.tombstones:
            return
        self.pruned_to = max(end for _, end in files.tombstones)
        self.ends = sorted(files.tombstones)
        try:
            self.chunk = check_pruned(self.context, files, self.log, self.claimed)
            for finding in check_pruned_nodes(self.context, files, self.log, self.nodes, self._pruned_point):
                self.found.add(finding)
        except FindingError as error:
            self.found.add(error.finding)
            self._resume(self.pruned_to)

    def _pruned_point(self, seq: int, peaks: Peaks) -> list[Finding]:
        return self._wrong_at(seq, peaks, peaks.root) if seq in self._points else []

    # --- chunk files ----------------------------------------------------------------------------------------

    def walk_log(self) -> None:
        """Check all entries: those in chunk files, then those only in the journal.

        In a large label, a busy hub seals the last chunk and deletes journal segments before they are read;
        then the walk lists the files again and resumes at its position.
        """
        for attempts_left in range(_LOOKS, 0, -1):
            try:
                self._walk_chunks()
                self.in_chunks = self.log.seq
                if not self.broken:
                    self._walk_tail()
            except FileNotFoundError:
                pruned_before = self.files.tombstones.keys()
                self._see(self._look_again())
                self.moved = True
                if attempts_left == 1 or self.files.tombstones.keys() != pruned_before:
                    raise
            else:
                return

    def _walk_chunks(self) -> None:
        for file in self.files.chunks:
            due = self.log.seq + 1
            chunk = self.chunk
            if self.moved and chunk is not None and file.start == chunk.start < due:
                if file.end is None or file.end >= due:
                    chunk.path, chunk.sealed = file.path, file.end is not None
                    if self._chunk(file, chunk.size):
                        return
                continue
            if self.moved and file.start < due:
                continue
            if file.start < due:
                self._report(
                    damage(file.path, None, Reason.OVERLAP, f"starts at {file.start}, not at {due}"),
                    unfinished=file.end is None and self.log.seq >= self.first,
                )
                continue
            if file.start > due:
                if self.first <= due and file.start <= self.last + 1:
                    self.interrupted(Location(file.path), f"the chunk with entry {due} is not there yet")
                    return
                self._gap(file, due)
            try:
                torn = self._chunk(file, 0)
            except FindingError as error:
                self.found.add(error.finding)
                if file.end is None:
                    self.broken = True
                    return
                self._resume(file.end)
                continue
            if torn:
                return

    def _gap(self, file: ChunkFile, due: int) -> None:
        detail = f"entries {due} to {file.start - 1} are missing"
        names = [end for start, end in self.files.summaries if start == due]
        if names:
            path = paths.chunk(self.files.domain, self.files.label, due, names[0])
            self.found.add(damage(path, None, Reason.MISSING, detail))
        else:
            self.found.add(damage(file.path, None, Reason.GAP, detail))
        self._resume(file.start - 1)

    def _resume(self, seq: int) -> None:
        """Continue after damage, with the stored peaks at that entry."""
        peaks: Peaks | None = None
        path = self.files.peaks.get(seq)
        if path is not None:
            try:
                peaks = read_peaks_file(self.context, path, seq)
            except FindingError as error:
                self.found.add(error.finding)
        self.log.resume(seq, peaks, None if peaks is None else peaks.root)
        self.chunk = None

    def _chunk(self, file: ChunkFile, at: int) -> bool:
        """Check a chunk file from byte ``at`` on; return True if it is truncated and in the journal."""
        data = read_chunk(self.context, file)
        if file.twin is not None:
            self.notes.append(f"{file.twin}: the chunk exists in both forms; delete either")
        while at < len(data):
            seq = self.log.seq + 1
            if file.end is not None and seq > file.end:
                raise wrong(
                    file.path, at, Reason.ORDER, "bytes after the last entry that the file name states"
                )
            if self.first <= seq <= self.last and not data.startswith(self._from_journal(seq), at):
                self._differs(file, data, at, seq)
                return True
            item = self._read(data, at, file.path, at)
            self._take(item, file=file)
            at += item.size
        if file.end is None and data:
            return False
        if file.end == self.log.seq:
            return False
        seq = self.log.seq + 1
        if self.first <= file.start and seq <= self.last:
            self._breaks_off(file, at)
            return True
        raise wrong(file.path, at, Detail.ENTRY_LENGTH, f"entry {seq} is missing")

    def _read(self, data: bytes, start: int, path: str, offset: int) -> Item:
        try:
            item = read_item(data, start, path, offset)
        except ProtocolError as error:
            raise refused(path, offset, error) from error
        place = (item.header.label, item.header.stream_seq)
        if place != (self.files.label, self.log.seq + 1):
            raise wrong(path, offset, Reason.ORDER, f"not entry {self.log.seq + 1} of this label")
        return item

    def _from_journal(self, seq: int) -> bytes:
        assert self.run is not None
        place = self.run.place(seq)
        return self.context.source.read(place.path, place.offset, place.length)

    def _differs(self, file: ChunkFile, data: bytes, at: int, seq: int) -> None:
        """Classify bytes that differ from the journal: an incomplete write or a conflict."""
        # A chunk is renamed when its content is durable; only one with no older entries may be truncated.
        renamed = file.end is not None and file.start < self.first
        if renamed or is_whole(data, at, self.files.label, seq):
            raise wrong(file.path, at, Reason.CONFLICT, f"entry {seq} is not the one in the journal")
        self._breaks_off(file, at)

    def _breaks_off(self, file: ChunkFile, at: int) -> None:
        self.interrupted(Location(file.path, at), "the chunk is truncated")
        if at and self.chunk is not None:  # the rest of it is in the journal, even if its name is sealed
            self.chunk.sealed = False

    # --- the journal ----------------------------------------------------------------------------------------

    def _walk_tail(self) -> None:
        """Check the entries that are in no chunk file yet."""
        run = self.run
        if run is None:
            return
        try:
            if run.first > self.log.seq + 1:
                place = run.place(run.first)
                detail = f"starts with entry {run.first}, chunks end with {self.log.seq}"
                raise wrong(place.path, place.offset, Reason.GAP, f"{self.files.label.hex()} {detail}")
            for seq in range(self.log.seq + 1, run.last + 1):
                place = run.place(seq)
                self._take(self._read(self._from_journal(seq), 0, place.path, place.offset), file=None)
        except FindingError as error:
            self.found.add(error.finding)
            self.broken = True

    # --- entries and chunk ends -----------------------------------------------------------------------------

    def _take(self, item: Item, *, file: ChunkFile | None) -> None:
        """Append an entry to the log, and check whether it belongs to the current chunk or a new one."""
        rule = self.context.rule_at(item.receipt.hub_ts)
        try:
            self.log.append(item)
        except ProtocolError as error:
            raise refused(item.path, item.offset, error) from error
        begins = file is not None and item.offset == 0
        chunk = self.chunk
        if chunk is None or chunk.count == 0:
            chunk = self._begin(file)
        elif chunk.ends_before(item, rule):
            if file is not None and not begins:
                raise wrong(item.path, item.offset, Reason.BOUNDARY, "the chunk should end before this entry")
            if not chunk.closed:
                self._close(chunk, by=self.log.seq, in_file=file is not None)
            chunk = self._begin(file)
        elif begins or (chunk.sealed and file is None):
            raise wrong(chunk.path, None, Reason.BOUNDARY, f"the chunk should not end with entry {chunk.end}")
        self._settle_doubts(chunk)
        self._add(chunk, item, rule, file)

    def _begin(self, file: ChunkFile | None) -> Chunk:
        self.chunk = Chunk(self.log.seq)
        if file is not None:
            self.chunk.path, self.chunk.sealed = file.path, file.end is not None
        return self.chunk

    def _add(self, chunk: Chunk, item: Item, rule: Rule, file: ChunkFile | None) -> None:
        chunk.add(item, rule, hashed=self.context.level >= Level.HASHES)
        seq = self.log.seq
        if chunk.full:
            self._close(chunk, by=seq, in_file=file is not None)
        self._point(seq)

    def _close(self, chunk: Chunk, *, by: int, in_file: bool) -> None:
        """Check a complete chunk. Entry ``by`` completed it: its last, or the first that did not fit."""
        unfinished = by >= self.first
        chunk.closed = True
        if unfinished:
            self.unfinished.add(chunk.end)
        self.ends.append((chunk.start, chunk.end))
        files, domain, label = self.files, self.files.domain, self.files.label
        if not chunk.sealed and in_file:
            text = f"the chunk is complete with entry {chunk.end}, but has no sealed name"
            self._report(damage(chunk.path, None, Reason.BOUNDARY, text), unfinished=unfinished)
        expected = (
            (
                files.summaries.get((chunk.start, chunk.end)),
                paths.summary(domain, label, chunk.start, chunk.end),
            ),
            (files.peaks.get(chunk.end), paths.peaks(domain, label, chunk.end)),
            (files.checkpoints.get(chunk.end), paths.checkpoint(domain, label, chunk.end)),
        )
        for path, name in expected:
            if path is not None:
                self.claimed.add(path)
            elif chunk.sealed and not self.context.archived:  # an open chunk needs no sidecar files
                finding = missing(name, "a sealed chunk has it beside it").finding
                self._report(finding, unfinished=unfinished)
        summary = expected[0][0]
        if summary is not None:
            try:
                check_summary(self.context, summary, label, chunk)
            except FindingError as error:
                self._report(error.finding, unfinished=unfinished)

    def _point(self, seq: int) -> None:
        """Check the peaks file and the checkpoint of an entry, if there are any."""
        if seq not in self._points:
            return
        for finding in self._wrong_at(seq, self.log.peaks, self.log.root):
            # Whether a flush was to write these files depends on the next entry, which may end the chunk.
            if seq >= self.first - 1 and self.chunk is not None and not self.chunk.full:
                self.doubtful.append(finding)
            else:
                self._report(finding, unfinished=seq >= self.first)

    def _wrong_at(self, seq: int, peaks: Peaks | None, root: NodeHash | None) -> list[Finding]:
        """Check all commitments to the log up to an entry; return the findings about its files."""
        context, files = self.context, self.files
        requested = self.asked_for.get(seq)
        if requested is not None:
            self._commitment(requested.checkpoint, requested.path, requested.offset, root)
        if self.copied is not None and self.copied.upto_seq == seq:
            self._commitment(self.copied, paths.FORK, 0, root)
        findings: list[Finding] = []
        peaks_path, checkpoint_path = files.peaks.get(seq), files.checkpoints.get(seq)
        try:
            if peaks_path is not None:
                self.claimed.add(peaks_path)
                check_peaks(context, peaks_path, seq, peaks)
            elif checkpoint_path is not None and not context.archived and not self._ends_at(seq):
                raise missing(paths.peaks(files.domain, files.label, seq), "its checkpoint exists")
        except FindingError as error:
            findings.append(error.finding)
        try:
            if checkpoint_path is not None:
                self.claimed.add(checkpoint_path)
                check_checkpoint(context, checkpoint_path, files.label, seq, root)
        except FindingError as error:
            findings.append(error.finding)
        # If the journal has the checkpoint, its files will be rewritten.
        if requested is not None and findings:
            for finding in findings:
                self._report(finding, unfinished=True)
            return []
        return findings

    def _ends_at(self, seq: int) -> bool:
        return bool(self.ends) and self.ends[-1][1] == seq

    def _commitment(self, checkpoint: Checkpoint, path: str, offset: int, root: NodeHash | None) -> None:
        try:
            check_commitment(self.context, checkpoint, path, offset, root)
        except FindingError as error:
            self.found.add(error.finding)

    def _settle_doubts(self, chunk: Chunk) -> None:
        for finding in self.doubtful:
            self._report(finding, unfinished=chunk.count == 0)
        self.doubtful.clear()
