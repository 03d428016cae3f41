"""Attachments: content ids and their root (001 section 4.6; decisions C-08 to C-10).

Attachment ciphertexts are sent separately from the message and are addressed by coid = H(ciphertext).
The hub never sees count or sizes; senders and readers check them.
"""

from collections.abc import Sequence
from typing import Final

from veen.core.crypto.hash import sha256, tag_prefix, tagged_hash
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import AEAD_TAG_BYTES, Limits
from veen.core.merkle.mmr import Peaks
from veen.core.types import Coid, NodeHash
from veen.stdx.grammar import counted

_NODE_TAG: Final = tag_prefix("veen/att-node")
_ROOT_TAG: Final = "veen/att-root"


def coid(sealed: bytes) -> Coid:
    """Return the id of an attachment: the hash of its ciphertext."""
    return Coid(sha256(sealed))


def att_root(coids: Sequence[Coid]) -> bytes:
    """Return the root over coids in index order.

    Unlike the root of a log it is always hashed, for one peak and for none too (C-09).
    """
    peaks = Peaks.empty()
    for coid in coids:
        peaks = peaks.append(NodeHash(coid), tag=_NODE_TAG)
    return tagged_hash(_ROOT_TAG, b"".join(peaks.hashes))


# The root of no attachments: a header omits att_root, or it is this (ATT-008).
EMPTY_ATT_ROOT: Final = sha256(tag_prefix(_ROOT_TAG))


def verify_root(declared: bytes | None, coids: Sequence[Coid]) -> None:
    """Check the att_root of a payload header against the attachments at hand (invariant I5; row 8)."""
    if declared is None and not coids:
        return
    if declared != att_root(coids):
        raise ProtocolError(Detail.ATT_ROOT, "att_root does not match the attachments", field="att_root")


def check_size(index: int, size: int, limits: Limits) -> None:
    """Check the index and the plaintext size of an attachment against the limits (ATT-010)."""
    for what, actual, allowed in (
        ("number of attachments", index + 1, limits.max_attachments_per_msg),
        (f"size of attachment {index}", size, limits.max_attachment_bytes),
    ):
        if actual > allowed:
            raise ProtocolError(
                Detail.FIELD_SIZE,
                f"{what} exceeds {allowed}",
                field="attachments",
                actual=actual,
                max_allowed=allowed,
            )


def check_counts(sealed: Sequence[bytes], sizes: Sequence[int], limits: Limits) -> None:
    """Check supplied ciphertexts against the plaintext sizes that the body declares (ATT-009)."""
    for index, size in enumerate(sizes):
        check_size(index, size, limits)
    if len(sealed) != len(sizes):
        raise ProtocolError(
            Detail.ATT_ROOT,
            f"{counted(len(sealed), 'attachment')} supplied, {len(sizes)} declared",
            field="attachments",
            expected=len(sizes),
            actual=len(sealed),
        )
    for index, (item, size) in enumerate(zip(sealed, sizes, strict=True)):
        if len(item) != size + AEAD_TAG_BYTES:
            raise ProtocolError(
                Detail.ATT_ROOT,
                f"attachment {index} has {counted(len(item), 'byte')}, {size} and a tag declared",
                field="attachments",
                expected=size + AEAD_TAG_BYTES,
                actual=len(item),
            )
