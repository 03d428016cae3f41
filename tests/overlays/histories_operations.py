"""Random histories of the operation profiles, with careless and hostile writers among the others."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.overlays.logs import T0, WRITERS, Log, ident, spoil
from veen.core.crypto.ed25519 import SigningKey
from veen.core.objects.capability import CapToken, Rate
from veen.core.objects.control_record import RevocationRecord
from veen.core.types import Signature, StreamId, VerifyKey
from veen.overlays.builtin.crdt import LWW, LwwMap
from veen.overlays.event import Record, operation_id
from veen.overlays.operations import schemas as op
from veen.overlays.operations.delegation import KnownToken
from veen.overlays.operations.recovery import RecoveryPolicy
from veen.overlays.schema import Schema

#: A device of the first writer.
DEVICE = ident("device")
DEVICES = {DEVICE: WRITERS[0]}
KEYS = [SigningKey.from_seed(ident("key", nth)) for nth in range(4)]
STREAMS = [StreamId(ident("stream", nth)) for nth in range(3)]


def _token(issuer: int, subject: bytes, streams: list[StreamId], ttl: int, **more: Any) -> CapToken:
    return CapToken.mint(KEYS[issuer], VerifyKey(subject), stream_ids=streams, ttl=ttl, **more)


def _spoilt(token: CapToken) -> CapToken:
    return CapToken(
        issuer_pk=token.issuer_pk,
        subject_pk=token.subject_pk,
        allow=token.allow,
        sig_chain=(Signature(bytes(64)),),
    )


def _mixed(rng: Random, count: int, schemas: tuple[Schema, ...], one: Callable[[Log], Any]) -> list[Record]:
    log = Log(rng)
    while len(log.records) < count:
        if rng.random() < 0.2:
            spoil(log, schemas, by_parent=False)
        else:
            one(log)
    return log.records[:count]


def _maybe(rng: Random, value: Any) -> Any:
    return value if rng.random() < 0.5 else None


# --- access -------------------------------------------------------------------------------------------------

#: Two tokens for grants of the history, one of them out of reach, and one from before any grant.
GRANTED = tuple(
    KnownToken(_token(nth, WRITERS[nth], STREAMS[:2], 1000, rate=Rate(per_sec=3, burst=3)), T0)
    for nth in (0, 1)
)
ACCESS: dict[str, Any] = {
    "issuers": frozenset({*(bytes(key.public_key) for key in KEYS[:2]), WRITERS[0]}),
    "tokens": (*GRANTED, KnownToken(_token(0, WRITERS[0], STREAMS[:2], 9000), T0)),
    "bootstrap": (KnownToken(_token(2, WRITERS[3], STREAMS[2:], 60), T0),),
}


def access(rng: Random, count: int) -> list[Record]:
    """Grants and revokes of few subjects, by some who may and some who may not."""

    def one(log: Log) -> None:
        subject = rng.choice(WRITERS)
        issuer = rng.choice([*sorted(ACCESS["issuers"]), WRITERS[2]])
        if rng.random() < 0.6:
            per_sec = _maybe(rng, 3)
            log.event(
                op.GRANT,
                client_id=issuer,
                subject_identity=subject,
                allowed_stream_ids=tuple(rng.sample(STREAMS[:2], rng.choice([1, 2, 2]))),
                expiry_time=T0 + rng.choice([30, 1000, 9000]),
                maximum_rate_per_second=per_sec,
                maximum_burst=None if per_sec is None else _maybe(rng, 3),
                maximum_amount=_maybe(rng, 5),
                currency_code=_maybe(rng, "EUR"),
            )
            return
        targets = [record for record in log.records if record.schema == op.GRANT.schema_id]
        names = [operation_id(record.msg_id) for record in targets] + [
            known.token.auth_ref for known in (*GRANTED, *ACCESS["bootstrap"])
        ]
        target = rng.choice(names) if rng.random() < 0.7 else None
        log.event(
            op.REVOKE,
            client_id=issuer,
            subject_identity=subject,
            target_capability_reference=None if target is None else bytes(target),
        )

    return _mixed(rng, count, (op.GRANT, op.REVOKE), one)


# --- delegation ---------------------------------------------------------------------------------------------

PRINCIPAL, MIDDLE, AGENT = (bytes(key.public_key) for key in KEYS[1:4])
_ROOT = _token(0, PRINCIPAL, STREAMS, 1000)
_DOWN = _token(1, MIDDLE, STREAMS[:2], 500)
_LAST = _token(2, AGENT, STREAMS[:1], 40)
_WIDE = _token(2, AGENT, STREAMS, 40)
_LONG = _token(2, AGENT, STREAMS[:1], 5000)
_AFAR = _token(2, AGENT, STREAMS[1:2], 30)
_BAD = _spoilt(_LAST)
_GONE = _token(1, AGENT, STREAMS[:1], 77)
_UNKNOWN = _token(3, AGENT, STREAMS, 5)
DELEGATED: dict[str, Any] = {
    "tokens": tuple(KnownToken(one, T0) for one in (_ROOT, _DOWN, _LAST, _WIDE, _LONG, _AFAR, _BAD, _GONE)),
    "revocations": (
        RevocationRecord(target_kind="auth-ref", target=_GONE.auth_ref, ts=T0 + 10, ttl=25),
        RevocationRecord(target_kind="client-id", target=MIDDLE, ts=T0 + 48),
    ),
    "stream_id": STREAMS[0],
    "inner": LwwMap(),
}
_CHAINS = (
    (_ROOT, _DOWN, _LAST),
    (_ROOT, _DOWN, _LAST),
    (_ROOT, _GONE),
    (_ROOT, _DOWN, _WIDE),
    (_ROOT, _DOWN, _LONG),
    (_ROOT, _DOWN, _AFAR),
    (_ROOT, _DOWN, _BAD),
    (_ROOT, _LAST),
    (_DOWN, _LAST),
    (_ROOT, _UNKNOWN),
    (_ROOT, _DOWN),
)


def delegated(rng: Random, count: int) -> list[Record]:
    """Good and broken chains, and writes that nobody has delegated."""

    def one(log: Log) -> None:
        body = LWW.encode(LWW.make(key=b"k%d" % rng.randrange(3), ts=rng.randrange(5), value=b"v"))
        if rng.random() < 0.2:
            log.add(LWW, body)
            return
        log.event(
            op.DELEGATED,
            client_id=rng.choice([AGENT, AGENT, MIDDLE]),
            principal_identity=PRINCIPAL,
            agent_identity=AGENT,
            delegation_chain=tuple(bytes(token.auth_ref) for token in rng.choice(_CHAINS)),
            operation_schema=rng.choice([LWW.schema_id, LWW.schema_id, ident("some other schema")]),
            operation_body=rng.choice([body, body, b"\x05"]),
            metadata=_maybe(rng, {"why": "because"}),
        )

    return _mixed(rng, count, (op.DELEGATED, LWW), one)


# --- agreement ----------------------------------------------------------------------------------------------


def agreement(rng: Random, count: int) -> list[Record]:
    """Definitions, again and in another way, and words of parties, devices and strangers."""

    def one(log: Log) -> None:
        which, version = ident("agreement", rng.randrange(2)), rng.randrange(1, 4)
        if rng.random() < 0.3:
            log.event(
                op.DEFINITION,
                agreement_id=which,
                version=version,
                terms_hash=ident("terms", rng.randrange(2)),
                parties=tuple(WRITERS[: rng.choice([1, 2])]),
                effective_time=_maybe(rng, T0 + 10),
                expiry_time=_maybe(rng, T0 + 30),
            )
            return
        party = rng.choice(WRITERS[:3])
        log.event(
            op.CONFIRMATION,
            client_id=rng.choice([party, party, party, DEVICE, WRITERS[3]]),
            agreement_id=which,
            version=version,
            party_identity=party,
            decision=rng.choice(["accept", "accept", "accept", "reject", "withdraw", "perhaps"]),
            decision_time=_maybe(rng, T0),
        )

    return _mixed(rng, count, (op.DEFINITION, op.CONFIRMATION), one)


# --- publication, snapshot ----------------------------------------------------------------------------------


def publication(rng: Random, count: int) -> list[Record]:
    """Few publications with few versions, some of them twice."""

    def one(log: Log) -> None:
        log.event(
            op.PUBLICATION,
            publication_id=ident("publication", rng.randrange(2)),
            publisher_identity=WRITERS[0],
            content_root=ident("content", rng.randrange(2)),
            content_class="dataset",
            version=f"1.{rng.randrange(8)}",
            labels=_maybe(rng, ("a", "b")),
            metadata=_maybe(rng, {"n": [1, b"\x02"]}),
        )

    return _mixed(rng, count, (op.PUBLICATION,), one)


def snapshot(rng: Random, count: int) -> list[Record]:
    """Snapshots of few states, some of them of the future."""

    def one(log: Log) -> None:
        log.event(
            op.SNAPSHOT,
            state_id=ident("state", rng.randrange(2)),
            upto_stream_seq=rng.choice([0, 1, 5, 20, 40]),
            mmr_root=ident("root", rng.randrange(3)),
            state_hash=ident("hash", rng.randrange(3)),
            state_class=rng.choice(["lww.map", "orset"]),
        )

    return _mixed(rng, count, (op.SNAPSHOT,), one)


# --- recovery -----------------------------------------------------------------------------------------------

LOST = [ident("lost", nth) for nth in range(3)]
RECOVERY: dict[str, Any] = {
    "guardians": {
        LOST[0]: RecoveryPolicy(frozenset(WRITERS[:3]), 2),
        LOST[1]: RecoveryPolicy(frozenset({WRITERS[0]}), 1),
    },
    "default_policy": RecoveryPolicy(frozenset(WRITERS[:2]), 1),
    "executors": frozenset(WRITERS[:3]),
    "devices": DEVICES,
}


def recovery(rng: Random, count: int) -> list[Record]:
    """Requests, approvals and executions of few identities, in every order."""
    schemas = (op.RECOVERY_REQUEST, op.RECOVERY_APPROVAL, op.RECOVERY_EXECUTION)

    def one(log: Log) -> None:
        target, new = rng.choice(LOST), rng.choice(LOST)
        kind = rng.randrange(5)
        if kind == 4:
            _recover(log, target, new)
        elif kind == 0:
            log.event(schemas[0], target_identity=target, requested_new_identity=new)
        elif kind == 3:
            log.event(
                schemas[2],
                client_id=rng.choice([*WRITERS[:3], *WRITERS, DEVICE]),
                **_execution(log, rng, target, new),
            )
        else:
            approver = rng.choice(WRITERS[:3])
            log.event(
                schemas[1],
                client_id=rng.choice([approver, approver, approver, DEVICE]),
                target_identity=target,
                requested_new_identity=new,
                approver_identity=approver,
                decision=rng.choice(["approve"] * 5 + ["reject"]),
            )

    return _mixed(rng, count, schemas, one)


def _recover(log: Log, target: bytes, new: bytes) -> None:
    """Append all that a recovery needs."""
    about = {"target_identity": target, "requested_new_identity": new}
    log.event(op.RECOVERY_REQUEST, **about)
    refs = [
        log.event(
            op.RECOVERY_APPROVAL, client_id=who, **about, approver_identity=who, decision="approve"
        ).msg_id
        for who in WRITERS[:2]
    ]
    log.event(
        op.RECOVERY_EXECUTION,
        client_id=WRITERS[0],
        target_identity=target,
        new_identity=new,
        approval_references=tuple(refs),
    )


def _execution(log: Log, rng: Random, target: bytes, new: bytes) -> dict[str, Any]:
    """Return an execution that mostly refers to approvals as it should."""
    approvals = [
        (record, op.RECOVERY_APPROVAL.decode(record.body))
        for record in log.records
        if record.schema == op.RECOVERY_APPROVAL.schema_id and record.body.endswith(b"\xf6")
    ]
    if approvals:
        _, body = rng.choice(approvals)
        target, new = body["target_identity"], body["requested_new_identity"]
    fitting = [
        record.msg_id
        for record, body in approvals
        if (body["target_identity"], body["requested_new_identity"]) == (target, new)
    ][-rng.randrange(1, 4) :]
    refs = [operation_id(one) if rng.random() < 0.5 else one for one in fitting]
    if rng.random() < 0.1:
        refs.append(ident("nothing"))
    if approvals and rng.random() < 0.1:
        refs.append(rng.choice(approvals)[0].msg_id)
    return {"target_identity": target, "new_identity": new, "approval_references": tuple(refs)}


# --- audit, mirror ------------------------------------------------------------------------------------------


def audit(rng: Random, count: int) -> list[Record]:
    """Queries of few classes, with and without times."""

    def one(log: Log) -> None:
        log.event(
            op.QUERY,
            requester_identity=rng.choice(WRITERS),
            resource_identifier=f"patients/{rng.randrange(9)}",
            resource_class=rng.choice(["health", "billing"]),
            query_parameters=_maybe(rng, {"from": 1}),
            purpose_code=_maybe(rng, "treatment"),
            request_time=_maybe(rng, T0 + rng.randrange(50)),
        )

    return _mixed(rng, count, (op.QUERY,), one)


def mirror(rng: Random, count: int) -> list[Record]:
    """Records with gaps, doubles and contradictions."""

    def one(log: Log) -> None:
        seq = rng.randrange(1, 30)
        log.event(
            op.MIRROR,
            source_hub_identifier=rng.choice(["a", "b"]),
            source_label=ident("label", rng.randrange(2)),
            source_stream_seq=seq,
            source_leaf_hash=ident("leaf", seq, rng.random() < 0.1),
            source_receipt_root=ident("root", seq),
            target_label=ident("label", rng.choice([2, 2, 2, 1])),
        )

    return _mixed(rng, count, (op.MIRROR,), one)


OPERATION_HISTORIES = {
    "access": access,
    "delegated": delegated,
    "agreement": agreement,
    "publication": publication,
    "snapshot": snapshot,
    "recovery": recovery,
    "query.audit": audit,
    "federation.mirror": mirror,
}
#: What the folds of these histories are configured with.
OPERATION_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "access": ACCESS,
    "delegated": DELEGATED,
    "agreement": {"devices": DEVICES},
    "recovery": RECOVERY,
}
