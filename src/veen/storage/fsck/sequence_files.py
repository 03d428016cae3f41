"""The two derived files that are sequences of objects: all receipts, and all checkpoints.

They only have those of messages, not of the two reserved logs. Objects of one label are in the order of its
log (receipts) or in any order (checkpoints); labels may be mixed in any way. After an interrupted flush,
objects of entries that are still in the journal may be incomplete.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import CborError, ProtocolError
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding, Level
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.storage.errors import FindingError
from veen.storage.fsck.chunk_bytes import stored_receipts
from veen.storage.fsck.context import Context
from veen.storage.fsck.label import LabelFacts
from veen.storage.fsck.label_log import chain
from veen.storage.fsck.report import Findings, Reason, damage, stale

_BLOCK_BYTES: Final = 1 << 20
# More bytes than a receipt or a checkpoint can have.
_OBJECT_BYTES: Final = 1 << 13

W = TypeVar("W", bound=Wire)


def _read_sequence(context: Context, path: str, cls: type[W], reason: str) -> Iterator[tuple[int, W]]:
    """Yield the objects of a file, each with its offset."""
    kind = Nested(cls)
    base, size = 0, context.source.size(path) or 0
    while base < size:
        block = context.source.read(path, base, min(_BLOCK_BYTES, size - base))
        is_last = base + len(block) >= size
        at = 0
        while at < len(block) and (is_last or len(block) - at >= _OBJECT_BYTES):
            try:
                raw, end = kind.read(block, at)
                kind.check(raw, context.limits)
                kind.versions(raw)
                obj = kind.lift(raw)
            except ProtocolError as error:
                # Offsets of the error are relative to the block.
                detail = f"no {cls.SHAPE.name} here"
                inside = error.offset - at if isinstance(error, CborError) else 0
                raise FindingError(stale(path, base + at + inside, reason, detail)) from error
            yield base + at, obj
            at = end
        if not at:
            return
        base += at


class _SequenceCheck:
    """The common part of both checks."""

    path: str
    reason: Reason

    def __init__(
        self, context: Context, facts: Mapping[Label, LabelFacts], *, partial: bool, size_before: int
    ) -> None:
        self._context = context
        self._facts = {label: item for label, item in facts.items() if item.files.domain is Domain.DATA}
        # Only some labels were checked; the others are ignored here.
        self._partial = partial
        # Length of the file before anything was read: ignores what a running hub has added since.
        self._size_before = size_before
        self.found = Findings()
        self.notes: list[str] = []

    def _stale(self, offset: int | None, detail: str) -> FindingError:
        return FindingError(stale(self.path, offset, self.reason, detail))

    def _refuse_reserved(self, offset: int, label: Label) -> None:
        if label in self._context.reserved:
            raise self._stale(offset, "of a reserved log")

    def _judge(self, stopped: Finding | None, missing: str | None) -> None:
        """Report where reading stopped, or note it if a flush was interrupted."""
        size = self._context.source.size(self.path)
        if missing is not None and size is None:
            self.found.add(stale(self.path, None, Reason.MISSING, missing))
        elif missing is not None:
            self.found.add(stopped or stale(self.path, size, self.reason, missing))
        elif stopped is None or (stopped.where.offset or 0) >= self._size_before:
            return
        elif not self._context.journal.is_empty:
            self.notes.append(f"{stopped}: interrupted flush, will be redone at start")
        else:
            self.found.add(stopped)

    def _is_genuine(self, signed: Receipt | Checkpoint, label: Label) -> bool:
        """Return whether the hub has signed this; True if its keys are not known."""
        signers = self._context.keys.signers_of(label)
        try:
            if signers is not None:
                signers.verify(signed)
        except ProtocolError:
            return False
        return True


class ReceiptsCheck(_SequenceCheck):
    """receipts.cborseq: every receipt of the settled log once, in the order of each label."""

    path = paths.RECEIPTS
    reason = Reason.RECEIPTS

    def check(self) -> None:
        # Next sequence number, and hash over the receipts so far, by label.
        self._progress: dict[Label, tuple[int, bytes]] = {}
        self._lost: set[Label] = set()
        stopped: Finding | None = None
        try:
            for offset, receipt in _read_sequence(self._context, self.path, Receipt, self.reason):
                self._receipt(offset, receipt)
        except FindingError as error:
            stopped = error.finding
        self._judge(stopped, self._missing())

    def _missing(self) -> str | None:
        for label, facts in self._facts.items():
            due = max(self._progress.get(label, (0, b""))[0], facts.pruned_to + 1)
            if facts.receipts_hash is not None and due <= facts.settled:
                return f"the receipt of entry {due} of {label.hex()} is missing"
        return None

    def _receipt(self, offset: int, receipt: Receipt) -> None:
        label, seq = receipt.label, receipt.stream_seq
        facts = self._facts.get(label)
        if label in self._lost or (facts is None and self._partial):
            return
        self._refuse_reserved(offset, label)
        if facts is None:
            self._beyond(offset, receipt, None)
            return
        if facts.receipts_hash is None:
            return
        # Receipts of pruned entries are optional.
        due, hashed = self._progress.get(label, (min(seq, facts.pruned_to + 1), b""))
        if seq != due:
            raise self._stale(offset, f"receipt of entry {seq} where that of entry {due} should be")
        if seq > facts.head:
            self._beyond(offset, receipt, facts)
            return
        if seq <= facts.pruned_to:
            if self._context.level >= Level.FULL and not self._is_genuine(receipt, label):
                raise self._stale(offset, "the receipt of a pruned entry is not signed by the hub")
        elif seq <= facts.settled:
            hashed = chain(hashed, receipt.encode())
            if seq == facts.settled and hashed != facts.receipts_hash:
                raise self._stale(self._first_wrong(facts), "not the receipt that is in the log")
        elif facts.run is not None and facts.run.first <= seq <= facts.run.last:
            self._compare_with_journal(offset, receipt, facts)
        self._progress[label] = (seq + 1, hashed)

    def _compare_with_journal(self, offset: int, receipt: Receipt, facts: LabelFacts) -> None:
        assert facts.run is not None
        position, stored = facts.run.place(receipt.stream_seq), receipt.encode()
        try:
            journaled = self._context.source.read(
                position.path, position.offset + position.length - len(stored), len(stored)
            )
        except FileNotFoundError:  # a running hub has flushed and deleted it
            return
        if journaled != stored:
            raise self._stale(offset, "not the receipt that is in the journal")

    def _beyond(self, offset: int, receipt: Receipt, facts: LabelFacts | None) -> None:
        """Classify a receipt without an entry: if the hub has signed it, the log has lost entries."""
        if offset >= self._size_before:
            return
        label, seq = receipt.label, receipt.stream_seq
        if not self._is_genuine(receipt, label):
            raise self._stale(
                offset, "a receipt that the hub has not signed, of an entry that does not exist"
            )
        self._lost.add(label)
        path = paths.open_chunk(Domain.DATA, label, 1) if facts is None else facts.next_chunk
        head = 0 if facts is None else facts.head
        detail = (
            f"the log ends with entry {head}; {self.path} at byte {offset} has the receipt of entry {seq}"
        )
        self.found.add(damage(path, self._context.source.size(path), Reason.MISSING, detail))

    def _first_wrong(self, facts: LabelFacts) -> int | None:
        """Read both again to determine the offset."""
        label = facts.files.label
        log = stored_receipts(self._context, facts.files)
        for offset, receipt in _read_sequence(self._context, self.path, Receipt, self.reason):
            if receipt.label != label or receipt.stream_seq <= facts.pruned_to:
                continue
            if next(log, (0, b"")) != (receipt.stream_seq, receipt.encode()):
                return offset
        return None


class CheckpointsCheck(_SequenceCheck):
    """checkpoints.cborseq: the content of every checkpoint file, once."""

    path = paths.CHECKPOINTS
    reason = Reason.CHECKPOINTS

    def check(self) -> None:
        self._seen: set[tuple[Label, int]] = set()
        stopped: Finding | None = None
        try:
            for offset, checkpoint in _read_sequence(self._context, self.path, Checkpoint, self.reason):
                self._checkpoint(offset, checkpoint)
        except FindingError as error:
            stopped = error.finding
        self._judge(stopped, self._missing())

    def _missing(self) -> str | None:
        for label, facts in self._facts.items():
            for upto in facts.files.checkpoints:
                if (label, upto) not in self._seen and facts.sound and upto not in facts.unfinished:
                    return f"checkpoint {upto} of {label.hex()} is missing"
        return None

    def _checkpoint(self, offset: int, checkpoint: Checkpoint) -> None:
        label, upto = checkpoint.label_curr, checkpoint.upto_seq
        facts = self._facts.get(label)
        if facts is None and self._partial:
            return
        self._refuse_reserved(offset, label)
        if (label, upto) in self._seen:
            raise self._stale(offset, f"checkpoint {upto} of {label.hex()} is listed twice")
        path = None if facts is None else facts.files.checkpoints.get(upto)
        if path is None:
            self._without_file(offset, checkpoint, facts)
        elif facts is not None and facts.sound and not self._is_content(path, checkpoint):
            raise self._stale(offset, f"not the content of {path}")
        self._seen.add((label, upto))

    def _is_content(self, path: str, checkpoint: Checkpoint) -> bool:
        try:
            return self._context.source.read(path) == checkpoint.encode()
        except FileNotFoundError:  # it existed when the label was checked: a hub is running
            return True

    def _without_file(self, offset: int, checkpoint: Checkpoint, facts: LabelFacts | None) -> None:
        label, upto = checkpoint.label_curr, checkpoint.upto_seq
        if offset >= self._size_before or (facts is not None and not facts.sound):
            return
        if facts is not None and upto in facts.unfinished:
            raise self._stale(offset, f"checkpoint {upto} has no file yet")
        if not self._is_genuine(checkpoint, label):
            raise self._stale(offset, "a checkpoint that the hub has not signed, and that has no file")
        path = paths.checkpoint(Domain.DATA, label, upto)
        self.found.add(damage(path, None, Reason.MISSING, f"{self.path} at byte {offset} has it"))
