"""What an event costs does not grow with the log, also where all of them are about one key (OVR-007).

Work is counted, not timed: what a verdict looks up, and how large the summaries are that are joined.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from tests.overlays.histories import PARAMETERS
from tests.overlays.histories_operations import AGENT, DELEGATED, LOST, PRINCIPAL, STREAMS
from tests.overlays.histories_recorder import NAMES, event_body
from tests.overlays.histories_wallet import ACCOUNTS, IDS, OWN_STREAM, REALM, WALLETS
from tests.overlays.logs import STREAM, T0, WRITERS, Log, ident
from veen.overlays import monoid, registry
from veen.overlays.builtin.crdt import COUNTER, LWW, ORSET
from veen.overlays.builtin.rpc import REPLY, REQUEST, success
from veen.overlays.control.label_class import CLASS
from veen.overlays.engine import Annotator, MemoryTables, index_kinds, table_kinds
from veen.overlays.operations import schemas as op
from veen.overlays.operations.paid_ledger import PAID
from veen.overlays.overlay import Key
from veen.overlays.recorder.schemas import CHANGE, EVENT
from veen.overlays.wallet import schemas as wal

#: Adds events about one key, one more each time.
Hot = Iterator[None]

FEW, MANY = 200, 2000


def _lww(log: Log) -> Hot:
    for nth in count(1):
        log.event(LWW, key=b"k", ts=nth, value=b"v")
        yield


def _orset_adds(log: Log) -> Hot:
    for nth in count():
        log.event(ORSET, id=ident(nth), elem=b"e")
        yield


def _orset_changes(log: Log) -> Hot:
    """Two come; one of them goes, and one that was never there."""
    for nth in count():
        log.event(ORSET, id=ident("a", nth), elem=b"e")
        log.event(ORSET, id=ident("b", nth), elem=b"e")
        log.event(ORSET, tomb=(ident("a", nth), ident("c", nth)))
        yield


def _counter(log: Log) -> Hot:
    for _ in count():
        log.event(COUNTER, shard=ident("s"), delta=2**40)
        yield


def _calls(log: Log) -> Hot:
    """One call that is made again and again, and answered each time."""
    for _ in count():
        asked = log.event(REQUEST, client_id=WRITERS[0], method="m", args=[1], idem=1)
        log.add(REPLY, success(1), parent_id=asked.msg_id)
        yield


def _replies(log: Log) -> Hot:
    asked = log.event(REQUEST, client_id=WRITERS[0], method="m", args=[1])
    for nth in count():
        log.add(REPLY, success(nth), parent_id=asked.msg_id)
        yield


def _grants(log: Log) -> Hot:
    for nth in count():
        who = {"client_id": WRITERS[0], "subject_identity": WRITERS[1]}
        granted = log.event(op.GRANT, **who, allowed_stream_ids=tuple(STREAMS[:2]), expiry_time=T0 + nth)
        log.event(op.REVOKE, **who, target_capability_reference=granted.msg_id if nth % 2 else None)
        yield


def _delegated(log: Log) -> Hot:
    chain = tuple(bytes(known.token.auth_ref) for known in DELEGATED["tokens"][:3])
    for nth in count():
        log.event(
            op.DELEGATED,
            client_id=AGENT,
            principal_identity=PRINCIPAL,
            agent_identity=AGENT,
            delegation_chain=chain,
            operation_schema=LWW.schema_id,
            operation_body=LWW.encode(LWW.make(key=b"k", ts=nth, value=b"v")),
        )
        yield


def _agreements(log: Log) -> Hot:
    """Versions of one agreement, each defined twice, and the words of a party."""
    about = {"agreement_id": ident("agreement")}
    for nth in count(1):
        for terms in ("one", "other"):
            log.event(
                op.DEFINITION, **about, version=nth, terms_hash=ident(terms), parties=tuple(WRITERS[:2])
            )
        for version in (1, nth):
            who = {"client_id": WRITERS[0], "party_identity": WRITERS[0]}
            log.event(op.CONFIRMATION, **about, **who, version=version, decision="accept")
        yield


def _publications(log: Log) -> Hot:
    for nth in count():
        for version in ("0", str(nth)):
            log.event(
                op.PUBLICATION,
                publication_id=ident("publication"),
                publisher_identity=WRITERS[0],
                content_root=ident("content", nth),
                content_class="dataset",
                version=version,
            )
        yield


def _snapshots(log: Log) -> Hot:
    for nth in count():
        log.event(
            op.SNAPSHOT,
            state_id=ident("state"),
            upto_stream_seq=nth % 100,
            mmr_root=ident("root", nth),
            state_hash=ident("hash", nth),
            state_class="lww.map",
        )
        yield


#: In the histories below the first target is recovered by two guardians.
_ABOUT = {"target_identity": LOST[0], "requested_new_identity": LOST[1]}


def _approval(log: Log, who: bytes) -> bytes:
    found = log.event(
        op.RECOVERY_APPROVAL, client_id=who, **_ABOUT, approver_identity=who, decision="approve"
    )
    return found.msg_id


def _execution(log: Log, refs: Iterable[bytes]) -> None:
    who = {"client_id": WRITERS[0], "target_identity": LOST[0], "new_identity": LOST[1]}
    log.event(op.RECOVERY_EXECUTION, **who, approval_references=tuple(refs))


def _recoveries(log: Log) -> Hot:
    """Each is asked for, approved and done."""
    for _ in count():
        log.event(op.RECOVERY_REQUEST, **_ABOUT)
        _execution(log, [_approval(log, who) for who in WRITERS[:2]])
        yield


def _executions(log: Log) -> Hot:
    """Approvals of guardians without a request before them, named again and again."""
    refs = [_approval(log, who) for who in WRITERS[:2]]
    for _ in count():
        _execution(log, refs)
        log.event(op.RECOVERY_REQUEST, **_ABOUT)
        yield


def _queries(log: Log) -> Hot:
    for nth in count():
        log.event(
            op.QUERY,
            requester_identity=WRITERS[0],
            resource_identifier="patients/1",
            resource_class="health",
            request_time=T0 + nth,
        )
        yield


def _mirrored(log: Log, seq: int, leaf: int) -> None:
    log.event(
        op.MIRROR,
        source_hub_identifier="a",
        source_label=ident("source"),
        source_stream_seq=seq,
        source_leaf_hash=ident("leaf", leaf),
        source_receipt_root=ident("root"),
        target_label=ident("target"),
    )


def _mirror_gaps(log: Log) -> Hot:
    for nth in count():
        _mirrored(log, 2 * nth + 1, nth)
        yield


def _mirror_conflicts(log: Log) -> Hot:
    for nth in count(2):
        _mirrored(log, nth, 1)
        _mirrored(log, nth, 2)
        _mirrored(log, 1, nth)
        yield


def _wallets(log: Log) -> Hot:
    """Two wallets with every event there is, at times that go back and forth."""
    for context, currency, wallet in WALLETS[0], WALLETS[2]:
        about: dict[str, Any] = {
            "wallet_id": wallet,
            "realm_id": REALM,
            "ctx_id": context,
            "currency": currency,
        }
        log.event(wal.OPEN, **about, created_at=T0)
    one, two = WALLETS[0][2], WALLETS[2][2]
    for nth in count():
        at: dict[str, Any] = {"wallet_id": one, "ts": T0 + nth * 7919 % 100_000}
        log.event(wal.DEPOSIT, **at, amount=5)
        log.event(wal.TRANSFER, **at, to_wallet_id=two, amount=1, transfer_id=ident(nth))
        log.event(wal.WITHDRAW, **at, amount=1)
        log.event(wal.ADJUST, **at, delta=-1, reason="so")
        log.event(wal.LIMIT, **at, daily_limit=1000 + nth)
        log.event(wal.FREEZE, **at)
        log.event(wal.UNFREEZE, **at)
        yield


def _credits(log: Log) -> Hot:
    """A wallet with a stream to itself, and ever more credits that nobody can see to be paid."""
    for nth in count():
        body: dict[str, Any] = {"to_wallet_id": IDS[0], "amount": 1, "ts": T0, "transfer_id": ident(nth % 50)}
        log.event(wal.TRANSFER, wallet_id=ident("payer", nth), **body)
        yield


def _paid(log: Log) -> Hot:
    for nth in count():
        log.event(
            PAID,
            operation_type="test",
            operation_args=nth,
            payer_account=ACCOUNTS[0],
            payee_account=ACCOUNTS[1],
            amount=5,
            currency_code="EUR",
        )
        yield


def _recorded(log: Log) -> Hot:
    """One principal, one type, one stream that is declared again and again."""
    for nth in count():
        log.event(EVENT, client_id=WRITERS[0], **event_body(WRITERS[0]))
        log.event(
            CHANGE, change="declare", stream=NAMES[0], event_types=(f"t{nth % 7}",), change_time=T0 + nth
        )
        yield


def _classes(log: Log) -> Hot:
    said: dict[str, Any] = {"label": ident("label"), "class": "record"}
    for nth in count(2**32):
        log.event(CLASS, **said, retention_hint=nth)
        yield


HOT: dict[str, tuple[Callable[[Log], Hot], ...]] = {
    "crdt.lww": (_lww,),
    "crdt.orset": (_orset_adds, _orset_changes),
    "crdt.gcnt": (_counter,),
    "rpc": (_calls, _replies),
    "access": (_grants,),
    "delegated": (_delegated,),
    "agreement": (_agreements,),
    "publication": (_publications,),
    "snapshot": (_snapshots,),
    "recovery": (_recoveries, _executions),
    "query.audit": (_queries,),
    "federation.mirror": (_mirror_gaps, _mirror_conflicts),
    "wallet": (_wallets, _credits),
    "wallet.literal": (_wallets,),
    "paid.ledger": (_paid,),
    "recorder": (_recorded,),
    "label.class": (_classes,),
}


class _Counting(MemoryTables):
    """Tables that count what is asked of them and how much is joined."""

    looked_up = joined = 0

    def get(self, table: str, key: Key) -> Any:
        self.looked_up += 1
        return super().get(table, key)

    def items(self, table: str) -> Iterator[tuple[Key, Any]]:
        self.looked_up += len(self.tables[table])
        return super().items(table)

    def add(self, table: str, key: Key, summary: Any) -> None:
        super().add(table, key, summary)
        for one in (summary, self.tables[table][key]):
            self.joined += len(monoid.encode(self.kinds[table], one))


def _costs(name: str, hot: Callable[[Log], Hot]) -> list[tuple[int, int]]:
    """Return for each event how many rows were looked up, and how many bytes were joined."""
    log = Log(Random(1))
    events = hot(log)
    while len(log.records) < MANY:
        next(events)
    overlay = registry.overlay_class(name)(**PARAMETERS.get(name, {}))
    tables = _Counting({**table_kinds(overlay), **index_kinds(overlay)})
    annotator = Annotator(overlay, tables, OWN_STREAM if hot is _credits else STREAM)
    found = []
    for record in log.records:
        tables.looked_up = tables.joined = 0
        annotator.annotate(record)
        found.append((tables.looked_up, tables.joined))
    return found


@pytest.mark.parametrize(
    ("name", "hot"), [(name, hot) for name in registry.names() for hot in HOT.get(name, ())]
)
def test_an_event_costs_as_much_as_the_first_ones(name: str, hot: Callable[[Log], Hot]) -> None:
    costs = _costs(name, hot)
    assert any(joined for _, joined in costs[-10:]), "the last events did something"
    for kind in (0, 1):
        early, late = max(cost[kind] for cost in costs[:FEW]), max(cost[kind] for cost in costs[-FEW:])
        assert late <= early * 1.2, "numbers get longer, nothing else does"


def test_every_overlay_has_a_hot_key() -> None:
    assert set(HOT) == set(registry.names())
