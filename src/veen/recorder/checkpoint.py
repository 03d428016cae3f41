"""Checkpoints of the recorder: one signed event over all of its streams (SDR-011 to SDR-013).

Making one reads no events: the hub signs a CHECKPOINT of each label, and proves that the label has only
grown since the checkpoint before. What it vouches for is compared with the entries by who audits.

Where labels change, a checkpoint leaves out epochs that were over when an earlier one vouched for them: else
each would be longer than the one before. The earlier ones are in the stream of checkpoints, whose root the
newest one vouches for, and so for all of them (SDR-012).
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

#: How far clocks may be apart.
_SKEW_SEC: Final = 60
#: What checkpoints say is not always true, and numbers behind it are to be asked for.
_MOST_KNOWN: Final = 2**62
NO_FLOORS: Final[Mapping[str, int]] = MappingProxyType({})


#: A label: its stream and epoch.
Place = tuple[str, int]
NO_HEADS: Final[Mapping[Place, int]] = MappingProxyType({})


class Head(NamedTuple):
    """A label, and how far it goes."""

    stream: str
    epoch: int
    label: Label
    seq: int

    @property
    def place(self) -> Place:
        """Which label."""
        return (self.stream, self.epoch)


@dataclass(frozen=True, slots=True)
class Vouched:
    """What a checkpoint says of one label."""

    stream: str
    epoch: int
    label: Label
    upto_seq: int
    mmr_root: NodeHash
    checkpoint_hash: bytes

    @property
    def place(self) -> Place:
        """Which label."""
        return (self.stream, self.epoch)

    @property
    def head(self) -> Head:
        """Which label, up to which entry."""
        return Head(self.stream, self.epoch, self.label, self.upto_seq)

    def raw(self) -> Fields:
        """Return it as the body holds it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint of the recorder; one that exists has the root of its entries."""

    profile_id: bytes
    hub_id: bytes
    hub_public: bytes
    created_at: int
    streams: tuple[Vouched, ...]
    #: Where it stands in the log, if it does: epoch and number; and when the hub has taken it.
    place: tuple[int, int] | None = None
    taken_at: int | None = None

    @property
    def log_root(self) -> bytes:
        """The root over its entries."""
        return log_root(entry.raw() for entry in self.streams)

    @property
    def events(self) -> int:
        """How many entries it vouches for."""
        return sum(entry.upto_seq for entry in self.streams)

    @property
    def recorded(self) -> int:
        """The same without checkpoints themselves: whether anything is new."""
        return sum(entry.upto_seq for entry in self.streams if entry.stream != CHECKPOINTS_STREAM)

    def verify_hub(self, identity: HubIdentity) -> None:
        """Check that it is of the hub that is known, with a key of that hub (SDR-017)."""
        if self.hub_id != identity.hub_id or self.hub_public not in {key.hub_pk for key in identity.hub_keys}:
            raise ManifestError(
                "the checkpoint is of another hub", CHECKPOINTS_STREAM, *(self.place or (0, 0))
            )

    def encode(self) -> bytes:
        """Return the body of the event; also what a file of it holds."""
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
        """Take a body apart; InvalidBodyError if it is none."""
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
        """Return it for scripts."""
        return CHECKPOINT.to_json(CHECKPOINT.decode(self.encode()))


# --- making -------------------------------------------------------------------------------------------------


def last_seq(client: Client, label: Label, known: int = 0) -> int:
    """Return the number of the last entry of a label; a few questions, however many there are.

    ``known`` is how far it went before, or is said to go: two questions if that is still so.
    """
    return client.run(_last_seq(client, label, known))


async def _last_seq(client: Client, label: Label, known: int) -> int:
    """Double the step until there is nothing, then halve: hubs, directories and sets all answer this."""
    session = client.session
    there, step = min(known, _MOST_KNOWN), 1
    known = there
    while await fetch_receipt(session, label, there + step) is not None:
        there, step = there + step, step * 2
    beyond = there + step
    if there == known and known and await fetch_receipt(session, label, known) is None:
        there, beyond = 0, known  # it does not go so far, whoever has said so
    while beyond - there > 1:
        middle = (there + beyond) // 2
        if await fetch_receipt(session, label, middle) is None:
            beyond = middle
        else:
            there = middle
    return there


def find_heads(
    client: Client,
    streams: Iterable[str],
    floors: Mapping[str, int] = NO_FLOORS,
    known: Mapping[Place, int] = NO_HEADS,
) -> list[Head]:
    """Return how far the labels of streams go that have entries, in the order of a checkpoint.

    ``floors`` are epochs of streams before which there is nothing to ask; ``known`` is how far labels went.
    """
    found = [
        Head(stream, epoch, label, last_seq(client, label, known.get((stream, epoch), 0)))
        for stream in sorted(set(streams), key=str.encode)
        for epoch, label in stream_labels(client, stream, floors.get(stream, 0))
    ]
    return [head for head in found if head.seq]


def make_manifest(
    client: Client,
    streams: Iterable[str] = (),
    configuration: Configuration | None = None,
    standing: "CoveredLog | None" = None,
) -> Manifest:
    """Have the hub vouch for all streams that are declared, and for others that are named.

    What checkpoints before vouch for must still be there: else a ManifestError names it.
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
    text = f"the previous checkpoint covers {old.upto_seq} entries, but the log has {seq}"
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
    """Check that the hub has signed a checkpoint, of this label and entry."""
    pin.identity.verify_checkpoint(checkpoint, epoch_sec=epoch_sec, max_skew_sec=max(epoch_sec, 60))
    checkpoint.verify_labels(pin.identity.routing_key, labels.stream_id(head.stream))
    if (checkpoint.label_curr, checkpoint.epoch, checkpoint.upto_seq) != (head.label, head.epoch, head.seq):
        raise ProtocolError(Detail.CHECKPOINT_LABEL, "the checkpoint names another entry", field="upto_seq")


async def _check_grown(client: Client, old: Vouched, checkpoint: Checkpoint) -> None:
    """Check that the log of now begins as it did when it was vouched for before."""
    other = f"the first {old.upto_seq} entries are not those of the previous checkpoint"
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
    """Record a checkpoint."""
    draft = typed(CHECKPOINT, CHECKPOINT.decode(manifest.encode()))
    return send_draft(client, CHECKPOINTS_STREAM, draft, RECORDING)


# --- reading ------------------------------------------------------------------------------------------------


def manifests(client: Client, options: ReadOptions | None = None) -> Iterator[Manifest]:
    """Yield the checkpoints that are recorded, in the order of the log; each entry is checked."""
    asked = options or ReadOptions(peek=True)
    for message in read_stream(client, CHECKPOINTS_STREAM, asked):
        if message.header is None or message.header.schema != CHECKPOINT.schema_id:
            continue
        try:
            place = (message.epoch, message.position)
            yield Manifest.decode(message.raw_body(), place, message.receipt.hub_ts)
        except InvalidBodyError:
            continue  # the fold reports it


def newest_manifest(client: Client) -> Manifest | None:
    """Return the last checkpoint that is recorded, reading as little as can be; None if there is none."""
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
    """Tell whether an epoch gets no more entries: hubs take them for a minute, or an epoch, after its end."""
    return bool(epoch_sec) and (epoch + 1) * epoch_sec + max(epoch_sec, LATE_SEC) + _SKEW_SEC <= now


class CoveredLog:
    """What the checkpoints in the log vouch for together, for somebody who makes or uses one.

    Where labels do not change the newest one says it all. It is read on from where it was left.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: The newest one, and what was said last of each label.
        self.newest: Manifest | None = None
        self.entries: dict[Place, Vouched] = {}
        #: Of each stream, the first epoch that may still get entries, or has some that nobody vouches for.
        self.floors: dict[str, int] = {}
        #: How far labels went when they were looked at, or are said to go.
        self._known: dict[Place, int] = {}

    @property
    def streams(self) -> set[str]:
        """All streams that are vouched for."""
        return {stream for stream, _ in self.entries}

    @property
    def open_entries(self) -> list[Vouched]:
        """What is said of labels that may still get entries."""
        return [entry for entry in self.entries.values() if entry.epoch >= self.floors.get(entry.stream, 0)]

    @property
    def manifest(self) -> Manifest | None:
        """The newest checkpoint, with all that earlier ones vouch for."""
        order = sorted(self.entries.values(), key=lambda entry: (entry.stream.encode(), entry.epoch))
        return None if self.newest is None else replace(self.newest, streams=tuple(order))

    def find_heads(self, streams: Iterable[str]) -> list[Head]:
        """Return how far streams go; with few questions, if most of it is known."""
        found = find_heads(self._client, streams, self.floors, self._known)
        self._known |= {head.place: head.seq for head in found}
        return found

    def refresh(self) -> None:
        """Read the checkpoints that have come since."""
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
        """Take one that is later than those before."""
        epoch_sec = self._client.session.profiles[0].epoch_sec
        when = min(manifest.created_at, manifest.taken_at or 0)
        self.newest = manifest
        for entry in manifest.streams:
            self.entries[entry.place] = entry
            self._known[entry.place] = max(entry.upto_seq, self._known.get(entry.place, 0))
            if is_over(entry.epoch, epoch_sec, when):
                self.floors[entry.stream] = max(entry.epoch + 1, self.floors.get(entry.stream, 0))

    def forget_false(self) -> list[Vouched]:
        """Drop what the hub cannot confirm, and return it: to go on after a checkpoint that was false."""
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
    """Check the CHECKPOINT that an entry is about, if it can be had: a set of files has few of them."""
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
