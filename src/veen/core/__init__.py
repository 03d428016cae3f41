"""The protocol, pure: wire objects, hashes, sealing, proofs and tokens.

Nothing in here reads a clock, draws randomness or touches a file: those are arguments. The public names
are listed below; the modules they come from hold the rest.
"""

if not __debug__:  # pragma: no cover - asserts guard what is signed and stored; they stay on
    raise RuntimeError("VEEN does not run under python -O: its assertions are part of its checks")

from veen.core import hpke, labels
from veen.core.api import (
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
from veen.core.captoken import Allow, CapToken, Rate
from veen.core.checkpoint import Checkpoint
from veen.core.consistency import ConsistencyProof, prove_consistency
from veen.core.context import MsgContext
from veen.core.ed25519 import SigningKey
from veen.core.entry import Entry, EntryHeader
from veen.core.error_envelope import ErrorEnvelope
from veen.core.errors import CborError, Code, Detail, ProtocolError, Stage, VeenError
from veen.core.hpke import ReaderKey
from veen.core.identity import HubIdentity, HubKey
from veen.core.limits import DEFAULT_LIMITS, Limits, default_limits
from veen.core.mmr import Peaks
from veen.core.msg import Msg
from veen.core.payload import PayloadHeader
from veen.core.profile import Profile
from veen.core.proof import MmrProof, prove_inclusion
from veen.core.receipt import Receipt
from veen.core.sealing import Opened, Sealed, Sealer, open_msg, seal
from veen.core.structural import check_structure

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
    "Opened",
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
    "check_structure",
    "default_limits",
    "hpke",
    "labels",
    "open_msg",
    "prove_consistency",
    "prove_inclusion",
    "seal",
]
