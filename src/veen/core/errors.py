"""Every way in which data from outside can be invalid, as one table and one exception.

    VeenError                    base of all that this distribution raises on purpose
    ├── ProtocolError            bytes or values from outside break a rule: code, stage, detail
    │   └── CborError            ... in the encoding itself: also a fault and an offset
    └── PrunedError              an entry was pruned, as a store or a hub reports it

Each package draws its own tree in its ``errors.py``; ``veen.errors`` has all of them.

Wrong argument *types* in our own calls are not here: they stay TypeError, because they are bugs.
Texts are written where an error is raised; a search for its detail finds them.
The tables are data. The reference page, the HTTP status and the order of the checks derive from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Code(StrEnum):
    """The canonical error codes: what a program branches on."""

    # Admission (001 section 8.2).
    FORMAT = "E.FORMAT"
    SIZE = "E.SIZE"
    SIG = "E.SIG"
    CAP = "E.CAP"
    AUTH = "E.AUTH"
    RATE = "E.RATE"
    SEQ = "E.SEQ"
    TIME = "E.TIME"
    # All other operations (001 section 10.6).
    BAD_REQUEST = "E.BAD_REQUEST"
    UNAUTHORIZED = "E.UNAUTHORIZED"
    FORBIDDEN = "E.FORBIDDEN"
    NOT_FOUND = "E.NOT_FOUND"
    CONFLICT = "E.CONFLICT"
    LIMIT = "E.LIMIT"
    UNAVAILABLE = "E.UNAVAILABLE"
    VERSION = "E.VERSION"
    # Raised by readers and verifiers only; never sent by a hub.
    PROOF = "E.PROOF"
    OPEN = "E.OPEN"


# HTTP status is a function of the code alone (decision C-61), except for 405, 415 and 421 (C-70, C-196).
HTTP_STATUS: Final[Mapping[Code, int]] = MappingProxyType(
    {
        Code.FORMAT: 400,
        Code.SIZE: 413,
        Code.SIG: 409,
        Code.CAP: 403,
        Code.AUTH: 403,
        Code.RATE: 429,
        Code.SEQ: 409,
        Code.TIME: 400,
        Code.BAD_REQUEST: 400,
        Code.UNAUTHORIZED: 401,
        Code.FORBIDDEN: 403,
        Code.NOT_FOUND: 404,
        Code.CONFLICT: 409,
        Code.LIMIT: 413,
        Code.UNAVAILABLE: 503,
        Code.VERSION: 400,
    }
)


class Stage(StrEnum):
    """The stage of a check. The first four are those of admission, in order; the rest are a reader's."""

    PREFILTER = "prefilter"
    STRUCTURAL = "structural"
    AUTH = "auth"
    COMMIT = "commit"
    VERIFY = "verify"
    OPEN = "open"


class Detail(StrEnum):
    """Which check failed. Stable across releases, and unique: a detail names one row of the tables."""

    SIZE_PREFILTER = "SIZE_PREFILTER"
    PREFILTER_REJECT = "PREFILTER_REJECT"
    CBOR_INVALID = "CBOR_INVALID"
    FIELD_SIZE = "FIELD_SIZE"
    VERSION = "VERSION"
    PROFILE = "PROFILE"
    CT_PADDING = "CT_PADDING"
    CT_HASH = "CT_HASH"
    ATT_ROOT = "ATT_ROOT"
    SIG_INVALID = "SIG_INVALID"
    CAP_MISSING = "CAP_MISSING"
    CAP_INVALID = "CAP_INVALID"
    AUTH_REF = "AUTH_REF"
    NOT_PRIMARY = "NOT_PRIMARY"
    REVOKED = "REVOKED"
    CLIENT_LIFETIME = "CLIENT_LIFETIME"
    CAP_TTL = "CAP_TTL"
    CAP_RATE = "CAP_RATE"
    PREV_ACK = "PREV_ACK"
    DUPLICATE = "DUPLICATE"
    CLIENT_SEQ = "CLIENT_SEQ"
    EPOCH = "EPOCH"

    VALUE = "VALUE"
    ENTRY_VERSION = "ENTRY_VERSION"
    ENTRY_FLAGS = "ENTRY_FLAGS"
    ENTRY_LENGTH = "ENTRY_LENGTH"
    ENTRY_HASH = "ENTRY_HASH"
    ENTRY_RECEIPT = "ENTRY_RECEIPT"
    LEAF_HASH = "LEAF_HASH"
    PROOF_SEQ = "PROOF_SEQ"
    PROOF_PATH = "PROOF_PATH"
    PROOF_PEAKS = "PROOF_PEAKS"
    PROOF_ROOT = "PROOF_ROOT"
    CHECKPOINT_LABEL = "CHECKPOINT_LABEL"
    CHECKPOINT_ROOT = "CHECKPOINT_ROOT"
    KEY_INACTIVE = "KEY_INACTIVE"
    DH_ZERO = "DH_ZERO"
    HDR_AEAD = "HDR_AEAD"
    BODY_AEAD = "BODY_AEAD"
    ATT_AEAD = "ATT_AEAD"


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One check: its stage, what its failure means, and the names of that failure."""

    row: str
    stage: Stage
    failure: str
    code: Code
    detail: Detail


def _row(row: str, stage: Stage, code: Code, detail: Detail, failure: str) -> ErrorRow:
    return ErrorRow(row, stage, failure, code, detail)


_PRE, _STR, _AUT, _COM = Stage.PREFILTER, Stage.STRUCTURAL, Stage.AUTH, Stage.COMMIT

# Admission in its exact order: the first failing row decides (001 section 8.2; insertions by C-68).
ADMISSION_TABLE: Final[tuple[ErrorRow, ...]] = (
    _row(
        "1", _PRE, Code.SIZE, Detail.SIZE_PREFILTER, "request is larger than max_msg_bytes and its envelope"
    ),
    _row("2", _PRE, Code.AUTH, Detail.PREFILTER_REJECT, "proof of work is missing or invalid"),
    _row(
        "3", _STR, Code.FORMAT, Detail.CBOR_INVALID, "CBOR is invalid, not canonical, or of the wrong shape"
    ),
    _row("4", _STR, Code.SIZE, Detail.FIELD_SIZE, "a field has the wrong length or exceeds its limit"),
    _row("5", _STR, Code.FORMAT, Detail.VERSION, "ver is not 1"),
    _row("6", _STR, Code.FORMAT, Detail.PROFILE, "profile_id is not one that the hub serves"),
    _row("6a", _STR, Code.FORMAT, Detail.CT_PADDING, "padding is non-zero or not a multiple of pad_block"),
    _row("7", _STR, Code.FORMAT, Detail.CT_HASH, "ct_hash is not the hash of the ciphertext"),
    _row(
        "8", _STR, Code.FORMAT, Detail.ATT_ROOT, "att_root does not match the attachments (plaintext holders)"
    ),
    _row("9", _AUT, Code.SIG, Detail.SIG_INVALID, "signature does not verify"),
    _row("10", _AUT, Code.CAP, Detail.CAP_MISSING, "capability token is required or not known here"),
    _row(
        "11", _AUT, Code.CAP, Detail.CAP_INVALID, "capability token is malformed, badly signed or not trusted"
    ),
    _row("12", _AUT, Code.AUTH, Detail.AUTH_REF, "token is not for this client or not for this label"),
    _row("12a", _AUT, Code.AUTH, Detail.NOT_PRIMARY, "another hub is the primary of this stream (optional)"),
    _row("12b", _AUT, Code.AUTH, Detail.REVOKED, "client or token is revoked (optional; E.CAP for a token)"),
    _row("12c", _AUT, Code.CAP, Detail.CLIENT_LIFETIME, "client_id is past its lifetime bounds (optional)"),
    _row("13", _AUT, Code.TIME, Detail.CAP_TTL, "capability token has expired"),
    _row("14", _AUT, Code.RATE, Detail.CAP_RATE, "rate of the capability token is used up"),
    _row("15", _COM, Code.SEQ, Detail.PREV_ACK, "prev_ack went back or is beyond the head of the label"),
    _row("16", _COM, Code.SEQ, Detail.DUPLICATE, "client_seq was used before"),
    _row("17", _COM, Code.SEQ, Detail.CLIENT_SEQ, "client_seq is not the next one"),
    _row("18", _COM, Code.TIME, Detail.EPOCH, "label belongs to an epoch outside the window"),
)

_VER, _OPN = Stage.VERIFY, Stage.OPEN

# What readers and verifiers find; none of these is an admission outcome.
VERIFICATION_TABLE: Final[tuple[ErrorRow, ...]] = (
    _row("V1", _STR, Code.FORMAT, Detail.VALUE, "a field holds an impossible value"),
    _row("V2", _STR, Code.FORMAT, Detail.ENTRY_VERSION, "entry_ver is not 1"),
    _row("V3", _STR, Code.FORMAT, Detail.ENTRY_FLAGS, "a flag bit of the entry header is set"),
    _row(
        "V4",
        _STR,
        Code.FORMAT,
        Detail.ENTRY_LENGTH,
        "entry is shorter than its header says, or the header is",
    ),
    _row("V5", _STR, Code.FORMAT, Detail.ENTRY_HASH, "entry_hash does not match the stored bytes"),
    _row("V6", _STR, Code.FORMAT, Detail.ENTRY_RECEIPT, "receipt does not belong to its entry header"),
    _row("V7", _VER, Code.PROOF, Detail.LEAF_HASH, "leaf_hash does not match the message"),
    _row("V8", _VER, Code.PROOF, Detail.PROOF_SEQ, "sequence or size is impossible for a proof"),
    _row("V9", _VER, Code.PROOF, Detail.PROOF_PATH, "path has the wrong length or a wrong direction"),
    _row(
        "V10",
        _VER,
        Code.PROOF,
        Detail.PROOF_PEAKS,
        "peaks are too many, too few, repeated or not the proven ones",
    ),
    _row("V11", _VER, Code.PROOF, Detail.PROOF_ROOT, "computed root is not the expected one"),
    _row(
        "V12",
        _VER,
        Code.PROOF,
        Detail.CHECKPOINT_LABEL,
        "labels of the checkpoint do not follow from its epoch",
    ),
    _row(
        "V13", _VER, Code.PROOF, Detail.CHECKPOINT_ROOT, "checkpoint does not commit to the given log prefix"
    ),
    _row("V14", _VER, Code.PROOF, Detail.KEY_INACTIVE, "signing key was not active at that time"),
    _row("V15", _OPN, Code.OPEN, Detail.DH_ZERO, "key agreement gives the all-zero secret"),
    _row("V16", _OPN, Code.OPEN, Detail.HDR_AEAD, "payload header does not open with this key and context"),
    _row("V17", _OPN, Code.OPEN, Detail.BODY_AEAD, "body does not open with this key and context"),
    _row("V18", _OPN, Code.OPEN, Detail.ATT_AEAD, "attachment does not open with this key and context"),
)

_ROWS: Final[Mapping[Detail, ErrorRow]] = MappingProxyType(
    {row.detail: row for row in ADMISSION_TABLE + VERIFICATION_TABLE}
)
assert len(_ROWS) == len(ADMISSION_TABLE) + len(VERIFICATION_TABLE) == len(Detail), "a detail names one row"

# Values of the machine-readable ``detail`` map (decision C-66).
DetailValue = int | str | bytes


class VeenError(Exception):
    """Base of every error that VEEN raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without calling the constructor: errors cross process boundaries in pipelines."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[VeenError], args: tuple[object, ...], state: dict[str, object]) -> VeenError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class ProtocolError(VeenError):
    """Data from outside breaks a rule of the protocol.

    ``code``, ``stage`` and ``detail`` name the rule; ``fields`` holds further machine-readable keys
    (``field``, ``expected``, ``actual``, ``max_allowed``, ``label``, ``stream_seq``).
    """

    def __init__(
        self, detail: Detail, message: str, *, code: Code | None = None, **fields: DetailValue
    ) -> None:
        """``detail`` names the failed row; ``code`` overrides the row's code where a family differs."""
        super().__init__(message)
        row = _ROWS[detail]
        self.detail: Final = detail
        self.stage: Final = row.stage
        self.code: Final = row.code if code is None else code
        self.message: Final = message
        self.fields: dict[str, DetailValue] = fields

    def __str__(self) -> str:
        """Return what is wrong and which rule it breaks, in one line."""
        return f"{self.message} [{self.code} {self.stage}/{self.detail}]"

    def within(self, field: str) -> None:
        """Prefix ``field`` with the field that contains it, as the error leaves a nested object."""
        inner = self.fields.get("field")
        self.fields["field"] = f"{field}.{inner}" if isinstance(inner, str) else field

    def in_request(self) -> "ProtocolError":
        """Return the same error with the code of all operations except submit and authorize (C-69)."""
        return ProtocolError(self.detail, self.message, code=Code.BAD_REQUEST, **self.fields)


# The ``field`` of E.NOT_FOUND for an entry that was pruned (C-85).
PRUNED_FIELD: Final = "pruned"


class PrunedError(VeenError):
    """An entry was pruned: proofs of it can still be built, but its bytes are gone."""


class Fault(StrEnum):
    """The ways to violate deterministic CBOR (and its JSON form)."""

    TRUNCATED = "truncated"
    TRAILING = "trailing bytes"
    NON_MINIMAL = "head is not the shortest"
    INDEFINITE = "indefinite length"
    RESERVED = "reserved head"
    TAG = "tag"
    FLOAT = "floating point"
    NEGATIVE = "negative integer"
    SIMPLE = "simple value"
    NULL = "null where nothing is optional"
    BOOL = "bool where none is expected"
    TYPE = "wrong type"
    ARITY = "wrong number of elements"
    UNKNOWN_KEY = "unknown key"
    MISSING_KEY = "missing key"
    DUPLICATE_KEY = "duplicate key"
    KEY_ORDER = "keys out of order"
    UTF8 = "text is not valid UTF-8"
    DEPTH = "nested too deeply"
    ITEMS = "too many items"
    EMPTY = "empty list where one must be absent"
    VALUE = "value is not one of those allowed"


class CborError(ProtocolError):
    """Bytes are not the deterministic CBOR of the object (CBOR lines; row 3 of admission)."""

    def __init__(self, fault: Fault, offset: int, note: str = "") -> None:
        """``offset`` is the byte at which the fault was detected."""
        super().__init__(Detail.CBOR_INVALID, f"{note or fault} at byte {offset}")
        self.fault: Final = fault
        self.offset: Final = offset


def bad_request(field: str, message: str) -> ProtocolError:
    """Return the error of a request with an invalid field."""
    return ProtocolError(Detail.VALUE, message, code=Code.BAD_REQUEST, field=field)


def not_found(field: str, message: str) -> ProtocolError:
    """Return the error of a request for something that does not exist; ``field`` names it (C-85)."""
    return ProtocolError(Detail.VALUE, message, code=Code.NOT_FOUND, field=field)
