"""Rows 3 to 9 of admission in a separate process, started by the hub only.

Because of the GIL a process verifies one message at a time, so the hub has one of these per additional core.
Input and output are length-prefixed frames; the first frame has the rules.

    in    u32 length, then for each message: u8 form, u32 length, bytes
    out   u32 length, then for each message: u8 0 and a fixed record, or u8 1, u32 length, error envelope
"""

import json
import struct
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

from veen.admission.stages import Authentic, Sized
from veen.admission.stateless import MessageRules, authenticate, read_msg, read_request
from veen.core.errors import ProtocolError
from veen.core.limits import SUBMIT_ENVELOPE_BYTES, Limits
from veen.core.objects.error_envelope import ErrorEnvelope, envelope_of
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, Label, LeafHash, ProfileId, VerifyKey
from veen.hub.submit.submission import MessageForm, Submission

LENGTH: Final = struct.Struct(">I")
_MESSAGE: Final = struct.Struct(">cI")
_ACCEPTED: Final = struct.Struct(">B32s32sQQB32s32s")
_REFUSED: Final = struct.Struct(">BI")
_READ: Final = {MessageForm.REQUEST: read_request, MessageForm.MSG: read_msg}


def verify(form: MessageForm, body: Sized, rules: MessageRules) -> Authentic:
    """Verify a message by the stateless rows."""
    return authenticate(_READ[form](body, rules))


def msg_bytes(form: MessageForm, body: bytes) -> bytes:
    """Return the message in a submission; requests are canonical, so their envelopes have the same length."""
    return body[SUBMIT_ENVELOPE_BYTES:] if form is MessageForm.REQUEST else body


def encode_rules(rules: MessageRules) -> bytes:
    """Return the first frame, with the rules."""
    limits = {name: getattr(rules.limits, name) for name in Limits.__dataclass_fields__}
    pads = {key.hex(): value for key, value in rules.pad_blocks.items()}
    return _framed(json.dumps({"limits": limits, "pad_blocks": pads}).encode())


def _decode_rules(data: bytes) -> MessageRules:
    read = json.loads(data)
    pads = {ProfileId(bytes.fromhex(key)): value for key, value in read["pad_blocks"].items()}
    return MessageRules(Limits(**read["limits"]), pads)


def encode_batch(batch: list[Submission]) -> bytes:
    """Return a frame of messages to verify."""
    parts: list[bytes] = []
    for item in batch:
        parts += (_MESSAGE.pack(item.form.value, len(item.body)), item.body)
    return _framed(b"".join(parts))


def _decode_batch(data: bytes) -> Iterator[tuple[MessageForm, Sized]]:
    """Yield the messages of a frame; the hub sends only those that have passed the prefilter."""
    at = 0
    while at < len(data):
        form, length = _MESSAGE.unpack_from(data, at)
        at += _MESSAGE.size
        yield MessageForm(form), Sized(data[at : at + length])
        at += length


def _encode_verdict(form: MessageForm, body: Sized, rules: MessageRules) -> bytes:
    try:
        record = verify(form, body, rules)
    except ProtocolError as error:
        envelope = envelope_of(error).encode()
        return _REFUSED.pack(1, len(envelope)) + envelope
    assert record.client_id is not None
    return _ACCEPTED.pack(
        0,
        record.label,
        record.client_id,
        record.client_seq,
        record.prev_ack,
        record.auth_ref is not None,
        record.auth_ref or bytes(32),
        record.leaf_hash,
    )


def decode_verdicts(data: bytes, batch: list[Submission]) -> None:
    """Set the record or error of each submission from a frame of verdicts."""
    at = 0
    for item in batch:
        if data[at]:
            _, length = _REFUSED.unpack_from(data, at)
            at += _REFUSED.size
            item.error = ErrorEnvelope.decode(data[at : at + length])
            at += length
            continue
        _, label, client_id, client_seq, prev_ack, has_auth, auth_ref, leaf = _ACCEPTED.unpack_from(data, at)
        at += _ACCEPTED.size
        item.record = Authentic(
            NewEntry(
                Label(label),
                msg_bytes(item.form, item.body),
                LeafHash(leaf),
                VerifyKey(client_id),
                client_seq,
                prev_ack,
                AuthRef(auth_ref) if has_auth else None,
            )
        )


def _framed(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def _read_frame(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return source.read(LENGTH.unpack(head)[0])


def main(source: BinaryIO, sink: BinaryIO) -> None:
    """Verify batches until the input ends."""
    first = _read_frame(source)
    if first is None:
        return
    rules = _decode_rules(first)
    while (batch := _read_frame(source)) is not None:
        sink.write(
            _framed(b"".join(_encode_verdict(form, body, rules) for form, body in _decode_batch(batch)))
        )
        sink.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
