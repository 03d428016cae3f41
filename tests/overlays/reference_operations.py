"""Reference folds of the operation profiles: one event after the other, straight from the rules."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import pairwise
from typing import Any

import cbor2

from tests.overlays.histories_operations import ACCESS, DELEGATED, DEVICES, RECOVERY, STREAMS
from tests.overlays.logs import T0
from tests.overlays.reference_decoder import bodies
from veen.overlays.event import Record

FIELDS = {
    "access.grant.v1": "subject_identity subject_label allowed_stream_ids expiry_time "
    "maximum_rate_per_second maximum_burst maximum_amount currency_code reason parent_operation_id",
    "access.revoke.v1": "subject_identity target_capability_reference reason parent_operation_id",
    "delegated.execution.v1": "principal_identity agent_identity delegation_chain operation_schema "
    "operation_body parent_operation_id metadata",
    "agreement.definition.v1": "agreement_id version terms_hash terms_attachment_root parties "
    "effective_time expiry_time metadata",
    "agreement.confirmation.v1": "agreement_id version party_identity decision decision_time "
    "parent_operation_id metadata",
    "data.publication.v1": "publication_id publisher_identity content_root content_class version labels "
    "source_uri metadata",
    "state.checkpoint.v1": "state_id upto_stream_seq mmr_root state_hash state_class metadata",
    "recovery.request.v1": "target_identity requested_new_identity reason request_time metadata",
    "recovery.approval.v1": "target_identity requested_new_identity approver_identity policy_group_id "
    "decision decision_time parent_operation_id metadata",
    "recovery.execution.v1": "target_identity new_identity applied_time approval_references metadata",
    "query.audit.v1": "requester_identity resource_identifier resource_class query_parameters purpose_code "
    "result_digest request_time metadata",
    "federation.mirror.v1": "source_hub_identifier source_label source_stream_seq source_leaf_hash "
    "source_receipt_root target_label mirror_time metadata",
    "crdt.lww.v1": "key ts value",
}


def schema_id(name: str) -> bytes:
    """Return the id of a schema: under a prefix, but for those of the core."""
    prefix = "" if name.startswith("crdt.") else "veen/schema:"
    return sha256((prefix + name).encode()).digest()


def operation_id(msg_id: bytes) -> bytes:
    return sha256(b"veen/operation-id\x00" + msg_id).digest()


def _events(records: Iterable[Record], *names: str) -> Iterator[tuple[str, Any, Record, bytes]]:
    for name, body, record, canonical in bodies(records, {schema_id(name): name for name in names}):
        if list(body) == FIELDS[name].split():
            yield name, body, record, canonical


def _json(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {key: _json(item) for key, item in value.items()}
        case list():
            return [_json(item) for item in value]
    return value


def _present(body: Any) -> dict[str, Any]:
    return {key: _json(value) for key, value in body.items() if value is not None}


def _by_key(found: dict[bytes, Any]) -> dict[str, Any]:
    return {key.hex(): found[key] for key in sorted(found)}


def access(records: Iterable[Record]) -> Any:
    subjects: dict[bytes, list[dict[str, Any]]] = {}
    bootstrap = {known.token.subject_pk: known.token for known in ACCESS["bootstrap"]}
    kept = set(bootstrap)
    for name, body, record, canonical in _events(records, "access.grant.v1", "access.revoke.v1"):
        if record.client_id not in ACCESS["issuers"]:
            continue
        subject = body["subject_identity"]
        rows = subjects.setdefault(subject, [])
        if name == "access.grant.v1":
            if body["maximum_amount"] is None:
                body = {**body, "currency_code": None}  # noqa: PLW2901 - it is ignored
            rows.append(
                {
                    "operation_id": operation_id(canonical).hex(),
                    "msg_id": canonical.hex(),
                    "stream_seq": record.stream_seq,
                    "issuer": record.client_id.hex(),
                    "auth_ref": _auth_ref(record.client_id, body),
                    "effective": True,
                    **_present(body),
                }
            )
            continue
        target = body["target_capability_reference"]
        for row in rows:
            if target is None or target.hex() in (row["auth_ref"], row["operation_id"]):
                row["effective"] = False
        if subject in kept and target in (None, bytes(bootstrap[subject].auth_ref)):
            kept.discard(subject)
    found: dict[bytes, Any] = {}
    for subject in {*subjects, *kept}:
        rows = subjects.get(subject, [])
        held = [bootstrap[subject]] if subject in kept else []
        streams = {one for row in rows if row["effective"] for one in row["allowed_stream_ids"]}
        streams |= {one.hex() for token in held for one in token.allow.stream_ids}
        found[subject] = {
            "streams": sorted(streams),
            "grants": rows,
            "bootstrap": [token.auth_ref.hex() for token in held],
        }
        if not rows and not held:
            found[subject] = None
    # Who was only ever revoked is not listed; who has lost what he began with is.
    listed = {one for one in found if subjects.get(one) or one in bootstrap} | set(bootstrap)
    return {one.hex(): found.get(one) for one in sorted(listed)}


def _auth_ref(issuer: bytes, body: Any) -> str | None:
    per_sec = body["maximum_rate_per_second"]
    burst = per_sec if body["maximum_burst"] is None else body["maximum_burst"]
    for known in ACCESS["tokens"]:
        token, rate = known.token, known.token.allow.rate
        if (
            (token.issuer_pk, token.subject_pk) == (issuer, body["subject_identity"])
            and sorted(body["allowed_stream_ids"]) == list(token.allow.stream_ids)
            and (None if rate is None else (rate.per_sec, rate.burst))
            == (None if per_sec is None else (per_sec, burst))
            and abs(T0 + token.allow.ttl - body["expiry_time"]) <= 600
        ):
            return str(token.auth_ref.hex())
    return None


def delegated(records: Iterable[Record]) -> Any:
    rows: list[Any] = []
    counts: dict[Any, int] = {}
    registers: dict[bytes, Any] = {}
    names = ("delegated.execution.v1", "crdt.lww.v1")
    for name, body, record, canonical in _events(records, *names):
        inner = body
        if name != "crdt.lww.v1":
            outcome = _outcome(body, record)
            inner = body["operation_body"] if body["operation_schema"] == schema_id("crdt.lww.v1") else None
            if outcome == "applied" and inner is not None and not isinstance(inner, dict):
                outcome = "OP.DELEGATION_BODY"
            rows.append(
                {
                    "msg_id": canonical.hex(),
                    "stream_seq": record.stream_seq,
                    "client_id": record.client_id.hex(),
                    "outcome": outcome,
                    **_present(body),
                }
            )
            pair = (body["principal_identity"], body["agent_identity"], outcome)
            counts[pair] = counts.get(pair, 0) + 1
            inner = inner if outcome == "applied" else None
        if inner is not None:
            order = (inner["ts"], record.stream_seq)
            if inner["key"] not in registers or order > registers[inner["key"]][0]:
                registers[inner["key"]] = (order, inner["value"])
    return {
        "executions": rows,
        "counts": [
            {
                "principal": one.hex(),
                "agent": two.hex(),
                "outcome": outcome,
                "count": counts[one, two, outcome],
            }
            for one, two, outcome in sorted(counts, key=lambda pair: cbor2.dumps(list(pair)))
        ],
        "operations": {key.decode(): registers[key][1].decode() for key in sorted(registers)},
    }


def _outcome(body: Any, record: Record) -> str:
    known = {bytes(item.token.auth_ref): item.token for item in DELEGATED["tokens"]}
    chain = [known[ref] for ref in body["delegation_chain"] if ref in known]
    if len(chain) < len(body["delegation_chain"]):
        return "OP.DELEGATION_UNKNOWN"
    if chain[0].subject_pk != body["principal_identity"]:
        return "OP.DELEGATION_PRINCIPAL"
    if chain[-1].subject_pk not in (body["agent_identity"], record.client_id):
        return "OP.DELEGATION_AGENT"
    if STREAMS[0] not in chain[-1].allow.stream_ids:
        return "OP.DELEGATION_SCOPE"
    for above, below in pairwise(chain):
        if above.subject_pk != below.issuer_pk:
            return "OP.DELEGATION_LINK"
        if not set(below.allow.stream_ids) <= set(above.allow.stream_ids):
            return "OP.DELEGATION_STREAMS"
        if below.allow.ttl > above.allow.ttl:  # all are known from the same second on
            return "OP.DELEGATION_OUTLIVES"
    for token in chain:
        if not any(token.sig_chain[0]):
            return "OP.DELEGATION_SIGNATURE"
        if record.hub_ts > T0 + token.allow.ttl:
            return "OP.DELEGATION_EXPIRED"
        for item in DELEGATED["revocations"]:
            named = token.auth_ref if item.target_kind == "auth-ref" else token.subject_pk
            if item.target == named and item.ts <= record.hub_ts < item.ts + (item.ttl or 10**9):
                return "OP.DELEGATION_REVOKED"
    return "applied"


def agreement(records: Iterable[Record]) -> Any:
    found: dict[bytes, dict[int, dict[str, Any]]] = {}
    for name, body, record, canonical in _events(
        records, "agreement.definition.v1", "agreement.confirmation.v1"
    ):
        versions = found.setdefault(body["agreement_id"], {})
        known = versions.get(body["version"])
        if name == "agreement.definition.v1":
            if known is None:
                nobody = dict.fromkeys(["decision", "decision_time", "stream_seq", "msg_id"])
                parties = {one: {"identity": one.hex(), **nobody} for one in body["parties"]}
                versions[body["version"]] = {"body": body, "seq": record.stream_seq, "parties": parties}
            elif known["body"] != body:
                known["redefined"] = True
            continue
        party = body["party_identity"]
        if known is None or party not in known["parties"]:
            continue
        if party not in (record.client_id, DEVICES.get(record.client_id)):
            continue
        known["parties"][party] = {
            "identity": party.hex(),
            "decision": body["decision"],
            "decision_time": body["decision_time"],
            "stream_seq": record.stream_seq,
            "msg_id": canonical.hex(),
        }
    return _by_key({one: _agreement(versions) for one, versions in found.items() if versions})


def _agreement(versions: dict[int, dict[str, Any]]) -> Any:
    rows = []
    for version in sorted(versions):
        known = versions[version]
        parties = list(known["parties"].values())
        rows.append(
            {
                **_present(known["body"]),
                "parties": parties,
                "active": all(item["decision"] == "accept" for item in parties),
                "redefined": known.get("redefined", False),
                "stream_seq": known["seq"],
            }
        )
    active = [row["version"] for row in rows if row["active"]]
    current = max(active or versions)
    return {"current_version": current, "active": current in active, "versions": rows}


def publication(records: Iterable[Record]) -> Any:
    found: dict[bytes, dict[str, Any]] = {}
    for _, body, record, _ in _events(records, "data.publication.v1"):
        one = found.setdefault(body["publication_id"], {"latest": None, "versions": {}})
        known = one["versions"].get(body["version"])
        if known is not None:
            if known["content_root"] != body["content_root"].hex() and known["conflict"] is None:
                known["conflict"] = body["content_root"].hex()
            continue
        one["latest"] = body["version"]
        one["versions"][body["version"]] = {
            **_present(body),
            "stream_seq": record.stream_seq,
            "client_id": record.client_id.hex(),
            "signed_by_publisher": record.client_id == body["publisher_identity"],
            "conflict": None,
        }
    return _by_key(found)


def snapshot(records: Iterable[Record]) -> Any:
    found: dict[tuple[Any, ...], Any] = {}
    for _, body, record, _ in _events(records, "state.checkpoint.v1"):
        # With epochs the number may be of an earlier label, which has a root of its own.
        places = (body["upto_stream_seq"], body["mmr_root"] if record.epoch else None)
        if places[0] >= 1 and (record.epoch or places[0] <= record.stream_seq):
            found[body["state_id"], places, body["state_class"]] = {
                "stream_seq": record.stream_seq,
                "client_id": record.client_id.hex(),
                **_present(body),
            }
    return sorted(found.values(), key=lambda row: row["stream_seq"])


class _Target:
    """What is known of an identity that is to be recovered."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.open: list[tuple[int, bytes]] = []


def recovery(records: Iterable[Record]) -> Any:
    targets: dict[bytes, _Target] = {}
    approvals: dict[bytes, tuple[int, Any, bool]] = {}
    moved: dict[bytes, bytes] = {}
    names = [f"recovery.{kind}.v1" for kind in ("request", "approval", "execution")]
    for name, body, record, canonical in _events(records, *names):
        target = targets.setdefault(body["target_identity"], _Target())
        code = None
        if name == names[0]:
            target.open.append((record.stream_seq, body["requested_new_identity"]))
        elif name == names[1]:
            authentic = body["approver_identity"] in (record.client_id, DEVICES.get(record.client_id))
            for ref in (canonical, operation_id(canonical)):
                approvals[ref] = (record.stream_seq, body, authentic)
            code = None if authentic else "OP.RECOVERY_UNAUTHENTICATED"
        else:
            code = _execute(body, record, target, approvals, moved)
            if code is None:
                target.open.clear()
                moved[body["target_identity"]] = body["new_identity"]
        target.rows.append(
            {
                "type": name.split(".")[1],
                "stream_seq": record.stream_seq,
                "msg_id": canonical.hex(),
                "operation_id": operation_id(canonical).hex(),
                "client_id": record.client_id.hex(),
                "counts": code is None,
                "code": code,
                **_present(body),
            }
        )
    return _by_key(
        {
            one: {"identity": _follow(one, moved)[-1].hex(), "timeline": target.rows}
            for one, target in targets.items()
        }
    )


def _follow(one: bytes, moved: dict[bytes, bytes]) -> list[bytes]:
    found = [one]
    while found[-1] in moved:
        found.append(moved[found[-1]])
    return found


def _execute(
    body: Any, record: Record, target: _Target, approvals: dict[bytes, Any], moved: dict[bytes, bytes]
) -> str | None:
    sender = {record.client_id, DEVICES.get(record.client_id)}
    if not sender & RECOVERY["executors"]:
        return "OP.RECOVERY_EXECUTOR"
    one, new = body["target_identity"], body["new_identity"]
    guardians, threshold = RECOVERY["guardians"].get(one, RECOVERY["default_policy"])
    places, approvers = [], set()
    for ref in body["approval_references"]:
        if ref not in approvals:
            return "OP.RECOVERY_REFERENCE"
        place, said, authentic = approvals[ref]
        if said["decision"] != "approve":
            return "OP.RECOVERY_NOT_APPROVED"
        if (said["target_identity"], said["requested_new_identity"]) != (one, new):
            return "OP.RECOVERY_OTHER"
        places.append(place)
        if authentic and said["approver_identity"] in guardians:
            approvers.add(said["approver_identity"])
    if len(approvers) < threshold:
        return "OP.RECOVERY_THRESHOLD"
    if not any(wanted == new and place < min(places) for place, wanted in target.open):
        return "OP.RECOVERY_NO_REQUEST"
    return "OP.RECOVERY_CYCLE" if one in _follow(new, moved) else None


def audit(records: Iterable[Record]) -> Any:
    rows: list[Any] = []
    classes: dict[str, int] = {}
    for _, body, record, canonical in _events(records, "query.audit.v1"):
        rows.append(
            {
                "stream_seq": record.stream_seq,
                "msg_id": canonical.hex(),
                "client_id": record.client_id.hex(),
                "time": record.hub_ts if body["request_time"] is None else body["request_time"],
                **_present(body),
            }
        )
        classes[body["resource_class"]] = classes.get(body["resource_class"], 0) + 1
    return {"classes": {key: classes[key] for key in sorted(classes, key=cbor2.dumps)}, "queries": rows}


def mirror(records: Iterable[Record]) -> Any:
    roads: dict[tuple[Any, ...], dict[int, list[Any]]] = {}
    for _, body, record, _ in _events(records, "federation.mirror.v1"):
        if body["source_label"] == body["target_label"] or not body["source_stream_seq"]:
            continue
        road = (body["source_hub_identifier"], body["source_label"], body["target_label"])
        said = {
            "stream_seq": record.stream_seq,
            "source_leaf_hash": body["source_leaf_hash"].hex(),
            "source_receipt_root": body["source_receipt_root"].hex(),
        }
        roads.setdefault(road, {}).setdefault(body["source_stream_seq"], []).append(said)
    return [_road(road, roads[road]) for road in sorted(roads, key=lambda road: cbor2.dumps(list(road)))]


def _road(road: tuple[Any, ...], seen: dict[int, list[Any]]) -> Any:
    last = max(seen)
    conflicts = []
    for seq in sorted(seen):
        others = [said for said in seen[seq] if said["source_leaf_hash"] != seen[seq][0]["source_leaf_hash"]]
        if others:
            conflicts.append({"source_stream_seq": seq, "first": seen[seq][0], "other": others[0]})
    count = sum(map(len, seen.values()))
    return {
        "source_hub_identifier": road[0],
        "source_label": road[1].hex(),
        "target_label": road[2].hex(),
        "ranges": _runs([seq for seq in range(1, last + 1) if seq in seen]),
        "gaps": _runs([seq for seq in range(1, last + 1) if seq not in seen]),
        "records": count,
        "duplicates": count - len(seen),
        "conflicts": conflicts,
    }


def _runs(numbers: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


OPERATION_REFERENCES = {
    "access": access,
    "delegated": delegated,
    "agreement": agreement,
    "publication": publication,
    "snapshot": snapshot,
    "recovery": recovery,
    "query.audit": audit,
    "federation.mirror": mirror,
}
