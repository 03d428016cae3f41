"""Anchors: what ties the root of a label to something that its hub cannot change afterwards (ANCHOR0).

A backend publishes ``anchor_digest``; its result is stored as ``anchor_ref`` beside the checkpoint.
The file ledger is a hash chain of its own; for a time stamp (RFC 3161) an authority signs the digest.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from veen.core.crypto.hash import HASH_BYTES, ZERO_32, tagged_hash, u64be
from veen.core.encoding.field_types import B32, BYTES, TEXT, UINT, VER
from veen.core.encoding.shape import ArrayShape, Field, MapShape
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.types import Label, NodeHash
from veen.stdx.grammar import counted

FILE: Final = "file"
RFC3161: Final = "rfc3161"
# Enough not to be guessed; at most the size of a hash.
MIN_NONCE_BYTES: Final = 16
MAX_NONCE_BYTES: Final = 32
# A time stamp with the certificates of its authority has a few kilobytes.
MAX_TOKEN_BYTES: Final = 64 << 10
# Head, ver, three numbers of nine bytes, two hashes and a nonce with their heads.
MAX_ENTRY_BYTES: Final = 2 + 3 * 9 + 2 * (2 + HASH_BYTES) + 2 + MAX_NONCE_BYTES


def anchor_digest(root: NodeHash, epoch: int, ts: int, nonce: bytes) -> bytes:
    """Return the value to publish, unique for each root, epoch, time and nonce (last: its length varies)."""
    check_nonce(nonce)
    if len(root) != HASH_BYTES:
        raise ProtocolError(
            Detail.FIELD_SIZE,
            f"a root of {counted(len(root), 'byte')}",
            field="mmr_root",
            expected=HASH_BYTES,
        )
    return tagged_hash("veen/anchor", root + u64be(epoch) + u64be(ts) + nonce)


def check_nonce(nonce: bytes) -> None:
    """Reject a nonce of a wrong length."""
    if not MIN_NONCE_BYTES <= len(nonce) <= MAX_NONCE_BYTES:
        raise ProtocolError(
            Detail.VALUE,
            f"a nonce must have {MIN_NONCE_BYTES} to {MAX_NONCE_BYTES} bytes, not {len(nonce)}",
            field="nonce",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry(Wire):
    """One entry of a file ledger; it has the hash of the entry before it."""

    SHAPE: ClassVar = ArrayShape(
        "anchor_entry",
        Field("ver", VER),
        Field("index", UINT),
        Field("prev_hash", B32),
        Field("mmr_root", B32),
        Field("epoch", UINT),
        Field("ts", UINT),
        Field("nonce", BYTES),
    )

    # Counted from 0.
    index: int
    # 32 zero bytes in the first entry.
    prev_hash: bytes
    mmr_root: NodeHash
    epoch: int
    ts: int
    nonce: bytes

    def _validate(self) -> None:
        check_nonce(self.nonce)
        if self.index == 0 and self.prev_hash != ZERO_32:
            raise ProtocolError(Detail.VALUE, "prev_hash of the first entry must be zero", field="prev_hash")

    @property
    def entry_hash(self) -> bytes:
        """The hash by which the next entry and anchor_refs refer to this one."""
        return tagged_hash("veen/anchor-entry", self.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHead(Wire):
    """The acknowledged part of a file ledger: bytes after it may be of an incomplete write."""

    SHAPE: ClassVar = MapShape(
        "anchor_ledger_head",
        Field("ver", VER, key=1),
        Field("count", UINT, key=2),
        Field("size", UINT, key=3),
        Field("last_hash", B32, key=4),
    )

    count: int
    size: int
    last_hash: bytes

    def _validate(self) -> None:
        if not self.count and (self.size or self.last_hash != ZERO_32):
            raise ProtocolError(Detail.VALUE, "an empty ledger has no bytes and no entry", field="count")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorRef(Wire):
    """anchor_ref: where a root was published, and the inputs of its digest."""

    SHAPE: ClassVar = MapShape(
        "anchor_ref",
        Field("ver", VER, key=1),
        Field("backend", TEXT, key=2),
        Field("epoch", UINT, key=3),
        Field("ts", UINT, key=4),
        Field("nonce", BYTES, key=5),
        Field("index", UINT, key=6, optional=True),
        Field("entry_hash", B32, key=7, optional=True),
        Field("token", BYTES, key=8, optional=True),
    )

    backend: str
    epoch: int
    ts: int
    nonce: bytes
    # File ledger only: the entry and its hash.
    index: int | None = None
    entry_hash: bytes | None = None
    # Time stamp only: the authority's response in DER.
    token: bytes | None = None

    def _validate(self) -> None:
        check_nonce(self.nonce)
        has = (self.index is not None, self.entry_hash is not None, self.token is not None)
        expected = {FILE: (True, True, False), RFC3161: (False, False, True)}.get(self.backend)
        if expected is None:
            raise ProtocolError(Detail.VALUE, f"unknown backend {self.backend!r}", field="backend")
        if has != expected:
            raise ProtocolError(
                Detail.VALUE, f"the fields do not fit the backend {self.backend}", field="backend"
            )
        if self.token is not None and not 0 < len(self.token) <= MAX_TOKEN_BYTES:
            raise ProtocolError(
                Detail.VALUE, f"a time stamp of {counted(len(self.token), 'byte')}", field="token"
            )

    def digest(self, root: NodeHash) -> bytes:
        """Return the digest that was published if the anchor is for this root."""
        return anchor_digest(root, self.epoch, self.ts, self.nonce)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorRecord(Wire):
    """A file in anchors/: the anchor of a checkpoint (which has no field for it)."""

    SHAPE: ClassVar = MapShape(
        "anchor_record",
        Field("ver", VER, key=1),
        Field("label", B32, key=2),
        Field("upto_seq", UINT, key=3),
        Field("mmr_root", B32, key=4),
        Field("anchor_ref", BYTES, key=5),
    )

    label: Label
    upto_seq: int
    mmr_root: NodeHash
    anchor_ref: bytes

    def _validate(self) -> None:
        if self.upto_seq == 0:
            raise ProtocolError(Detail.VALUE, "an empty label has no anchor", field="upto_seq")
        try:
            AnchorRef.decode(self.anchor_ref)
        except ProtocolError as error:
            error.within("anchor_ref")
            raise

    @property
    def ref(self) -> AnchorRef:
        """The decoded anchor_ref."""
        return AnchorRef.decode(self.anchor_ref)
