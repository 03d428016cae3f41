"""Recovery: guardians approve that a new identity replaces a lost one (REC lines)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Final, NamedTuple

from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.encoding.shape import Fields
from veen.core.types import JsonValue
from veen.overlays.errors import ParameterError
from veen.overlays.event import Devices, Event, operation_id, speaks_for
from veen.overlays.monoid import MAX, MIN, Monoid, Position
from veen.overlays.operations.schemas import (
    RECOVERY_APPROVAL,
    RECOVERY_EXECUTION,
    RECOVERY_REQUEST,
    operation_body,
)
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

APPROVE: Final = "approve"
# Kinds of events in the history of a target.
_KINDS: Final = {"request": RECOVERY_REQUEST, "approval": RECOVERY_APPROVAL, "execution": RECOVERY_EXECUTION}

Verdict = tuple[str, str]


class RecoveryPolicy(NamedTuple):
    """The guardians of a target, and the number of them that suffices."""

    guardians: frozenset[bytes]
    threshold: int


class _Approval(NamedTuple):
    """An approval that an execution may refer to."""

    position: Position
    target: bytes
    new: bytes
    approver: bytes
    decision: str
    authentic: bool


class Recoveries(Overlay):
    """The history of each target, and which identity replaced which."""

    name: ClassVar[str] = "recovery"
    version: ClassVar[int] = 2
    about: ClassVar[str] = "Recovery: requests, approvals, executions, and which identity replaces which."
    schemas: ClassVar[tuple[Schema, ...]] = (RECOVERY_REQUEST, RECOVERY_APPROVAL, RECOVERY_EXECUTION)
    tables: ClassVar[Mapping[str, Monoid]] = {**sequence_tables("histories"), "remap": MAX}
    # Approvals by their ids; the first open request of each target and new identity.
    indexes: ClassVar[Mapping[str, Monoid]] = {"approvals": MIN, "requests": MAX}
    state_class: ClassVar[str] = "recovery"

    # Policy of each target (REC-006).
    guardians: Mapping[bytes, RecoveryPolicy] = field(default_factory=dict)
    # Policy of the targets without one of their own.
    default_policy: RecoveryPolicy | None = None
    # Keys that may send executions; if empty, every key (REC-010).
    executors: frozenset[bytes] = frozenset()
    # Keys of clients that act for an identity (REC-011).
    devices: Devices = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject a policy that any, or no, set of approvals would satisfy."""
        for policy in (*self.guardians.values(), self.default_policy):
            if policy is not None and not 1 <= policy.threshold <= len(policy.guardians):
                count = len(policy.guardians)
                raise ParameterError(
                    f"a policy needs 1 to {count} of {count} guardians, not {policy.threshold}"
                )

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Add an event to its target's history; whether an execution counts depends on what precedes it."""
        if event.schema is RECOVERY_REQUEST:
            return Lowered(_request(event, before))
        if event.schema is RECOVERY_APPROVAL:
            return self._approve(event, before)
        verdict = self._verdict(event, before)
        if verdict is not None:
            return Lowered(_entry(event, before, "execution", verdict[0]), (verdict,))
        body = event.body
        moved = ("remap", body["target_identity"], (event.position, body["new_identity"]))
        return Lowered((*_entry(event, before, "execution"), moved))

    def _approve(self, event: Event, before: Tables) -> Lowered:
        body = event.body
        approver = body["approver_identity"]
        authentic = speaks_for(event.record.client_id, approver, self.devices)
        code = "" if authentic else "OP.RECOVERY_UNAUTHENTICATED"
        approval = _Approval(
            event.position,
            body["target_identity"],
            body["requested_new_identity"],
            approver,
            body["decision"],
            authentic,
        )
        cells: list[Cell] = [
            *_entry(event, before, "approval", code),
            ("approvals", ("operation", event.operation_id), approval),
            ("approvals", ("message", event.canonical_id), approval),
        ]
        text = "an approval that the approver did not sign does not count"
        return Lowered(cells, () if authentic else ((code, text),))

    def _verdict(self, event: Event, before: Tables) -> Verdict | None:
        """Return why an execution does not count; None if it does."""
        body, client_id = event.body, event.record.client_id
        target, new = body["target_identity"], body["new_identity"]
        if self.executors and not any(
            speaks_for(client_id, one, self.devices) for one in self.executors
        ):  # REC-010
            return ("OP.RECOVERY_EXECUTOR", "the sender may not execute recoveries: executors are configured")
        policy = self.guardians.get(target, self.default_policy)
        if policy is None:
            return ("OP.RECOVERY_NO_POLICY", "no guardians are configured for the target")
        approvals, wrong = _resolve(body, before)
        if wrong is not None:
            return wrong
        counted = {item.approver for item in approvals if item.authentic} & policy.guardians  # REC-007
        if len(counted) < policy.threshold:
            return ("OP.RECOVERY_THRESHOLD", f"{len(counted)} of {policy.threshold} guardians approve")
        opened = _open_request(target, new, before)
        if opened is None or opened > min(item.position for item in approvals):
            return ("OP.RECOVERY_NO_REQUEST", "no open request precedes all of the approvals")
        if _leads_to(new, target, before):  # REC-009
            return ("OP.RECOVERY_CYCLE", "the new identity leads back to the target")
        return None

    def parse_key(self, text: str) -> Key:
        """Parse a target: hex."""
        return parse_hex32(text)

    def timeline(self, tables: Tables, target: Key) -> list[dict[str, JsonValue]]:
        """Return the history of a target, in log order."""
        return [_shown(row) for row in sequence(tables, "histories", target)]

    def targets(self, tables: Tables) -> list[bytes]:
        """Return the identities with a history."""
        return sequence_keys(tables, "histories")

    def executions(self, tables: Tables, target: Key) -> Iterator[tuple[dict[str, JsonValue], int]]:
        """Yield the executions about a target, each with the number of its approvers, guardians or not."""
        approvals: dict[JsonValue, dict[str, JsonValue]] = {}
        for row in self.timeline(tables, target):
            if row["type"] == "approval" and row["counts"] and row["decision"] == APPROVE:
                approvals |= {row["operation_id"]: row, row["msg_id"]: row}
            elif row["type"] == "execution":
                refs = row["approval_references"]
                assert isinstance(refs, list)
                named = [approvals[ref] for ref in refs if ref in approvals]
                fit = [one for one in named if one["requested_new_identity"] == row["new_identity"]]
                yield row, len({one["approver_identity"] for one in fit})

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the current identity of a target, and its history."""
        rows: list[JsonValue] = [*self.timeline(tables, key)]
        if not rows:
            return None
        assert isinstance(key, bytes)
        return {"identity": _last(key, tables).hex(), "timeline": rows}

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:
        """Return every target."""
        return {key.hex(): self.view_key(tables, key, now) for key in self.targets(tables)}

    def serialized(self, tables: Tables) -> Mapping[bytes, Any]:
        """Return target -> current identity."""
        return remap(tables)


def remap(tables: Tables) -> dict[bytes, bytes]:
    """Return replaced identity -> current identity (REC-009)."""
    return {key: _last(key, tables) for key, _ in tables.items("remap") if isinstance(key, bytes)}


def _entry(event: Event, before: Tables, kind: str, code: str = "") -> tuple[Cell, Cell]:
    entry = (event.position, event.canonical_id, kind, code, event.record.client_id, operation_body(event))
    return appended(before, "histories", event.body["target_identity"], entry)


def _resolve(body: Fields, before: Tables) -> tuple[list[_Approval], Verdict | None]:
    """Return the approvals that an execution refers to, or the rule that it breaks (REC-004, REC-005)."""
    approvals: list[_Approval] = []
    for number, ref in enumerate(body["approval_references"], start=1):
        known = before.get("approvals", ("operation", ref)) or before.get("approvals", ("message", ref))
        if known is None:
            return approvals, (
                "OP.RECOVERY_REFERENCE",
                f"reference {number} is not an approval before the execution",
            )
        approval = _Approval(*known)
        if approval.decision != APPROVE:
            return approvals, ("OP.RECOVERY_NOT_APPROVED", f"reference {number} does not approve")
        if (approval.target, approval.new) != (body["target_identity"], body["new_identity"]):
            return approvals, ("OP.RECOVERY_OTHER", f"reference {number} approves something else")
        approvals.append(approval)
    return approvals, None


def _request(event: Event, before: Tables) -> Sequence[Cell]:
    """Add a request; of several open ones only the first matters, since later ones imply it."""
    target, new = event.body["target_identity"], event.body["requested_new_identity"]
    entry = _entry(event, before, "request")
    if _open_request(target, new, before) is not None:
        return entry
    return (*entry, ("requests", (target, new), (event.position,)))


def _open_request(target: bytes, new: bytes, before: Tables) -> Position | None:
    """Return the position of the first request after the last execution that counts (REC-007)."""
    request, done = before.get("requests", (target, new)), before.get("remap", target)
    if request is None or (done is not None and done[0] > request[0]):
        return None
    place: Position = request[0]
    return place


def _leads_to(identity: bytes, target: bytes, tables: Tables) -> bool:
    while True:
        if identity == target:
            return True
        step = tables.get("remap", identity)
        if step is None:
            return False
        identity = step[1]


def _last(identity: bytes, tables: Tables) -> bytes:
    """Return the identity at the end of the chain of replacements; there are no cycles."""
    while (step := tables.get("remap", identity)) is not None:
        identity = step[1]
    return identity


def _shown(row: Any) -> dict[str, JsonValue]:
    place, canonical_id, kind, code, client_id, body = row
    schema = _KINDS[kind]
    return {
        "type": kind,
        "stream_seq": place[1],
        "msg_id": canonical_id.hex(),
        "operation_id": operation_id(canonical_id).hex(),
        "client_id": client_id.hex(),
        "counts": not code,
        "code": code or None,
        **schema.to_json(schema.decode(body)),
    }
