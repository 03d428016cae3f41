"""Every code that a fold reports, and what it means (OVR-030). Codes never change their meaning."""

from collections.abc import Mapping
from typing import Final

from veen.core.errors import Fault

_BODIES: Final = {
    **{f"BODY.{fault.name}": f"the body does not match its schema: {fault.value}" for fault in Fault},
    "BODY.FIELD_SIZE": "a field of the body has the wrong length",
    "BODY.CAP_REF": "the header names a capability other than the one that the message was admitted with",
    "COPY.DIFFERS": "a copy differs from its original; the original counts",
    "COPY.NOT_A_BRIDGE": "a copy of an event that is not in the log, from a key that is not a bridge",
}
_CALLS: Final = {
    "RPC.RESULT_OR_ERROR": "a reply has either ok and a result, or an error",
    "RPC.IDEM_REUSED": "a call repeats an idem with other arguments; the first call counts",
    "RPC.REPLY_DIFFERS": "a second reply to the request differs; the first counts",
    "RPC.UNCORRELATED": "a reply that names no request, or one that is not in the log",
    "RPC.UNKNOWN_METHOD": "the server has no such method",
    "RPC.MALFORMED": "the request does not match its schema",
    "RPC.EXPIRED": "the request reached the server after its timeout; the method was not run",
    "RPC.INTERRUPTED": "the server ended while the method was running; whether it took effect is unknown",
    "RPC.INTERNAL": "the method failed with an unexpected error; the server's log has it",
    "RPC.RESULT": "the method returned a value that CBOR cannot hold, such as a fraction",
    "RPC.FAILED": "the program that handles calls ended with an error",
    "RPC.TIMEOUT": "the program that handles calls did not end in time",
}
_CRDTS: Final = {
    "CRDT.ADD_OR_REMOVE": "an event of a set has either id and elem, or tomb",
    "CRDT.ID_REUSED": "an id of a set was used before for another element; the first addition stays",
    "CRDT.OVERFLOW": "a shard of a counter exceeds 2^64 - 1: its state cannot be encoded",
}
_WALLETS: Final = {
    "WAL.NOT_FOUND": "the wallet is not open in this stream",
    "WAL.CLOSED": "the wallet is closed",
    "WAL.FROZEN": "the wallet is frozen: it cannot be debited",
    "WAL.DUPLICATE": "a transfer id or withdrawal reference that was used before; the first use counts",
    "WAL.DAILY_LIMIT_EXCEEDED": "the amount exceeds the wallet's daily limit",
    "WAL.INSUFFICIENT_FUNDS": "the amount exceeds the balance",
    "WAL.NEGATIVE_ADJUST": "an adjustment would make the balance negative",
    "WAL.SELF_TRANSFER": "a transfer from a wallet to itself",
    "WAL.OVERFLOW": "a balance, or the spending of one day, would exceed 2^64 - 1",
    "WAL.UNBACKED": "a credit whose debit does not count",
    "WAL.NOT_EMPTY": "the wallet has a balance: the command closes it with --force only (a fold accepts it)",
    "WAL.WRONG_STREAM": "the wallet does not belong to this stream",
    "WAL.NOT_A_COPY": "an event in the stream of a replica that is not a bridged copy",
    "WAL.ID_MISMATCH": "wallet_id does not match realm, context and currency",
    "WAL.INVALID_CURRENCY": "the currency code is not ASCII",
    "WAL.UNAUTHORIZED_OPERATION": "an adjustment by a key that is not the institution's (reported only)",
    "WAL.REOPENED": "the wallet is opened again with other fields; the first opening counts (reported only)",
    "WAL.TS_REGRESSION": "a debit dated on an earlier day than the previous one (reported only)",
    "WAL.UNDELIVERED_CREDIT": "an accepted debit without a credit in any stream",
    "WAL.UNBACKED_CREDIT": "a credit without a known debit: not applied",
    "WAL.TRANSFER_MISMATCH": "debit and credit of a transfer differ in amount or wallets",
    "WAL.TWO_STREAMS": "the wallet is opened in two streams",
}
_OPERATIONS: Final = {
    "OP.CURRENCY_MISSING": "no currency is given, and none is configured",
    "OP.NEGATIVE_BALANCE": "the payer's balance would become negative; neither leg counts",
    "OP.OVERFLOW": "a balance exceeds 64 bits: the state cannot be encoded",
    "OP.STALE": "the hub accepted it after its expiry; it counts (reported only)",
    "OP.GRANT_STREAMS": "a grant names at least one stream",
    "OP.GRANT_BURST": "maximum_burst needs maximum_rate_per_second",
    "OP.GRANT_CURRENCY": "currency_code without maximum_amount is ignored (reported only)",
    "OP.UNAUTHORIZED_ISSUER": "a grant or revocation by a key that may not change permissions",
    "OP.DELEGATION_EMPTY": "delegation_chain names at least one capability",
    "OP.DELEGATION_NESTED": "a delegated execution contains another one",
    "OP.DELEGATION_UNKNOWN": "a capability of the chain is unknown",
    "OP.DELEGATION_SIGNATURE": "a capability of the chain is not signed by its issuer",
    "OP.DELEGATION_EXPIRED": "a capability of the chain is not valid at the time of the message",
    "OP.DELEGATION_REVOKED": "a capability of the chain was revoked by the time of the message",
    "OP.DELEGATION_LINK": "a capability was not issued by the subject of the previous one",
    "OP.DELEGATION_STREAMS": "a capability allows more streams than the previous one",
    "OP.DELEGATION_OUTLIVES": "a capability expires later than the previous one",
    "OP.DELEGATION_PRINCIPAL": "the first capability is not the principal's",
    "OP.DELEGATION_AGENT": "the subject of the last capability is neither the agent nor the sender",
    "OP.DELEGATION_SCOPE": "the last capability does not allow this stream",
    "OP.DELEGATION_BODY": "the operation inside does not match its schema",
    "OP.AGREEMENT_PARTIES": "an agreement has at least one party, and each party once",
    "OP.AGREEMENT_REDEFINED": "the version was defined before with other content; the first one counts",
    "OP.AGREEMENT_VERSION": "the version is not above all earlier versions (reported only)",
    "OP.AGREEMENT_UNDEFINED": "a confirmation of an agreement that was not defined before it",
    "OP.AGREEMENT_STRANGER": "a confirmation by somebody who is not a party",
    "OP.AGREEMENT_UNAUTHENTICATED": "a confirmation that the party did not sign",
    "OP.AGREEMENT_DECISION": "a decision other than accept, reject and withdraw: it is not an acceptance",
    "OP.PUBLICATION_DUPLICATE": "the version was published before, with the same content",
    "OP.PUBLICATION_CONFLICT": "the version was published before with other content; the first counts",
    "OP.CONTENT_EMPTY": "published content has at least one file",
    "OP.CONTENT_NAMES": "two files have the same name",
    "OP.SNAPSHOT_AHEAD": "a snapshot covers entries beyond its own position",
    "OP.RECOVERY_NO_POLICY": "no guardians are configured for the target",
    "OP.RECOVERY_NO_REQUEST": "no open request precedes all of the approvals",
    "OP.RECOVERY_THRESHOLD": "too few guardians approve",
    "OP.RECOVERY_REFERENCE": "a reference is not an approval before the execution",
    "OP.RECOVERY_NOT_APPROVED": "a referenced approval does not approve",
    "OP.RECOVERY_OTHER": "a referenced approval names another target or new identity",
    "OP.RECOVERY_CYCLE": "the new identity leads back to the target",
    "OP.RECOVERY_EXECUTOR": "the sender may not execute recoveries: executors are configured",
    "OP.RECOVERY_UNAUTHENTICATED": "an approval that the approver did not sign",
    "OP.MIRROR_SEQ": "positions are counted from 1",
    "OP.MIRROR_LOOP": "a label cannot be a mirror of itself",
    "OP.MIRROR_DUPLICATE": "the entry was recorded before; the first record counts",
    "OP.MIRROR_CONFLICT": "the entry was recorded before with another hash or root; the first record counts",
}
_RECORDER: Final = {
    "SDR.PRINCIPAL_MISMATCH": "principal_id is not the key that signed the message",
    "SDR.EVENT_TIME": "event_time is after the year 9999",
    "SDR.ORIGIN_RECEIPT": "origin_receipt is not a receipt",
    "SDR.ORIGIN_SEQ": "origin_stream_seq is not that of origin_receipt",
    "SDR.CHECKPOINT_ORDER": "the streams of a checkpoint are not sorted by name and epoch, or repeated",
    "SDR.LOG_ROOT": "log_root is not the root over the streams of the checkpoint",
    "SDR.CHANGE": "a change declares, renames, splits or retires a stream",
    "SDR.INTO": "a rename has one target stream, a split several, other changes none",
    "SDR.STREAM": "the name of a recorder stream begins with record/",
    "SDR.NOT_AN_ADMIN": "a change of streams by a key that is not an admin of the recorder",
}
_STATES: Final = {
    "STATE.OVERFLOW": "a number of the state exceeds 64 bits: the state has no encoding, and so no hash",
    "STATE.WHOLE": "the overlay has one state for the whole stream, not one for each key",
}
_LABELS: Final = {
    "CLS.SENSITIVITY": "a sensitivity is low, medium or high",
    "CLS.NOT_AN_ADMIN": "a label class by a key that is not an admin",
}

# The meaning of each code. Unless it ends with "reported only", the event does not count.
CODES: Final[Mapping[str, str]] = {
    **_BODIES,
    **_CALLS,
    **_CRDTS,
    **_WALLETS,
    **_OPERATIONS,
    **_RECORDER,
    **_LABELS,
    **_STATES,
}
