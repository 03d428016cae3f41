"""Resync: what a client knows of a label, made again from the hub and checked (RSY0, CLNT-004, CLI-077)."""

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

#: Called with the number of entries read since the last call.
Progress = Callable[[int], None]


@dataclass(slots=True)
class OwnMessages:
    """What the log says about our own messages."""

    mine: set[VerifyKey]
    progress: Progress | None = None
    client_seq: dict[VerifyKey, int] = field(default_factory=dict)
    last_own: int = 0

    def note(self, item: StreamItem) -> None:
        """Look at one entry."""
        client_id = item.msg.client_id
        if self.progress is not None:
            self.progress(1)
        if client_id in self.mine:
            self.client_seq[client_id] = max(self.client_seq.get(client_id, 0), item.msg.client_seq)
            self.last_own = max(self.last_own, item.stream_seq)


@dataclass(frozen=True, slots=True)
class Resynced:
    """What a resync has done for one label of a stream.

    Attributes:
        stream: The stream.
        epoch: The epoch of the label; 0 where labels do not rotate.
        last_stream_seq: The position of its last entry; 0 if there is none.
        last_mmr_root: The root there; None if there is no entry.
        read: How many entries were fetched.
        rebuilt: Whether everything was read from the first entry.
    """

    stream: str
    epoch: int
    last_stream_seq: int
    last_mmr_root: bytes | None
    read: int
    rebuilt: bool


async def rebuild(
    session: Session, state: State, label: Label, kept: LabelState, progress: Progress | None = None
) -> int:
    """Read a label from its beginning, and put what is known of it right; the caller holds the lock."""
    pin = await session.connect()
    check = LabelCheck(pin, label, Peaks.empty(), None, kept)
    found = OwnMessages(session.secrets.client_ids(), progress)
    count = await walk(session, check, note=found.note)
    _adopt(session, kept, check, found)
    await Blocking(lambda: session.home.save(state))
    return count


def _adopt(session: Session, kept: LabelState, check: LabelCheck, found: OwnMessages) -> None:
    if check.receipt is not None:
        kept.advance(check.peaks, check.receipt)
    for client_id, client_seq in found.client_seq.items():
        writer = kept.writers.setdefault(client_id, Writer(0, session.clock()))
        writer.client_seq = max(writer.client_seq, client_seq)
    kept.prev_ack = max(kept.prev_ack, found.last_own)


async def resync(session: Session, stream: str, progress: Progress | None = None) -> list[Resynced]:
    """Bring what is known of a stream up to date; what is missing or does not fit is read from the start."""
    await session.reconnect()
    epochs = [0]
    if session.profiles[0].epoch_sec:
        epochs = await list_epochs(session, stream, 0)
    async with session.lock():
        state = session.locked_state = await Blocking(session.home.load)
        done: list[Resynced] = []
        for epoch in epochs:
            done += [await _resync_label(session, state, stream, epoch, progress)]
        return done


async def _resync_label(
    session: Session, state: State, stream: str, epoch: int, progress: Progress | None
) -> Resynced:
    label, kept = session.label_state(state, stream, epoch)
    fresh = kept.last_seq == 0
    if fresh:
        read = await rebuild(session, state, label, kept, progress)
    else:
        check = await start_at(session, label, kept, kept.last_seq + 1)
        await _confirm(session, check, kept)
        found = OwnMessages(session.secrets.client_ids(), progress)
        read = await walk(session, check, note=found.note)
        _adopt(session, kept, check, found)
        await Blocking(lambda: session.home.save(state))
    root = kept.peaks.root if kept.last_seq else None
    return Resynced(stream, epoch, kept.last_seq, root, read, fresh)


async def _confirm(session: Session, check: LabelCheck, kept: LabelState) -> None:
    """Have the hub show the last entry that was seen: it could have lost it, or have another."""
    receipt = await fetch_receipt(session, check.label, kept.last_seq)
    if receipt is None:
        raise check.cut_off(kept.last_seq)
    if kept.receipt is not None and kept.receipt.contradicts(receipt):
        raise divergence(check.pin, kept.receipt, receipt)


@dataclass(frozen=True, slots=True)
class Consistency:
    """Whether what a client stores about a label agrees with what the hub serves.

    Attributes:
        label: The label.
        epoch: Its epoch; 0 where labels do not rotate.
        checked: How many entries agree.
        first_mismatch: The position of the first entry that does not; None if all agree.
        why: What does not agree; empty if all do.
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
    """Compare what is known of a stream with what the hub serves; nothing is changed (CLI-078)."""
    await session.connect()
    state = await Blocking(session.home.load)
    stream_id = labels.stream_id(stream)
    known = sorted(
        (kept.epoch, label)
        for label, kept in state.labels.items()
        if session.label(stream_id, kept.epoch) == label
    )
    done = []
    for epoch, label in known or [(0, session.label_state(state, stream, 0)[0])]:
        done.append(await _verify_label(session, label, state.labels[label], epoch))
    return done


async def _verify_label(session: Session, label: Label, kept: LabelState, epoch: int) -> Consistency:
    """Read the prefix that is known once more, from its beginning."""
    pin = await session.connect()
    check = LabelCheck(pin, label, Peaks.empty(), None, kept)
    why = ""
    try:
        await walk(session, check, kept.last_seq)
    except (ProtocolError, DivergenceError) as error:
        why = str(error)
    if not why and check.peaks.size < kept.last_seq:
        why = f"the hub has no entry {check.next_seq}"
    if not why and check.peaks != kept.peaks:
        return Consistency(label, epoch, check.peaks.size, kept.last_seq, "the roots differ")
    return Consistency(label, epoch, check.peaks.size, check.next_seq if why else None, why)
