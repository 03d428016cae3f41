"""Evidence that a hub signed two contradicting statements, which anyone can verify offline.

Either a position of a label has two contents, or the root in a receipt is not the result of appending its
leaf to the log of the receipt before it. For the second kind, the peaks before it are part of the evidence:
they hash to the root of the first receipt, and no other peaks do.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from veen.core.encoding.field_types import B32, B64, VER, ListOf
from veen.core.encoding.shape import Field, MapShape
from veen.core.encoding.wire_object import Nested, Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import MAX_PROOF_PATH
from veen.core.merkle.mmr import Peaks
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.receipt import Receipt
from veen.core.types import NodeHash, Signature, VerifyKey

SUFFIX: Final = ".veen-fraud"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fraud(Wire):
    """Two receipts of one hub, and what is needed to verify that they contradict each other.

    Attributes:
        identity: The identity of the hub.
        identity_sig: Its signature with the hub's first key.
        first: One receipt.
        second: The other one.
        peaks: The peaks after the first receipt, by increasing height; only if the second is its successor.
    """

    SHAPE: ClassVar = MapShape(
        "fraud",
        Field("ver", VER, key=1),
        Field("identity", Nested(HubIdentity), key=2),
        Field("identity_sig", B64, key=3),
        Field("first", Nested(Receipt), key=4),
        Field("second", Nested(Receipt), key=5),
        Field("peaks", ListOf(B32, max_length=MAX_PROOF_PATH), key=6, optional=True),
    )

    identity: HubIdentity
    identity_sig: Signature
    first: Receipt
    second: Receipt
    peaks: tuple[NodeHash, ...] | None = None

    @property
    def file_name(self) -> str:
        """The name of the evidence file: hub, label and position."""
        hub, label = self.identity.hub_id.hex()[:16], self.second.label.hex()[:16]
        return f"{hub}-{label}-{self.second.stream_seq}{SUFFIX}"

    def verify(self, hub_pk: VerifyKey | None = None) -> str:
        """Return what the evidence proves, as a sentence; reject it if it proves nothing.

        ``hub_pk`` is the hub's first key, if the verifier knows it; the hub's id is derived from it.
        """
        first_key = self.identity.hub_keys[0].hub_pk
        if hub_pk is not None and hub_pk != first_key:
            raise ProtocolError(Detail.KEY_INACTIVE, "the evidence is about another hub", field="identity")
        self.identity.verify_signature(first_key, self.identity_sig)
        for receipt in (self.first, self.second):
            self.identity.verify_receipt(receipt)
        seq = self.second.stream_seq
        if self.first.contradicts(self.second):
            return f"the hub signed two contents for entry {seq}"
        if self._is_broken_step():
            return f"the root that the hub signed for entry {seq} does not follow from entry {seq - 1}"
        raise ProtocolError(Detail.VALUE, "the two receipts can both be true", field="second")

    def _is_broken_step(self) -> bool:
        if self.peaks is None or self.first.label != self.second.label:
            return False
        if self.second.stream_seq != self.first.stream_seq + 1:
            return False
        before = Peaks(self.first.stream_seq, self.peaks)
        if before.root != self.first.mmr_root:
            raise ProtocolError(
                Detail.PROOF_PEAKS, "the peaks are not those of the first receipt", field="peaks"
            )
        return before.append(self.second.leaf_hash).root != self.second.mmr_root
