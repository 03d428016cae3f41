"""The hub's signing keys: which one signs what, and how they are rotated (C-37, C-100)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from veen.core.crypto.ed25519 import SigningKey
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects import checkpoint, labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.hub_identity import HubIdentity, HubKey
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.receipt import Receipt
from veen.core.types import Label, NodeHash, ReaderPublicKey, RoutingKey, VerifyKey

Clock = Callable[[], int]
# How long an old key may stay valid: a hundred years.
MAX_OVERLAP_SEC: Final = 100 * 365 * 86_400


@dataclass(frozen=True, slots=True)
class KeyRing:
    """An identity with its signing keys."""

    identity: HubIdentity
    keys: dict[VerifyKey, SigningKey]

    @classmethod
    def of(cls, identity: HubIdentity, seeds: tuple[bytes, ...]) -> "KeyRing":
        """Match seeds to the keys of an identity, without the seeds of interrupted rotations."""
        signing_keys = (SigningKey.from_seed(seed) for seed in seeds)
        named = {key.hub_pk for key in identity.hub_keys}
        return cls(identity, {key.public_key: key for key in signing_keys if key.public_key in named})

    def active(self, unix_sec: int) -> SigningKey:
        """Return the key that signs receipts of a time: the newest that is valid then."""
        for key in reversed(self.identity.hub_keys):
            if key.is_active_at(unix_sec) and key.hub_pk in self.keys:
                return self.keys[key.hub_pk]
        raise ProtocolError(Detail.KEY_INACTIVE, f"the hub has no key that is valid at {unix_sec}")

    def rotated(self, seed: bytes, at: int, overlap_sec: int) -> "KeyRing":
        """Return the ring with a new key from a time on; the old key is valid for the overlap (KEX0-001)."""
        fresh = SigningKey.from_seed(seed)
        newest = self.identity.hub_keys[-1]
        if at <= newest.valid_from:
            at = newest.valid_from + 1  # keys ascend by valid_from
        # At least one second: receipts of this second may have been signed already.
        until = at + max(overlap_sec, 1)
        ended = tuple(
            key if key.valid_until is not None else replace(key, valid_until=until)
            for key in self.identity.hub_keys
        )
        identity = replace(self.identity, hub_keys=(*ended, HubKey.of(fresh.public_key, at)))
        return KeyRing(identity, {**self.keys, fresh.public_key: fresh})


class CheckpointSigner:
    """Signs checkpoints with the key that is valid in their epoch (C-37)."""

    def __init__(
        self,
        ring: KeyRing,
        *,
        epoch_sec: int,
        max_skew_sec: int,
        clock: Clock,
        hub_ts_of: Callable[[Label, int], int | None] | None = None,
        on_signed: Callable[[Label, int], None] | None = None,
    ) -> None:
        """``hub_ts_of`` returns the time of an entry, or None while the log is being opened.

        ``on_signed`` is called with label and size of each checkpoint.
        """
        self.ring = ring
        self._epoch_sec = epoch_sec
        self._max_skew_sec = max_skew_sec
        self._clock = clock
        self._hub_ts_of = hub_ts_of
        self._on_signed = on_signed

    def __call__(self, label: Label, upto_seq: int, root: NodeHash, stream: StreamEpoch | None) -> Checkpoint:
        """Return a signed checkpoint; without a known stream, a label is its own predecessor, in epoch 0."""
        label_prev, epoch = label, 0
        if stream is not None:
            epoch = stream.epoch
            routing = self.ring.identity.routing_key
            label_prev, _ = checkpoint.label_pair(routing, stream.stream_id, epoch)
        now = self._clock()
        signed = Checkpoint.sign(
            self._key(epoch, self._hub_ts(label, upto_seq, now)),
            label_prev=label_prev,
            label_curr=label,
            upto_seq=upto_seq,
            mmr_root=root,
            epoch=epoch,
            witnesses=self._witnesses(now),
        )
        if self._on_signed is not None:
            self._on_signed(label, upto_seq)
        return signed

    def _hub_ts(self, label: Label, upto_seq: int, now: int) -> int:
        """Return the time of the last entry, or now if it is pruned or the log is being opened."""
        if self._hub_ts_of is None:
            return now
        try:
            hub_ts = self._hub_ts_of(label, upto_seq)
        except ProtocolError:
            return now
        return now if hub_ts is None else hub_ts

    def _key(self, epoch: int, hub_ts: int) -> SigningKey:
        """Return the key active at the last entry if it is valid in the epoch, else the newest that is."""
        if not self._epoch_sec:
            return self.ring.active(hub_ts)
        start = epoch * self._epoch_sec - self._max_skew_sec
        end = (epoch + 1) * self._epoch_sec + self._max_skew_sec
        valid = [
            key
            for key in reversed(self.ring.identity.hub_keys)
            if key.meets(start, end) and key.hub_pk in self.ring.keys
        ]
        for key in sorted(valid, key=lambda key: not key.is_active_at(hub_ts)):
            return self.ring.keys[key.hub_pk]
        raise ProtocolError(
            Detail.KEY_INACTIVE, f"the hub has no key for epoch {epoch}", code=Code.UNAVAILABLE
        )

    def _witnesses(self, now: int) -> tuple[SigningKey, ...]:
        """While two keys are valid, both sign, old one first: clients may require a pinned key (C-100)."""
        active = [
            self.ring.keys[key.hub_pk]
            for key in self.ring.identity.hub_keys
            if key.is_active_at(now) and key.hub_pk in self.ring.keys
        ]
        return tuple(active) if len(active) > 1 else ()


def new_identity(first: SigningKey, control_pk: ReaderPublicKey, routing: RoutingKey | None) -> HubIdentity:
    """Return the identity of a new hub. Its first key is valid from time 0, since clocks may be set back."""
    hub = labels.hub_id(first.public_key)
    return HubIdentity(
        hub_id=hub,
        hub_keys=(HubKey.of(first.public_key, 0),),
        anchoring="none",
        routing_key=routing or labels.routing_key(hub),
        control_pk=control_pk,
    )


def signing(key: SigningKey, record: NewEntry, hub_ts: int) -> Callable[[int, NodeHash], Receipt]:
    """Return a function that signs the receipt of a record, given its position and the root after it."""

    def sign(seq: int, root: NodeHash) -> Receipt:
        return Receipt.sign(
            key,
            label=record.label,
            stream_seq=seq,
            leaf_hash=record.leaf_hash,
            mmr_root=root,
            hub_ts=hub_ts,
        )

    return sign
