"""What a vector file is made of: a scenario with its cases.

Answers that must succeed are those of the library; the tests compute them a second time with other code.
How a case must fail is stated by hand, from the rules, never by the library.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from veen.conformance.adapter import answer

# A JSON value; the fields of a request depend on the operation.
Json = Any
Fields = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Failure:
    """How a case must fail."""

    code: str
    stage: str
    detail: str

    def in_request(self) -> "Failure":
        """Return the same failure of a request other than submit: one code for all of them."""
        return Failure("E.BAD_REQUEST", self.stage, self.detail)


CBOR_INVALID: Final = Failure("E.FORMAT", "structural", "CBOR_INVALID")
FIELD_SIZE: Final = Failure("E.SIZE", "structural", "FIELD_SIZE")
VERSION: Final = Failure("E.FORMAT", "structural", "VERSION")
CT_PADDING: Final = Failure("E.FORMAT", "structural", "CT_PADDING")
CT_HASH: Final = Failure("E.FORMAT", "structural", "CT_HASH")
ATT_ROOT: Final = Failure("E.FORMAT", "structural", "ATT_ROOT")
VALUE: Final = Failure("E.FORMAT", "structural", "VALUE")
SIG_INVALID: Final = Failure("E.SIG", "auth", "SIG_INVALID")
CAP_INVALID: Final = Failure("E.CAP", "auth", "CAP_INVALID")
ENTRY_VERSION: Final = Failure("E.FORMAT", "structural", "ENTRY_VERSION")
ENTRY_FLAGS: Final = Failure("E.FORMAT", "structural", "ENTRY_FLAGS")
ENTRY_LENGTH: Final = Failure("E.FORMAT", "structural", "ENTRY_LENGTH")
ENTRY_HASH: Final = Failure("E.FORMAT", "structural", "ENTRY_HASH")
ENTRY_RECEIPT: Final = Failure("E.FORMAT", "structural", "ENTRY_RECEIPT")
LEAF_HASH: Final = Failure("E.PROOF", "verify", "LEAF_HASH")
PROOF_SEQ: Final = Failure("E.PROOF", "verify", "PROOF_SEQ")
PROOF_PATH: Final = Failure("E.PROOF", "verify", "PROOF_PATH")
PROOF_PEAKS: Final = Failure("E.PROOF", "verify", "PROOF_PEAKS")
PROOF_ROOT: Final = Failure("E.PROOF", "verify", "PROOF_ROOT")
DH_ZERO: Final = Failure("E.OPEN", "open", "DH_ZERO")
HDR_AEAD: Final = Failure("E.OPEN", "open", "HDR_AEAD")
BODY_AEAD: Final = Failure("E.OPEN", "open", "BODY_AEAD")


def plain(value: Json) -> Json:
    """Return a JSON value, with byte strings as lowercase hex."""
    match value:
        case bytes():
            return value.hex()
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case _:
            return value


def ask(op: str, /, **fields: Json) -> Fields:
    """Return the library's answer to a request that must succeed."""
    request = {"op": op, **plain(fields)}
    given: Fields = answer(json.dumps(request).encode())
    assert given["ok"], f"{request} -> {given}"
    for item in given.get("rejected", ()):
        del item["detail"]  # for human readers, and free to change
    return {name: value for name, value in given.items() if name not in ("id", "ok")}


@dataclass(slots=True)
class Scenario:
    """One vector file under construction."""

    name: str
    about: str
    cases: list[Fields] = field(default_factory=list)

    def ok(self, name: str, op: str, /, intermediate: Fields | None = None, **fields: Json) -> Fields:
        """Add a case that must succeed; return its answer."""
        given = ask(op, **fields)
        self._add(name, op, fields, {"ok": True, **given}, intermediate)
        return given

    def fails(self, name: str, failure: Failure, op: str, /, **fields: Json) -> None:
        """Add a case that must fail in this way."""
        expect = {"ok": False, "code": failure.code, "stage": failure.stage, "detail": failure.detail}
        self._add(name, op, fields, expect, None)

    def refuses(self, name: str, failure: Failure, kind: str, data: bytes) -> None:
        """Add bytes that must not decode."""
        self.fails(name, failure, "decode", type=kind, data=data)

    def decodes(self, name: str, kind: str, data: bytes) -> Fields:
        """Add bytes that must decode; return the answer."""
        return self.ok(name, "decode", type=kind, data=data)

    def round_trip(self, name: str, kind: str, data: bytes) -> None:
        """Add bytes that must decode, and whose value must encode to the same bytes."""
        value = self.decodes(name, kind, data)["value"]
        self.ok(f"{name}, encoded again", "encode", type=kind, value=value)

    def _add(self, name: str, op: str, fields: Fields, expect: Fields, intermediate: Fields | None) -> None:
        assert all(case["name"] != name for case in self.cases), f"{self.name}: two cases called {name!r}"
        case: Fields = {"name": name, "request": {"op": op, **plain(fields)}, "expect": expect}
        if intermediate is not None:
            case["intermediate"] = plain(intermediate)
        self.cases.append(case)

    def text(self) -> str:
        """Return the content of the file."""
        content = {"name": self.name, "about": self.about, "cases": self.cases}
        return json.dumps(content, indent=2) + "\n"
