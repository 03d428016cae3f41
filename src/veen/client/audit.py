"""Auditing and exporting whole labels: every check that needs no secret (PORT-002)."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from veen.client.errors import ClientStateError, PinError, RejectedError
from veen.client.home.pins import HubFacts
from veen.client.home.state import LabelState, Pin
from veen.client.resync import Progress
from veen.client.retry import Asker
from veen.client.transport import portable_set
from veen.client.verify.label import LabelCheck, walk
from veen.core.api.data_plane import CheckpointRequest, CheckpointResponse, StreamItem
from veen.core.data_dir import hub_settings
from veen.core.encoding.wire_object import encode_sequence
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import HubId, Label, NodeHash, StreamId, VerifyKey
from veen.stdx.atomic_file import create_file, sync_dir, write_file


def pin_for_audit(facts: HubFacts, hub_id: HubId | None, name: str) -> Pin:
    """Return a pin of the hub's stated identity; with ``hub_id``, reject any other hub."""
    actual_id = facts.identity.hub_id
    if hub_id is not None and actual_id != hub_id:
        raise PinError(f"{name} is of hub {actual_id.hex()}, and not of {hub_id.hex()}")
    how = "given" if hub_id is not None else "unknown"
    return Pin(facts.identity, facts.sig, how, 0, facts.profiles[0].profile_id.hex(), (name,))


@dataclass(slots=True)
class LabelAudit:
    """The results of reading a label from its first entry to its last."""

    label: Label
    entries: int = 0
    last_mmr_root: NodeHash | None = None
    first_ts: int | None = None
    last_ts: int | None = None
    clients: dict[VerifyKey, int] = field(default_factory=dict)
    checkpoints: int = 0
    # At the last entry.
    check: LabelCheck | None = None
    # By position; empty until that entry was read. Only positions of checkpoints.
    _roots: dict[int, NodeHash] = field(default_factory=dict)

    def note(self, item: StreamItem) -> None:
        """Record a verified entry; reject a timestamp that goes back or a gap in a client's sequence."""
        receipt = item.receipt
        assert receipt is not None
        msg = item.msg
        self.entries += 1
        expected = self.clients.get(msg.client_id, 0) + 1
        if msg.client_seq != expected:
            raise ProtocolError(
                Detail.CLIENT_SEQ,
                f"client {msg.client_id.hex()} has number {msg.client_seq} after {expected - 1}",
                stream_seq=item.stream_seq,
            )
        self.clients[msg.client_id] = msg.client_seq
        if self.last_ts is not None and receipt.hub_ts < self.last_ts:
            raise ProtocolError(Detail.VALUE, "the hub's time went back", stream_seq=item.stream_seq)
        self.first_ts = receipt.hub_ts if self.first_ts is None else self.first_ts
        self.last_ts, self.last_mmr_root = receipt.hub_ts, receipt.mmr_root
        if item.stream_seq in self._roots:
            self._roots[item.stream_seq] = receipt.mmr_root

    def expect(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Set the checkpoints whose positions need a root."""
        self._roots = {item.upto_seq: NodeHash(b"") for item in checkpoints}

    def expect_root(self, upto_seq: int, root: NodeHash) -> None:
        """Add a root that was read."""
        self._roots[upto_seq] = root

    def check_checkpoints(self, checkpoints: Sequence[Checkpoint], facts: HubFacts) -> None:
        """Verify checkpoints, also against the roots that were read."""
        epoch_sec = facts.profiles[0].epoch_sec
        for item in checkpoints:
            facts.identity.verify_checkpoint(item, epoch_sec=epoch_sec, max_skew_sec=max(epoch_sec, 60))
            if (item.label_curr, self._roots.get(item.upto_seq)) != (self.label, item.mmr_root):
                raise ProtocolError(
                    Detail.CHECKPOINT_ROOT,
                    f"the checkpoint at {item.upto_seq} does not state the root of the log",
                    stream_seq=item.upto_seq,
                )
            self.checkpoints += 1


async def audit_label(
    asker: Asker,
    facts: HubFacts,
    pin: Pin,
    label: Label,
    *,
    checkpoints: Sequence[Checkpoint] = (),
    progress: Progress | None = None,
    also: Callable[[StreamItem], None] | None = None,
) -> LabelAudit:
    """Read and verify a label from its first entry to its last; ``also`` is called with each entry."""
    unseen = LabelState(pin.identity.hub_id, StreamId(bytes(32)), 0)
    check = LabelCheck(pin, label, Peaks.empty(), None, unseen)
    audit = LabelAudit(label)
    audit.expect(checkpoints)

    def note(item: StreamItem) -> None:
        audit.note(item)
        if also is not None:
            also(item)
        if progress is not None:
            progress(1)

    await walk(asker, check, note=note)
    audit.check = check
    audit.check_checkpoints(checkpoints, facts)
    return audit


@dataclass(frozen=True, slots=True)
class Source:
    """A label to export, and its stream and epoch, if known."""

    label: Label
    stream_id: StreamId | None = None
    epoch: int | None = None


class SetWriter:
    """Writes a portable set, which is complete once ``finish`` has returned."""

    def __init__(self, path: Path) -> None:
        if path.exists() and any(path.iterdir()):
            raise ClientStateError(f"{path} is not empty; choose another directory")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.place = path
        self._receipts: BinaryIO = create_file(path / portable_set.RECEIPTS)
        self._msgs: BinaryIO = create_file(path / portable_set.PAYLOADS)
        self._checkpoints: list[Checkpoint] = []
        self._states: list[portable_set.SyncState] = []

    def put(self, item: StreamItem) -> None:
        """Add an entry."""
        assert item.receipt is not None
        self._receipts.write(item.receipt.encode())
        self._msgs.write(item.msg.encode())

    def put_label(self, source: Source, audit: LabelAudit, checkpoints: Sequence[Checkpoint]) -> None:
        """Add the sync state and checkpoints of a label."""
        assert audit.last_mmr_root is not None
        self._checkpoints += checkpoints
        self._states.append(
            portable_set.SyncState(
                label=source.label,
                last_stream_seq=audit.entries,
                last_mmr_root=audit.last_mmr_root,
                stream_id=source.stream_id,
                epoch=source.epoch,
            )
        )

    def finish(self, facts: HubFacts) -> None:
        """Write the remaining files, and sync and close all of them."""
        for file in (self._receipts, self._msgs):
            file.flush()
            os.fsync(file.fileno())
            file.close()
        settings = hub_settings.HubSettings(
            epoch_sec=facts.profiles[0].epoch_sec,
            pad_blocks=tuple(item.pad_block for item in facts.profiles),
            require_cap=False,
        )
        for name, data in (
            (portable_set.CHECKPOINTS, encode_sequence(self._checkpoints)),
            (portable_set.SYNC_STATE, encode_sequence(self._states)),
            (hub_settings.IDENTITY, facts.identity.encode()),
            (hub_settings.IDENTITY_SIG, facts.sig),
            (portable_set.PROFILES, settings.encode()),
        ):
            write_file(self.place / name, data)
        sync_dir(self.place)

    def close(self) -> None:
        """Close the files of a set that was not finished."""
        self._receipts.close()
        self._msgs.close()


async def export_label(
    asker: Asker,
    facts: HubFacts,
    pin: Pin,
    source: Source,
    writer: SetWriter,
    *,
    progress: Progress | None = None,
) -> LabelAudit | None:
    """Read and verify a label, and add it to a set; None if it has no entries."""
    audit = await audit_label(asker, facts, pin, source.label, progress=progress, also=writer.put)
    if not audit.entries:
        return None
    checkpoint = await _checkpoint(asker, source.label, audit)
    checkpoints = [] if checkpoint is None else [checkpoint]
    audit.check_checkpoints(checkpoints, facts)
    writer.put_label(source, audit, checkpoints)
    return audit


async def _checkpoint(asker: Asker, label: Label, audit: LabelAudit) -> Checkpoint | None:
    """Return a checkpoint at the last entry, from the hub or its files; None if there is none."""
    assert audit.last_mmr_root is not None
    try:
        request = CheckpointRequest(label=label, upto_seq=audit.entries)
        checkpoint = (await asker.ask(request, CheckpointResponse)).checkpoint
    except RejectedError as error:
        if error.code not in (Code.NOT_FOUND, Code.UNAVAILABLE):
            raise
        return None
    audit.expect_root(audit.entries, audit.last_mmr_root)
    return checkpoint
