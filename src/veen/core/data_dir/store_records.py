"""Records of a data directory that the protocol leaves to the implementation (decisions C-85, C-86, C-95).

store.cbor says which hub a directory belongs to and which limits were in force from when; a tombstone
retains what a pruned chunk's successors still need; fork.cbor names the hub and the points a fork began at.
The index has the stream and epoch of each label, and the progress of clients and tokens.
"""

from dataclasses import dataclass, fields
from typing import ClassVar, Final, NamedTuple, Self

from veen.core.crypto.hash import sha256, tagged_hash
from veen.core.encoding.field_types import B32, TEXT, UINT, VER, ListOf
from veen.core.encoding.shape import ArrayShape, Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.objects.capability import Bucket
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import AuthRef, HubId, Label, NodeHash, StreamId, VerifyKey

# Chunks are stored uncompressed.
NO_COMPRESSION: Final = "none"
# bzip2, blocks of 900 kB: its encoder has had one output for decades, so equal chunks give equal files.
BZIP2: Final = "bzip2-9"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitValue(Wire):
    """One limit by its name."""

    SHAPE: ClassVar = ArrayShape("limit", Field("name", TEXT), Field("value", UINT))

    name: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry(Wire):
    """A limit registry, and the hub_ts from which entries obey it."""

    SHAPE: ClassVar = MapShape(
        "registry",
        Field("effective_from", UINT, key=1),
        Field("values", ListOf(Nested(LimitValue)), key=2),
        Field("compression", TEXT, key=3),
    )

    effective_from: int
    values: tuple[LimitValue, ...]
    compression: str

    def _validate(self) -> None:
        names = [item.name for item in self.values]
        # A limit that a directory does not name yet has its default: directories outlive releases.
        if names != sorted(set(names)) or not set(names) <= {field.name for field in fields(Limits)}:
            raise ProtocolError(
                Detail.VALUE,
                "a registry must list known limits once each, in alphabetical order",
                field="values",
            )
        if self.compression not in (NO_COMPRESSION, BZIP2):
            raise ProtocolError(
                Detail.VALUE, f"unknown compression {self.compression!r}", field="compression"
            )
        Limits(**{item.name: item.value for item in self.values})

    @classmethod
    def of(cls, limits: Limits, *, effective_from: int = 0, compression: str = NO_COMPRESSION) -> Self:
        """Return the record of these limits."""
        names = sorted(field.name for field in fields(Limits))
        values = tuple(LimitValue(name=name, value=getattr(limits, name)) for name in names)
        return cls(effective_from=effective_from, values=values, compression=compression)

    @property
    def limits(self) -> Limits:
        """The limits as the rest of the library uses them."""
        return Limits(**{item.name: item.value for item in self.values})

    @property
    def registry_hash(self) -> bytes:
        """The hash that identifies this registry in messages to operators."""
        return sha256(self.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRecord(Wire):
    """store.cbor: the hub that owns the directory, and its limits, oldest first (C-86)."""

    SHAPE: ClassVar = MapShape(
        "store",
        Field("ver", VER, key=1),
        Field("hub_id", B32, key=2),
        Field("registries", ListOf(Nested(Registry)), key=3),
        Field("epoch_secs", ListOf(UINT, may_be_empty=False), key=4),
    )

    hub_id: HubId
    registries: tuple[Registry, ...]
    # Epoch lengths in use here: needed to find out again to which stream a label belongs.
    epoch_secs: tuple[int, ...]

    def _validate(self) -> None:
        starts = [item.effective_from for item in self.registries]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise ProtocolError(
                Detail.VALUE, "registries must begin at 0 and ascend by effective_from", field="registries"
            )
        if list(self.epoch_secs) != sorted(set(self.epoch_secs)):
            raise ProtocolError(Detail.VALUE, "epoch_secs must ascend", field="epoch_secs")

    def registry_at(self, hub_ts: int) -> Registry:
        """Return the registry that an entry of this time obeys."""
        return next(item for item in reversed(self.registries) if item.effective_from <= hub_ts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPosition(Wire):
    """The last accepted client_seq and prev_ack of a client in a label."""

    SHAPE: ClassVar = ArrayShape(
        "client_position", Field("client_id", B32), Field("client_seq", UINT), Field("prev_ack", UINT)
    )

    client_id: VerifyKey
    client_seq: int
    prev_ack: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUse(Wire):
    """When a token was first used in a chunk."""

    SHAPE: ClassVar = ArrayShape("first_use", Field("auth_ref", B32), Field("hub_ts", UINT))

    auth_ref: AuthRef
    hub_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone(Wire):
    """What is retained of a pruned chunk beside summary, peaks, checkpoint and nodes (C-85)."""

    SHAPE: ClassVar = ArrayShape(
        "tombstone",
        Field("ver", VER),
        Field("label", B32),
        Field("start_seq", UINT),
        Field("end_seq", UINT),
        Field("total_bytes", UINT),
        Field("first_ts", UINT),
        Field("last_ts", UINT),
        Field("mmr_root_end", B32),
        Field("clients", ListOf(Nested(ClientPosition), max_items=None)),
        Field("first_uses", ListOf(Nested(FirstUse), max_items=None)),
    )

    label: Label
    start_seq: int
    end_seq: int
    total_bytes: int
    first_ts: int
    last_ts: int
    mmr_root_end: NodeHash
    clients: tuple[ClientPosition, ...]
    first_uses: tuple[FirstUse, ...]

    def _validate(self) -> None:
        if not 1 <= self.start_seq <= self.end_seq or self.first_ts > self.last_ts:
            raise ProtocolError(Detail.VALUE, "the range is empty", field="start_seq")
        for name, keys in (
            ("clients", [item.client_id for item in self.clients]),
            ("first_uses", [item.auth_ref for item in self.first_uses]),
        ):
            if keys != sorted(set(keys)):
                raise ProtocolError(Detail.VALUE, f"{name} must ascend", field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRecord(Wire):
    """fork.cbor: the hub whose log was copied, and the checkpoints at which the copy ends (C-95)."""

    SHAPE: ClassVar = MapShape(
        "fork",
        Field("ver", VER, key=1),
        Field("parent_hub_id", B32, key=2),
        Field("checkpoints", ListOf(Nested(Checkpoint), max_items=None), key=3),
    )

    parent_hub_id: HubId
    checkpoints: tuple[Checkpoint, ...]

    def _validate(self) -> None:
        labels = [item.label_curr for item in self.checkpoints]
        if labels != sorted(set(labels)):
            raise ProtocolError(Detail.VALUE, "checkpoints must ascend by label", field="checkpoints")

    @property
    def fork_hash(self) -> bytes:
        """The hash of this record in the new hub's identity."""
        return tagged_hash("veen/fork", self.encode())


class StreamEpoch(NamedTuple):
    """The stream and epoch that a label was derived from."""

    stream_id: StreamId
    epoch: int


class ClientCursor(NamedTuple):
    """The last accepted position of a client in a label; every client starts at zero."""

    client_seq: int = 0
    prev_ack: int = 0


class AuthRecord(NamedTuple):
    """When a token was first seen (C-46), and its position in the authorize log if it has one (else 0)."""

    issued_at: int
    authorize_seq: int
    # The bucket after its last accepted message (C-52); None if it was not used, or is not known.
    bucket: Bucket | None = None

    def merged(self, later: "AuthRecord") -> "AuthRecord":
        """Return both records combined; issued_at never changes once it is bound."""
        return AuthRecord(
            min(self.issued_at, later.issued_at),
            self.authorize_seq or later.authorize_seq,
            later.bucket or self.bucket,
        )
