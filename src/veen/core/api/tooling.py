"""Requests and responses outside the data plane, ``/tooling`` (C-24, C-53, C-65, C-73)."""

from dataclasses import dataclass
from typing import ClassVar

from veen.core.api.data_plane import Query
from veen.core.encoding.field_types import B32, BOOL, BYTES, TEXT, UINT, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.merkle.consistency import ConsistencyProof
from veen.core.objects.anchor import AnchorRecord, check_nonce
from veen.core.objects.capability import CapToken
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef, Label, StreamId

_VER = Field("ver", VER, key=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizeRequest(Wire):
    """Register a capability token with the hub; faults have the codes of admission (C-56)."""

    SHAPE: ClassVar = MapShape("authorize_request", _VER, Field("cap_token", Nested(CapToken), key=2))

    cap_token: CapToken


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizeResponse(Wire):
    """The reference for messages, when it expires, and the receipt of the token in the authorize log."""

    SHAPE: ClassVar = MapShape(
        "authorize_response",
        _VER,
        Field("auth_ref", B32, key=2),
        Field("expires_at", UINT, key=3),
        Field("record", Nested(Receipt), key=4),
    )

    auth_ref: AuthRef
    expires_at: int
    record: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class CapStatusRequest(Query):
    """Fetch the state of a token at the hub."""

    SHAPE: ClassVar = MapShape("cap_status_request", _VER, Field("auth_ref", B32, key=2))

    auth_ref: AuthRef


@dataclass(frozen=True, slots=True, kw_only=True)
class CapStatusResponse(Wire):
    """Whether the hub accepts a token, and if not, why."""

    SHAPE: ClassVar = MapShape(
        "cap_status_response",
        _VER,
        Field("auth_ref", B32, key=2),
        Field("hub_known", BOOL, key=3),
        Field("hub_currently_valid", BOOL, key=4),
        Field("revoked", BOOL, key=5),
        Field("issued_at", UINT, key=6, optional=True),
        Field("expires_at", UINT, key=7, optional=True),
        Field("revocation_kind", TEXT, key=8, optional=True),
        Field("revocation_ts", UINT, key=9, optional=True),
        Field("reason", TEXT, key=10, optional=True),
    )

    auth_ref: AuthRef
    hub_known: bool
    hub_currently_valid: bool
    revoked: bool
    issued_at: int | None = None
    expires_at: int | None = None
    revocation_kind: str | None = None
    revocation_ts: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofAtRequest(Query):
    """Fetch the proof of an entry against a later, signed size (C-24)."""

    SHAPE: ClassVar = MapShape(
        "proof_at_request",
        _VER,
        Field("label", B32, key=2),
        Field("stream_seq", UINT, key=3),
        Field("upto_seq", UINT, key=4),
    )

    label: Label
    stream_seq: int
    upto_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyRequest(Query):
    """Fetch the proof that a log of one size continues that of a smaller one."""

    SHAPE: ClassVar = MapShape(
        "consistency_request",
        _VER,
        Field("label", B32, key=2),
        Field("old_size", UINT, key=3),
        Field("new_size", UINT, key=4),
    )

    label: Label
    old_size: int
    new_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyResponse(Wire):
    """A consistency proof."""

    SHAPE: ClassVar = MapShape("consistency_response", _VER, Field("proof", Nested(ConsistencyProof), key=2))

    proof: ConsistencyProof


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLatestRequest(Query):
    """Fetch the newest checkpoint of a label."""

    SHAPE: ClassVar = MapShape("checkpoint_latest_request", _VER, Field("label", B32, key=2))

    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRangeRequest(Query):
    """Fetch the checkpoints of a stream in a range of epochs; labels are per epoch (C-73)."""

    SHAPE: ClassVar = MapShape(
        "checkpoint_range_request",
        _VER,
        Field("stream_id", B32, key=2),
        Field("epoch_min", UINT, key=3),
        Field("epoch_max", UINT, key=4),
        Field("from_seq", UINT, key=5, optional=True),
    )

    stream_id: StreamId
    epoch_min: int
    epoch_max: int
    # Where to resume inside the first epoch.
    from_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRangeResponse(Wire):
    """Checkpoints in the order of epochs and sizes; where to resume, if there are more."""

    SHAPE: ClassVar = MapShape(
        "checkpoint_range_response",
        _VER,
        Field("checkpoints", ListOf(Nested(Checkpoint)), key=2),
        Field("next_epoch", UINT, key=3, optional=True),
        Field("next_seq", UINT, key=4, optional=True),
    )

    checkpoints: tuple[Checkpoint, ...]
    next_epoch: int | None = None
    next_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEpochsRequest(Query):
    """Fetch the epochs in which a stream has entries: its labels follow from them (C-42)."""

    SHAPE: ClassVar = MapShape(
        "stream_epochs_request",
        _VER,
        Field("stream_id", B32, key=2),
        Field("from_epoch", UINT, key=3, optional=True),
    )

    stream_id: StreamId
    from_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEpochsResponse(Wire):
    """Epochs of a stream, ascending; where to resume, if there are more."""

    SHAPE: ClassVar = MapShape(
        "stream_epochs_response",
        _VER,
        Field("epochs", ListOf(UINT), key=2),
        Field("next_epoch", UINT, key=3, optional=True),
    )

    epochs: tuple[int, ...]
    next_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivocationRequest(Query):
    """Report two receipts that cannot both be true (API-064)."""

    SHAPE: ClassVar = MapShape(
        "report_equivocation_request",
        _VER,
        Field("first", Nested(Receipt), key=2),
        Field("second", Nested(Receipt), key=3),
    )

    first: Receipt
    second: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivocationResponse(Wire):
    """Whether the two receipts prove misbehaviour."""

    SHAPE: ClassVar = MapShape("report_equivocation_response", _VER, Field("ok", BOOL, key=2))

    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PowChallenge(Wire):
    """A challenge for proof of work: how many bits, and until when (C-65)."""

    SHAPE: ClassVar = MapShape(
        "pow_challenge",
        _VER,
        Field("challenge", BYTES, key=2),
        Field("difficulty", UINT, key=3),
        Field("expires_at", UINT, key=4),
    )

    challenge: bytes
    difficulty: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRequest(Query):
    """Copy the data directory, under a name."""

    SHAPE: ClassVar = MapShape("backup_request", _VER, Field("name", TEXT, key=2))

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupLabel(Wire):
    """The last position and root of a copied label."""

    SHAPE: ClassVar = MapShape(
        "backup_label",
        Field("label", B32, key=1),
        Field("last_stream_seq", UINT, key=2),
        Field("last_mmr_root", B32, key=3),
    )

    label: Label
    last_stream_seq: int
    last_mmr_root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupResponse(Wire):
    """The content of a copy, and when it was started and finished."""

    SHAPE: ClassVar = MapShape(
        "backup_response",
        _VER,
        Field("name", TEXT, key=2),
        Field("profile_id", B32, key=3),
        Field("labels", ListOf(Nested(BackupLabel), max_items=None), key=4),
        Field("started_at", UINT, key=5),
        Field("finished_at", UINT, key=6),
    )

    name: str
    profile_id: bytes
    labels: tuple[BackupLabel, ...]
    started_at: int
    finished_at: int

    def _validate(self) -> None:
        if self.finished_at < self.started_at:
            raise ProtocolError(Detail.VALUE, "a backup must end after it begins", field="finished_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorRequest(Query):
    """Publish the root of a label. Default: that of its newest entry, with time and nonce of the hub."""

    SHAPE: ClassVar = MapShape(
        "anchor_request",
        _VER,
        Field("label", B32, key=2),
        Field("upto_seq", UINT, key=3, optional=True),
        Field("epoch", UINT, key=4, optional=True),
        Field("ts", UINT, key=5, optional=True),
        Field("nonce", BYTES, key=6, optional=True),
    )

    label: Label
    upto_seq: int | None = None
    epoch: int | None = None
    ts: int | None = None
    nonce: bytes | None = None

    def _validate(self) -> None:
        if self.nonce is not None:
            check_nonce(self.nonce)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorResponse(Wire):
    """The anchor of a checkpoint, and the checkpoint."""

    SHAPE: ClassVar = MapShape(
        "anchor_response",
        _VER,
        Field("record", Nested(AnchorRecord), key=2),
        Field("checkpoint", Nested(Checkpoint), key=3),
    )

    record: AnchorRecord
    checkpoint: Checkpoint

    def _validate(self) -> None:
        anchored = (self.checkpoint.label_curr, self.checkpoint.upto_seq, self.checkpoint.mmr_root)
        if anchored != (self.record.label, self.record.upto_seq, self.record.mmr_root):
            raise ProtocolError(Detail.VALUE, "the anchor belongs to another checkpoint", field="checkpoint")
