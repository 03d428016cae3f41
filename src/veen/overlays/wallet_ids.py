"""What wallets, their streams and transfers are called, and how several people approve one (WAL lines)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from veen.core import ed25519
from veen.core.errors import ProtocolError
from veen.core.hashing import HASH_BYTES, ht, u64be
from veen.core.types import RealmId, Signature, StreamId, VerifyKey
from veen.overlays.schema import RejectedError

#: Seconds of a day of UTC, in which spending is limited (WAL-040).
DAY: Final = 86400


def wallet_id(realm: RealmId | bytes, ctx: bytes, currency: str) -> bytes:
    """Return the id of somebody's wallet in a realm and a currency (WAL-001)."""
    if not currency.isascii():
        raise RejectedError("WAL.INVALID_CURRENCY", f"the currency {currency!r} is not ASCII")
    return ht("wallet/id", realm + ctx + currency.encode())


def wallet_stream(wallet: bytes) -> StreamId:
    """Return the stream that a wallet has to itself, if it does not share one (WAL-003)."""
    return StreamId(ht("wallet/stream", wallet))


def is_own_stream(stream: StreamId, wallet: bytes) -> bool:
    """Tell whether a stream is the one that a wallet has to itself; anybody who knows both can (C-132)."""
    return stream == wallet_stream(wallet)


def transfer_id(label: bytes, client_id: bytes, client_seq: int) -> bytes:
    """Return the id of a transfer: of the place of its message, known before it is sealed (WAL-054)."""
    return ht("wallet/xfer", label + client_id + u64be(client_seq))


def approval_hash(wallet: bytes, to_wallet: bytes, amount: int, ts: int, transfer: bytes) -> bytes:
    """Return what those sign who approve a transfer (WAL-064)."""
    return ht("wallet/approval", wallet + to_wallet + u64be(amount) + u64be(ts) + transfer)


def needs_reset(last: int, ts: int, *, forward_only: bool = False) -> bool:
    """Tell whether a spend at ``ts`` begins a new day after a reset at ``last`` (WAL-040, WAL-041)."""
    return ts // DAY > last // DAY if forward_only else ts // DAY != last // DAY


@dataclass(frozen=True, slots=True)
class Policy:
    """So many of these keys have to approve a transfer."""

    threshold: int
    keys: frozenset[VerifyKey]

    def __post_init__(self) -> None:
        """Refuse what nobody or everybody meets."""
        if not 1 <= self.threshold <= len(self.keys):
            raise ValueError(f"{self.threshold} of {len(self.keys)} keys is no policy")
        if any(len(key) != HASH_BYTES for key in self.keys):
            raise ValueError("a key has 32 bytes")

    def approvers(self, digest: bytes, approvals: Iterable[tuple[VerifyKey, Signature]]) -> set[VerifyKey]:
        """Return whose approvals of this hash are good; each key counts once."""
        return {key for key, sig in approvals if key in self.keys and _is_signed(key, digest, sig)}

    def holds(self, digest: bytes, approvals: Iterable[tuple[VerifyKey, Signature]]) -> bool:
        """Tell whether enough have approved; then one transfer is sent, and the fold knows of none of it."""
        return len(self.approvers(digest, approvals)) >= self.threshold


def _is_signed(key: VerifyKey, digest: bytes, sig: Signature) -> bool:
    try:
        ed25519.verify(key, digest, sig)
    except ProtocolError:
        return False
    return True
