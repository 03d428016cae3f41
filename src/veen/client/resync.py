"""Resync: rebuild and verify what a client stores about a label (RSY0, CLNT-004, CLI-077)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from veen.client.effects import Blocking
from veen.client.errors import DivergenceError
from veen.client.home.state import LabelState, State, Writer
from veen.client.read import list_epochs
from veen.client.session import Session
from veen.client.verify.label import LabelCheck, divergence, fetch_receipt, start_at, walk
from veen.core.api.data_plane import StreamItem
from veen.core.errors import ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.types import Label, VerifyKey

# Called with the number of entries read since the last call.
Progress = Callable[[int], None]


@dataclass(slots=True)
class OwnMessages:
    """The counters of this client, recovered from its own messages in the log."""

    mine: set[VerifyKey]
    progress: Progress | None = None
    client_seq: dict[VerifyKey, int] = field(default_factory=dict)
    last_own: int = 0

    def note(self, item: StreamItem) -> None:
        """Record an entry."""
        client_id = item.msg.client_id
        if self.progress is not None:
            self.progress(1)
        if client_id in self.mine:
            self.client_seq[client_id] = max(self.client_seq.get(client_id, 0), item.msg.client_seq)
            self.last_own = max(self.last_own, item.stream_seq)


@dataclass(frozen=True, slots=True)
class Resynced:
    """The outcome of a resync for one label of a stream.

    Attributes:
        stream: The stream.
        epoch: The epoch of the label; 0 where labels do not rotate.
        last_stream_seq: The position of its last entry; 0 if there is none.
        last_mmr_root: The root there; None if there is no entry.
        read: Number of entries that were fetched.
        rebuilt: Whether everything was read from the first entry.
    """

    stream: str
    epoch: int
    last_stream_seq: int
    last_mmr_root: bytes | None
    read: int
    rebuilt: bool


async def rebuild(
    session: Session, state: State, label: Label, label_state: LabelState, progress: Progress | None = None
) -> int:
    """Read a label from its first entry, and correct its state; the caller holds the lock."""
    pin = await session.connect()
    check = LabelCheck(pin, label, Peaks.empty(), None, label_state)
    own = OwnMessages(session.secrets.client_ids(), progress)
    count = await walk(session, check, note=own.note)
    _adopt(session, label_state, check, own)
    await Blocking(lambda: session.home.save(state))
    return count


def _adopt(session: Session, label_state: LabelState, check: LabelCheck, own: OwnMessages) -> None:
    if check.receipt is not None:
        label_state.advance(check.peaks, check.receipt)
    for client_id, client_seq in own.client_seq.items():
        writer = label_state.writers.setdefault(client_id, Writer(0, session.clock()))
        writer.client_seq = max(writer.client_seq, client_seq)
    label_state.prev_ack = max(label_state.prev_ack, own.last_own)


async def resync(session: Session, stream: str, progress: Progress | None = None) -> list[Resynced]:
    """Bring the state of a stream up to date; a label without state is read from its first entry."""
    await session.reconnect()
    epochs = [0]
    if session.profiles[0].epoch_sec:
        epochs = await list_epochs(session, stream, 0)
    async with session.lock():
        state = session.locked_state = await Blocking(session.home.load)
        resynced: list[Resynced] = []
        for epoch in epochs:
            resynced += [await _resync_label(session, state, stream, epoch, progress)]
        return resynced


async def _resync_label(
    session: Session, state: State, stream: str, epoch: int, progress: Progress | None
) -> Resynced:
    label, label_state = session.label_state(state, stream, epoch)
    fresh = label_state.last_seq == 0
    if fresh:
        read = await rebuild(session, state, label, label_state, progress)
    else:
        check = await start_at(session, label, label_state, label_state.last_seq + 1)
        await _confirm(session, check, label_state)
        own = OwnMessages(session.secrets.client_ids(), progress)
        read = await walk(session, check, note=own.note)
        _adopt(session, label_state, check, own)
        await Blocking(lambda: session.home.save(state))
    root = label_state.peaks.root if label_state.last_seq else None
    return Resynced(stream, epoch, label_state.last_seq, root, read, fresh)


async def _confirm(session: Session, check: LabelCheck, label_state: LabelState) -> None:
    """Check that the hub still has the last entry that was seen, unchanged."""
    receipt = await fetch_receipt(session, check.label, label_state.last_seq)
    if receipt is None:
        raise check.cut_off(label_state.last_seq)
    if label_state.receipt is not None and label_state.receipt.contradicts(receipt):
        raise divergence(check.pin, label_state.receipt, receipt)


@dataclass(frozen=True, slots=True)
class Consistency:
    """Whether what a client stores about a label agrees with what the hub serves.

    Attributes:
        label: The label.
        epoch: Its epoch; 0 where labels do not rotate.
        checked: Number of entries that agree.
        first_mismatch: The position of the first entry that does not; None if all agree.
        why: The reason for the mismatch; empty if all agree.
    """

    label: Label
    epoch: int
    checked: int
    first_mismatch: int | None = None
    why: str = ""

    @property
    def consistent(self) -> bool:
        """Whether everything agrees."""
        return self.first_mismatch is None


async def verify_state(session: Session, stream: str) -> list[Consistency]:
    """Compare the state of a stream with what the hub serves; nothing is changed (CLI-078)."""
    await session.connect()
    state = await Blocking(session.home.load)
    stream_id = labels.stream_id(stream)
    seen = sorted(
        (label_state.epoch, label)
        for label, label_state in state.labels.items()
        if session.label(stream_id, label_state.epoch) == label
    )
    checks = []
    for epoch, label in seen or [(0, session.label_state(state, stream, 0)[0])]:
        checks.append(await _verify_label(session, label, state.labels[label], epoch))
    return checks


async def _verify_label(session: Session, label: Label, label_state: LabelState, epoch: int) -> Consistency:
    """Read the known prefix of a label again, from its first entry."""
    pin = await session.connect()
    check = LabelCheck(pin, label, Peaks.empty(), None, label_state)
    why = ""
    try:
        await walk(session, check, label_state.last_seq)
    except (ProtocolError, DivergenceError) as error:
        why = str(error)
    if not why and check.peaks.size < label_state.last_seq:
        why = f"the hub has no entry {check.next_seq}"
    if not why and check.peaks != label_state.peaks:
        return Consistency(label, epoch, check.peaks.size, label_state.last_seq, "the roots differ")
    return Consistency(label, epoch, check.peaks.size, check.next_seq if why else None, why)
