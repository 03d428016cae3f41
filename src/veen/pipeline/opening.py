"""Opening entries: from verified bytes to the table of records, with the keys that a reader has.

What a reader sees of an entry here is what ``veen.client.reading`` shows of it, word for word. Nothing that a
sender can write raises: an entry that can not be read is a row with a reason.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as aead_decrypt
from nacl.exceptions import CryptoError

from veen.client.bodies import ATTACHMENTS, attachments_of, decode_body
from veen.core import attachments as att
from veen.core.errors import Detail, ProtocolError
from veen.core.hpke import ReaderKey, setup_receiver
from veen.core.kinds import check_envelope
from veen.core.limits import DEFAULT_LIMITS, ENVELOPE_HEAD_BYTES, Limits
from veen.core.msg import Msg
from veen.core.payload import PayloadHeader
from veen.core.profile import Profile
from veen.core.sealing import Opened, open_msg
from veen.core.types import AuthRef, Label, ProfileId, StreamId
from veen.pipeline.contexts import aads, body_nonces
from veen.pipeline.frames import Entries, binary, parse, rows
from veen.pipeline.kernel import Level, check
from veen.pipeline.keyring import Keyring, ReaderKeys, SharedKeys, load_keyring, sharing
from veen.pipeline.records import RECORDS, RECORDS_SCHEMA
from veen.pipeline.typed import numbers_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from veen.pipeline.logs import Log
    from veen.pipeline.parts import Part

__all__ = [
    "Keyring",
    "Opener",
    "ReaderKeys",
    "SharedKeys",
    "load_keyring",
    "open_entries",
    "open_records",
    "sharing",
]

SEALED: Final = "sealed for somebody else"
#: The key does not fit: another one may.
_NOT_THIS_KEY: Final = (Detail.HDR_AEAD, Detail.DH_ZERO)
#: A header that names its schema, and nothing else.
_SCHEMA_ONLY: Final = b"\xa1\x01\x58\x20"
_PLAIN_HEADER_BYTES: Final = len(_SCHEMA_ONLY) + 32
#: A body that lists attachments has this name in it.
_ATTACHMENTS: Final = ATTACHMENTS.encode()
#: What the key of a body is exported for (veen.core.sealing).
_BODY_KEY: Final = b"veen/body-k"


class Content(NamedTuple):
    """What a message says to us; no schema if it does not."""

    schema: bytes | None = None
    parent_id: bytes | None = None
    cap_ref: bytes | None = None
    att_root: bytes | None = None
    expires_at: int | None = None
    body: bytes = b""
    reason: str | None = None

    @classmethod
    def of(cls, header: PayloadHeader, body: bytes, reason: str | None) -> "Content":
        """Return what was opened."""
        return cls(
            header.schema, header.parent_id, header.cap_ref, header.att_root, header.expires_at, body, reason
        )


class Opener:
    """Opens the messages of a stream with any key that fits; the last one that did is tried first."""

    def __init__(
        self, keys: Iterable[ReaderKey], profiles: Iterable[Profile], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._keys = list(keys)
        self._pad_blocks: dict[bytes, int] = {item.profile_id: item.pad_block for item in profiles}
        self._limits = limits

    def open(self, msg: Msg) -> Content:
        """Open a message that was checked."""
        try:
            pad_block = self._pad_block(msg.profile_id)
            opened = self._open(msg, pad_block)
        except ProtocolError as error:
            return Content(reason=f"does not open: {error}")
        if opened is None:
            return Content(reason=SEALED)
        return Content.of(opened.header, opened.body, _problem(opened.header, opened.body, msg.auth_ref))

    def _pad_block(self, profile_id: ProfileId) -> int:
        found = self._pad_blocks.get(profile_id)
        if found is None:
            text = f"the hub does not serve profile {profile_id.hex()}"
            raise ProtocolError(Detail.PROFILE, text, field="profile_id")
        return found

    def _open(self, msg: Msg, pad_block: int) -> Opened | None:
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
        """Open entries that were checked: in two thirds of the time, what ``open`` gives for each."""
        data, bound, nonces = entries.frames.data, aads(entries), body_nonces(entries)
        spans = zip(entries.ct_start.tolist(), entries.ct_end.tolist(), strict=True)
        blocks = [self._pad_blocks.get(name) for name in rows(entries.profile_id)]
        hashes = rows(entries.ct_hash)
        found: list[Content] = []
        for nth, (start, end) in enumerate(spans):
            ciphertext = data[start:end]
            content = None
            if sha256(ciphertext).digest() == hashes[nth]:
                content = self._open_plain(ciphertext, blocks[nth], bound[nth], nonces[nth])
            # Whatever is not plain goes the way of all messages, which says what is wrong.
            found.append(content or self.open(Msg.decode(entries.msg_bytes(nth))))
        return found

    def _open_plain(
        self, ciphertext: bytes, pad_block: int | None, aad: bytes, nonce: bytes
    ) -> Content | None:
        """Open a message that has a schema and a body, and nothing to be compared; None if it is another."""
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
    """Check what only a reader can: a sender may have written anything."""
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
    """Open entries that were checked: a row for each, opened or with the reason why not."""
    contents = Opener(keys.of(stream_id), profiles).open_all(entries)
    return pa.RecordBatch.from_arrays(
        [*_positions(entries, stream_id, epoch), *_said(contents)], schema=RECORDS
    )


def _positions(entries: Entries, stream_id: StreamId | None, epoch: int) -> Iterator[pa.Array]:
    count = len(entries)
    yield _repeated(stream_id, count, pa.binary())
    yield _repeated(epoch, count, pa.int64())
    yield _repeated(bytes(entries.frames.label), count, pa.binary())
    yield pa.array(entries.stream_seq)
    yield binary(entries.leaf_hash)
    yield binary(entries.client_id)
    yield pa.array(entries.client_seq)
    yield pa.array(entries.hub_ts)
    yield entries.receipt_ids()
    yield binary(entries.auth_ref, entries.has_auth_ref)


def _repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - of any column
    return pa.repeat(pa.scalar(value, kind), count)


def _said(contents: list[Content]) -> Iterator[pa.Array]:
    columns = list(zip(*contents, strict=True)) or [()] * len(Content._fields)
    for values in columns[:4]:
        yield pa.array(values, pa.binary())
    yield numbers_of(columns[4])
    yield pa.array(columns[5], pa.binary())
    yield pa.array(columns[6], pa.string())


def open_records(
    spark: "SparkSession",
    log: "Log",
    stream: StreamId,
    keys: SharedKeys,
    *,
    ranges: Mapping[Label, tuple[int, int]] | None = None,
    parts: int = 1,
) -> "DataFrame":
    """Return the entries of a stream, opened; with ``ranges``, only these of these labels.

    Entries are compared with their hashes where they are read. Whether they are the log is for ``verifying``
    to say. The keys must be shared for as long as the table is used.
    """
    epochs = {label: epoch for epoch, label in log.labels_of(stream).items()}
    heads = {label: head for label, head in log.heads().items() if label in epochs}
    whole = {label: (head.first_seq, head.last_seq) for label, head in heads.items()}
    wanted = whole if ranges is None else {label: span for label, span in ranges.items() if label in epochs}
    planned = log.plan(wanted, parts=parts) if wanted else []
    profiles = tuple(log.profiles)
    listed = [(nth, epochs[part.label], pickle.dumps(part)) for nth, part in enumerate(planned)]
    spread = spark.createDataFrame(listed, "nth int, epoch bigint, part binary")
    spread = spread.repartitionByRange(max(len(listed), 1), "nth")
    return spread.mapInArrow(lambda given: _opened(given, keys, profiles, stream), RECORDS_SCHEMA)


def _opened(
    given: Iterable[pa.RecordBatch],
    keys: SharedKeys,
    profiles: tuple[Profile, ...],
    stream: StreamId,
) -> Iterator[pa.RecordBatch]:
    reading = keys.open()
    for batch in given:
        columns = (batch.column(name).to_pylist() for name in ("epoch", "part"))
        for epoch, data in zip(*columns, strict=True):
            part: Part = pickle.loads(data)  # noqa: S301 - our own driver has made it
            entries = parse(part.read())
            for fault in check(entries, Level.FRAMES).faults:
                at = int(entries.starts[fault.seq - part.first_seq])
                raise entries.frames.refused(fault.seq, at, fault.detail, fault.text)
            yield open_entries(entries, reading, profiles, stream, epoch)
