"""From rows of the bronze table back to the entries of the log, byte by byte."""

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from veen.core import cbor
from veen.core.entry import entry_hash
from veen.core.types import Label
from veen.pipeline.frames import Frames

_HEADER: Final = struct.Struct(">BB32sQII32s")
_HEAD_32: Final = b"\x58\x20"
_HEAD_64: Final = b"\x58\x40"
_MSG: Final = b"\x8a\x01" + _HEAD_32
_RECEIPT: Final = b"\x87\x01" + _HEAD_32
_NULL: Final = b"\xf6"


def framed(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield entries as they are stored. Encodings are canonical: fields have one."""
    columns = {name: batch.column(name).to_pylist() for name in _FIELDS}
    number = cbor.write_uint
    for row in zip(*columns.values(), strict=True):
        label, seq, profile, client, client_seq, ack, auth, ct_hash, sealed, sig, leaf, root, ts, hub_sig = (
            row
        )
        msg = b"".join(
            (
                _MSG,
                profile,
                _HEAD_32,
                label,
                _HEAD_32,
                client,
                number(client_seq),
                number(ack),
                _NULL if auth is None else _HEAD_32 + auth,
                _HEAD_32,
                ct_hash,
                cbor.write_bytes(sealed),
                _HEAD_64,
                sig,
            )
        )
        said = (_RECEIPT, label, number(seq), _HEAD_32, leaf, _HEAD_32, root, number(ts), _HEAD_64, hub_sig)
        receipt = b"".join(said)
        header = _HEADER.pack(1, 0, label, seq, len(msg), len(receipt), entry_hash(msg, receipt))
        yield header + msg + receipt


_FIELDS: Final = (
    "label",
    "stream_seq",
    "profile_id",
    "client_id",
    "client_seq",
    "prev_ack",
    "auth_ref",
    "ct_hash",
    "ciphertext",
    "sig",
    "leaf_hash",
    "mmr_root",
    "hub_ts",
    "hub_sig",
)


def frames_of(label: Label, batch: pa.RecordBatch, file: str) -> Frames:
    """Return rows of a label, which follow each other, as a part of the log."""
    return Frames(label, batch.column("stream_seq")[0].as_py(), b"".join(framed(batch)), file, None)
