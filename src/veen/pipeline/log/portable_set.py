"""A log in an exported set: files of messages and of receipts, divided where the label changes."""

import mmap
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from veen.client.errors import DamagedLogError
from veen.client.transport.portable_set import CHECKPOINTS, PAYLOADS, RECEIPTS, SYNC_STATE, PortableFacts
from veen.core.encoding import cbor
from veen.core.errors import CborError, Detail, ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding, Location
from veen.core.objects.msg import msg_end
from veen.core.objects.receipt import Receipt
from veen.core.types import HubId, Label, NodeHash, StreamId
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.log import MOST_BYTES, LabelHead, Pruned, chosen, smaller
from veen.pipeline.log.partition import InSet, Part

# Entries between two marks; an entry is found by walking from the mark before it.
_MARK_ITEMS: Final = 256


@dataclass(slots=True)
class _Marks:
    """A sparse index of one label of a set, with the ends of its runs and its last root."""

    # Positions, and the offsets of their receipts and messages.
    seqs: list[int] = field(default_factory=list)
    receipts: list[int] = field(default_factory=list)
    msgs: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    # The end of each run: its last entry, and the offsets after its receipt and message.
    ends: list[tuple[int, int, int]] = field(default_factory=list)
    last_seq: int = 0
    last_ts: int = 0
    root: NodeHash | None = None
    # The first entry whose time is before that of its predecessor. 0: none.
    back_at: int = 0


class SetLog:
    """The log of an exported set."""

    def __init__(self, place: Path) -> None:
        self.name = str(place)
        self._root = str(place.resolve())
        facts = PortableFacts.read(place)
        self.profiles = facts.settings.profiles
        self.keys = HubKeys(facts.identity)
        self._facts = facts
        self._streams = {item.label: item for item in facts.states}
        self._labels: dict[Label, _Marks] = {}
        try:
            facts.identity.verify_signature(facts.identity.hub_keys[0].hub_pk, facts.sig)
            self._receipts, self._msgs = _mapped(place / RECEIPTS), _mapped(place / PAYLOADS)
            self._scan()
        except (ProtocolError, CborError) as error:
            raise DamagedLogError(f"{place} is damaged: {error}") from None

    def _scan(self) -> None:
        """Build the index of labels and entries from their lengths; contents are not checked here."""
        receipts, msgs = self._receipts, self._msgs
        at = where = 0
        label: Label | None = None
        marks = _Marks()
        while at < len(receipts) and where < len(msgs):
            end, behind = cbor.item_end(receipts, at), msg_end(msgs, where)
            receipt = Receipt.decode(receipts[at:end])
            if receipt.label != label:
                marks.ends.append((marks.last_seq, at, where))
                label = receipt.label
                marks = self._labels.setdefault(label, _Marks())
                _mark(marks, receipt, at, where)
            elif marks.last_seq % _MARK_ITEMS == 0:
                _mark(marks, receipt, at, where)
            marks.last_seq += 1
            if receipt.hub_ts < marks.last_ts and not marks.back_at:
                marks.back_at = marks.last_seq
            marks.last_ts = receipt.hub_ts
            marks.root = receipt.mmr_root
            at, where = end, behind
        marks.ends.append((marks.last_seq, at, where))
        if at < len(receipts) or where < len(msgs):
            raise DamagedLogError(f"{self.name}: there are not as many messages as receipts")

    @property
    def hub_id(self) -> HubId:
        return self.keys.identity.hub_id

    def heads(self) -> dict[Label, LabelHead]:
        heads = {}
        for label, marks in sorted(self._labels.items()):
            known = self._streams.get(label)
            stream, epoch = (None, 0) if known is None else (known.stream_id, known.epoch or 0)
            assert marks.root is not None, "a label without entries is not in the set"
            heads[label] = LabelHead(label, stream, epoch, 1, marks.last_seq, marks.root)
        return heads

    def labels_of(self, stream_id: StreamId) -> dict[int, Label]:
        by_epoch = {
            item.epoch or 0: item.label
            for item in self._facts.states
            if item.stream_id == stream_id and item.label in self._labels
        }
        constant = labels.label(self.keys.identity.routing_key, stream_id, 0)
        if constant in self._labels:
            by_epoch.setdefault(0, constant)
        return dict(sorted(by_epoch.items()))

    def seq_at(self, label: Label, hub_ts: int) -> int:
        """Return the first entry at or after a time: search the marks, then walk over receipts."""
        marks = self._labels[label]
        if marks.back_at:
            text = f"hub_ts goes back at entry {marks.back_at} of {label.hex()}"
            raise DamagedLogError(f"{self.name} is damaged: {text}, so entries cannot be selected by time")
        nth = bisect_left(marks.times, hub_ts)
        behind = marks.seqs[nth] if nth < len(marks.seqs) else marks.last_seq + 1
        if nth == 0:
            return behind
        seq, at = marks.seqs[nth - 1], marks.receipts[nth - 1]
        while seq < behind:
            end = cbor.item_end(self._receipts, at)
            if Receipt.decode(self._receipts[at:end]).hub_ts >= hub_ts:
                break
            seq, at = seq + 1, end
        return seq

    def plan(
        self,
        ranges: Mapping[Label, tuple[int, int]] | None = None,
        *,
        parts: int = 1,
        most_bytes: int = MOST_BYTES,
    ) -> list[Part]:
        """Divide entries at marks; the ends of a range between marks are found by walking."""
        planned = self._plan(ranges, most_bytes)
        return planned if len(planned) >= parts else self._plan(ranges, smaller(planned, parts))

    def _plan(self, ranges: Mapping[Label, tuple[int, int]] | None, target_bytes: int) -> list[Part]:
        planned: list[Part] = []
        for head, first, last in chosen(self.heads(), ranges):
            seq = first
            while seq <= last:
                start = self._start_of(head.label, seq)
                upto = self._cut(head.label, seq, last, start, target_bytes)
                end = self._end_of(head.label, upto)
                origin = InSet(self._root, (start[1], end[1]), (start[0], end[0]))
                size = end[0] - start[0] + end[1] - start[1]
                peaks = Peaks.empty() if seq == 1 else None
                planned.append(Part(head.label, seq, upto, size, origin, peaks))
                seq = upto + 1
        return planned

    def _cut(self, label: Label, seq: int, last: int, start: tuple[int, int], target_bytes: int) -> int:
        """Return the last entry of a part: before the first mark past ``target_bytes``, or the run's end."""
        marks = self._labels[label]
        run = next(end for end, _, _ in marks.ends if end >= seq)
        nth = bisect_left(marks.seqs, seq + 1)
        while nth < len(marks.seqs) and marks.seqs[nth] <= min(run, last):
            if marks.receipts[nth] - start[0] + marks.msgs[nth] - start[1] >= target_bytes:
                return marks.seqs[nth] - 1
            nth += 1
        return min(run, last)

    def _start_of(self, label: Label, seq: int) -> tuple[int, int]:
        """Return the offsets at which the receipt and the message of an entry start."""
        marks = self._labels[label]
        nth = bisect_left(marks.seqs, seq + 1) - 1
        at, where = marks.receipts[nth], marks.msgs[nth]
        for _ in range(seq - marks.seqs[nth]):
            at, where = cbor.item_end(self._receipts, at), msg_end(self._msgs, where)
        return at, where

    def _end_of(self, label: Label, seq: int) -> tuple[int, int]:
        """Return the offsets at which the receipt and the message of an entry end."""
        for end, at, where in self._labels[label].ends:
            if end == seq:
                return at, where
        return self._start_of(label, seq + 1)

    def checkpoints(self, label: Label) -> list[Checkpoint]:
        checkpoints = [item for item in self._facts.checkpoints if item.label_curr == label]
        return sorted(checkpoints, key=lambda item: item.upto_seq)

    def pruned(self, label: Label) -> list[Pruned]:  # noqa: ARG002 - a set is complete
        """Return nothing: pruned labels cannot be exported."""
        return []

    def check_others(self) -> list[Finding]:
        """Compare with the heads and checkpoints that the set states."""
        heads = self.heads()
        findings = []
        for state in self._facts.states:
            head = heads.get(state.label)
            has = (0, None) if head is None else (head.last_seq, head.mmr_root)
            if has != (state.last_stream_seq, state.last_mmr_root):
                text = f"the set states that the label ends with entry {state.last_stream_seq}, and its root"
                findings.append(_promised(state.label, state.last_stream_seq, SYNC_STATE, text))
        findings += [
            _promised(item.label_curr, item.upto_seq, CHECKPOINTS, "the set has no entries of this label")
            for item in self._facts.checkpoints
            if item.label_curr not in heads
        ]
        return findings

    def refresh(self) -> None:
        """Do nothing: a set does not grow."""

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _promised(label: Label, seq: int, file: str, text: str) -> Finding:
    return Finding(Location(file, label=label, seq=seq), Detail.PROOF_SEQ, text)


def _mark(marks: _Marks, receipt: Receipt, at: int, where: int) -> None:
    marks.seqs.append(marks.last_seq + 1)
    marks.receipts.append(at)
    marks.msgs.append(where)
    marks.times.append(receipt.hub_ts)


def _mapped(path: Path) -> bytes:
    """Map a file into memory."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return b""  # an empty file cannot be mapped
        return cast("bytes", mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
