"""The limit registry: every bound of the protocol, by name, with its reason (001 section 14; C-86).

A registry is fixed for the life of a hub process and stored in its data directory. The protocol's
maxima may be lowered, never raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from veen.core.crypto.hash import U64_MAX
from veen.core.errors import Detail, ProtocolError

# Proof path: an MMR of 2^64 leaves is at most this high.
MAX_PROOF_PATH: Final = 64
# Signatures in the chain of a capability token: one mint and seven renewals (C-48).
MAX_CAP_CHAIN: Final = 8
# Witness signatures on a checkpoint; two during a key rotation, room for independent witnesses.
MAX_WITNESS_SIGS: Final = 64
# ``enc`` and the two length fields in front of the sealed header and body.
ENVELOPE_HEAD_BYTES: Final = 40
# Poly1305 tag of every AEAD in use.
AEAD_TAG_BYTES: Final = 16
# Canonical bytes a submit request adds to its MSG: a2 01 01 02 (C-12).
SUBMIT_ENVELOPE_BYTES: Final = 4
# Largest encoded RECEIPT (RCPT-010).
MAX_RECEIPT_BYTES: Final = 188
# Header of a framed log entry (001 section 4.8.1).
ENTRY_HEADER_BYTES: Final = 82
# Labels of this many epochs on each side are tried to distinguish a stale epoch from a foreign label (C-32).
EPOCH_PROBE: Final = 16

_MIN_SKEW_SEC: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A limit registry; the defaults are the protocol's maxima where there are any."""

    max_msg_bytes: int = 1_048_576
    max_hdr_bytes: int = 16_384
    max_body_bytes: int = 1_048_320
    max_attachments_per_msg: int = 1_024
    max_attachment_bytes: int = 16_777_216
    max_chunk_bytes: int = 67_108_864
    max_checkpoint_interval: int = 65_536
    max_cap_rate_per_sec: int = 10_000
    max_cap_rate_burst: int = 20_000
    max_epoch_skew_sec: int = _MIN_SKEW_SEC
    max_cap_stream_ids: int = 256
    max_cap_bytes: int = 16_384

    def __post_init__(self) -> None:
        """Reject a registry that raises a protocol maximum, or whose chunks cannot hold the largest entry."""
        mistakes = [mistake for name in REASONS if (mistake := self._mistake(name))]
        needed = self.max_msg_bytes + ENTRY_HEADER_BYTES + MAX_RECEIPT_BYTES
        if self.max_chunk_bytes < needed:  # CHK-007: the largest entry must fit in a chunk
            mistakes.append(f"max_chunk_bytes must be at least {needed} (max_msg_bytes and its frame)")
        if mistakes:  # all at once, so that an operator can fix them in one go
            raise ProtocolError(Detail.VALUE, "; ".join(mistakes), field="limits")

    def _mistake(self, name: str) -> str | None:
        value: int = getattr(self, name)
        lowest = 0 if name == "max_epoch_skew_sec" else 1
        highest = PROTOCOL_MAXIMA.get(name, U64_MAX)
        if lowest <= value <= highest:
            return None
        return f"{name} must be between {lowest} and {highest}, not {value}"

    @property
    def max_submit_bytes(self) -> int:
        """The largest submit request: row 1 of admission compares the request body with it."""
        return self.max_msg_bytes + SUBMIT_ENVELOPE_BYTES

    @property
    def max_plain_body_bytes(self) -> int:
        """The largest body a sender may seal: the limit on body_len counts the tag (C-12)."""
        return self.max_body_bytes - AEAD_TAG_BYTES


# 001 section 14: may be lowered, never raised (LIM-007). The rest of the registry has no maximum.
PROTOCOL_MAXIMA: Final[Mapping[str, int]] = MappingProxyType(
    {
        "max_msg_bytes": 1_048_576,
        "max_hdr_bytes": 16_384,
        "max_body_bytes": 1_048_320,
        "max_attachments_per_msg": 1_024,
    }
)

# Why each limit is there; the reference page is generated from this.
REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max_msg_bytes": "encoded MSG, padding included; the limit that large bodies reach first",
        "max_hdr_bytes": "sealed payload header (hdr_len), tag included",
        "max_body_bytes": "sealed body (body_len), tag included; plaintext may have 16 bytes less",
        "max_attachments_per_msg": "attachments of one message; checked by senders and readers",
        "max_attachment_bytes": "plaintext of one attachment",
        "max_chunk_bytes": "a chunk file, uncompressed; a chunk rolls before it would exceed this",
        "max_checkpoint_interval": "entries of a chunk; it rolls after this many",
        "max_cap_rate_per_sec": "refill of a token bucket; a larger rate in a token is clamped to it",
        "max_cap_rate_burst": "size of a token bucket; a larger burst in a token is clamped to it",
        "max_epoch_skew_sec": "how far a label's epoch may be from the hub's, in whole epochs",
        "max_cap_stream_ids": "streams that one token may name; bounds the label look-up per message",
        "max_cap_bytes": "encoded capability token",
    }
)
assert set(REASONS) == {field.name for field in fields(Limits)}, "every limit has its reason"

DEFAULT_LIMITS: Final = Limits()


def default_limits(epoch_sec: int) -> Limits:
    """Return the defaults for a profile: the skew is one epoch, but at least a minute (C-86)."""
    return Limits(max_epoch_skew_sec=max(epoch_sec, _MIN_SKEW_SEC))
