"""Checkpoints of the recorder: one signed event over all of its streams (SDR-011 to SDR-013).

Making one reads no events: the hub signs a CHECKPOINT of each label, and proves that the label is an
extension of its state at the previous checkpoint. Auditors compare checkpoints with the entries.

Where labels rotate, a checkpoint omits epochs that were over when an earlier one covered them: otherwise each
would be longer than the previous one. The earlier ones are in the stream of checkpoints, whose root the
newest one covers, and with it all of them (SDR-012).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from veen.client.client import Client
from veen.client.errors import RejectedError
from veen.client.fold.interpret import typed
from veen.client.home.state import Pin
from veen.client.models import Sent
from veen.client.read import LATE_SEC, ReadOptions, read_stream
from veen.client.send import send_draft
from veen.client.verify.label import fetch_receipt
from veen.core.api.data_plane import CheckpointRequest, CheckpointResponse
from veen.core.api.tooling import ConsistencyRequest, ConsistencyResponse
from veen.core.crypto.hash import sha256
from veen.core.encoding.shape import Fields
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.hub_identity import HubIdentity
from veen.core.types import Label, NodeHash
from veen.overlays.errors import InvalidBodyError
from veen.overlays.recorder.schemas import CHECKPOINT, CHECKPOINTS_STREAM, log_root
from veen.recorder.configuration import Configuration, read_configuration, stream_labels
from veen.recorder.errors import ManifestError
from veen.recorder.event import RECORDING
from veen.stdx.grammar import counted

# Maximum difference between clocks.
_SKEW_SEC: Final = 60
# A checkpoint may state a wrong number; it is capped so that numbers after it can be requested.
_MOST_KNOWN: Final = 2**62
NO_FLOORS: Final[Mapping[str, int]] = MappingProxyType({})


# A label: its stream and epoch.
Place = tuple[str, int]
NO_HEADS: Final[Mapping[Place, int]] = MappingProxyType({})


class Head(NamedTuple):
    """A label and its last number."""

    stream: str
    epoch: int
    label: Label
    seq: int

    @property
    def place(self) -> Place:
        """Stream and epoch."""
        return (self.stream, self.epoch)


@dataclass(frozen=True, slots=True)
class Vouched:
    """The statement of a checkpoint about one label."""

    stream: str
    epoch: int
    label: Label
    upto_seq: int
    mmr_root: NodeHash
    checkpoint_hash: bytes

    @property
    def place(self) -> Place:
        """Stream and epoch."""
        return (self.stream, self.epoch)

    @property
    def head(self) -> Head:
        """The label up to the covered entry."""
        return Head(self.stream, self.epoch, self.label, self.upto_seq)

    def raw(self) -> Fields:
        """Return the fields as in the body."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint of the recorder, with its position if it is in the log."""

    profile_id: bytes
    hub_id: bytes
    hub_public: bytes
    created_at: int
    streams: tuple[Vouched, ...]
    # Its position in the log, if known: epoch and number; and the hub time of its receipt.
    place: tuple[int, int] | None = None
    taken_at: int | None = None

    @property
    def log_root(self) -> bytes:
        """The root over its entries."""
        return log_root(entry.raw() for entry in self.streams)

    @property
    def events(self) -> int:
        """Number of covered entries."""
        return sum(entry.upto_seq for entry in self.streams)

    @property
    def recorded(self) -> int:
        """Number of covered entries without checkpoints: it grows only if there is something new."""
        return sum(entry.upto_seq for entry in self.streams if entry.stream != CHECKPOINTS_STREAM)

    def verify_hub(self, identity: HubIdentity) -> None:
        """Check that it names the known hub, and a key of that hub (SDR-017)."""
        if self.hub_id != identity.hub_id or self.hub_public not in {key.hub_pk for key in identity.hub_keys}:
            raise ManifestError(
                "the checkpoint is of another hub", CHECKPOINTS_STREAM, *(self.place or (0, 0))
            )

    def encode(self) -> bytes:
        """Return the body of the event; files of checkpoints have the same content."""
        body = CHECKPOINT.make(
            version="sdr0",
            profile_id=self.profile_id,
            hub_id=self.hub_id,
            hub_public=self.hub_public,
            created_at=self.created_at,
            log_root=self.log_root,
            streams=tuple(entry.raw() for entry in self.streams),
        )
        return CHECKPOINT.encode(body)

    @classmethod
    def decode(
        cls, data: bytes, place: tuple[int, int] | None = None, taken_at: int | None = None
    ) -> "Manifest":
        """Decode a body; raises InvalidBodyError."""
        body = CHECKPOINT.decode(data)
        return cls(
            body["profile_id"],
            body["hub_id"],
            body["hub_public"],
            body["created_at"],
            tuple(Vouched(**entry) for entry in body["streams"]),
            place,
            taken_at,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return CHECKPOINT.to_json(CHECKPOINT.decode(self.encode()))


# --- making -------------------------------------------------------------------------------------------------


def last_seq(client: Client, label: Label, known: int = 0) -> int:
    """Return the number of the last entry of a label, with O(log n) requests.

    ``known`` is a former or stated last number: if it is still right, two requests suffice.
    """
    return client.run(_last_seq(client, label, known))


async def _last_seq(client: Client, label: Label, known: int) -> int:
    """Galloping and binary search: works with hubs, data directories and sets of files alike."""
    session = client.session
    last, step = min(known, _MOST_KNOWN), 1
    known = last
    while await fetch_receipt(session, label, last + step) is not None:
        last, step = last + step, step * 2
    beyond = last + step
    if last == known and known and await fetch_receipt(session, label, known) is None:
        last, beyond = 0, known  # the label is shorter than stated
    while beyond - last > 1:
        middle = (last + beyond) // 2
        if await fetch_receipt(session, label, middle) is None:
            beyond = middle
        else:
            last = middle
    return last


def find_heads(
    client: Client,
    streams: Iterable[str],
    floors: Mapping[str, int] = NO_FLOORS,
    known: Mapping[Place, int] = NO_HEADS,
) -> list[Head]:
    """Return the heads of all labels with entries, in the order of a checkpoint.

    ``floors`` are the first epochs of streams to search; ``known`` are former last numbers of labels.
    """
    heads = [
        Head(stream, epoch, label, last_seq(client, label, known.get((stream, epoch), 0)))
        for stream in sorted(set(streams), key=str.encode)
        for epoch, label in stream_labels(client, stream, floors.get(stream, 0))
    ]
    return [head for head in heads if head.seq]


def make_manifest(
    client: Client,
    streams: Iterable[str] = (),
    configuration: Configuration | None = None,
    standing: "CoveredLog | None" = None,
) -> Manifest:
    """Have the hub sign checkpoints of all declared streams, and of those that are named.

    What earlier checkpoints cover must still be there: otherwise a ManifestError names the position.
    """
    configured, now = configuration or read_configuration(client), client.session.clock()
    before = standing or CoveredLog(client)
    before.refresh()
    heads = before.find_heads({*configured.names, *streams, *before.streams})
    reached = {head.place: head.seq for head in heads}
    for entry in before.open_entries:
        if reached.get(entry.place, 0) < entry.upto_seq:
            raise _forgotten(entry, reached.get(entry.place, 0))
    entries = [client.run(_vouch(client, head, before.entries.get(head.place))) for head in heads]
    identity = client.connect().identity
    key = identity.hub_keys[-1].hub_pk
    return Manifest(configured.profile_id, identity.hub_id, key, now, tuple(entries))


def _forgotten(old: Vouched, seq: int) -> ManifestError:
    text = f"the previous checkpoint covers {counted(old.upto_seq, 'entry')}, but the log has {seq}"
    return ManifestError(text, old.stream, old.epoch, seq + 1)


async def _vouch(client: Client, head: Head, old: Vouched | None) -> Vouched:
    session = client.session
    request = CheckpointRequest(label=head.label, upto_seq=head.seq)
    checkpoint = (await session.ask(request, CheckpointResponse)).checkpoint
    epoch_sec = session.profiles[0].epoch_sec
    await session.check_signed(lambda pin: check_signed(pin, head, checkpoint, epoch_sec))
    if old is not None:
        await _check_grown(client, old, checkpoint)
    return Vouched(*head, checkpoint.mmr_root, sha256(checkpoint.encode()))


def check_signed(pin: Pin, head: Head, checkpoint: Checkpoint, epoch_sec: int) -> None:
    """Check that the hub has signed a checkpoint for this label and entry."""
    pin.identity.verify_checkpoint(checkpoint, epoch_sec=epoch_sec, max_skew_sec=max(epoch_sec, 60))
    checkpoint.verify_labels(pin.identity.routing_key, labels.stream_id(head.stream))
    if (checkpoint.label_curr, checkpoint.epoch, checkpoint.upto_seq) != (head.label, head.epoch, head.seq):
        raise ProtocolError(Detail.CHECKPOINT_LABEL, "the checkpoint names another entry", field="upto_seq")


async def _check_grown(client: Client, old: Vouched, checkpoint: Checkpoint) -> None:
    """Check that the log is an extension of what an earlier checkpoint covered."""
    other = f"the log differs from the previous checkpoint before entry {old.upto_seq + 1}"
    place = (old.stream, old.epoch, old.upto_seq)
    if checkpoint.upto_seq == old.upto_seq:
        if checkpoint.mmr_root != old.mmr_root:
            raise ManifestError(other, *place)
        return
    asked = ConsistencyRequest(label=old.label, old_size=old.upto_seq, new_size=checkpoint.upto_seq)
    proof = (await client.session.ask(asked, ConsistencyResponse)).proof
    try:
        proof.verify(
            old_root=old.mmr_root,
            old_size=old.upto_seq,
            new_root=checkpoint.mmr_root,
            new_size=checkpoint.upto_seq,
        )
    except ProtocolError as error:
        raise ManifestError(f"{other}: {error}", *place) from None


def send_manifest(client: Client, manifest: Manifest) -> Sent:
    """Send a checkpoint to the stream of checkpoints."""
    draft = typed(CHECKPOINT, CHECKPOINT.decode(manifest.encode()))
    return send_draft(client, CHECKPOINTS_STREAM, draft, RECORDING)


# --- reading ------------------------------------------------------------------------------------------------


def manifests(client: Client, options: ReadOptions | None = None) -> Iterator[Manifest]:
    """Yield the recorded checkpoints in log order; each entry is verified."""
    asked = options or ReadOptions(peek=True)
    for message in read_stream(client, CHECKPOINTS_STREAM, asked):
        if message.header is None or message.header.schema != CHECKPOINT.schema_id:
            continue
        try:
            place = (message.epoch, message.position)
            yield Manifest.decode(message.raw_body(), place, message.receipt.hub_ts)
        except InvalidBodyError:
            continue  # reported by the fold


def newest_manifest(client: Client) -> Manifest | None:
    """Return the last recorded checkpoint, with few requests; None if there is none."""
    for epoch, label in reversed(list(stream_labels(client, CHECKPOINTS_STREAM))):
        upto = last_seq(client, label)
        while upto:
            first = max(1, upto - 15)
            listed = list(manifests(client, ReadOptions(start=first, stop=upto, epoch=epoch, peek=True)))
            if listed:
                return listed[-1]
            upto = first - 1
    return None


def is_over(epoch: int, epoch_sec: int, now: int) -> bool:
    """Whether an epoch gets no more entries: hubs accept them for a minute, or an epoch, after its end."""
    return bool(epoch_sec) and (epoch + 1) * epoch_sec + max(epoch_sec, LATE_SEC) + _SKEW_SEC <= now


class CoveredLog:
    """The combined coverage of the checkpoints in the log, for programs that make or use checkpoints.

    Where labels do not rotate the newest one covers everything. Reading is incremental.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # The newest checkpoint, and the last statement about each label.
        self.newest: Manifest | None = None
        self.entries: dict[Place, Vouched] = {}
        # For each stream the first epoch that may still get entries, or has uncovered ones.
        self.floors: dict[str, int] = {}
        # Last known or stated number of each label.
        self._known: dict[Place, int] = {}

    @property
    def streams(self) -> set[str]:
        """All covered streams."""
        return {stream for stream, _ in self.entries}

    @property
    def open_entries(self) -> list[Vouched]:
        """Statements about labels that may still get entries."""
        return [entry for entry in self.entries.values() if entry.epoch >= self.floors.get(entry.stream, 0)]

    @property
    def manifest(self) -> Manifest | None:
        """The newest checkpoint, with the coverage of all earlier ones."""
        order = sorted(self.entries.values(), key=lambda entry: (entry.stream.encode(), entry.epoch))
        return None if self.newest is None else replace(self.newest, streams=tuple(order))

    def find_heads(self, streams: Iterable[str]) -> list[Head]:
        """Return the heads of streams; few requests if most of them are known."""
        heads = find_heads(self._client, streams, self.floors, self._known)
        self._known |= {head.place: head.seq for head in heads}
        return heads

    def refresh(self) -> None:
        """Read the checkpoints that were added since the last call."""
        client = self._client
        hub_id = client.connect().identity.hub_id
        for manifest in self._unread():
            if manifest.hub_id == hub_id:
                self.take(manifest)

    def _unread(self) -> Iterator[Manifest]:
        rotates = self._client.session.profiles[0].epoch_sec
        if self.newest is None and not rotates:
            newest = newest_manifest(self._client)
            yield from () if newest is None else (newest,)
            return
        last = (0, 0) if self.newest is None or self.newest.place is None else self.newest.place
        for epoch, _ in list(stream_labels(self._client, CHECKPOINTS_STREAM, last[0])):
            first = last[1] + 1 if epoch == last[0] else 1
            yield from manifests(self._client, ReadOptions(start=first, epoch=epoch, peek=True))

    def take(self, manifest: Manifest) -> None:
        """Apply a checkpoint that is later than those before."""
        epoch_sec = self._client.session.profiles[0].epoch_sec
        when = min(manifest.created_at, manifest.taken_at or 0)
        self.newest = manifest
        for entry in manifest.streams:
            self.entries[entry.place] = entry
            self._known[entry.place] = max(entry.upto_seq, self._known.get(entry.place, 0))
            if is_over(entry.epoch, epoch_sec, when):
                self.floors[entry.stream] = max(entry.epoch + 1, self.floors.get(entry.stream, 0))

    def forget_false(self) -> list[Vouched]:
        """Drop and return statements that the hub cannot confirm: to recover after a false checkpoint."""
        self.refresh()
        false = [
            entry for entry in self.entries.values() if not self._client.run(_is_true(self._client, entry))
        ]
        for entry in false:
            del self.entries[entry.place]
            self.floors[entry.stream] = min(entry.epoch, self.floors.get(entry.stream, 0))
        return false


async def _is_true(client: Client, entry: Vouched) -> bool:
    receipt = await fetch_receipt(client.session, entry.label, entry.upto_seq)
    return receipt is not None and receipt.mmr_root == entry.mmr_root


# --- what the hub has signed --------------------------------------------------------------------------------


def check_stored(client: Client, entry: Vouched) -> None:
    """Verify the stored CHECKPOINT of an entry, if available: a set of files has few of them."""
    request = CheckpointRequest(label=entry.label, upto_seq=entry.upto_seq)
    try:
        checkpoint = client.run(client.session.ask(request, CheckpointResponse)).checkpoint
    except RejectedError as error:
        if error.code == Code.NOT_FOUND.value:
            return
        raise
    check_signed(client.connect(), entry.head, checkpoint, client.session.profiles[0].epoch_sec)
    if sha256(checkpoint.encode()) != entry.checkpoint_hash or checkpoint.mmr_root != entry.mmr_root:
        raise ProtocolError(Detail.CHECKPOINT_ROOT, "the hub signed another checkpoint", field="mmr_root")
