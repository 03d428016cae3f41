"""What must hold after anything has happened to the disk: the check of every sweep over the engine.

The order of one check: the checker looks at the directory as the fault has left it, and must not call
anything damaged; readers see everything acknowledged; a writer starts, and has everything acknowledged and
nothing invented; it takes more entries and stops; the checker finds nothing at all. The next round, behind
another power loss, must find exactly what this one has left.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pytest

from tests.storage.simulation.promises import BOUND, Frames, Place, Promises, Session
from tests.storage.simulation.sim_loss import KEEP_ALL, LOSE_ALL
from tests.storage.simulation.sim_plan import Fault
from tests.storage.simulation.sim_state import FrozenInode, FrozenPlatter
from tests.storage.simulation.sim_sweep import Aftermath, Case, Report, sweep
from tests.storage.simulation.simdisk import SimFilesystem, Snapshot
from tests.storage.stores import AUTHORIZE, CONTROL, HUB, A, B, left_of
from veen.core.crypto import ed25519
from veen.core.data_dir import paths
from veen.core.data_dir.store_records import AuthRecord, ClientCursor
from veen.core.objects.capability import CapToken
from veen.core.objects.entry import Entry
from veen.core.objects.msg import Msg
from veen.core.types import AuthRef, Label, VerifyKey
from veen.storage import fsck
from veen.storage.errors import DamagedStoreError
from veen.storage.fsck import Report as Verdict
from veen.storage.fsck.source import Files
from veen.storage.maintain.repair import repair
from veen.storage.read.reader import Reader
from veen.storage.write.writer import Writer

#: How many random power losses are tried behind each fault.
SEEDS: Final = int(os.environ.get("VEEN_SWEEP_SEEDS", "1"))
AFTERMATHS: Final[tuple[Aftermath, ...]] = (
    (None, LOSE_ALL, 2) if SEEDS == 1 else (None, LOSE_ALL, KEEP_ALL, *range(2, SEEDS + 2))
)

#: In the place of what one round leaves for the next: this was checked before.
_KNOWN: Final = object()


#: A signature that verifies does so each time.
_verify: Final = cache(ed25519.verify)


def checked(fs: Files) -> Verdict:
    """Return what the independent checker says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ed25519, "verify", _verify)
        return fsck.check(fs, hub_keys=[HUB.public_key])


def shown(report: Verdict) -> str:
    """Return a report in short."""
    return "; ".join(map(str, (*report.findings, *report.notes)))


# --- what the log says --------------------------------------------------------------------------------------


def read_all(reader: Reader) -> Frames:
    """Return every entry that can be read; its place, and the head of its label, must be what they say."""
    found: Frames = {}
    for label in reader.labels():
        manifest = reader.manifest(label)
        first, head = manifest.first_seq, manifest.head
        assert reader.last_seq(label) == head.seq
        if first > head.seq:
            continue
        entries = [place.entry for place in reader.entries(label, first, head.seq)]
        assert [(item.receipt.label, item.receipt.stream_seq) for item in entries] == [
            (label, seq) for seq in range(first, head.seq + 1)
        ], "entries are missing or out of order"
        last = entries[-1].receipt
        assert (head.hub_ts, head.leaf_hash, head.root) == (last.hub_ts, last.leaf_hash, last.mmr_root)
        found.update({(label, item.receipt.stream_seq): item.encode() for item in entries})
    return found


@dataclass(slots=True)
class Facts:
    """What follows from entries: how far clients have come, when they and tokens were seen, what is left."""

    clients: dict[tuple[Label, VerifyKey], ClientCursor] = field(default_factory=dict)
    since: dict[VerifyKey, int] = field(default_factory=dict)
    auths: dict[AuthRef, AuthRecord] = field(default_factory=dict)
    tokens: dict[AuthRef, CapToken] = field(default_factory=dict)
    uses: dict[AuthRef, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, frames: Frames) -> "Facts":
        """Read entries, each label in its order."""
        facts = cls()
        for label, seq in sorted(frames):
            facts._add(label, seq, Entry.decode(frames[label, seq])[0])
        return facts

    def _add(self, label: Label, seq: int, entry: Entry) -> None:
        if label == CONTROL:
            return
        if label == AUTHORIZE:
            token = CapToken.decode(entry.msg_bytes)
            self.tokens[token.auth_ref] = token
            self._see(token.auth_ref, entry.receipt.hub_ts, seq)
            return
        msg = Msg.decode(entry.msg_bytes)
        self.clients[label, msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
        self.since[msg.client_id] = min(
            self.since.get(msg.client_id, entry.receipt.hub_ts), entry.receipt.hub_ts
        )
        if msg.auth_ref is not None:
            self.uses.setdefault(msg.auth_ref, []).append(entry.receipt.hub_ts)
            self._see(msg.auth_ref, entry.receipt.hub_ts, 0)

    def _see(self, auth_ref: AuthRef, hub_ts: int, authorize_seq: int) -> None:
        known = self.auths.get(auth_ref, AuthRecord(hub_ts, authorize_seq))
        first = authorize_seq if not known.authorize_seq else known.authorize_seq
        self.auths[auth_ref] = AuthRecord(min(known.issued_at, hub_ts), first)

    def compare(self, writer: Writer, gone: Frames) -> None:
        """Check that the writer says the same; of what is ``gone``, a repair knows less."""
        lost = Facts.of(gone)
        for (label, client), cursor in self.clients.items():
            assert writer.reader.client(label, client) == cursor, "a client is elsewhere than its entries"
        for client, since in self.since.items():
            known = writer.reader.client_since(client)
            assert known is not None, "a client is taken for a new one"
            assert known == since or (known < since and client in lost.since), "a client has another age"
        for auth_ref, record in self.auths.items():
            found = writer.reader.auth(auth_ref)
            assert found is not None, "a token was forgotten"
            assert found._replace(bucket=None) == record, "a token was seen at another time"
            if auth_ref in self.tokens and auth_ref not in lost.uses:
                left = left_of(
                    self.tokens[auth_ref],
                    self.uses.get(auth_ref, ()),
                    lambda hub_ts: writer.store.registry_at(hub_ts).limits,
                )
                assert found.bucket == left, "another rate is left"


# --- what was promised --------------------------------------------------------------------------------------


def check_promises(writer: Writer, kept: Promises) -> Frames:
    """Check all that was promised against a writer that has just started; return what is there."""
    reader = writer.reader
    present = read_all(reader)
    firsts = {label: reader.manifest(label).first_seq for label in reader.labels()}
    for label, first in firsts.items():
        assert kept.pruned.get(label, 0) < first <= kept.to_prune.get(label, 0) + 1, "pruned wrongly"
    gone: Frames = {}
    for (label, seq), frame in kept.acked.items():
        assert label in firsts, "a label with acknowledged entries is gone"
        if seq < firsts[label]:
            gone[label, seq] = frame
        else:
            assert present.get((label, seq)) == frame, "an acknowledged entry is gone"
    for frame in present.values():
        assert frame in kept.offered, "an entry that nobody handed in"
    for label in _writable(reader):
        assert writer.head(label) == reader.head(label), "writer and reader do not agree"
    Facts.of(gone | present).compare(writer, gone)
    _check_proofs(reader, kept.acked.values())
    check_checkpoints(reader, kept.checkpoints)
    for label, stream in kept.bindings.items():
        assert reader.binding(label) == stream, "a binding is gone"
        assert reader.label_of(stream) == label, "a binding is gone"
    return present


def _writable(reader: Reader) -> list[Label]:
    return [label for label in reader.labels() if not reader.is_frozen(label)]


def _check_proofs(reader: Reader, frames: Iterable[bytes]) -> None:
    for frame in frames:
        receipt = Entry.decode(frame)[0].receipt
        label, seq, leaf = receipt.label, receipt.stream_seq, receipt.leaf_hash
        assert reader.find(leaf) == (label, seq), "a message is not found by its id"
        reader.prove(label, seq).verify(receipt.mmr_root, leaf, stream_seq=seq)
        if seq == 1:
            head = reader.head(label)
            assert head is not None
            reader.prove(label, 1, head.seq).verify(head.root, leaf, stream_seq=1, mmr_size=head.seq)


def check_checkpoints(reader: Reader, checkpoints: dict[Place, bytes]) -> None:
    """Check that everybody still gets the checkpoints that somebody got."""
    for (label, upto), stored in checkpoints.items():
        found = reader.checkpoint(label, upto)
        assert found is not None, "a checkpoint is gone"
        assert found.encode() == stored, "a checkpoint has changed"
        listed = [item.upto_seq for item in reader.checkpoints(label, upto, upto)]
        assert listed == [upto], "a checkpoint is not listed"


# --- the check of a sweep -----------------------------------------------------------------------------------


class Oracle:
    """Checks what a fault has left. The same state of the disk with the same promises is checked once."""

    #: Labels that can be written to.
    labels: tuple[Label, ...] = (A, B, BOUND)

    def __init__(self, may_refuse: Callable[[Case[Promises]], bool] = lambda _: False) -> None:
        self._may_refuse = may_refuse
        self._known: set[bytes] = set()
        #: How many states were different ones, and how many of them needed a repair first.
        self.distinct = 0
        self.refusals = 0
        #: How often a run has met a full disk, or has been stopped by another error.
        self.full = 0
        self.stopped = 0

    def __call__(self, fs: SimFilesystem, case: Case[Promises]) -> None:
        """Check one state."""
        if case.seen == [_KNOWN]:
            return
        if case.round == 1:
            self.judge(case)
        kept = case.witness
        for item in case.seen:
            assert isinstance(item, Promises)
            kept = item
        if self._is_known(_fingerprint(fs._disk.platter.frozen(), kept)):
            case.seen[:] = [_KNOWN]
            return
        self.distinct += 1
        kept = kept.copy()
        session = self.start(fs, kept, case)
        in_use = case.round > 1 or not _is_brief(case)
        if self._is_known(_fingerprint(fs._disk.platter.frozen(), kept, session.writer) + bytes([in_use])):
            session.writer.abandon()
            case.seen[:] = [_KNOWN]
            return
        self._compare(session, case)
        if in_use:
            self._use(session)
        else:
            session.writer.abandon()
        case.seen[:] = [kept]

    def judge(self, case: Case[Promises]) -> None:
        """Check what the process was told."""
        self.full += case.witness.full
        self.stopped += case.witness.stopped
        if case.fault in (Fault.ENOSPC, Fault.SHORT):
            assert case.error is None, "a full disk is survived"
        elif case.fault in (Fault.EIO, Fault.EIO_AFTER, Fault.FAILED_SYNC):
            assert (case.error is not None) == case.injected, "an error of the disk was passed over"

    def _is_known(self, state: bytes) -> bool:
        known = state in self._known
        self._known.add(state)
        return known

    def start(self, fs: SimFilesystem, kept: Promises, case: Case[Promises]) -> Session:
        """Look at a directory as it was left, and start a writer."""
        report = checked(fs)
        refusable = self._may_refuse(case)
        assert refusable or not report.damages_total, shown(report)
        try:
            _read(fs, kept)
            return _started(fs, kept)
        except DamagedStoreError as refusal:
            if not (refusable and refusal.path):
                raise
            self.refusals += 1
            repair(fs, owner="a test")
            return _started(fs, kept)

    def _compare(self, session: Session, case: Case[Promises]) -> None:
        """Check what was promised; what is there now may be relied on from now on."""
        kept, writer = session.kept, session.writer
        registry = writer.store.registries[-1]
        assert kept.registry in (None, registry), "other limits than before"
        kept.registry = registry
        present = check_promises(writer, kept)
        assert case.round == 1 or present.keys() <= kept.acked.keys(), "there is more than there was"
        kept.acked |= present
        for label in writer.reader.labels():
            kept.pruned[label] = writer.reader.manifest(label).first_seq - 1

    def _use(self, session: Session) -> None:
        """Go on as if nothing had happened, and stop cleanly."""
        session.append(*self.labels, client="somebody else")
        session.flush()
        session.close()
        report = checked(session.fs)
        assert report.ok, shown(report)
        verdicts = {report.signatures, report.completeness, report.derived, report.integrity}
        assert verdicts == {fsck.report.OK}
        assert not report.journal_entries


def _started(fs: SimFilesystem, kept: Promises) -> Session:
    """Start a writer and touch every label: that is when the files of a label are looked at."""
    session = Session(fs, kept)
    try:
        for label in _writable(session.writer.reader):
            session.writer.head(label)
    except DamagedStoreError:
        session.writer.abandon()
        raise
    return session


def _is_brief(case: Case[Promises]) -> bool:
    """Tell whether a start is followed at once by a power loss, and not by more work and a clean stop."""
    if case.fault is Fault.FAILED_SYNC:
        return case.aftermath is None
    return bool(case.at % 2)


def swept(
    scratch: Path,
    prepare: Snapshot | Callable[[SimFilesystem], None],
    action: Callable[[SimFilesystem, Promises], None],
    faults: Sequence[Fault],
    oracle: Oracle,
    *,
    witness: Callable[[], Promises] = Promises,
    aftermaths: Sequence[Aftermath] = AFTERMATHS,
    **options: Any,
) -> Report:
    """Sweep an action; each fault must have been met."""
    report = sweep(
        prepare, action, faults, oracle, witness=witness, scratch=scratch, aftermaths=aftermaths, **options
    )
    assert {fault for fault, _ in report.injected} == set(faults)
    assert oracle.distinct
    return report


def _read(fs: SimFilesystem, kept: Promises) -> None:
    """Read what was promised, without starting anything."""
    reader = Reader.open(fs)
    try:
        kept.check_reads(reader)
        check_checkpoints(reader, kept.checkpoints)
    finally:
        reader.close()


def index_rows(writer: Writer) -> list[bytes]:
    """Return everything that the index says, however its pages have come about."""
    index = writer._index
    found: list[bytes] = []
    with index.view() as view:
        for table in index._tables.values():
            with view.txn.cursor(db=table) as cursor:
                found += [bytes(part) for row in cursor.iternext(keys=True, values=True) for part in row]
    return found


def _fingerprint(platter: FrozenPlatter, kept: Promises, writer: Writer | None = None) -> bytes:
    """Return a hash of everything that a check depends on.

    With a writer that has just started, the index counts by its rows and not by its pages, and neither who
    holds the lock counts, nor the random bytes in the header of the journal.
    """
    inodes = {number: _inode_hash(inode, index=writer is None) for number, inode in platter.inodes.items()}
    passing = (
        ("lock",) if writer is None else ("lock", paths.journal(writer._active.segment).rpartition("/")[2])
    )
    tables = [
        sorted(
            (directory, name, inodes[number])
            for directory, names in table.items()
            for name, number in names.items()
            if name not in passing
        )
        for table in (platter.cached, platter.durable)
    ]
    changes = [
        [(change.gone, change.there, inodes.get(change.number)) for change in changes]
        for changes in (platter.pending, platter.stalled)
    ]
    promised = sorted(kept.offered), replace(kept, offered=set(), full=0, stopped=0)
    rows = None if writer is None else index_rows(writer)
    return blake2b(repr((tables, changes, promised, rows)).encode()).digest()


def _inode_hash(inode: FrozenInode, *, index: bool) -> bytes:
    made = blake2b(repr(inode.pending).encode())
    for part in (inode.cached, inode.durable, (inode.image if index else None) or b""):
        made.update(len(part).to_bytes(8))
        made.update(part)
    return made.digest()
