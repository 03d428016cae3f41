"""Admission over a data directory: it says what it says over the log in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import builders
from tests.admission.histories import Accepted, Judge, Message, Verdict, play, random_steps, real, rules
from tests.admission.memory_hub import LIMITS, NOW, epoch_at, label_of, policy
from tests.storage import stores
from veen.admission.stages import Admitted
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.errors import Code, Detail, Stage
from veen.core.objects.capability import Bucket, CapToken
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import NodeHash
from veen.storage import Batch, Binding, RealFilesystem, fork


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[RealFilesystem]:
    made = RealFilesystem(tmp_path / "data")
    stores.make(made, LIMITS)
    yield made
    made.close()


class Stored:
    """A log on disk: some messages to a batch, and now and then a new writer.

    With ``ahead``, a batch is not committed before the next one, behind it, is full.
    """

    def __init__(self, fs: RealFilesystem, batch_size: int, *, ahead: bool = False) -> None:
        self.fs = fs
        self.batch_size = batch_size
        self.ahead = ahead
        self.writer = stores.open_writer(fs)
        self.under_way: Batch | None = None
        self.batch = self.writer.batch()

    def view(self) -> Batch:
        return self.batch

    def authorize(self, token: CapToken, hub_ts: int) -> None:
        self._append(NewEntry.of_token(stores.AUTHORIZE, token), hub_ts)
        self.commit()  # a hub answers that a token is known when it is

    def accept(self, admitted: Admitted) -> int:
        filled = admitted.record._replace(bucket=admitted.bucket)
        receipt = self._append(filled, admitted.hub_ts)
        if admitted.binding is not None:
            self.batch.bind(Binding(*admitted.binding, filled.label))
        if len(self.batch.frames) >= self.batch_size:
            if self.ahead:
                self.begin_next()
            else:
                self.commit()
        return receipt.stream_seq

    def begin_next(self) -> None:
        if self.under_way is not None:
            self.writer.commit(self.under_way)
        self.under_way, self.batch = self.batch, self.writer.batch(self.batch)

    def _append(self, appended: NewEntry, hub_ts: int) -> Receipt:
        def sign(seq: int, root: NodeHash) -> Receipt:
            return stores.signed_receipt(appended.label, seq, appended.leaf_hash, root, hub_ts)

        return self.batch.append(appended, sign)

    def commit(self) -> None:
        self.begin_next()
        assert self.under_way is not None
        self.writer.commit(self.under_way)
        self.under_way, self.batch = None, self.writer.batch()

    def flush(self) -> None:
        self.commit()
        self.writer.flush()
        self.batch = self.writer.batch()

    def restart(self, *, cleanly: bool) -> None:
        self.commit()
        if cleanly:
            self.writer.close()
        else:
            self.writer.abandon()
        self.writer = stores.open_writer(self.fs)
        self.batch = self.writer.batch()


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_data_directory_gives_the_same_verdicts_as_the_log_in_memory(
    fs: RealFilesystem, batch_size: int, *, ahead: bool
) -> None:
    events, first = play(random_steps(800, seed=batch_size), real)
    stored = Stored(fs, batch_size, ahead=ahead)
    judge = Judge(stored, rules)
    for nth, event in enumerate(events):
        judge.take(event)
        match nth % 100:
            case 30:
                stored.flush()
            case 60:
                stored.restart(cleanly=True)
            case 90:
                stored.restart(cleanly=False)
            case _:
                pass
    stored.commit()
    stored.writer.close()
    assert judge.verdicts == first.verdicts
    assert sum(isinstance(verdict, Accepted) for verdict in first.verdicts) > 100
    assert sum(isinstance(event, Message) for event in events) == len(first.verdicts)


def test_a_message_sees_those_before_it_in_its_batch(fs: RealFilesystem) -> None:
    token = builders.cap_token(rate=builders.rate(per_sec=0, burst=2))
    stored = Stored(fs, batch_size=99)
    stored.authorize(token, NOW)
    judge = Judge(stored, lambda: policy(max_client_lifetime_sec=10))

    def send(client_seq: int, prev_ack: int, hub_ts: int = NOW) -> Verdict:
        context = builders.context(
            label=label_of(), client_seq=client_seq, prev_ack=prev_ack, auth_ref=token.auth_ref
        )
        judge.take(Message(real(context, b"this"), hub_ts))
        return judge.verdicts[-1]

    stream = StreamEpoch(builders.stream(), epoch_at(NOW))
    assert send(1, 0) == Accepted(1, NOW, stream, Bucket(1, NOW))
    place = {"field": "client_seq", "expected": 2, "actual": 1, "stream_seq": 1}
    assert send(1, 0) == (Code.SEQ, Stage.COMMIT, Detail.DUPLICATE, place)
    assert send(2, 2)[2] == Detail.PREV_ACK
    assert send(2, 1, NOW + 10) == Accepted(2, NOW + 10, None, Bucket(0, NOW + 10))
    assert send(3, 1, NOW + 10)[2] == Detail.CAP_RATE
    assert send(3, 1, NOW + 11)[2] == Detail.CLIENT_LIFETIME
    assert len(stored.batch.frames) == 2, "nothing of this was committed yet"
    stored.writer.close()


def test_the_labels_of_a_fork_s_parent_are_out_of_scope(fs: RealFilesystem, tmp_path: Path) -> None:
    """C-95; and ADM-030: storage closes such a label with a code that admission does not have."""
    parent = Stored(fs, 1)
    judge = Judge(parent, lambda: policy(require_cap=False, epoch_sec=0))
    for seq in (1, 2):
        judge.take(Message(real(builders.context(client_seq=seq), b"this"), NOW))
    parent.writer.checkpoint(builders.some_label(), 2)
    parent.flush()
    target = RealFilesystem(tmp_path / "fork")
    fork(parent.writer.reader, target, builders.hub_id("another hub"))
    parent.writer.close()
    child = Stored(target, 1)
    judge.log = child
    judge.take(Message(real(builders.context(client_seq=3), b"this"), NOW))
    judge.take(Message(real(builders.context(label=builders.some_label("new")), b"this"), NOW))
    child.writer.close()
    target.close()
    first, second, closed, new = judge.verdicts
    assert closed == (Code.AUTH, Stage.AUTH, Detail.AUTH_REF, {"field": "label"})
    for seq, verdict in ((1, first), (2, second), (1, new)):
        assert verdict == Accepted(seq, NOW, None, None)
