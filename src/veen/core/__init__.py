"""The protocol, pure: wire objects, hashes, sealing, proofs and tokens.

Nothing here reads a clock, draws randomness or touches a file: those are arguments. The public names are
listed below; everything else in the modules is internal.
"""

if not __debug__:  # pragma: no cover - asserts protect what is signed and stored
    raise RuntimeError("VEEN does not run under python -O: its assertions are part of its checks")

from veen.core.api.data_plane import (
    CheckpointRequest,
    CheckpointResponse,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamItem,
    StreamRequest,
    StreamResponse,
    SubmitRequest,
    SubmitResponse,
)
from veen.core.crypto import hpke
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hpke import ReaderKey
from veen.core.errors import CborError, Code, Detail, ProtocolError, Stage, VeenError
from veen.core.limits import DEFAULT_LIMITS, Limits, default_limits
from veen.core.merkle.consistency import ConsistencyProof, prove_consistency
from veen.core.merkle.inclusion import MmrProof, prove_inclusion
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.objects.capability import Allow, CapToken, Rate
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.entry import Entry, EntryHeader
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.core.objects.hub_identity import HubIdentity, HubKey
from veen.core.objects.msg import Msg, MsgContext, PayloadHeader
from veen.core.objects.receipt import Receipt
from veen.core.objects.sealed_payload import OpenedPayload, Sealed, Sealer, open_msg, seal
from veen.core.profile import Profile

__all__ = [
    "DEFAULT_LIMITS",
    "Allow",
    "CapToken",
    "CborError",
    "Checkpoint",
    "CheckpointRequest",
    "CheckpointResponse",
    "Code",
    "ConsistencyProof",
    "Detail",
    "Entry",
    "EntryHeader",
    "ErrorEnvelope",
    "HubIdentity",
    "HubKey",
    "Limits",
    "MmrProof",
    "Msg",
    "MsgContext",
    "OpenedPayload",
    "PayloadHeader",
    "Peaks",
    "Profile",
    "ProofRequest",
    "ProofResponse",
    "ProtocolError",
    "Rate",
    "ReaderKey",
    "Receipt",
    "ReceiptRequest",
    "ReceiptResponse",
    "Sealed",
    "Sealer",
    "SigningKey",
    "Stage",
    "StreamItem",
    "StreamRequest",
    "StreamResponse",
    "SubmitRequest",
    "SubmitResponse",
    "VeenError",
    "default_limits",
    "hpke",
    "labels",
    "open_msg",
    "prove_consistency",
    "prove_inclusion",
    "seal",
]
