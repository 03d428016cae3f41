"""Decrypt entries: from verified bytes to the table of records, with a reader's keys.

The contents and texts are those of ``veen.client.read``. Nothing that a sender can write raises an error: an
entry that cannot be read is a row with a reason.

Associated data and nonces are computed in columns; ``veen.core.objects.msg`` defines them.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as aead_decrypt
from nacl.exceptions import CryptoError

from veen.client.body import ATTACHMENTS, attachments_of, decode_body
from veen.core.crypto.hash import tag_prefix
from veen.core.crypto.hpke import ReaderKey, setup_receiver
from veen.core.encoding.field_types import check_envelope
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, ENVELOPE_HEAD_BYTES, Limits
from veen.core.objects import attachment as att
from veen.core.objects.msg import Msg, PayloadHeader
from veen.core.objects.sealed_payload import OpenedPayload, open_msg
from veen.core.profile import Profile
from veen.core.types import AuthRef, ProfileId, StreamId
from veen.pipeline.log.entry_columns import Bytes, Entries, Numbers, binary, rows
from veen.pipeline.open.keyring import ReaderKeys
from veen.pipeline.open.records import RECORDS
from veen.pipeline.open.typed_columns import numbers_of

__all__ = ["SEALED", "Opener", "open_entries"]

_AAD_TAG: Final = tag_prefix("veen/aad")
_NONCE_TAG: Final = tag_prefix("veen/nonce")
_NONCE_BYTES: Final = 24


def aads(entries: Entries) -> list[bytes]:
    """Return the associated data of each message's header and body."""
    auth = np.where(entries.has_auth_ref[:, None], entries.auth_ref, np.uint8(0))
    return _hashes(
        _repeated(_AAD_TAG, entries),
        entries.profile_id,
        _repeated(entries.label, entries),
        entries.client_id,
        _numbers(entries.client_seq),
        _numbers(entries.prev_ack),
        auth,
    )


def body_nonces(entries: Entries) -> list[bytes]:
    """Return the nonce of each message's body."""
    hashes = _hashes(
        _repeated(_NONCE_TAG + entries.label, entries),
        _numbers(entries.prev_ack),
        entries.client_id,
        _numbers(entries.client_seq),
    )
    return [item[:_NONCE_BYTES] for item in hashes]


def _hashes(*columns: Bytes) -> list[bytes]:
    return [sha256(row).digest() for row in rows(np.concatenate(columns, axis=1))]


def _repeated(data: bytes, entries: Entries) -> Bytes:
    fixed = np.frombuffer(data, dtype=np.uint8)
    return np.broadcast_to(fixed, (len(entries), len(fixed)))


def _numbers(values: Numbers) -> Bytes:
    return values.astype(">u8").view(np.uint8).reshape(len(values), 8)


# Rows of lakes contain this text and are selected by it: a change needs a new lake format.
SEALED: Final = "sealed to another reader"
# The errors of a wrong key; another key may fit.
_NOT_THIS_KEY: Final = (Detail.HDR_AEAD, Detail.DH_ZERO)
# The start of a header that has a schema and nothing else.
_SCHEMA_ONLY: Final = b"\xa1\x01\x58\x20"
_PLAIN_HEADER_BYTES: Final = len(_SCHEMA_ONLY) + 32
# Every body that lists attachments contains this name.
_ATTACHMENTS: Final = ATTACHMENTS.encode()
# The export label of body keys (veen.core.objects.sealed_payload).
_BODY_KEY: Final = b"veen/body-k"


class Content(NamedTuple):
    """The contents of a message; without a schema if it could not be opened, for ``reason``."""

    schema: bytes | None = None
    parent_id: bytes | None = None
    cap_ref: bytes | None = None
    att_root: bytes | None = None
    expires_at: int | None = None
    body: bytes = b""
    reason: str | None = None

    @classmethod
    def of(cls, header: PayloadHeader, body: bytes, reason: str | None) -> "Content":
        return cls(
            header.schema, header.parent_id, header.cap_ref, header.att_root, header.expires_at, body, reason
        )


class Opener:
    """Opens the messages of a stream with any key that fits; the last one that fitted is tried first."""

    def __init__(
        self, keys: Iterable[ReaderKey], profiles: Iterable[Profile], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._keys = list(keys)
        self._pad_blocks: dict[bytes, int] = {item.profile_id: item.pad_block for item in profiles}
        self._limits = limits

    def open(self, msg: Msg) -> Content:
        """Open a verified message."""
        try:
            pad_block = self._pad_block(msg.profile_id)
            opened = self._open(msg, pad_block)
        except ProtocolError as error:
            return Content(reason=f"does not open: {error}")
        if opened is None:
            return Content(reason=SEALED)
        return Content.of(opened.header, opened.body, _problem(opened.header, opened.body, msg.auth_ref))

    def _pad_block(self, profile_id: ProfileId) -> int:
        pad_block = self._pad_blocks.get(profile_id)
        if pad_block is None:
            text = f"the hub does not serve profile {profile_id.hex()}"
            raise ProtocolError(Detail.PROFILE, text, field="profile_id")
        return pad_block

    def _open(self, msg: Msg, pad_block: int) -> OpenedPayload | None:
        for nth, key in enumerate(self._keys):
            try:
                opened = open_msg(msg, key, pad_block=pad_block, limits=self._limits)
            except ProtocolError as error:
                if error.detail not in _NOT_THIS_KEY:
                    raise
                continue
            self._prefer(nth)
            return opened
        return None

    def _prefer(self, nth: int) -> None:
        if nth:
            self._keys.insert(0, self._keys.pop(nth))

    # --- many at once ---------------------------------------------------------------------------------------

    def open_all(self, entries: Entries) -> list[Content]:
        """Open verified entries: the same results as ``open`` for each, in two thirds of the time."""
        data, bound, nonces = entries.frames.data, aads(entries), body_nonces(entries)
        spans = zip(entries.ct_start.tolist(), entries.ct_end.tolist(), strict=True)
        blocks = [self._pad_blocks.get(name) for name in rows(entries.profile_id)]
        hashes = rows(entries.ct_hash)
        contents: list[Content] = []
        for nth, (start, end) in enumerate(spans):
            ciphertext = data[start:end]
            content = None
            if sha256(ciphertext).digest() == hashes[nth]:
                content = self._open_plain(ciphertext, blocks[nth], bound[nth], nonces[nth])
            # All other messages are opened by ``open``, which gives the reason for those that fail.
            contents.append(content or self.open(Msg.decode(entries.msg_bytes(nth))))
        return contents

    def _open_plain(
        self, ciphertext: bytes, pad_block: int | None, aad: bytes, nonce: bytes
    ) -> Content | None:
        """Open a message with a schema, a body and no fields that need checks; None for other messages."""
        try:
            check_envelope(ciphertext, self._limits)
        except ProtocolError:
            return None
        body_at = ENVELOPE_HEAD_BYTES + int.from_bytes(ciphertext[32:36], "big")
        end = body_at + int.from_bytes(ciphertext[36:40], "big")
        padding = len(ciphertext) - end
        if pad_block is None or ciphertext.count(0, end) != padding:
            return None
        if pad_block and len(ciphertext) % pad_block:
            return None
        enc, sealed = ciphertext[:32], ciphertext[ENVELOPE_HEAD_BYTES:body_at]
        for nth, key in enumerate(self._keys):
            try:
                context = setup_receiver(enc, key)
                header = context.open(aad, sealed)
            except ProtocolError:
                continue
            if len(header) != _PLAIN_HEADER_BYTES or not header.startswith(_SCHEMA_ONLY):
                return None
            try:
                body = aead_decrypt(ciphertext[body_at:end], aad, nonce, context.export(_BODY_KEY))
            except (CryptoError, ValueError):
                return None
            if _ATTACHMENTS in body:
                return None
            self._prefer(nth)
            return Content(schema=header[len(_SCHEMA_ONLY) :], body=body)
        return Content(reason=SEALED) if self._keys else None


def _problem(header: PayloadHeader, body: bytes, auth_ref: AuthRef | None) -> str | None:
    """Check what only a reader can check: a sender may have written anything."""
    try:
        header.verify_cap_ref(auth_ref)
        listed = attachments_of(decode_body(body))
        att.verify_root(header.att_root, [item.coid for item in listed])
    except ProtocolError as error:
        return str(error)
    return None


def open_entries(
    entries: Entries,
    keys: ReaderKeys,
    profiles: Iterable[Profile],
    stream_id: StreamId | None,
    epoch: int,
) -> pa.RecordBatch:
    """Open verified entries: a row for each, with its contents or the reason why it could not be opened."""
    contents = Opener(keys.of(stream_id), profiles).open_all(entries)
    return pa.RecordBatch.from_arrays(
        [*_positions(entries, stream_id, epoch), *_said(contents)], schema=RECORDS
    )


def _positions(entries: Entries, stream_id: StreamId | None, epoch: int) -> Iterator[pa.Array]:
    count = len(entries)
    yield _constant(stream_id, count, pa.binary())
    yield _constant(epoch, count, pa.int64())
    yield _constant(bytes(entries.frames.label), count, pa.binary())
    yield pa.array(entries.stream_seq)
    yield binary(entries.leaf_hash)
    yield binary(entries.client_id)
    yield pa.array(entries.client_seq)
    yield pa.array(entries.hub_ts)
    yield entries.receipt_ids()
    yield binary(entries.auth_ref, entries.has_auth_ref)


def _constant(value: Any, count: int, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - of any column
    return pa.repeat(pa.scalar(value, kind), count)


def _said(contents: list[Content]) -> Iterator[pa.Array]:
    columns = list(zip(*contents, strict=True)) or [()] * len(Content._fields)
    for values in columns[:4]:
        yield pa.array(values, pa.binary())
    yield numbers_of(columns[4])
    yield pa.array(columns[5], pa.binary())
    yield pa.array(columns[6], pa.string())
