"""CHECKPOINT: a signed root over a whole prefix of a label (001 section 4.4; decisions C-05, C-35, C-36)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from veen.core.crypto import ed25519
from veen.core.crypto.hash import sha256, tag_prefix
from veen.core.encoding import cbor
from veen.core.encoding.field_types import B32, B64, UINT, VER, ListOf
from veen.core.encoding.shape import ArrayShape, Field
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import MAX_WITNESS_SIGS
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.types import Label, NodeHash, RoutingKey, Signature, StreamId, VerifyKey
from veen.stdx.grammar import counted

_SIG_TAG: Final = tag_prefix("veen/sig")
_SIGNED_FIELDS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Wire):
    """A root over entries 1 to upto_seq of label_curr, signed by the hub and by any witnesses."""

    SHAPE: ClassVar = ArrayShape(
        "CHECKPOINT",
        Field("ver", VER),
        Field("label_prev", B32),
        Field("label_curr", B32),
        Field("upto_seq", UINT),
        Field("mmr_root", B32),
        Field("epoch", UINT),
        Field("hub_sig", B64),
        Field("witness_sigs", ListOf(B64, max_length=MAX_WITNESS_SIGS, may_be_empty=False), optional=True),
    )

    label_prev: Label
    label_curr: Label
    upto_seq: int
    mmr_root: NodeHash
    epoch: int
    hub_sig: Signature
    witness_sigs: tuple[Signature, ...] | None = None

    def _validate(self) -> None:
        if self.upto_seq == 0:
            raise ProtocolError(Detail.VALUE, "an empty label has no checkpoint", field="upto_seq")

    @classmethod
    def sign(
        cls,
        key: ed25519.SigningKey,
        *,
        label_prev: Label,
        label_curr: Label,
        upto_seq: int,
        mmr_root: NodeHash,
        epoch: int,
        witnesses: Sequence[ed25519.SigningKey] = (),
    ) -> Self:
        """Sign a checkpoint with the hub's key, and with those of the given witnesses."""
        unsigned = cls(
            label_prev=label_prev,
            label_curr=label_curr,
            upto_seq=upto_seq,
            mmr_root=mmr_root,
            epoch=epoch,
            hub_sig=Signature(bytes(64)),
        )
        signed = replace(unsigned, hub_sig=key.sign(unsigned.signing_digest()))
        return signed.with_witnesses(witnesses)

    def with_witnesses(self, witnesses: Iterable[ed25519.SigningKey]) -> Self:
        """Return this checkpoint with further witness signatures; the hub's stays as it is."""
        digest = self.signing_digest()
        sigs = (*(self.witness_sigs or ()), *(witness.sign(digest) for witness in witnesses))
        return replace(self, witness_sigs=sigs or None)

    def signing_digest(self) -> bytes:
        """Return the 32 bytes that hub and witnesses sign: an array of the first six fields (C-05)."""
        fields = self.SHAPE.write_fields(self._lower(), _SIGNED_FIELDS)
        return sha256(_SIG_TAG + cbor.head(cbor.MAJOR_ARRAY, _SIGNED_FIELDS) + fields)

    def verify_signature(self, hub_pk: VerifyKey) -> None:
        """Check the hub's signature."""
        ed25519.verify(hub_pk, self.signing_digest(), self.hub_sig)

    def verify_witnesses(self, witness_pks: Iterable[VerifyKey]) -> list[VerifyKey]:
        """Return which of the known witnesses have signed, in key order; each key counts once (C-05).

        Signatures of unknown witnesses are ignored: the caller decides which witnesses count.
        """
        digest = self.signing_digest()
        sigs = self.witness_sigs or ()
        return [
            key for key in sorted(set(witness_pks)) if any(ed25519.is_valid(key, digest, sig) for sig in sigs)
        ]

    def verify_labels(self, routing: RoutingKey, stream: StreamId) -> None:
        """Check that both labels follow from routing key, stream and epoch (CKPT-009 to CKPT-011).

        Without the stream_id this cannot be done, and the verification is partial (C-36).
        """
        if self.label_curr != labels.label(routing, stream, self.epoch):
            raise ProtocolError(
                Detail.CHECKPOINT_LABEL, "label_curr is not the label of this epoch", field="label_curr"
            )
        if self.label_prev == self.label_curr:
            return
        if self.epoch == 0 or self.label_prev != labels.label(routing, stream, self.epoch - 1):
            raise ProtocolError(
                Detail.CHECKPOINT_LABEL, "label_prev is not the label of the epoch before", field="label_prev"
            )

    def verify_prefix(self, peaks: Peaks) -> None:
        """Check that it commits to exactly the prefix with these peaks (CKPT-008, CKPT-013)."""
        if peaks.size != self.upto_seq:
            raise ProtocolError(
                Detail.CHECKPOINT_ROOT,
                f"checkpoint covers {counted(self.upto_seq, 'entry')}, the log has {peaks.size}",
                field="upto_seq",
                expected=peaks.size,
                actual=self.upto_seq,
            )
        if peaks.root != self.mmr_root:
            raise ProtocolError(
                Detail.CHECKPOINT_ROOT, "mmr_root is not the root of the log", field="mmr_root"
            )


def label_pair(routing: RoutingKey, stream: StreamId, epoch: int) -> tuple[Label, Label]:
    """Return the (label_prev, label_curr) that a hub writes: a function of the label alone (C-35).

    Without rotation every label is of epoch 0, so this is not a special case.
    """
    current = labels.label(routing, stream, epoch)
    return (labels.label(routing, stream, epoch - 1) if epoch else current), current
