"""Files that bind a hub's keys to its log (001 section 8.4; decisions C-30, C-37, C-89).

hub-identity.cbor says which keys the hub has had and when; hub-identity.sig signs it; hub-key-map.cbor
maps the id of a key to the key; checkpoint-binding.cbor says which key signed which checkpoint.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from veen.core.crypto import ed25519
from veen.core.crypto.hash import sha256, tagged_hash
from veen.core.encoding import cbor
from veen.core.encoding.field_types import B16, B32, TEXT, UINT, VER, ListOf, hex_from_json, not_json
from veen.core.encoding.shape import ArrayShape, Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import CborError, Detail, Fault, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.receipt import Receipt
from veen.core.types import (
    HubId,
    JsonValue,
    KeyId,
    Label,
    NodeHash,
    ReaderPublicKey,
    RoutingKey,
    Signature,
    VerifyKey,
)
from veen.stdx.grammar import counted

_KEY_ID_BYTES: Final = 16


def key_id(hub_pk: VerifyKey) -> KeyId:
    """Return the short name of a hub key: the first 16 bytes of its hash."""
    return KeyId(sha256(hub_pk)[:_KEY_ID_BYTES])


@dataclass(frozen=True, slots=True, kw_only=True)
class HubKey(Wire):
    """A hub key and when it signs: from valid_from, and before valid_until if there is one."""

    SHAPE: ClassVar = MapShape(
        "hub_key",
        Field("key_id", B16, key=1),
        Field("hub_pk", B32, key=2),
        Field("valid_from", UINT, key=3),
        Field("valid_until", UINT, key=4, optional=True),
    )

    key_id: KeyId
    hub_pk: VerifyKey
    valid_from: int
    valid_until: int | None = None

    def _validate(self) -> None:
        if self.key_id != key_id(self.hub_pk):
            raise ProtocolError(Detail.VALUE, "key_id does not match hub_pk", field="key_id")
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise ProtocolError(Detail.VALUE, "the key is never valid", field="valid_until")

    @classmethod
    def of(cls, hub_pk: VerifyKey, valid_from: int, valid_until: int | None = None) -> Self:
        """Return the record of a key."""
        return cls(key_id=key_id(hub_pk), hub_pk=hub_pk, valid_from=valid_from, valid_until=valid_until)

    def is_active_at(self, unix_sec: int) -> bool:
        """Report whether the key signs at this time (HUB-013)."""
        return self.valid_from <= unix_sec and (self.valid_until is None or unix_sec < self.valid_until)

    def meets(self, start: int, end: int) -> bool:
        """Report whether the key signs at any time of [start, end)."""
        return self.valid_from < end and (self.valid_until is None or start < self.valid_until)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkParent(Wire):
    """The hub whose log a fork has copied, and the hash of fork.cbor, which says how far (C-95)."""

    SHAPE: ClassVar = MapShape("fork_parent", Field("hub_id", B32, key=1), Field("fork_hash", B32, key=2))

    hub_id: HubId
    fork_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HubIdentity(Wire):
    """The identity of a hub: its id, which is that of its first key and never changes, and all its keys."""

    SHAPE: ClassVar = MapShape(
        "hub_identity",
        Field("ver", VER, key=1),
        Field("hub_id", B32, key=2),
        Field("hub_keys", ListOf(Nested(HubKey)), key=3),
        Field("anchoring", TEXT, key=4),
        Field("routing_key", B32, key=5),
        Field("control_pk", B32, key=6, optional=True),
        Field("parent", Nested(ForkParent), key=7, optional=True),
    )

    hub_id: HubId
    hub_keys: tuple[HubKey, ...]
    anchoring: str
    routing_key: RoutingKey
    control_pk: ReaderPublicKey | None = None
    parent: ForkParent | None = None

    def _validate(self) -> None:
        if not self.hub_keys:
            raise ProtocolError(Detail.VALUE, "an identity must have at least one key", field="hub_keys")
        order = [(key.valid_from, key.hub_pk) for key in self.hub_keys]
        if order != sorted(set(order)) or len({key.hub_pk for key in self.hub_keys}) != len(order):
            # One order, so that the choice among valid keys is the same everywhere (HUB-004).
            raise ProtocolError(Detail.VALUE, "keys must ascend by valid_from, then hub_pk", field="hub_keys")
        if self.hub_id != labels.hub_id(self.hub_keys[0].hub_pk):
            raise ProtocolError(Detail.VALUE, "hub_id does not match the first key", field="hub_id")
        if self.parent is not None and self.parent.hub_id == self.hub_id:
            raise ProtocolError(Detail.VALUE, "a fork must have an identity of its own", field="parent")

    def sign(self, key: ed25519.SigningKey) -> Signature:
        """Return the content of hub-identity.sig, by a hub key or an offline root key."""
        return key.sign(self._digest())

    def verify_signature(self, signer: VerifyKey, sig: bytes) -> None:
        """Check hub-identity.sig against the key that the reader trusts."""
        if len(sig) != ed25519.SIGNATURE_BYTES:
            raise ProtocolError(
                Detail.FIELD_SIZE, f"signature of {counted(len(sig), 'byte')}", expected=64, actual=len(sig)
            )
        ed25519.verify(signer, self._digest(), sig)

    def _digest(self) -> bytes:
        return tagged_hash("veen/hub-identity", self.encode())

    def verify_receipt(self, receipt: Receipt) -> HubKey:
        """Check a receipt under any key active at its hub_ts (HUB-008); return that key."""
        active = [key for key in self.hub_keys if key.is_active_at(receipt.hub_ts)]
        return _verify_with(active, receipt)

    def verify_checkpoint(self, checkpoint: Checkpoint, *, epoch_sec: int, max_skew_sec: int) -> HubKey:
        """Check a checkpoint under any key active for its epoch; without epochs, under any key (C-37)."""
        keys: Sequence[HubKey] = self.hub_keys
        if epoch_sec:
            start = checkpoint.epoch * epoch_sec - max_skew_sec
            end = (checkpoint.epoch + 1) * epoch_sec + max_skew_sec
            keys = [key for key in self.hub_keys if key.meets(start, end)]
        return _verify_with(keys, checkpoint)

    def key_map(self) -> "KeyMap":
        """Return the content of hub-key-map.cbor."""
        return KeyMap({key.key_id: key.hub_pk for key in self.hub_keys})


def _verify_with(keys: Iterable[HubKey], signed: Receipt | Checkpoint) -> HubKey:
    last_error: ProtocolError | None = None
    for key in keys:
        try:
            signed.verify_signature(key.hub_pk)
        except ProtocolError as error:
            last_error = error
        else:
            return key
    raise last_error or ProtocolError(Detail.KEY_INACTIVE, "no key of the hub was active at that time")


@dataclass(frozen=True, slots=True)
class KeyMap:
    """hub-key-map.cbor: key_id to hub_pk, ascending by key_id."""

    keys: Mapping[KeyId, VerifyKey]

    def __post_init__(self) -> None:
        """Reject a key_id that does not match its key."""
        for name, hub_pk in self.keys.items():
            B16.check(name, None)
            B32.check(hub_pk, None)
            if name != key_id(hub_pk):
                raise ProtocolError(Detail.VALUE, "key_id does not match hub_pk", field="key_id")

    def encode(self) -> bytes:
        """Return the map in key order."""
        pairs = sorted(self.keys.items())
        return cbor.head(cbor.MAJOR_MAP, len(pairs)) + b"".join(
            B16.write(name) + B32.write(hub_pk) for name, hub_pk in pairs
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the map."""
        count, pos = cbor.read_map(data, 0)
        keys: dict[KeyId, VerifyKey] = {}
        previous = None
        for _ in range(count):
            start = pos
            name, pos = B16.read(data, pos)
            cbor.check_key_order(previous, name, start)
            previous = name
            hub_pk, pos = B32.read(data, pos)
            keys[KeyId(name)] = VerifyKey(hub_pk)
        cbor.at_end(data, pos)
        return cls(keys)

    def to_json(self) -> JsonValue:
        """Return a JSON object."""
        return {name.hex(): hub_pk.hex() for name, hub_pk in sorted(self.keys.items())}

    @classmethod
    def from_json(cls, value: JsonValue) -> Self:
        """Parse a JSON object; the order of its names does not matter."""
        if not isinstance(value, dict):
            raise not_json("an object", value)
        return cls(
            {KeyId(hex_from_json(name)): VerifyKey(hex_from_json(item)) for name, item in value.items()}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCheckpoint(Wire):
    """One row of checkpoint-binding.cbor: the hub and the key that signed a checkpoint."""

    SHAPE: ClassVar = ArrayShape(
        "bound_checkpoint",
        Field("label", B32),
        Field("epoch", UINT),
        Field("upto_seq", UINT),
        Field("hub_id", B32),
        Field("key_id", B16),
        Field("mmr_root", B32),
    )

    label: Label
    epoch: int
    upto_seq: int
    hub_id: HubId
    key_id: KeyId
    mmr_root: NodeHash

    @property
    def place(self) -> tuple[bytes, int, int]:
        """The sort key of the file."""
        return self.label, self.epoch, self.upto_seq


_BINDING: Final = ListOf(Nested(BoundCheckpoint), max_items=None)


@dataclass(frozen=True, slots=True)
class CheckpointBinding:
    """checkpoint-binding.cbor: an array, ascending by (label, epoch, upto_seq)."""

    checkpoints: tuple[BoundCheckpoint, ...]

    def __post_init__(self) -> None:
        """Reject repeated or unordered rows."""
        sort_keys = [item.place for item in _BINDING.lower(self.checkpoints)]
        if sort_keys != sorted(set(sort_keys)):
            raise CborError(Fault.KEY_ORDER, 0, "checkpoints must ascend by label, epoch and upto_seq")

    @classmethod
    def of(cls, bound: Iterable[BoundCheckpoint]) -> Self:
        """Return the file for these checkpoints, in its order."""
        return cls(tuple(sorted(bound, key=lambda item: item.place)))

    def encode(self) -> bytes:
        """Return the array."""
        return _BINDING.write(self.checkpoints)

    @classmethod
    def decode(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Decode the array."""
        raw, end = _BINDING.read(data, 0)
        cbor.at_end(data, end)
        _BINDING.check(raw, limits)
        return cls(_BINDING.lift(raw))

    def to_json(self) -> JsonValue:
        """Return a JSON array."""
        return _BINDING.to_json(self.checkpoints)

    @classmethod
    def from_json(cls, value: JsonValue, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Parse a JSON array."""
        raw = _BINDING.from_json(value)
        _BINDING.check(raw, limits)
        return cls(_BINDING.lift(raw))
