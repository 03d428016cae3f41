"""Requests and responses of the data plane, ``/v1`` (001 section 10.4)."""

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from veen.core.encoding.field_types import B32, BOOL, TEXT, UINT, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.merkle.inclusion import MmrProof
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt
from veen.core.types import JsonValue, Label

_VER = Field("ver", VER, key=1)
# The SUBMIT_ENVELOPE_BYTES before the message of a submit request: {1: 1, 2: msg}.
_BEFORE_MSG: Final = bytes.fromhex("a2010102")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest(Wire):
    """Submit one message; faults have the codes of admission, also those of the envelope (C-69)."""

    OVERSIZE: ClassVar = Detail.SIZE_PREFILTER
    SHAPE: ClassVar = MapShape("submit_request", _VER, Field("msg", Nested(Msg), key=2))

    msg: Msg

    @classmethod
    def max_bytes(cls, limits: Limits) -> int:
        """Return the limit of row 1: that of a message, plus the canonical envelope (C-12)."""
        return limits.max_submit_bytes

    @classmethod
    def decode_msg(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Msg:
        """Decode a request and return its message; the usual envelope and layout have a fast path."""
        plain = Msg.plain(data[len(_BEFORE_MSG) :], limits) if data.startswith(_BEFORE_MSG) else None
        return plain or cls.decode(data, limits).msg


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResponse(Wire):
    """The receipt of an accepted message."""

    SHAPE: ClassVar = MapShape(
        "submit_response",
        _VER,
        Field("receipt", Nested(Receipt), key=2),
        Field("server_version", TEXT, key=3, optional=True),
    )

    receipt: Receipt
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Wire):
    """A request other than submit: its faults are E.BAD_REQUEST (C-69)."""

    @classmethod
    def decode(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Decode a request."""
        try:
            return super(Query, cls).decode(data, limits)
        except ProtocolError as error:
            raise error.in_request() from None

    @classmethod
    def from_json(cls, value: JsonValue, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Parse the JSON form of a request."""
        try:
            return super(Query, cls).from_json(value, limits)
        except ProtocolError as error:
            raise error.in_request() from None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest(Query):
    """Read a range of a label."""

    SHAPE: ClassVar = MapShape(
        "stream_request",
        _VER,
        Field("label", B32, key=2),
        Field("from_seq", UINT, key=3),
        Field("to_seq", UINT, key=4, optional=True),
        Field("max_items", UINT, key=5, optional=True),
        Field("cursor", UINT, key=6, optional=True),
        Field("with_receipts", BOOL, key=7, optional=True),
        Field("with_mmr_proof", BOOL, key=8, optional=True),
    )

    label: Label
    from_seq: int
    to_seq: int | None = None
    max_items: int | None = None
    cursor: int | None = None
    with_receipts: bool | None = None
    with_mmr_proof: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamItem(Wire):
    """One entry of a page."""

    SHAPE: ClassVar = MapShape(
        "stream_item",
        Field("stream_seq", UINT, key=1),
        Field("msg", Nested(Msg), key=2),
        Field("receipt", Nested(Receipt), key=3, optional=True),
    )

    stream_seq: int
    msg: Msg
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResponse(Wire):
    """A page of a label, with one proof for its last item if asked for."""

    SHAPE: ClassVar = MapShape(
        "stream_response",
        _VER,
        Field("label", B32, key=2),
        Field("from_seq", UINT, key=3),
        Field("to_seq", UINT, key=4, optional=True),
        Field("items", ListOf(Nested(StreamItem)), key=5),
        Field("next_cursor", UINT, key=6, optional=True),
        Field("mmr_proof", Nested(MmrProof), key=7, optional=True),
        Field("server_version", TEXT, key=8, optional=True),
    )

    label: Label
    from_seq: int
    to_seq: int | None = None
    items: tuple[StreamItem, ...]
    next_cursor: int | None = None
    mmr_proof: MmrProof | None = None
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptRequest(Query):
    """Fetch the receipt of an entry."""

    SHAPE: ClassVar = MapShape(
        "receipt_request", _VER, Field("label", B32, key=2), Field("stream_seq", UINT, key=3)
    )

    label: Label
    stream_seq: int


# The response has the same map as that of a submit.
ReceiptResponse = SubmitResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRequest(Query):
    """Fetch the inclusion proof of an entry, against the root of its own receipt."""

    SHAPE: ClassVar = MapShape(
        "proof_request", _VER, Field("label", B32, key=2), Field("stream_seq", UINT, key=3)
    )

    label: Label
    stream_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofResponse(Wire):
    """An inclusion proof."""

    SHAPE: ClassVar = MapShape(
        "proof_response",
        _VER,
        Field("mmr_proof", Nested(MmrProof), key=2),
        Field("server_version", TEXT, key=3, optional=True),
    )

    mmr_proof: MmrProof
    server_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequest(Query):
    """Fetch the checkpoint of a prefix; the hub signs one if there is none."""

    SHAPE: ClassVar = MapShape(
        "checkpoint_request", _VER, Field("label", B32, key=2), Field("upto_seq", UINT, key=3)
    )

    label: Label
    upto_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResponse(Wire):
    """A checkpoint."""

    SHAPE: ClassVar = MapShape(
        "checkpoint_response",
        _VER,
        Field("checkpoint", Nested(Checkpoint), key=2),
        Field("server_version", TEXT, key=3, optional=True),
    )

    checkpoint: Checkpoint
    server_version: str | None = None
