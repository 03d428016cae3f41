"""Delegated execution: chains that hold, each rule that one may break, and what is then done."""

from typing import Any

import pytest

from tests.overlays.logs import BRIDGE, STREAM, T0, ident
from tests.overlays.operation_log import Operations, op_id
from veen.core.crypto.ed25519 import SigningKey
from veen.core.crypto.hash import sha256
from veen.core.objects.capability import CapToken
from veen.core.objects.control_record import RevocationRecord
from veen.core.types import Signature, StreamId, VerifyKey
from veen.overlays.builtin.crdt import LWW, LwwMap
from veen.overlays.engine import Fold, fold
from veen.overlays.operations.agreement import Agreements
from veen.overlays.operations.delegation import Delegated, KnownToken
from veen.overlays.operations.schemas import CONFIRMATION, DEFINITION, DELEGATED
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.overlay import Wallets
from veen.overlays.wallet.schemas import wallet_id, wallet_stream

ROOT, ANNE, BERT, CARL = (SigningKey.from_seed(ident("key", name)) for name in "rabc")
A, B, C = (bytes(key.public_key) for key in (ANNE, BERT, CARL))
S1, S2 = sorted(StreamId(ident(name)) for name in ("s1", "s2"))


def _token(by: SigningKey, to: bytes, ttl: int = 100, streams: tuple[StreamId, ...] = (S1,)) -> CapToken:
    return CapToken.mint(by, VerifyKey(to), stream_ids=streams, ttl=ttl)


FIRST, SECOND, THIRD = _token(ROOT, A), _token(ANNE, B), _token(BERT, C)


class Delegations(Operations):
    """Delegated writes of registers."""

    def execute(self, *chain: CapToken, by: bytes = C, at: int = T0, **more: Any) -> Any:
        """Append an execution of Carl for Anne."""
        values: dict[str, Any] = {
            "principal_identity": A,
            "agent_identity": C,
            "delegation_chain": tuple(bytes(token.auth_ref) for token in chain),
            "operation_schema": bytes(LWW.schema_id),
            "operation_body": LWW.encode(LWW.make(key=b"k", ts=1, value=b"v")),
            **more,
        }
        return self.op(DELEGATED, by, at, **values)


@pytest.fixture
def log() -> Delegations:
    return Delegations()


def _overlay(*tokens: CapToken, **more: Any) -> Delegated:
    return Delegated(tokens=tuple(KnownToken(token, T0) for token in tokens), **{"inner": LwwMap(), **more})


def _outcome(log: Delegations, overlay: Delegated) -> tuple[str, Any]:
    view: Any = overlay.view(log.fold(overlay)[0])
    return view["executions"][-1]["outcome"], view["operations"]


def test_a_chain_that_holds_is_done_as_the_principals_own(log: Delegations) -> None:
    log.execute(FIRST, SECOND, THIRD)
    assert _outcome(log, _overlay(FIRST, SECOND, THIRD)) == ("applied", {"k": "v"})
    assert log.codes(_overlay(FIRST, SECOND, THIRD)) == []


def test_a_token_of_the_sender_will_do_for_that_of_the_agent(log: Delegations) -> None:
    log.execute(FIRST, SECOND, by=B)
    assert _outcome(log, _overlay(FIRST, SECOND))[0] == "applied"
    log.execute(FIRST, SECOND, by=C)
    assert _outcome(log, _overlay(FIRST, SECOND))[0] == "OP.DELEGATION_AGENT"


_FORGED = CapToken(
    issuer_pk=SECOND.issuer_pk,
    subject_pk=SECOND.subject_pk,
    allow=SECOND.allow,
    sig_chain=(Signature(bytes(64)),),
)
_WIDE = _token(ANNE, B, streams=(S1, S2))
_LONG = _token(ANNE, B, ttl=101)
_OTHER = _token(ROOT, B)
_TO_C = _token(ANNE, C)


@pytest.mark.parametrize(
    ("chain", "code"),
    [
        ((FIRST, _token(CARL, C)), "OP.DELEGATION_UNKNOWN"),
        ((SECOND, THIRD), "OP.DELEGATION_PRINCIPAL"),
        ((FIRST, SECOND), "OP.DELEGATION_AGENT"),
        ((FIRST, _OTHER, THIRD), "OP.DELEGATION_LINK"),
        ((FIRST, _WIDE, THIRD), "OP.DELEGATION_STREAMS"),
        ((FIRST, _LONG, THIRD), "OP.DELEGATION_OUTLIVES"),
        ((FIRST, _FORGED, THIRD), "OP.DELEGATION_SIGNATURE"),
    ],
)
def test_a_chain_that_breaks_a_rule_is_not_done(log: Delegations, chain: Any, code: str) -> None:
    log.execute(*chain)
    overlay = _overlay(FIRST, SECOND, THIRD, _OTHER, _WIDE, _LONG, _FORGED)
    assert _outcome(log, overlay) == (code, {})
    assert log.codes(overlay) == [(1, code)]


def test_a_chain_counts_as_long_as_each_of_its_tokens(log: Delegations) -> None:
    overlay = _overlay(FIRST, _TO_C)
    for at, outcome in ((T0 + 100, "applied"), (T0 + 101, "OP.DELEGATION_EXPIRED")):
        log.execute(FIRST, _TO_C, at=at)
        assert _outcome(log, overlay)[0] == outcome
    log.execute(FIRST, _TO_C, at=T0 - 1)
    assert _outcome(log, overlay)[0] == "OP.DELEGATION_EXPIRED", "it was not known yet"


@pytest.mark.parametrize(
    ("kind", "target"),
    [("auth-ref", _TO_C.auth_ref), ("cap-token", sha256(_TO_C.encode())), ("client-id", A), ("client-id", C)],
)
def test_a_chain_does_not_count_while_a_token_is_revoked(log: Delegations, kind: str, target: bytes) -> None:
    record = RevocationRecord(target_kind=kind, target=bytes(target), ts=T0 + 10, ttl=5)
    overlay = _overlay(FIRST, _TO_C, revocations=(record,))
    for at, outcome in (
        (9, "applied"),
        (10, "OP.DELEGATION_REVOKED"),
        (14, "OP.DELEGATION_REVOKED"),
        (15, "applied"),
    ):
        log.execute(FIRST, _TO_C, at=T0 + at)
        assert _outcome(log, overlay)[0] == outcome


def test_the_last_token_is_for_the_stream_that_is_folded(log: Delegations) -> None:
    log.execute(FIRST, _TO_C)
    assert _outcome(log, _overlay(FIRST, _TO_C, stream_id=S1))[0] == "applied"
    assert _outcome(log, _overlay(FIRST, _TO_C, stream_id=S2))[0] == "OP.DELEGATION_SCOPE"


def test_what_is_carried_has_to_be_what_its_schema_says(log: Delegations) -> None:
    log.execute(FIRST, _TO_C, operation_body=b"\xa0")
    assert _outcome(log, _overlay(FIRST, _TO_C)) == ("OP.DELEGATION_BODY", {})


def test_an_operation_that_is_not_folded_here_is_counted(log: Delegations) -> None:
    log.execute(FIRST, _TO_C, operation_schema=ident("another"), operation_body=b"\x01")
    overlay = _overlay(FIRST, _TO_C)
    view: Any = overlay.view(log.fold(overlay)[0])
    assert view["counts"] == [{"principal": A.hex(), "agent": C.hex(), "outcome": "applied", "count": 1}]
    bare = _overlay(FIRST, _TO_C, inner=None)
    assert "operations" not in bare.view(log.fold(bare)[0])  # type: ignore[operator]


def test_the_whole_chain_is_in_the_audit(log: Delegations) -> None:
    record = log.execute(FIRST, _TO_C, metadata={"why": 1})
    overlay = _overlay()
    found: Any = overlay.view_key(log.fold(overlay)[0], overlay.parse_key(record.msg_id.hex()))
    assert found["outcome"] == "OP.DELEGATION_UNKNOWN"
    assert found["delegation_chain"] == [FIRST.auth_ref.hex(), _TO_C.auth_ref.hex()]
    assert found["metadata"] == {"why": 1}


def test_a_party_may_confirm_through_an_agent(log: Delegations) -> None:
    one = ident("agreement")
    log.op(DEFINITION, B, agreement_id=one, version=1, terms_hash=one, parties=(A,))
    body = CONFIRMATION.make(agreement_id=one, version=1, party_identity=A, decision="accept")
    carried: dict[str, Any] = {
        "operation_schema": bytes(CONFIRMATION.schema_id),
        "operation_body": CONFIRMATION.encode(body),
    }
    record = log.execute(FIRST, _TO_C, **carried)
    overlay = _overlay(FIRST, _TO_C, inner=Agreements())
    view: Any = overlay.view(log.fold(overlay)[0])
    assert view["operations"][one.hex()]["active"] is True
    (party,) = view["operations"][one.hex()]["versions"][0]["parties"]
    assert party["msg_id"] == record.msg_id.hex(), "its identity is that of the message that carries it"
    assert op_id(record) != record.msg_id


WALLET_BODY: dict[str, Any] = {"realm_id": ident("realm"), "ctx_id": A, "currency": "EUR"}
WALLET = wallet_id(ident("realm"), A, "EUR")


def _balance(
    log: Delegations,
    overlay: Delegated,
    bridges: frozenset[bytes] = frozenset(),
    stream_id: StreamId = STREAM,
) -> int:
    summary = fold(overlay, log.records, stream_id, bridges)
    view: Any = overlay.view(Fold(overlay).tables_of(summary))
    found = view["operations"][WALLET.hex()]["balance"]
    assert isinstance(found, int)
    return found


def test_what_is_a_copy_inside_is_one_here_whoever_sends_it(log: Delegations) -> None:
    overlay = _overlay(FIRST, _TO_C, inner=Wallets())
    log.op(wal.OPEN, A, wallet_id=WALLET, **WALLET_BODY, created_at=T0)
    paid = log.op(wal.DEPOSIT, A, wallet_id=WALLET, amount=10, ts=T0)
    assert _balance(log, overlay) == 10
    log.add(wal.DEPOSIT, paid.body, client_id=B, parent_id=paid.msg_id)
    assert _balance(log, overlay) == 10, "a parent of a wallet's event is what it is a copy of"


def test_a_credit_that_an_agent_writes_needs_its_debit_in_sight_too(log: Delegations) -> None:
    overlay = _overlay(FIRST, _TO_C, inner=Wallets())
    log.op(wal.OPEN, A, wallet_id=WALLET, **WALLET_BODY, created_at=T0)
    body = wal.TRANSFER.make(
        wallet_id=ident("a wallet elsewhere"), to_wallet_id=WALLET, amount=9, ts=T0, transfer_id=ident("xfer")
    )
    carried: dict[str, Any] = {
        "operation_schema": bytes(wal.TRANSFER.schema_id),
        "operation_body": wal.TRANSFER.encode(body),
    }
    log.execute(FIRST, _TO_C, **carried)
    own = wallet_stream(WALLET)
    assert _balance(log, overlay, stream_id=own) == 0
    reports = fold(overlay, log.records, own).reports
    assert [report.code for report in reports] == ["WAL.UNBACKED_CREDIT"]


def test_the_parent_of_an_execution_is_what_it_answers_unless_a_bridge_sends_it(log: Delegations) -> None:
    overlay = _overlay(FIRST, _TO_C, inner=Wallets())
    log.op(wal.OPEN, A, wallet_id=WALLET, **WALLET_BODY, created_at=T0)
    body = wal.DEPOSIT.encode(wal.DEPOSIT.make(wallet_id=WALLET, amount=10, ts=T0))
    carried: dict[str, Any] = {"operation_schema": bytes(wal.DEPOSIT.schema_id), "operation_body": body}
    first = log.execute(FIRST, _TO_C, **carried)
    log.add(DELEGATED, first.body, client_id=C, hub_ts=T0, parent_id=first.msg_id)
    assert _balance(log, overlay) == 20, "said again, in answer to the first"
    log.add(DELEGATED, first.body, client_id=BRIDGE, hub_ts=T0, parent_id=first.msg_id)
    assert _balance(log, overlay, frozenset({BRIDGE})) == 20, "copied"
