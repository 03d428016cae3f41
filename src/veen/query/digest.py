"""The summary of an answer in a few hundred bytes: the digest that is recorded (QRY-031 to QRY-036).

The rows of spot evidence are chosen by the query's id, so that they cannot be chosen afterwards (QRY-040).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from itertools import islice
from typing import Final, Self

from veen.core.crypto.hash import U64_MAX, tag_prefix
from veen.core.encoding import canonical_json
from veen.core.encoding.canonical_json import Json
from veen.core.encoding.hexadecimal import is_hex32
from veen.core.errors import Detail, ProtocolError
from veen.query.descriptor import Evidence, Mode, is_id
from veen.query.errors import QueryError
from veen.query.timestamps import format_time, parse_time

VERSION: Final = 1
# The evidence_hash of every answer of mode none (QRY-034).
NONE_HASH: Final = hashlib.sha256(canonical_json.encode({"mode": "none"})).hexdigest()

# Rows per call of the hash.
_AT_ONCE: Final = 256
# Length of a hash.
_HEX_DIGITS: Final = 64


@dataclass(frozen=True, slots=True)
class Position:
    """A label in scope, up to and including an entry, and the root at that position."""

    stream: str
    epoch: int
    label: str
    upto_seq: int
    mmr_root: str

    def to_json(self) -> dict[str, Json]:
        return {
            "stream": self.stream,
            "epoch": self.epoch,
            "label": self.label,
            "upto_seq": self.upto_seq,
            "mmr_root": self.mmr_root,
        }

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Parse the JSON form; unknown keys are ignored."""
        reader = _Reader(value, "a position in upto")
        return cls(
            stream=reader.text("stream"),
            epoch=reader.number("epoch"),
            label=reader.hash("label"),
            upto_seq=reader.number("upto_seq"),
            mmr_root=reader.hash("mmr_root"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDigest:
    """The digest of a result; hashes and ids of the protocol are lower-case hex, times are in seconds."""

    query_id: str
    result_id: str
    row_count: int
    evidence_policy: Evidence
    rows_hash: str
    evidence_hash: str
    executed_at: int
    hub_id: str
    # The positions to which labels in scope were read, ordered by the bytes of the stream's name, then by
    # epoch. Digests of this implementation always have them.
    upto: tuple[Position, ...] | None = None
    # Entries in scope that could not be read, since they are sealed for others or pruned: the answer omits
    # them.
    unread: int | None = None
    profile_id: str | None = None

    def to_json(self) -> dict[str, Json]:
        form: dict[str, Json] = {
            "query_id": self.query_id,
            "result_id": self.result_id,
            "version": VERSION,
            "row_count": self.row_count,
            "evidence_policy": self.evidence_policy.to_json(),
            "rows_hash": self.rows_hash,
            "evidence_hash": self.evidence_hash,
            "executed_at": format_time(self.executed_at),
            "hub_id": self.hub_id,
        }
        if self.upto is not None:
            form["upto"] = [position.to_json() for position in self.upto]
        if self.unread is not None:
            form["unread"] = self.unread
        if self.profile_id is not None:
            form["profile_id"] = self.profile_id
        return form

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Parse the JSON form, or raise ProtocolError; unknown keys are ignored (QRY-063)."""
        reader = _Reader(value, "a digest")
        if reader.number("version") != VERSION:
            raise _wrong(f"a digest of version {VERSION} can be read, not {value!r:.80}")
        try:
            policy = Evidence.from_json(reader.json("evidence_policy"))
            executed_at = parse_time(reader.text("executed_at"))
        except QueryError as error:
            raise _wrong(f"the evidence_policy of a digest is invalid: {error.message}") from None
        except ValueError as error:
            raise _wrong(f"the executed_at of a digest is invalid: {error}") from None
        upto = reader.json("upto", None)
        if upto is not None and not isinstance(upto, list):
            raise _wrong("upto of a digest must be an array")
        return cls(
            query_id=reader.id("query_id"),
            result_id=reader.id("result_id"),
            row_count=reader.number("row_count"),
            evidence_policy=policy,
            rows_hash=reader.hash("rows_hash"),
            evidence_hash=reader.hash("evidence_hash"),
            executed_at=executed_at,
            hub_id=reader.hash("hub_id"),
            upto=None if upto is None else tuple(Position.from_json(item) for item in upto),
            unread=None if reader.json("unread", None) is None else reader.number("unread"),
            profile_id=None if reader.json("profile_id", None) is None else reader.text("profile_id"),
        )

    def encode(self) -> bytes:
        """Return canonical JSON, as recorded."""
        return canonical_json.encode(self.to_json())


class RowsHasher:
    """Hashes the rows of an answer one by one, in order, each in canonical JSON (QRY-032)."""

    def __init__(self) -> None:
        """Start with an empty array."""
        self._hash = hashlib.sha256(b"[")
        self.count = 0

    def add(self, row: bytes) -> None:
        self.extend((row,))

    def extend(self, rows: Iterable[bytes]) -> None:
        pending = iter(rows)
        while some := list(islice(pending, _AT_ONCE)):
            self._hash.update((b"," if self.count else b"") + b",".join(some))
            self.count += len(some)

    @property
    def rows_hash(self) -> str:
        """The hash of the array of all rows so far."""
        ended = self._hash.copy()
        ended.update(b"]")
        return ended.hexdigest()


class EvidenceHasher:
    """Hashes verified events one by one, ordered by stream name (bytes), epoch and position (QRY-035).

    A replay uses the ``result_id`` of the answer that it repeats (QRY-036).
    """

    def __init__(self, query_id: str, result_id: str, mode: Mode, sample_rate: Decimal | None) -> None:
        """Start the summary of an answer of mode spot or full; that of mode none is ``NONE_HASH``."""
        assert mode != Mode.NONE, "nothing is verified in mode none"
        head: dict[str, Json] = {"mode": mode.value, "query_id": query_id, "result_id": result_id}
        if sample_rate is not None:
            head["sample_rate"] = sample_rate
        # "verified" is the last name in byte order, so that the list can be appended incrementally.
        self._hash = hashlib.sha256(canonical_json.encode(head)[:-1] + b',"verified":[')
        self.count = 0

    def add(self, receipt_id: bytes, mmr_root: bytes, hub_id: bytes) -> None:
        """Add an event: the hash of its receipt, and root and hub from the receipt."""
        self.extend(receipt_id, mmr_root, hub_id)

    def extend(self, receipt_ids: bytes, mmr_roots: bytes, hub_id: bytes) -> None:
        """Add consecutive events of one hub, with their values concatenated."""
        ids, roots, head = receipt_ids.hex(), mmr_roots.hex(), f'{{"hub_id":"{hub_id.hex()}","mmr_root":"'
        items = [
            f'{head}{roots[at : at + _HEX_DIGITS]}","receipt_id":"{ids[at : at + _HEX_DIGITS]}"}}'
            for at in range(0, len(ids), _HEX_DIGITS)
        ]
        self._hash.update(("," if self.count else "").encode() + ",".join(items).encode())
        self.count += len(items)

    @property
    def evidence_hash(self) -> str:
        """The hash of the summary so far."""
        ended = self._hash.copy()
        ended.update(b"]}")
        return ended.hexdigest()


# --- reading ------------------------------------------------------------------------------------------------


def _wrong(message: str) -> ProtocolError:
    return ProtocolError(Detail.VALUE, message)


class _Reader:
    """A JSON object; its values are returned with their types checked."""

    _MISSING: Final = object()

    def __init__(self, value: Json, name: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(f"{name} must be a JSON object")
        self._value = value
        self._name = name

    def json(self, key: str, default: Json | object = _MISSING) -> Json:
        item = self._value.get(key, default)
        if item is self._MISSING:
            raise _wrong(f"{self._name} has no {key}")
        return item  # type: ignore[return-value] # a default is JSON

    def text(self, key: str) -> str:
        text = self.json(key)
        if not isinstance(text, str):
            raise _wrong(f"{key} of {self._name} must be a string")
        return text

    def id(self, key: str) -> str:
        text = self.text(key)
        if not is_id(text):
            raise _wrong(f"{key} of {self._name} is not an id")
        return text

    def hash(self, key: str) -> str:
        text = self.text(key)
        if not is_hex32(text, lower=True):
            raise _wrong(f"{key} of {self._name} must be 64 lowercase hex digits")
        return text

    def number(self, key: str) -> int:
        number = self.json(key)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= U64_MAX:
            raise _wrong(f"{key} of {self._name} must be an unsigned number of at most 64 bits")
        return number


_PREFIX: Final = tag_prefix("veen/query-sample")
_ALL: Final = 1 << 64


def sampled(query_id: str, indexes: Iterable[int], rate: Decimal) -> list[int]:
    """Return the indexes, from 0, of the rows that are in the sample."""
    bound = int(Fraction(rate) * _ALL)  # exact, and positive: int rounds down
    if bound >= _ALL:
        return list(indexes)
    # A hash is below the bound if its first 8 bytes are below the bound's 8 bytes.
    threshold = bound.to_bytes(8, "big")
    prefix = _PREFIX + query_id.encode()
    return [index for index in indexes if sha256(prefix + index.to_bytes(8, "big")).digest() < threshold]
