"""The pruned beginning of a label: what tombstones, summaries and nodes still say about it."""

from collections.abc import Callable

from veen.core import layout
from veen.core.datadir import Tombstone
from veen.core.hashing import HASH_BYTES
from veen.core.layout import Domain
from veen.core.mmr import Peaks
from veen.storage.fsck.context import Context
from veen.storage.fsck.listing import LabelFiles
from veen.storage.fsck.log import Chunk, LabelLog
from veen.storage.fsck.nodes import NodeStore
from veen.storage.fsck.report import Finding, Level, Reason, wrong
from veen.storage.fsck.sidecars import check_checkpoint, missing, read_peaks, read_summary, read_tombstone

#: Returns what is wrong with the checkpoint and peaks files of an entry.
CheckPoint = Callable[[int, Peaks], list[Finding]]


def check_pruned(context: Context, files: LabelFiles, log: LabelLog, claimed: set[str]) -> Chunk | None:
    """Check all tombstones and leave the log as it was behind the last; return the last pruned chunk."""
    last: Chunk | None = None
    for start, end in sorted(files.tombstones):
        path = files.tombstones[start, end]
        if start != log.seq + 1:
            reason = Reason.GAP if start > log.seq else Reason.OVERLAP
            raise wrong(path, None, reason, f"a pruned range begins at {start}, not at {log.seq + 1}")
        made = read_tombstone(context, path, files.label, start, end)
        log.peaks = _check_remains(context, files, made, path, claimed)
        _follow(context, files.domain, log, made, path)
        last = Chunk(start, path, sealed=True, count=end - start + 1, size=made.total_bytes, closed=True)
        last.full = last.count >= context.rule_at(made.last_ts).max_entries
        log.seq, log.root, log.newest_ts = end, made.mmr_root_end, made.last_ts
    return last


def _check_remains(
    context: Context, files: LabelFiles, made: Tombstone, path: str, claimed: set[str]
) -> Peaks:
    """Check summary, peaks and checkpoint, which stay when a chunk goes; return the peaks at its end."""
    domain, label, start, end = files.domain, files.label, made.start_seq, made.end_seq
    summary_path = files.summaries.get((start, end))
    if summary_path is None:
        raise missing(layout.summary(domain, label, start, end), "the summary of a pruned chunk stays")
    summary = read_summary(context, summary_path, label, start, end)
    if summary.total_bytes != made.total_bytes:
        raise wrong(path, 0, Reason.TOMBSTONE, f"total_bytes is not that of {summary_path}")
    peaks_path, checkpoint_path = files.peaks.get(end), files.checkpoints.get(end)
    if peaks_path is None:
        raise missing(layout.peaks(domain, label, end), "the peaks of a pruned chunk stay")
    if checkpoint_path is None:
        raise missing(layout.checkpoint(domain, label, end), "the checkpoint of a pruned chunk stays")
    claimed.update((summary_path, peaks_path, checkpoint_path))
    peaks = read_peaks(context, peaks_path, end)
    # Three files state the root; whichever the other two contradict is the wrong one.
    if summary.mmr_root_end != made.mmr_root_end:
        if peaks.root == made.mmr_root_end:
            raise wrong(summary_path, 0, Reason.SUMMARY, f"mmr_root_end is not that of {path}")
        raise wrong(path, 0, Reason.TOMBSTONE, f"mmr_root_end is not that of {summary_path}")
    if peaks.root != made.mmr_root_end:
        raise wrong(peaks_path, 0, Reason.PEAKS, f"the peaks do not give the root of {path}")
    check_checkpoint(context, checkpoint_path, label, end, made.mmr_root_end)
    return peaks


def _follow(context: Context, domain: Domain, log: LabelLog, made: Tombstone, path: str) -> None:
    """Check times and clients: every entry of a chunk has moved one client by one."""
    if log.newest_ts is not None and made.first_ts < log.newest_ts:
        raise wrong(path, 0, Reason.HUB_TS, f"first_ts is before {log.newest_ts}")
    if any(not made.first_ts <= use.hub_ts <= made.last_ts for use in made.first_uses):
        raise wrong(path, 0, Reason.TOMBSTONE, "a token was used outside of the chunk's time")
    if context.level < Level.FULL or domain is not Domain.DATA:
        return
    moved = 0
    for client in made.clients:
        seq, acked = log.clients.get(client.client_id, (0, 0))
        if client.client_seq <= seq or not acked <= client.prev_ack < made.end_seq:
            raise wrong(path, 0, Reason.TOMBSTONE, f"client {client.client_id.hex()} went back")
        moved += client.client_seq - seq
        log.clients[client.client_id] = (client.client_seq, client.prev_ack)
    if moved != made.end_seq - made.start_seq + 1:
        raise wrong(path, 0, Reason.TOMBSTONE, "the clients' positions do not add up to the entries")


def check_pruned_nodes(
    context: Context, files: LabelFiles, log: LabelLog, nodes: NodeStore, point: CheckPoint
) -> list[Finding]:
    """Check the nodes of the pruned range among themselves, and that they lead to its peaks.

    Nothing can rebuild them: the leaves are in no other file any more. When they are right, they tell what
    is wrong with checkpoints inside of the range; that is returned.
    """
    found: list[Finding] = []
    if not log.seq or context.level < Level.ROOTS:
        return found
    path = files.nodes
    if path is None:
        raise missing(layout.nodes(files.domain, files.label), "the nodes of pruned chunks stay")
    peaks = Peaks.empty()
    for offset, length, stored in nodes.by_entry(log.seq):
        if len(stored) != length:
            raise wrong(path, offset, Reason.NODES, "the file ends in the nodes of pruned entries")
        peaks, made = peaks.grow(stored[:HASH_BYTES])
        if b"".join(made) != stored:
            raise wrong(path, offset, Reason.NODES, "a node is not the hash of the two below it")
        found += point(peaks.size, peaks)
    if peaks != log.peaks:
        raise wrong(path, 0, Reason.NODES, "the nodes do not lead to the peaks of the pruned chunks")
    nodes.skip_to(log.seq)
    return found
