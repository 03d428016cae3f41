"""Steps about operations: permissions, agreements, snapshots, recoveries and the audit of queries."""

from typing import Any, Final

from veen.client.client import Client
from veen.client.fold.interpret import interpret, typed
from veen.client.fold.snapshots import make_snapshot, verify_snapshot
from veen.client.models import SendOptions
from veen.client.operations import grant_access, send_operation
from veen.core.crypto.hpke import public_key
from veen.core.encoding.shape import Fields
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.types import ReaderPublicKey, ReaderSecretKey
from veen.overlays.builtin.crdt import LWW, LwwMap
from veen.overlays.event import operation_id
from veen.overlays.operations.access import Access
from veen.overlays.operations.agreement import Agreements
from veen.overlays.operations.delegation import Delegated, KnownToken
from veen.overlays.operations.paid_ledger import PAID
from veen.overlays.operations.query_audit import QueryAudit
from veen.overlays.operations.recovery import Recoveries, RecoveryPolicy, remap
from veen.overlays.operations.schemas import (
    CONFIRMATION,
    DEFINITION,
    DELEGATED,
    GRANT,
    PUBLICATION,
    QUERY,
    RECOVERY_APPROVAL,
    RECOVERY_EXECUTION,
    RECOVERY_REQUEST,
    REVOKE,
    SNAPSHOT,
)
from veen.overlays.overlay import Overlay, Tables
from veen.overlays.schema import Schema
from veen.selftest.context import Context
from veen.selftest.servers import CONFIGS
from veen.selftest.step import Needs, check, equal, step

_HOUR: Final = 3600
_OWN: Final = "the hub must trust the issuer of the step, so it needs its own hub"


class _Table:
    """Clients of one stream; what any of them sends is sealed to the first."""

    def __init__(self, ctx: Context, stream: str, count: int, hub: str = "") -> None:
        self.stream = stream
        self.people = [ctx.client(hub=hub) for _ in range(count)]
        secrets = self.people[0].session.secrets
        self._reader: ReaderPublicKey = public_key(ReaderSecretKey(secrets.id_dh))

    @property
    def reader(self) -> Client:
        """The client that reads all operations."""
        return self.people[0]

    def identity(self, nth: int) -> bytes:
        """Return the identity of a client."""
        return bytes(self.people[nth].session.secrets.identity.public_key)

    def say(self, nth: int, schema: Schema, **values: Any) -> bytes:  # noqa: ANN401 - of its fields
        """Send an operation; return its id."""
        sent = send_operation(
            self.people[nth], self.stream, schema, schema.make(**values), options=SendOptions(to=self._reader)
        )
        return operation_id(sent.msg_id)

    def tables(self, overlay: Overlay) -> Tables:
        return interpret(self.reader, overlay, self.stream).tables


def _samples(ctx: Context, who: bytes) -> list[tuple[Schema, Fields]]:
    """Return an operation of each profile that a single client can send."""
    one, two = (ctx.random.randbytes(32) for _ in range(2))
    about = {"target_identity": one, "requested_new_identity": two}
    samples: list[tuple[Schema, dict[str, Any]]] = [
        (
            PAID,
            {
                "operation_type": "selftest",
                "operation_args": {"n": [1, None, True]},
                "payer_account": one,
                "payee_account": two,
                "amount": 7,
                "currency_code": "EUR",
            },
        ),
        (GRANT, {"subject_identity": one, "allowed_stream_ids": (two,), "expiry_time": 1}),
        (REVOKE, {"subject_identity": one}),
        (DEFINITION, {"agreement_id": one, "version": 1, "terms_hash": two, "parties": (who,)}),
        (CONFIRMATION, {"agreement_id": one, "version": 1, "party_identity": who, "decision": "accept"}),
        (
            PUBLICATION,
            {
                "publication_id": one,
                "publisher_identity": who,
                "content_root": two,
                "content_class": "selftest",
                "version": "1.0",
                "labels": ("a", "b"),
            },
        ),
        (RECOVERY_REQUEST, about),
        (RECOVERY_APPROVAL, {**about, "approver_identity": who, "decision": "approve"}),
        (RECOVERY_EXECUTION, {"target_identity": one, "new_identity": two, "approval_references": (one,)}),
        (QUERY, {"requester_identity": who, "resource_identifier": "r", "resource_class": "selftest"}),
    ]
    return [(schema, schema.make(**values)) for schema, values in samples]


@step()
def op(ctx: Context) -> str:
    """Operations of every profile arrive unchanged; an agent acts for others if its chain is valid."""
    stream, client = ctx.name("op"), ctx.client()
    identity = client.session.secrets.identity
    samples = _samples(ctx, bytes(identity.public_key))
    for schema, body in samples:
        send_operation(client, stream, schema, body)
    messages = list(client.read(stream))
    for message, (schema, body) in zip(messages, samples, strict=True):
        check(message.header is not None and message.header.schema == schema.schema_id, f"no {schema.name}")
        equal(schema.decode(message.raw_body()), body, schema.name)
    _delegate(ctx, client)
    return f"{len(samples)} operations, and two for a principal"


def _delegate(ctx: Context, agent: Client) -> None:
    """Act under a valid chain, and under an invalid one."""
    stream, now = ctx.name("delegated"), ctx.clock()
    root, principal = ctx.hubs.issuer, ctx.client().session.secrets.identity
    me = agent.session.secrets.identity.public_key
    streams = [labels.stream_id(stream)]
    first = CapToken.mint(root, principal.public_key, stream_ids=streams, ttl=_HOUR)
    second = CapToken.mint(principal, me, stream_ids=streams, ttl=_HOUR)
    alone = CapToken.mint(root, me, stream_ids=streams, ttl=_HOUR)
    for nth, last in enumerate((second, alone)):
        body = DELEGATED.make(
            principal_identity=bytes(principal.public_key),
            agent_identity=bytes(me),
            delegation_chain=(bytes(first.auth_ref), bytes(last.auth_ref)),
            operation_schema=bytes(LWW.schema_id),
            operation_body=LWW.encode(LWW.make(key=b"k", ts=nth, value=b"%d" % nth)),
        )
        send_operation(agent, stream, DELEGATED, body)
    known = tuple(KnownToken(token, now - 60) for token in (first, second, alone))
    overlay = Delegated(tokens=known, stream_id=streams[0], inner=LwwMap())
    view: Any = interpret(agent, overlay, stream).view()
    outcomes = [row["outcome"] for row in view["executions"]]
    equal(outcomes, ["applied", "OP.DELEGATION_LINK"], "outcomes of two delegated operations")
    equal(view["operations"], {"k": "0"}, "effects of the operations")


@step(own=_OWN)
def op_access(ctx: Context) -> str:
    """A grant is a token that lets its subject write, until it is revoked in the log."""
    hub = ctx.hubs.fresh(CONFIGS[Needs.GUARDED] + "trust_all_issuers = true\n")
    stream = ctx.name("access")
    admin, subject = ctx.client(hub=hub.url), ctx.client(hub=hub.url)
    key = subject.session.secrets.client.signing_key.public_key
    _let_write(admin, stream)
    body = GRANT.make(
        subject_identity=bytes(key),
        allowed_stream_ids=(bytes(labels.stream_id(stream)),),
        expiry_time=ctx.clock() + _HOUR,
        maximum_rate_per_second=50,
    )
    granted = grant_access(admin, stream, body)
    subject.send(stream, "allowed", token=granted.token)
    access = Access(tokens=(KnownToken(granted.token, granted.authorized.record.hub_ts),))

    def effective() -> list[bytes | None]:
        tables = interpret(admin, access, stream).tables
        return [grant.auth_ref for grant in access.effective(tables, bytes(key), ctx.clock())]

    equal(effective(), [granted.token.auth_ref], "what the subject may use")
    revoke = REVOKE.make(
        subject_identity=bytes(key), target_capability_reference=bytes(granted.token.auth_ref)
    )
    send_operation(admin, stream, REVOKE, revoke)
    equal(effective(), [], "what the subject may use after the revoke")
    return "granted, used, revoked"


def _let_write(admin: Client, stream: str) -> None:
    """Authorize a token for the admin: the hub requires one of every client."""
    identity = admin.session.secrets.identity
    token = CapToken.mint(identity, identity.public_key, stream_ids=[labels.stream_id(stream)], ttl=_HOUR)
    admin.authorize(token)


@step()
def agreement(ctx: Context) -> str:
    """An agreement is active once every party has accepted it itself, until one withdraws."""
    table = _Table(ctx, ctx.name("agreement"), 3)
    one, agreements = ctx.random.randbytes(32), Agreements()
    parties = (table.identity(0), table.identity(1))

    def state() -> tuple[int | None, bool]:
        tables, now = table.tables(agreements), ctx.clock()
        return agreements.current(tables, one, now), agreements.is_active(tables, one, 1, now)

    def confirm(nth: int, party: bytes, decision: str = "accept") -> None:
        table.say(nth, CONFIRMATION, agreement_id=one, version=1, party_identity=party, decision=decision)

    table.say(0, DEFINITION, agreement_id=one, version=1, terms_hash=one, parties=parties)
    confirm(0, parties[0])
    confirm(2, parties[1])
    equal(state(), (1, False), "version and state, after a confirmation in the name of another party")
    confirm(1, parties[1])
    equal(state(), (1, True), "version and state, after all have accepted")
    table.say(2, DEFINITION, agreement_id=one, version=1, terms_hash=bytes(32), parties=parties)
    table.say(0, DEFINITION, agreement_id=one, version=2, terms_hash=one, parties=parties)
    equal(state(), (1, True), "version and state, after a second version is defined")
    confirm(1, parties[1], "withdraw")
    equal(state(), (2, False), "version and state, after a withdrawal")
    return "two parties, two versions"


@step()
def snapshot(ctx: Context) -> str:
    """A snapshot verifies for the state and the root that it names; a false one is detected."""
    client, stream = ctx.client(), ctx.name("snapshot")
    drafts = [
        typed(LWW, LWW.make(key=b"%d" % (nth % 5), ts=nth, value=ctx.random.randbytes(4)))
        for nth in range(20)
    ]
    list(client.send_many(stream, drafts))
    whole = bytes(labels.stream_id(stream))
    body = make_snapshot(client, stream, state_class="lww.map", upto=12)
    send_operation(client, stream, SNAPSHOT, body)

    def checked() -> str:
        comparison = verify_snapshot(client, stream, state_class="lww.map", state_id=whole, upto=12)
        return (
            "consistent" if comparison.consistent else str(comparison.mismatch and comparison.mismatch.field)
        )

    equal(checked(), "consistent", "a true snapshot")
    other = make_snapshot(client, stream, state_class="lww.map", upto=13)
    for name in ("mmr_root", "state_hash"):
        send_operation(client, stream, SNAPSHOT, {**body, name: other[name]})
        equal(checked(), name, f"a snapshot with a false {name}")
    return "one true snapshot, two false ones"


@step()
def recovery(ctx: Context) -> str:
    """A new identity replaces a lost one if enough guardians approve, and otherwise does not."""
    table = _Table(ctx, ctx.name("recovery"), 4)
    lost, new = (ctx.random.randbytes(32) for _ in range(2))
    guardians = frozenset(table.identity(nth) for nth in range(3))
    overlay = Recoveries(default_policy=RecoveryPolicy(guardians, 2))
    about = {"target_identity": lost, "requested_new_identity": new}

    def approve(nth: int, approver: bytes) -> bytes:
        return table.say(nth, RECOVERY_APPROVAL, **about, approver_identity=approver, decision="approve")

    def execute(*refs: bytes) -> dict[bytes, bytes]:
        table.say(0, RECOVERY_EXECUTION, target_identity=lost, new_identity=new, approval_references=refs)
        return remap(table.tables(overlay))

    table.say(3, RECOVERY_REQUEST, **about)
    first = approve(0, table.identity(0))
    forged = approve(3, table.identity(1))
    equal(execute(first, forged), {}, "effect of one guardian and a forger")
    equal(execute(first, ctx.random.randbytes(32)), {}, "effect of an approval that does not exist")
    second = approve(1, table.identity(1))
    equal(execute(first, second), {lost: new}, "effect of two guardians")
    return "two of three guardians, one forger"


@step()
def audit(ctx: Context) -> str:
    """The log shows who queried what, by resource and by time."""
    client, stream, overlay = ctx.client(), ctx.name("audit"), QueryAudit()
    for nth in range(12):
        body = QUERY.make(
            requester_identity=ctx.random.randbytes(32),
            resource_identifier=f"{'ab'[nth % 2]}/{nth}",
            resource_class="selftest",
            request_time=1000 + nth if nth % 3 else None,
        )
        send_operation(client, stream, QUERY, body)
    tables = interpret(client, overlay, stream).tables

    def found(prefix: str = "", since: int = 0, until: int | None = None) -> list[int]:
        rows = overlay.queries(tables, resource_prefix=prefix, since=since, until=until)
        return [int(str(row["resource_identifier"])[2:]) for row in rows]

    equal(found(), list(range(12)), "queries, in order")
    equal(found("a/"), list(range(0, 12, 2)), "queries of a resource")
    equal(found(until=1006), [1, 2, 4, 5], "queries before a time")
    equal(found(since=1_000_000), [0, 3, 6, 9], "queries by hub time")
    return "12 queries, by resource and by time"


STEPS: Final = (op, op_access, agreement, snapshot, recovery, audit)
