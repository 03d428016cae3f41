"""The driver's checks: whether the parts of a label continue each other.

Tasks checked each part from the state that it states for the entries before it. Here that state is compared
with the one computed at the end of the previous part, so that no stated value is trusted.

Where parts do not state the peaks before them, these are computed as a prefix over the trees of all parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from veen.core.errors import Detail, ProtocolError
from veen.core.merkle.mmr import Peaks, join
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding, Level, Location
from veen.core.types import NodeHash, VerifyKey
from veen.pipeline.errors import PeaksMismatchError
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.log import LabelHead, Pruned
from veen.pipeline.log.partition import Part
from veen.pipeline.verify.kernel import follows
from veen.pipeline.verify.report import COMPLETENESS, LabelVerdict
from veen.pipeline.verify.task import Obstacle, PartResult, Trees

_CHECKPOINT: Final = "checkpoint"


@dataclass(slots=True)
class Chain:
    """The checks of one label, from its first part to its last."""

    head: LabelHead
    level: Level
    verdict: LabelVerdict = field(init=False)
    # The state after the parts so far; None after damage.
    _peaks: Peaks | None = None
    _seq: int = 0
    _ts: int = 0
    _clients: dict[VerifyKey, tuple[int, int]] = field(default_factory=dict)
    _roots: dict[int, NodeHash] = field(default_factory=dict)
    # All entries so far were read, or pruned with a tombstone.
    _whole: bool = True
    # The last client_seq and prev_ack of every client are known.
    _followed: bool = True

    def __post_init__(self) -> None:
        self.verdict = LabelVerdict(self.head)
        self._peaks = Peaks.empty()

    # --- parts ----------------------------------------------------------------------------------------------

    def begin(self, first_seq: int, pruned: Iterable[Pruned]) -> None:
        """Start after the pruned entries, with their last time and the state of their clients."""
        for item in pruned:
            if item.first_seq != self._seq + 1:
                self._tell(
                    item.first_seq, "", Detail.PROOF_SEQ.value, "pruned ranges do not follow each other"
                )
            self._seq, self._ts = item.last_seq, item.last_ts
            self._roots[item.last_seq] = item.mmr_root
            self._clients.update(item.clients)
            self._followed &= bool(item.clients)  # not known from a hub's address
            self._peaks = None  # the peaks that the first part states must give the root of the tombstone
        self.verdict.pruned_upto = self._seq
        if self._seq != first_seq - 1:
            gone = f"entries {self._seq + 1} to {first_seq - 1} are missing"
            text = f"{gone}, and there is no record that they were pruned"
            self._tell(self._seq + 1, "", Detail.PROOF_SEQ.value, text)
            self._break()
            self._seq = first_seq - 1

    def add(self, part: Part, result: PartResult) -> None:
        if part.first_seq != self._seq + 1:
            text = f"entries {self._seq + 1} to {part.first_seq - 1} are missing"
            self._tell(self._seq + 1, part.place, Detail.PROOF_SEQ.value, text)
            self._break()
        checked = result.found
        self.verdict.entries += result.entries
        if self.level >= Level.ROOTS and result.entries:
            self._follow_peaks(part)
            self._follow_time(part, checked.first_ts)
        self.verdict.faults.add(result.faults)
        if self.level >= Level.FULL:
            self._follow_clients(part, result)
        self._roots.update(checked.roots)
        self._seq = part.first_seq + result.entries - 1
        self._ts = max(self._ts, checked.last_ts)
        self._peaks = checked.peaks
        if result.broken:
            self._break()
            self._seq = part.last_seq

    def _break(self) -> None:
        self._peaks, self._whole, self._followed = None, False, False
        self._clients.clear()

    def _tell(self, seq: int, file: str, detail: str, text: str) -> None:
        self.verdict.faults.add([Finding(Location(file, label=self.head.label, seq=seq), detail, text)])

    def _follow_peaks(self, part: Part) -> None:
        if self._peaks is not None and part.peaks != self._peaks:
            raise PeaksMismatchError
        root = self._roots.get(part.first_seq - 1)
        if self._peaks is not None or not self._whole or root is None:
            return
        if part.peaks is None or part.peaks.root != root:
            text = "what was pruned does not lead to the root that its tombstone states"
            self._tell(part.first_seq - 1, part.place, Detail.PROOF_ROOT.value, text)

    def _follow_time(self, part: Part, first_ts: int) -> None:
        if first_ts < self._ts:
            text = f"hub_ts goes back from {self._ts} to {first_ts}"
            self._tell(part.first_seq, part.place, Detail.VALUE.value, text)

    def _follow_clients(self, part: Part, result: PartResult) -> None:
        """Check each client's first message in the part; the task has checked those that follow."""
        gaps = list(result.gaps)
        for client, seen in result.found.clients.items():
            known = self._clients.get(client)
            if known is not None or self._followed:
                seq, ack = known or (0, 0)
                fault = follows(seq, ack, seen.first_seq, seen.first_ack, seen.first_at)
                if fault is not None:
                    where = Location(part.place, label=part.label, seq=fault.seq)
                    gaps.append(Finding(where, fault.detail, fault.text, COMPLETENESS))
            self._clients[client] = seen.last_seq, seen.last_ack
        self.verdict.gaps.add(sorted(gaps, key=lambda gap: gap.where.seq or 0))

    # --- the end --------------------------------------------------------------------------------------------

    def finish(self, checkpoints: Sequence[Checkpoint], keys: HubKeys, epoch_sec: int) -> LabelVerdict:
        """Compare the end state with the head and the checkpoints."""
        verdict, head = self.verdict, self.head
        if self._seq != head.last_seq:
            text = f"the label ends with entry {self._seq}, {head.last_seq} was promised"
            self._tell(self._seq + 1, "", Obstacle.UNREADABLE, text)
        elif self._peaks is not None and self._peaks.size and self._peaks.root != head.mmr_root:
            text = "the index states another root for the last entry"
            self._tell(head.last_seq, "", Detail.PROOF_ROOT.value, text)
        verdict.clients = len(self._clients)
        verdict.newest_ts = self._ts if self._seq else None
        for item in checkpoints:
            self._check(item, keys, epoch_sec)
        return verdict

    def known_roots(self) -> dict[int, NodeHash]:
        """Return the requested roots of entries without faults."""
        faults = self.verdict.faults
        if faults.total > len(faults.kept):
            return {}  # not all faults are in the list
        bad = {fault.where.seq for fault in faults.kept}
        return {seq: root for seq, root in self._roots.items() if seq not in bad}

    def _check(self, item: Checkpoint, keys: HubKeys, epoch_sec: int) -> None:
        verdict = self.verdict
        verdict.checkpoints += 1
        verdict.newest_checkpoint = max(verdict.newest_checkpoint, item.upto_seq)
        root = self._roots.get(item.upto_seq)
        if item.upto_seq > self.head.last_seq:
            text = f"the hub has signed a checkpoint here, and the log ends with entry {self.head.last_seq}"
            self._tell(item.upto_seq, _CHECKPOINT, Detail.PROOF_SEQ.value, text)
        if self.level >= Level.ROOTS and root is not None and root != item.mmr_root:
            text = "the checkpoint does not state the root of the log"
            self._tell(item.upto_seq, _CHECKPOINT, Detail.CHECKPOINT_ROOT.value, text)
        if self.level >= Level.FULL:
            try:
                verify_checkpoint(item, keys, epoch_sec)
            except ProtocolError as error:
                self._tell(item.upto_seq, _CHECKPOINT, error.detail.value, error.message)


def verify_checkpoint(item: Checkpoint, keys: HubKeys, epoch_sec: int) -> None:
    """Check a checkpoint's signature; a fork may sign for the labels of its parent."""
    skew = max(epoch_sec, 60)
    try:
        owner = keys.identity_of(item.label_curr)
        owner.verify_checkpoint(item, epoch_sec=epoch_sec, max_skew_sec=skew)
    except ProtocolError:
        if item.label_curr not in keys.copied:
            raise
        keys.identity.verify_checkpoint(item, epoch_sec=epoch_sec, max_skew_sec=skew)


def wanted_roots(seqs: Iterable[int], part: Part) -> tuple[int, ...]:
    """Return the entries of a part whose roots are to be compared."""
    return tuple(sorted({seq for seq in seqs if part.first_seq <= seq <= part.last_seq}))


def prefixed(parts: Sequence[Part], trees: Sequence[Trees | None]) -> Iterable[Part]:
    """Yield parts with the peaks that follow from the trees of the parts before, label by label."""
    pairs = zip(parts, trees, strict=True)
    for _, group in groupby(pairs, key=lambda pair: pair[0].label):
        peaks: Peaks | None = None
        upto = 0
        for part, part_tree in group:
            if part.first_seq == 1:
                peaks = Peaks.empty()
            elif peaks is None or part.first_seq != upto + 1:
                peaks = part.peaks
            yield replace(part, peaks=peaks)
            upto = part.last_seq
            peaks = None if peaks is None or part_tree is None else join(peaks, part_tree)


def unstated(parts: Sequence[Part]) -> list[Part]:
    """Drop the stated peaks of all parts but a label's first: these cannot be computed from other parts."""
    without_peaks: list[Part] = []
    for part in parts:
        first = not without_peaks or without_peaks[-1].label != part.label
        without_peaks.append(part if first else replace(part, peaks=None))
    return without_peaks
