"""The nine events of a wallet (WAL-006, WAL-013 to WAL-022), and ids of wallets, streams and transfers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from veen.core.crypto import ed25519
from veen.core.crypto.hash import HASH_BYTES, tagged_hash, u64be
from veen.core.encoding.field_types import B32, BYTES, INT, TEXT, UINT
from veen.core.encoding.shape import Field, Fields
from veen.core.types import RealmId, Signature, StreamId, VerifyKey
from veen.overlays.errors import InvalidBodyError, ParameterError
from veen.overlays.schema import ANY_MAP, OrNull, Schema

# Seconds of a day of UTC: the period of the spending limit (WAL-040).
DAY: Final = 86400


def wallet_id(realm: RealmId | bytes, ctx: bytes, currency: str) -> bytes:
    """Return the id of a user's wallet in a realm and a currency (WAL-001)."""
    if not currency.isascii():
        raise InvalidBodyError("WAL.INVALID_CURRENCY", f"the currency {currency!r} is not ASCII")
    return tagged_hash("wallet/id", realm + ctx + currency.encode())


def wallet_stream(wallet: bytes) -> StreamId:
    """Return a wallet's own stream, for wallets that do not share one (WAL-003)."""
    return StreamId(tagged_hash("wallet/stream", wallet))


def is_own_stream(stream: StreamId, wallet: bytes) -> bool:
    """Whether a stream is the wallet's own; computable from the two ids alone (C-132)."""
    return stream == wallet_stream(wallet)


def transfer_id(label: bytes, client_id: bytes, client_seq: int) -> bytes:
    """Return the id of a transfer: derived from the position of its message before sealing (WAL-054)."""
    return tagged_hash("wallet/xfer", label + client_id + u64be(client_seq))


def approval_hash(wallet: bytes, to_wallet: bytes, amount: int, ts: int, transfer: bytes) -> bytes:
    """Return the hash that the approvers of a transfer sign (WAL-064)."""
    return tagged_hash("wallet/approval", wallet + to_wallet + u64be(amount) + u64be(ts) + transfer)


def needs_reset(last: int, ts: int, *, forward_only: bool = False) -> bool:
    """Whether a spend at ``ts`` begins a new day after a reset at ``last`` (WAL-040, WAL-041)."""
    return ts // DAY > last // DAY if forward_only else ts // DAY != last // DAY


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """The keys that approve transfers, and the number of approvals that a transfer needs."""

    threshold: int
    keys: frozenset[VerifyKey]

    def __post_init__(self) -> None:
        """Reject a policy that no, or any, set of approvals would satisfy."""
        if not 1 <= self.threshold <= len(self.keys):
            raise ParameterError(
                f"a policy needs 1 to {len(self.keys)} of {len(self.keys)} keys, not {self.threshold}"
            )
        if any(len(key) != HASH_BYTES for key in self.keys):
            raise ParameterError("a key has 32 bytes")

    def approvers(self, digest: bytes, approvals: Iterable[tuple[VerifyKey, Signature]]) -> set[VerifyKey]:
        """Return the keys with a valid approval for this hub; each counts once."""
        return {key for key, sig in approvals if key in self.keys and ed25519.is_valid(key, digest, sig)}

    def holds(self, digest: bytes, approvals: Iterable[tuple[VerifyKey, Signature]]) -> bool:
        """Whether there are enough approvals to send the transfer; the fold does not see them."""
        return len(self.approvers(digest, approvals)) >= self.threshold


def _named_by_its_fields(body: Fields) -> None:
    if body["wallet_id"] != wallet_id(body["realm_id"], body["ctx_id"], body["currency"]):
        raise InvalidBodyError("WAL.ID_MISMATCH", "wallet_id does not match realm, context and currency")


_WALLET: Final = Field("wallet_id", B32)
_TS: Final = Field("ts", UINT)
_REF: Final = Field("ref", BYTES, optional=True)
_REASON: Final = Field("reason", TEXT, optional=True)
_AMOUNT: Final = Field("amount", UINT)

OPEN: Final = Schema(
    "wallet.open.v1",
    _WALLET,
    Field("realm_id", B32),
    Field("ctx_id", B32),
    Field("currency", TEXT),
    Field("created_at", UINT),
    checks=(_named_by_its_fields,),
)
CLOSE: Final = Schema("wallet.close.v1", _WALLET, _TS)
DEPOSIT: Final = Schema("wallet.deposit.v1", _WALLET, _AMOUNT, _TS, _REF)
WITHDRAW: Final = Schema("wallet.withdraw.v1", _WALLET, _AMOUNT, _TS, _REF)
TRANSFER: Final = Schema(
    "wallet.transfer.v1",
    _WALLET,
    Field("to_wallet_id", B32),
    _AMOUNT,
    _TS,
    Field("transfer_id", B32),
    Field("metadata", ANY_MAP, optional=True),
)
ADJUST: Final = Schema("wallet.adjust.v1", _WALLET, Field("delta", INT), _TS, Field("reason", TEXT), _REF)
# Required: null removes the limit (OVR-020).
LIMIT: Final = Schema("wallet.limit.v1", _WALLET, Field("daily_limit", OrNull(UINT)), _TS)
FREEZE: Final = Schema("wallet.freeze.v1", _WALLET, _TS, _REASON)
UNFREEZE: Final = Schema("wallet.unfreeze.v1", _WALLET, _TS, _REASON)

SCHEMAS: Final = (OPEN, CLOSE, DEPOSIT, WITHDRAW, TRANSFER, ADJUST, LIMIT, FREEZE, UNFREEZE)
