"""Snapshots of states: created from a stream, and verified against it."""

from collections.abc import Callable
from dataclasses import dataclass

from veen.client.errors import ClientStateError
from veen.client.fold.incremental import stream_epochs
from veen.client.fold.interpret import interpret
from veen.client.session import Driver
from veen.client.verify.label import fetch_receipt
from veen.core.encoding.shape import Fields
from veen.core.objects import labels
from veen.overlays import registry
from veen.overlays.builtin.snapshot import Snapshots
from veen.overlays.engine import state_hash
from veen.overlays.operations.schemas import SNAPSHOT
from veen.overlays.overlay import Overlay
from veen.overlays.summary_tree.reader import Place

Progress = Callable[[int], None] | None


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The hash of a state at a position of the log."""

    epoch: int
    upto: int
    mmr_root: bytes
    state_hash: bytes


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first field in which a snapshot and the log differ."""

    field: str
    expected: str
    actual: str


@dataclass(frozen=True, slots=True)
class SnapshotCheck:
    """A snapshot compared with the log.

    Attributes:
        state: The state that the log gives; None if the log is too short.
        snapshot_seq: The position of the snapshot; None if there is none.
        mismatch: The first field in which they differ; None if they agree.
    """

    state: SnapshotState | None
    snapshot_seq: int | None
    mismatch: Mismatch | None

    @property
    def consistent(self) -> bool:
        """Whether the snapshot agrees with the log (SNP-006)."""
        return self.mismatch is None


def class_overlay(state_class: str) -> Overlay:
    """Return the overlay of a class of states (SNP-004)."""
    try:
        return registry.overlay_class(state_class)()
    except KeyError:
        raise ClientStateError(f"unknown class of states: {state_class}") from None


def _is_keyed(overlay: Overlay) -> bool:
    return type(overlay).serialized_key is not Overlay.serialized_key


def _epoch_with(
    client: Driver, stream: str, upto: int, root: bytes | None = None, until: Place | None = None
) -> int | None:
    """Return the newest epoch with an entry ``upto``, preferably one that has this root there; else None.

    ``until`` is the position of the snapshot, which cannot be of entries after it (SNP-008).
    """
    session = client.session
    client.run(session.connect())
    newest = None
    for epoch in reversed(stream_epochs(client, stream)):
        if until is not None and (epoch, upto) > until:
            continue
        label = session.label(labels.stream_id(stream), epoch)
        receipt = client.run(fetch_receipt(session, label, upto))
        if receipt is None:
            continue
        if root in (None, receipt.mmr_root):
            return epoch
        newest = epoch if newest is None else newest
    return newest


def fold_state(
    client: Driver,
    stream: str,
    *,
    state_class: str,
    state_id: bytes | None = None,
    upto: int | None = None,
    epoch: int | None = None,
    progress: Progress = None,
) -> SnapshotState | None:
    """Fold a state; None if the stream has no entry ``upto``, by default in the newest epoch that has one.

    ``state_id`` is a wallet or an account, or the stream itself if it has only one state.
    """
    overlay = class_overlay(state_class)
    whole = labels.stream_id(stream)
    if not _is_keyed(overlay) and state_id not in (None, whole):
        raise ClientStateError(f"a stream has one state of class {state_class}; its id is {whole.hex()}")
    if _is_keyed(overlay) and state_id is None:
        raise ClientStateError(f"there are several states of class {state_class}: pass the id of one")
    if upto is not None and epoch is None:
        epoch = _epoch_with(client, stream, upto)
        if epoch is None:
            return None
    folded = interpret(client, overlay, stream, upto=upto, epoch=epoch, progress=progress)
    reached = folded.reached[-1] if folded.reached else None
    if reached is None or (upto is not None and (reached.epoch, reached.upto_seq) != (epoch, upto)):
        return None
    if _is_keyed(overlay):
        assert state_id is not None
        value = overlay.serialized_key(folded.tables, state_id)
    else:
        value = overlay.serialized(folded.tables)
    return SnapshotState(reached.epoch, reached.upto_seq, reached.mmr_root, state_hash(state_class, value))


def make_snapshot(
    client: Driver,
    stream: str,
    *,
    state_class: str,
    state_id: bytes | None = None,
    upto: int | None = None,
    progress: Progress = None,
) -> Fields:
    """Return the body of a snapshot of all entries, or of those up to a position."""
    state = fold_state(
        client, stream, state_class=state_class, state_id=state_id, upto=upto, progress=progress
    )
    if state is None:
        raise ClientStateError("the stream is empty" if upto is None else f"the stream has no entry {upto}")
    return SNAPSHOT.make(
        state_id=bytes(labels.stream_id(stream)) if state_id is None else state_id,
        upto_stream_seq=state.upto,
        mmr_root=state.mmr_root,
        state_hash=state.state_hash,
        state_class=state_class,
    )


def verify_snapshot(
    client: Driver,
    stream: str,
    *,
    state_class: str,
    state_id: bytes,
    upto: int,
    expected_root: bytes | None = None,
    progress: Progress = None,
) -> SnapshotCheck:
    """Fold a state again, and compare it with the last snapshot of it (SNP-005).

    The root determines the epoch: the expected root if there is one, else that of the snapshot.
    """
    snapshots = Snapshots()
    tables = interpret(client, snapshots, stream, progress=progress).tables
    snapshot = snapshots.find(tables, state_id, upto, state_class, expected_root)
    until = None if snapshot is None else (snapshot.epoch, snapshot.stream_seq)
    root = expected_root if snapshot is None or expected_root is not None else snapshot.mmr_root
    epoch = _epoch_with(client, stream, upto, root, until)
    state = (
        None
        if epoch is None
        else fold_state(
            client,
            stream,
            state_class=state_class,
            state_id=state_id,
            upto=upto,
            epoch=epoch,
            progress=progress,
        )
    )
    seq = None if snapshot is None else snapshot.stream_seq
    if state is None:
        return SnapshotCheck(None, seq, Mismatch("upto_stream_seq", str(upto), "the stream is shorter"))
    pairs = []
    if expected_root is not None:
        pairs.append(("expected_root", expected_root, state.mmr_root))
    if snapshot is not None:
        pairs.append(("mmr_root", snapshot.mmr_root, state.mmr_root))
        pairs.append(("state_hash", snapshot.state_hash, state.state_hash))
    for name, expected, actual in pairs:
        if expected != actual:
            return SnapshotCheck(state, seq, Mismatch(name, expected.hex(), actual.hex()))
    if not pairs:
        return SnapshotCheck(state, None, Mismatch("snapshot", "a snapshot of this state", "there is none"))
    return SnapshotCheck(state, seq, None)
