"""Small stores for tests: a hub key, real messages, and a writer around any filesystem."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count

from tests import builders
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.capability import Bucket, CapToken, effective_rate
from veen.core.objects.checkpoint import Checkpoint, label_pair
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label, LeafHash, NodeHash, StreamId
from veen.storage.directory import create_store
from veen.storage.fs import Filesystem
from veen.storage.journal.journal import Binding
from veen.storage.write.batch import Batch
from veen.storage.write.writer import Options, Writer

HUB = builders.signing_key("hub")
HUB_ID = builders.hub_id()
#: A chunk takes four small entries, so that a handful of messages rolls it.
TINY = Limits(max_msg_bytes=2_000, max_chunk_bytes=5_000, max_checkpoint_interval=4)
A, B, C = (builders.some_label(name) for name in "ABC")
AUTHORIZE = labels.authorize_label(HUB_ID)
CONTROL = labels.control_label(HUB_ID)


@cache
def message(
    label: Label, client: str, client_seq: int, body_size: int = 5, auth: AuthRef | None = None
) -> Msg:
    """Return a real message; made once in a test run, because sealing costs more than storing."""
    context = builders.context(label=label, client=client, client_seq=client_seq, auth_ref=auth)
    return builders.msg(context, signer=client, body=bytes(body_size))


@cache
def signed_receipt(label: Label, seq: int, leaf: LeafHash, root: NodeHash, hub_ts: int) -> Receipt:
    """Return the hub's receipt; made once in a test run."""
    return Receipt.sign(HUB, label=label, stream_seq=seq, leaf_hash=leaf, mmr_root=root, hub_ts=hub_ts)


def sign_checkpoint(label: Label, upto: int, root: NodeHash, binding: StreamEpoch | None) -> Checkpoint:
    """Sign a checkpoint as a hub without epochs does, or with what it knows of the label."""
    previous, epoch = label, 0
    if binding is not None:
        previous, _ = label_pair(labels.routing_key(HUB_ID), binding.stream_id, binding.epoch)
        epoch = binding.epoch
    return Checkpoint.sign(
        HUB, label_prev=previous, label_curr=label, upto_seq=upto, mmr_root=root, epoch=epoch
    )


def counting_random() -> Callable[[int], bytes]:
    """Return a source of bytes that is different at each call, and the same in each run."""
    numbers = count()
    return lambda length: builders.digest(f"nonce {next(numbers)}")[:length]


def counted(batch: Batch, record: NewEntry, hub_ts: int) -> NewEntry:
    """Return a record with what is left of its token's rate, as a hub works it out that refuses nothing."""
    token = None if record.auth_ref is None or record.client_id is None else batch.token(record.auth_ref)
    if token is None:
        return record
    rate = effective_rate(token, batch._committed.limits)
    seen = batch.auth(token.auth_ref)
    left = (seen and seen.bucket) or Bucket.full(rate, hub_ts)
    return record._replace(bucket=left.spend(rate, hub_ts, 1))


def left_of(token: CapToken, uses: Iterable[int], limits_at: Callable[[int], Limits]) -> Bucket | None:
    """Return what messages at these times leave of a token's rate: one by one, in their order."""
    left = None
    for hub_ts in sorted(uses):
        rate = effective_rate(token, limits_at(hub_ts))
        left = (left or Bucket.full(rate, hub_ts)).spend(rate, hub_ts, 1)
    return left


def after(token: CapToken, *uses: int) -> Bucket | None:
    """Return what messages at these times leave of a token's rate in a small store."""
    return left_of(token, uses, lambda _: TINY)


@dataclass
class Store:
    """A writer, and everything it has acknowledged."""

    writer: Writer
    clock: int = 1_000
    receipts: list[Receipt] = field(default_factory=list)
    random: Callable[[int], bytes] = field(default_factory=counting_random)

    def append(self, *labels_: Label, client: str = "client", body_size: int = 5) -> list[Receipt]:
        """Commit one batch with a message for each label given; only then are they acknowledged."""
        batch = self.writer.batch()
        made = []
        for label in labels_:
            position = batch.client(label, builders.verify_key(client))
            msg = message(label, client, position.client_seq + 1, body_size)
            made.append(batch.append(NewEntry.of_msg(msg), self.signer(NewEntry.of_msg(msg))))
        self.writer.commit(batch)
        self.receipts += made
        return made

    def signer(self, record: NewEntry) -> Callable[[int, NodeHash], Receipt]:
        """Return what signs the receipt of a record now."""
        return lambda seq, root: signed_receipt(record.label, seq, record.leaf_hash, root, self.clock)

    def authorize(self, token: CapToken) -> Receipt:
        """Put a token into the authorize log."""
        return self.record(NewEntry.of_token(AUTHORIZE, token))

    def record(self, record: NewEntry, bindings: Sequence[Binding] = ()) -> Receipt:
        """Commit one record of any log."""
        batch = self.writer.batch()
        receipt = batch.append(counted(batch, record, self.clock), self.signer(record))
        for binding in bindings:
            batch.bind(binding)
        self.writer.commit(batch)
        self.receipts.append(receipt)
        return receipt

    def tick(self, seconds: int = 1) -> None:
        """Let time pass."""
        self.clock += seconds


def make(fs: Filesystem, limits: Limits = TINY, **options: object) -> None:
    """Create an empty store."""
    create_store(fs, HUB_ID, limits, **options)  # type: ignore[arg-type]


def open_writer(fs: Filesystem, segment_bytes: int = 1 << 20) -> Writer:
    """Open the writer of a store."""
    return Writer.open(
        fs,
        sign_checkpoint=sign_checkpoint,
        random=counting_random(),
        owner="a test",
        options=Options(segment_bytes=segment_bytes),
    )


def new_store(fs: Filesystem, limits: Limits = TINY, segment_bytes: int = 1 << 20) -> Store:
    """Create a store and open it."""
    make(fs, limits)
    return Store(open_writer(fs, segment_bytes))


def stream(name: str = "stream") -> StreamId:
    """Return a stream id."""
    return builders.stream(name)
