"""The values that programs pass to a client and get from it: drafts, sent messages, read messages."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from veen.client.body import DEFAULT_SCHEMA, Attachment, encode_body, with_attachments
from veen.client.errors import BodyError
from veen.client.keys.identity_card import IdentityCard
from veen.core.encoding.cbor import Value
from veen.core.encoding.hexadecimal import is_hex32, parse_hex32
from veen.core.errors import Detail, ProtocolError
from veen.core.objects import attachment as att
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.objects.proof_of_work import PowCookie
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import OpenedPayload
from veen.core.types import AuthRef, LeafHash, ProfileId, ReaderPublicKey, SchemaId, VerifyKey
from veen.overlays.schema import Schema
from veen.stdx.atomic_file import write_file

# Mode of a saved receipt, which is not secret; the umask applies.
_RECEIPT_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class Message:
    """A verified entry of a stream, with its content if this client can decrypt it.

    Attributes:
        epoch: The epoch of the log that the entry is in; 0 where labels do not rotate.
        msg: The signed message.
        receipt: The hub's receipt.
        header: Schema, parent and expiry; None if the content could not be decrypted.
        body: The decoded body.
        attachments: The attachments that the body declares.
        problem: Why the content is missing or must not be relied on; None if there is no problem.
    """

    epoch: int
    msg: Msg
    receipt: Receipt
    header: PayloadHeader | None = None
    body: Value = None
    attachments: tuple[Attachment, ...] = ()
    problem: str | None = None
    _opened: OpenedPayload | None = field(default=None, repr=False)

    @property
    def position(self) -> int:
        """The number of the entry in the log of its epoch, counted from 1."""
        return self.receipt.stream_seq

    @property
    def timestamp(self) -> int:
        """When the hub accepted the message, in seconds since 1970."""
        return self.receipt.hub_ts

    @property
    def sender(self) -> VerifyKey:
        """The client key that signed the message."""
        return self.msg.client_id

    @property
    def msg_id(self) -> LeafHash:
        """The id of the message."""
        return self.receipt.leaf_hash

    @property
    def is_open(self) -> bool:
        """Whether this client could decrypt the content."""
        return self._opened is not None

    def raw_body(self) -> bytes:
        """Return the encoded body; empty if the content could not be decrypted.

        Example:
            digest = hashlib.sha256(message.raw_body()).hexdigest()
        """
        return b"" if self._opened is None else self._opened.body

    def open_attachment(self, index: int, sealed: bytes) -> bytes:
        """Decrypt a fetched attachment.

        Example:
            data = message.open_attachment(0, Path("attachment.sealed").read_bytes())

        Raises:
            ProtocolError: The bytes are not this attachment of this message.
        """
        declared = self.attachments[index]
        if self._opened is None or att.coid(sealed) != declared.coid:
            raise ProtocolError(Detail.ATT_ROOT, f"this is not attachment {index}", field="attachments")
        return self._opened.open_attachment(index, sealed)


# The recipient of a sealed message: the owner of a card, or a key of a card, hub or stream.
Recipient = IdentityCard | ReaderPublicKey


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to send.

    Attributes:
        body: What deterministic CBOR can represent.
        schema: Name or id of the body's schema, or the Schema that checks and encodes it.
        parent_id: The message that this one answers, or its id.
        expires_at: When readers should ignore it: seconds since 1970, or a datetime with a time zone.
        attachments: Paths of files, or their content.
        encoded: The encoded body, instead of ``body``; it has to declare its attachments itself. A function
            is called once the client's sequence number is known, so that the body may contain it.
    """

    body: Value
    schema: str | Schema | SchemaId | None = None
    parent_id: "LeafHash | Message | Sent | None" = None
    expires_at: int | datetime | None = None
    attachments: tuple[str | os.PathLike[str] | bytes, ...] = ()
    encoded: bytes | Callable[[MsgContext], bytes] | None = None

    def header(self, cap_ref: AuthRef | None) -> PayloadHeader:
        """Return the header that is sealed with the body.

        Example:
            header = Draft({"item": "tea"}, schema="order.v1").header(None)

        Raises:
            ValueError: ``expires_at`` is a datetime without a time zone.
        """
        parent = self.parent_id
        return PayloadHeader(
            schema=schema_id_of(self.schema),
            parent_id=parent.msg_id if isinstance(parent, Message | Sent) else parent,
            cap_ref=cap_ref,
            expires_at=_seconds(self.expires_at),
        )

    def encode(self, context: MsgContext, attached: Sequence[Attachment]) -> bytes:
        """Return the encoded body.

        Example:
            data = Draft({"item": "tea"}).encode(context, ())

        Raises:
            BodyError: CBOR cannot represent it.
            InvalidBodyError: Its Schema rejects it.
        """
        if self.encoded is not None:
            return self.encoded(context) if callable(self.encoded) else self.encoded
        body = with_attachments(self.body, attached) if attached else self.body
        if isinstance(self.schema, Schema):
            return _encode_typed(self.schema, body)
        return encode_body(body)


def schema_id_of(schema: str | Schema | SchemaId | None) -> SchemaId:
    """Return the id of a schema, from its name, id or declaration; for None, that of plain values."""
    match schema:
        case None:
            return labels.schema_id(DEFAULT_SCHEMA)
        case Schema():
            return schema.schema_id
        case str():
            return SchemaId(parse_hex32(schema)) if is_hex32(schema) else labels.schema_id(schema)
    return schema


def _encode_typed(schema: Schema, body: Any) -> bytes:  # noqa: ANN401 - what a caller passes
    if not isinstance(body, Mapping):
        raise BodyError(f"a body of {schema.name} is a map of its fields, not {type(body).__name__}")
    return schema.encode(schema.make(**body))


def _seconds(time: int | datetime | None) -> int | None:
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise ValueError("expires_at has no time zone; use datetime(..., tzinfo=timezone.utc)")
    return int(time.timestamp())


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How messages are sent.

    Attributes:
        to: The recipient. Default: the members of the stream, or the client itself.
        token: Capability token to use. Default: the one that the client stores for the stream.
        profile_id: The profile to use. Default: the first one of the hub.
        as_identity: Sign with the identity key, for example as an administrator.
        pow_cookie: A proof of work that was computed before.
        store_body: Store the sealed message in the client directory too.
        keep_key: Do not rotate the client key before sending: readers know the sender by it.
    """

    to: Recipient | None = None
    token: CapToken | None = None
    profile_id: ProfileId | None = None
    as_identity: bool = False
    pow_cookie: PowCookie | None = None
    store_body: bool = True
    keep_key: bool = False


NO_OPTIONS: Final = SendOptions()


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that the hub has accepted, with its verified receipt.

    Attributes:
        msg: The signed message.
        receipt: The hub's receipt.
        epoch: The epoch of the log that the message is in; 0 where labels do not rotate.
        attachments: The attachments of the message.
    """

    msg: Msg
    receipt: Receipt
    epoch: int
    attachments: tuple[Attachment, ...] = ()

    @property
    def position(self) -> int:
        """The number of the entry in the log of its epoch, counted from 1."""
        return self.receipt.stream_seq

    @property
    def timestamp(self) -> int:
        """When the hub accepted the message, in seconds since 1970."""
        return self.receipt.hub_ts

    @property
    def msg_id(self) -> LeafHash:
        """The id of the message."""
        return self.receipt.leaf_hash

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the receipt to a file, for ``veen.verify_receipt`` and ``veen verify-receipt``.

        Example:
            client.send("orders", {"item": "tea"}).save("tea.receipt")

        Raises:
            OSError: The file cannot be written.
        """
        write_file(Path(path), self.receipt.encode(), _RECEIPT_MODE)
