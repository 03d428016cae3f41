"""What the ciphertexts of many entries are bound to, in columns; ``veen.core.context`` says what it is."""

from hashlib import sha256
from typing import Final

import numpy as np

from veen.core.hashing import tag_prefix
from veen.pipeline.frames import Bytes, Entries, Numbers, rows

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
    found = _hashes(
        _repeated(_NONCE_TAG + entries.label, entries),
        _numbers(entries.prev_ack),
        entries.client_id,
        _numbers(entries.client_seq),
    )
    return [item[:_NONCE_BYTES] for item in found]


def _hashes(*columns: Bytes) -> list[bytes]:
    return [sha256(row).digest() for row in rows(np.concatenate(columns, axis=1))]


def _repeated(data: bytes, entries: Entries) -> Bytes:
    fixed = np.frombuffer(data, dtype=np.uint8)
    return np.broadcast_to(fixed, (len(entries), len(fixed)))


def _numbers(values: Numbers) -> Bytes:
    return values.astype(">u8").view(np.uint8).reshape(len(values), 8)
