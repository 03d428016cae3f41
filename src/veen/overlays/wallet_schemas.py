"""The nine events of a wallet (WAL-006 and WAL-013 to WAL-022)."""

from typing import Final

from veen.core.kinds import B32, BYTES, INT, TEXT, UINT
from veen.core.shapes import Field, Raw
from veen.overlays.schema import ANY_MAP, OrNull, RejectedError, Schema
from veen.overlays.wallet_ids import wallet_id


def _named_by_its_fields(body: Raw) -> None:
    if body["wallet_id"] != wallet_id(body["realm_id"], body["ctx_id"], body["currency"]):
        raise RejectedError("WAL.ID_MISMATCH", "wallet_id is not that of this realm, context and currency")


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
#: The limit is always there: null takes it away (OVR-020).
LIMIT: Final = Schema("wallet.limit.v1", _WALLET, Field("daily_limit", OrNull(UINT)), _TS)
FREEZE: Final = Schema("wallet.freeze.v1", _WALLET, _TS, _REASON)
UNFREEZE: Final = Schema("wallet.unfreeze.v1", _WALLET, _TS, _REASON)

SCHEMAS: Final = (OPEN, CLOSE, DEPOSIT, WITHDRAW, TRANSFER, ADJUST, LIMIT, FREEZE, UNFREEZE)
