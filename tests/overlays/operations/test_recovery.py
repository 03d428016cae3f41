"""Recovery: what makes an execution count, each rule that one may break, and how remaps compose."""

from typing import Any

import pytest

from tests.overlays.logs import WRITERS, ident
from tests.overlays.operation_log import Operations, op_id
from veen.overlays.errors import ParameterError
from veen.overlays.operations.recovery import Recoveries, RecoveryPolicy, remap
from veen.overlays.operations.schemas import RECOVERY_APPROVAL, RECOVERY_EXECUTION, RECOVERY_REQUEST

ANNE, BERT, CARL, EVE = WRITERS
LOST, NEW, NEXT = (ident(name) for name in ("lost", "new", "next"))
GUARDIANS = RecoveryPolicy(frozenset({ANNE, BERT, CARL}), 2)


class Rescue(Operations):
    """Requests, approvals and executions."""

    def request(self, target: bytes = LOST, new: bytes = NEW) -> Any:
        """Append a request."""
        return self.op(RECOVERY_REQUEST, EVE, target_identity=target, requested_new_identity=new)

    def approve(self, who: bytes, target: bytes = LOST, new: bytes = NEW, **more: Any) -> Any:
        """Append an approval."""
        by = more.pop("by", who)
        values: dict[str, Any] = {
            "target_identity": target,
            "requested_new_identity": new,
            "approver_identity": who,
        }
        return self.op(RECOVERY_APPROVAL, by, **{"decision": "approve", **values, **more})

    def execute(self, *refs: bytes, target: bytes = LOST, new: bytes = NEW, by: bytes = EVE) -> Any:
        """Append an execution."""
        values: dict[str, Any] = {"target_identity": target, "new_identity": new, "approval_references": refs}
        return self.op(RECOVERY_EXECUTION, by, **values)

    def recover(self, target: bytes, new: bytes) -> Any:
        """Append all of it."""
        self.request(target, new)
        refs = [op_id(self.approve(who, target, new)) for who in (ANNE, BERT)]
        return self.execute(*refs, target=target, new=new)

    def moved(self, overlay: Recoveries | None = None) -> dict[bytes, bytes]:
        """Return who has taken whose place."""
        return remap(self.fold(overlay or Recoveries(default_policy=GUARDIANS))[0])

    def last(self, overlay: Recoveries | None = None) -> str | None:
        """Return why the last execution does not count."""
        overlay = overlay or Recoveries(default_policy=GUARDIANS)
        seq = len(self.records)
        return next((code for place, code in self.codes(overlay) if place == seq), None)


@pytest.fixture
def log() -> Rescue:
    return Rescue()


def test_enough_guardians_put_a_new_identity_in_place(log: Rescue) -> None:
    log.recover(LOST, NEW)
    assert log.last() is None
    assert log.moved() == {LOST: NEW}


def test_a_reference_may_be_a_message_or_an_operation(log: Rescue) -> None:
    log.request()
    one, two = log.approve(ANNE), log.approve(BERT)
    log.execute(one.msg_id, op_id(two))
    assert log.moved() == {LOST: NEW}


def test_without_a_policy_nothing_counts(log: Rescue) -> None:
    log.recover(LOST, NEW)
    assert log.last(Recoveries()) == "OP.RECOVERY_NO_POLICY"
    assert log.moved(Recoveries()) == {}
    assert log.moved(Recoveries(guardians={LOST: GUARDIANS})) == {LOST: NEW}
    assert log.last(Recoveries(guardians={NEW: GUARDIANS})) == "OP.RECOVERY_NO_POLICY"


@pytest.mark.parametrize("threshold", [0, 4])
def test_a_policy_that_can_not_be(threshold: int) -> None:
    with pytest.raises(ParameterError):
        Recoveries(default_policy=GUARDIANS._replace(threshold=threshold))


def test_a_reference_to_nothing_or_to_what_comes_later(log: Rescue) -> None:
    log.request()
    one = log.approve(ANNE)
    log.execute(op_id(one), ident("nothing"))
    assert log.last() == "OP.RECOVERY_REFERENCE"
    log.execute(op_id(one), op_id(log.records[0]))
    assert log.last() == "OP.RECOVERY_REFERENCE", "a request is no approval"


def test_one_approval_that_does_not_fit_spoils_all(log: Rescue) -> None:
    log.request()
    good = [op_id(log.approve(who)) for who in (ANNE, BERT)]
    no = op_id(log.approve(CARL, decision="reject"))
    other = op_id(log.approve(CARL, new=NEXT))
    elsewhere = op_id(log.approve(CARL, target=NEXT))
    for ref, code in (
        (no, "OP.RECOVERY_NOT_APPROVED"),
        (other, "OP.RECOVERY_OTHER"),
        (elsewhere, "OP.RECOVERY_OTHER"),
    ):
        log.execute(*good, ref)
        assert log.last() == code
    assert log.moved() == {}
    log.execute(*good)
    assert log.moved() == {LOST: NEW}


def test_approvals_are_counted_by_distinct_guardians_who_have_signed(log: Rescue) -> None:
    log.request()
    anne, again, eve = (op_id(log.approve(who)) for who in (ANNE, ANNE, EVE))
    forged = op_id(log.approve(BERT, by=EVE))
    log.execute(anne, again, eve, forged)
    assert log.last() == "OP.RECOVERY_THRESHOLD"
    assert (5, "OP.RECOVERY_UNAUTHENTICATED") in log.codes(Recoveries(default_policy=GUARDIANS))
    device = Recoveries(default_policy=GUARDIANS, devices={EVE: BERT})
    assert log.moved(device) == {LOST: NEW}


def test_nothing_is_done_without_approvals(log: Rescue) -> None:
    log.request()
    log.execute()
    assert log.last() == "OP.RECOVERY_THRESHOLD"


def test_approvals_come_after_the_request(log: Rescue) -> None:
    early = op_id(log.approve(ANNE))
    log.request()
    late = [op_id(log.approve(who)) for who in (BERT, CARL)]
    log.execute(early, late[0])
    assert log.last() == "OP.RECOVERY_NO_REQUEST"
    log.execute(*late)
    assert log.last() is None


def test_a_request_for_another_identity_opens_nothing(log: Rescue) -> None:
    log.request(new=NEXT)
    log.execute(*(op_id(log.approve(who)) for who in (ANNE, BERT)))
    assert log.last() == "OP.RECOVERY_NO_REQUEST"


def test_an_execution_that_counts_closes_all_requests(log: Rescue) -> None:
    log.request(new=NEXT)
    log.recover(LOST, NEW)
    refs = [op_id(log.approve(who, new=NEXT)) for who in (ANNE, BERT)]
    log.execute(*refs, new=NEXT)
    assert log.last() == "OP.RECOVERY_NO_REQUEST"
    log.recover(LOST, NEXT)
    assert log.moved() == {LOST: NEXT}


def test_remaps_compose_and_make_no_circle(log: Rescue) -> None:
    log.recover(LOST, NEW)
    log.recover(NEW, NEXT)
    assert log.moved() == {LOST: NEXT, NEW: NEXT}
    log.recover(NEXT, LOST)
    assert log.last() == "OP.RECOVERY_CYCLE"
    log.recover(NEXT, NEXT)
    assert log.last() == "OP.RECOVERY_CYCLE"
    assert log.moved() == {LOST: NEXT, NEW: NEXT}


def test_only_executors_execute_if_there_are_any(log: Rescue) -> None:
    log.recover(LOST, NEW)
    strict = Recoveries(default_policy=GUARDIANS, executors=frozenset({ANNE}))
    assert log.last(strict) == "OP.RECOVERY_EXECUTOR"
    assert log.moved(Recoveries(default_policy=GUARDIANS, executors=frozenset({EVE}))) == {LOST: NEW}
    device = Recoveries(default_policy=GUARDIANS, executors=frozenset({ANNE}), devices={EVE: ANNE})
    assert log.moved(device) == {LOST: NEW}


def test_the_timeline_of_a_target(log: Rescue) -> None:
    log.recover(LOST, NEW)
    log.execute()
    overlay = Recoveries(default_policy=GUARDIANS)
    tables = log.fold(overlay)[0]
    rows = overlay.timeline(tables, overlay.parse_key(LOST.hex()))
    assert [row["type"] for row in rows] == ["request", "approval", "approval", "execution", "execution"]
    assert [row["counts"] for row in rows] == [True, True, True, True, False]
    assert rows[1]["approver_identity"] == ANNE.hex()
    assert rows[3]["new_identity"] == NEW.hex()
    assert [count for _, count in overlay.executions(tables, LOST)] == [2, 0]
    found: Any = overlay.view_key(tables, LOST)
    assert found["identity"] == NEW.hex()
    assert overlay.view_key(tables, EVE) is None
