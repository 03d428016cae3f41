"""Agreements: definitions, confirmations by their parties, and the version in effect (AGR lines)."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Final

from veen.core.crypto.hash import sha256
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.encoding.shape import Fields
from veen.core.types import JsonValue
from veen.overlays.event import Devices, Event, speaks_for
from veen.overlays.monoid import FIRST, MAX, Monoid, first
from veen.overlays.operations.schemas import CONFIRMATION, DEFINITION, operation_body
from veen.overlays.overlay import (
    Cell,
    Key,
    Lowered,
    Overlay,
    Tables,
    appended,
    sequence,
    sequence_keys,
    sequence_tables,
)
from veen.overlays.schema import Schema

ACCEPT: Final = "accept"
_DECISIONS: Final = frozenset({ACCEPT, "reject", "withdraw"})


class Agreements(Overlay):
    """Versions of agreements, and the last decision of each party."""

    name: ClassVar[str] = "agreement"
    version: ClassVar[int] = 2
    about: ClassVar[str] = "Agreements: definitions, the last decision of each party, and what is active."
    schemas: ClassVar[tuple[Schema, ...]] = (DEFINITION, CONFIRMATION)
    tables: ClassVar[Mapping[str, Monoid]] = {
        "definitions": FIRST,
        "confirmations": MAX,
        **sequence_tables("versions"),
    }
    indexes: ClassVar[Mapping[str, Monoid]] = {"highest": MAX}
    state_class: ClassVar[str] = "agreement"
    grouped: ClassVar[bool] = True

    # Keys of clients that act for an identity (AGR-011).
    devices: Devices = field(default_factory=dict)

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Apply a definition, or a confirmation that counts."""
        return _define(event, before) if event.schema is DEFINITION else self._confirm(event, before)

    def group(self, event: Event) -> Key:
        """Return the agreement."""
        agreement_id: Key = event.body["agreement_id"]
        return agreement_id

    def _confirm(self, event: Event, before: Tables) -> Lowered:
        body, record = event.body, event.record
        key, party = (body["agreement_id"], body["version"]), body["party_identity"]
        known = before.get("definitions", key)
        if known is None:
            return _rejected("OP.AGREEMENT_UNDEFINED", "the agreement was not defined before")
        if party not in DEFINITION.decode(known[0][2])["parties"]:
            return _rejected("OP.AGREEMENT_STRANGER", "the sender is not a party")
        if not speaks_for(record.client_id, party, self.devices):
            return _rejected("OP.AGREEMENT_UNAUTHENTICATED", "the party did not sign the confirmation")
        reports = []
        if body["decision"] not in _DECISIONS:
            reports.append(("OP.AGREEMENT_DECISION", "a decision is accept, reject or withdraw"))
        entry = (event.position, event.canonical_id, body["decision"], body.get("decision_time"))
        return Lowered((("confirmations", (*key, party), entry),), reports)

    def versions(self, tables: Tables, agreement_id: Key) -> list[int]:
        """Return the versions of an agreement, ascending."""
        return sorted(version for _, version in sequence(tables, "versions", agreement_id))

    def is_active(self, tables: Tables, agreement_id: Key, version: int, now: int | None) -> bool:
        """Whether a version is in effect: all parties accept, and ``now`` is within its term (AGR-007)."""
        body = self._definition(tables, agreement_id, version)
        if body is None:
            return False
        begin, end = body.get("effective_time"), body.get("expiry_time")
        if now is not None and ((begin is not None and now < begin) or (end is not None and now >= end)):
            return False
        words = (tables.get("confirmations", (agreement_id, version, party)) for party in body["parties"])
        return all(word is not None and word[2] == ACCEPT for word in words)

    def current(self, tables: Tables, agreement_id: Key, now: int | None) -> int | None:
        """Return the current version: the highest active one, else the highest (AGR-008)."""
        versions = self.versions(tables, agreement_id)
        active = [version for version in versions if self.is_active(tables, agreement_id, version, now)]
        return max(active or versions, default=None)

    def _definition(self, tables: Tables, agreement_id: Key, version: int) -> Fields | None:
        definition = tables.get("definitions", (agreement_id, version))
        return None if definition is None else DEFINITION.decode(definition[0][2])

    def parse_key(self, text: str) -> Key:
        """Parse the id of an agreement: hex."""
        return parse_hex32(text)

    def view_version(
        self, tables: Tables, agreement_id: Key, version: int, now: int | None = None
    ) -> dict[str, JsonValue] | None:
        """Return a version with the last decision of each party; None if it is not defined."""
        definition = tables.get("definitions", (agreement_id, version))
        body = self._definition(tables, agreement_id, version)
        if definition is None or body is None:
            return None
        version_json = DEFINITION.to_json(body)
        version_json["active"] = self.is_active(tables, agreement_id, version, now)
        version_json["redefined"] = definition[1] is not None
        version_json["stream_seq"] = definition[0][0][1]
        version_json["parties"] = [
            _word(party, tables.get("confirmations", (agreement_id, version, party)))
            for party in body["parties"]
        ]
        return version_json

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:
        """Return an agreement with all of its versions."""
        versions = self.versions(tables, key)
        if not versions:
            return None
        rows: list[JsonValue] = [self.view_version(tables, key, version, now) for version in versions]
        current = self.current(tables, key, now)
        assert current is not None
        return {
            "current_version": current,
            "active": self.is_active(tables, key, current, now),
            "versions": rows,
        }

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:
        """Return every agreement."""
        keys = sequence_keys(tables, "versions")
        return {key.hex(): self.view_key(tables, key, now) for key in keys}

    def serialized(self, tables: Tables) -> list[Any]:
        """Return definitions and the last decisions."""
        return [
            [[*key, row[0][1]] for key, row in tables.items("definitions")],
            [[*key, row[2]] for key, row in tables.items("confirmations")],
        ]


def _define(event: Event, before: Tables) -> Lowered:
    body = event.body
    one, version = body["agreement_id"], body["version"]
    data = operation_body(event)
    hashed = sha256(data)
    known = before.get("definitions", (one, version))
    highest = before.get("highest", one)
    reports = []
    if known is not None and known[0][1] != hashed:  # AGR-005
        reports.append(
            (
                "OP.AGREEMENT_REDEFINED",
                "the version was defined before with other content; the first one counts",
            )
        )
    elif highest is not None and version <= highest[0]:  # AGR-003
        reports.append(("OP.AGREEMENT_VERSION", "the version is not above all earlier versions"))
    cells: list[Cell] = [("definitions", (one, version), first(event.position, hashed, data))]
    if known is None:
        cells += [*appended(before, "versions", one, (event.position, version)), ("highest", one, (version,))]
    return Lowered(cells, reports)


def _rejected(code: str, text: str) -> Lowered:
    return Lowered((), ((code, text),))


def _word(party: bytes, confirmation: Any) -> JsonValue:
    confirmed = confirmation is not None
    return {
        "identity": party.hex(),
        "decision": confirmation[2] if confirmed else None,
        "decision_time": confirmation[3] if confirmed else None,
        "stream_seq": confirmation[0][1] if confirmed else None,
        "msg_id": confirmation[1].hex() if confirmed else None,
    }
