"""Agreements: which definition holds, whose word counts, and what is active when."""

from typing import Any

import pytest

from tests.overlays.logs import STREAM, T0, WRITERS, ident
from tests.overlays.operation_log import Operations
from veen.overlays.engine import Fold, fold
from veen.overlays.operations.agreement import Agreements
from veen.overlays.operations.schemas import CONFIRMATION, DEFINITION

ANNE, BERT, CARL = WRITERS[:3]
ONE = ident("agreement")


class Contracts(Operations):
    """Definitions and words."""

    def define(self, version: int = 1, terms: str = "terms", **more: Any) -> None:
        """Append a definition."""
        values: dict[str, Any] = {"parties": (ANNE, BERT), **more}
        self.op(DEFINITION, CARL, agreement_id=ONE, version=version, terms_hash=ident(terms), **values)

    def say(self, party: bytes, decision: str = "accept", version: int = 1, by: bytes | None = None) -> None:
        """Append a confirmation."""
        values: dict[str, Any] = {"party_identity": party, "decision": decision}
        self.op(CONFIRMATION, by or party, agreement_id=ONE, version=version, **values)

    def active(self, version: int = 1, now: int | None = None, overlay: Agreements | None = None) -> bool:
        """Tell whether a version is active."""
        overlay = overlay or Agreements()
        return overlay.is_active(self.fold(overlay)[0], ONE, version, now)


@pytest.fixture
def log() -> Contracts:
    return Contracts()


def test_active_is_what_all_parties_accept(log: Contracts) -> None:
    log.define()
    log.say(ANNE)
    assert not log.active()
    log.say(BERT)
    assert log.active()


@pytest.mark.parametrize("word", ["reject", "withdraw", "perhaps"])
def test_the_last_word_of_a_party_counts(log: Contracts, word: str) -> None:
    log.define()
    for party in (ANNE, BERT):
        log.say(party)
    log.say(ANNE, word)
    assert not log.active()
    log.say(ANNE)
    assert log.active()
    assert log.codes(Agreements()) == ([(4, "OP.AGREEMENT_DECISION")] if word == "perhaps" else [])


def test_the_first_definition_holds(log: Contracts) -> None:
    log.define(terms="first")
    log.define(terms="second")
    log.define(terms="first")
    assert log.codes(Agreements()) == [(2, "OP.AGREEMENT_REDEFINED"), (3, "OP.AGREEMENT_VERSION")]
    found = Agreements().view_version(log.fold(Agreements())[0], ONE, 1)
    assert found is not None
    assert (found["terms_hash"], found["redefined"]) == (ident("first").hex(), True)


def test_versions_go_up(log: Contracts) -> None:
    log.define(2)
    log.define(1)
    log.define(3)
    assert log.codes(Agreements()) == [(2, "OP.AGREEMENT_VERSION")]
    assert Agreements().versions(log.fold(Agreements())[0], ONE) == [1, 2, 3]


def test_a_word_counts_if_it_is_of_a_party_itself_after_the_definition(log: Contracts) -> None:
    log.say(ANNE)
    log.define()
    log.say(CARL)
    log.say(BERT, by=ANNE)
    log.say(BERT)
    assert log.codes(Agreements()) == [
        (1, "OP.AGREEMENT_UNDEFINED"),
        (3, "OP.AGREEMENT_STRANGER"),
        (4, "OP.AGREEMENT_UNAUTHENTICATED"),
    ]
    assert not log.active()


def test_a_device_speaks_for_its_owner(log: Contracts) -> None:
    device = ident("device")
    log.define(parties=(ANNE,))
    log.say(ANNE, by=device)
    assert not log.active()
    assert log.active(overlay=Agreements(devices={device: ANNE}))
    assert not log.active(overlay=Agreements(devices={device: BERT}))


def test_an_agreement_has_its_time(log: Contracts) -> None:
    log.define(parties=(ANNE,), effective_time=T0 + 10, expiry_time=T0 + 20)
    log.say(ANNE)
    assert [log.active(now=T0 + at) for at in (9, 10, 19, 20)] == [False, True, True, False]
    assert log.active(now=None)


def test_the_current_version_is_the_highest_active_one_else_the_highest(log: Contracts) -> None:
    log.define(1, parties=(ANNE,))
    log.define(2, parties=(ANNE,))
    agreements = Agreements()

    def current() -> Any:
        return agreements.current(log.fold(agreements)[0], ONE, T0)

    assert current() == 2
    log.say(ANNE, version=1)
    assert current() == 1
    log.say(ANNE, version=2)
    assert current() == 2
    assert agreements.current(log.fold(agreements)[0], ident("another"), T0) is None


def test_what_was_active_at_a_place_can_be_told(log: Contracts) -> None:
    log.define(parties=(ANNE,))
    log.say(ANNE)
    log.say(ANNE, "withdraw")
    found = []
    for upto in range(1, 4):
        tables = Fold(Agreements()).tables_of(fold(Agreements(), log.records[:upto], STREAM))
        found.append(Agreements().is_active(tables, ONE, 1, None))
    assert found == [False, True, False]


def test_the_view(log: Contracts) -> None:
    log.define()
    log.say(BERT)
    agreements = Agreements()
    found: Any = agreements.view_key(log.fold(agreements)[0], agreements.parse_key(ONE.hex()))
    (version,) = found["versions"]
    assert [(party["identity"], party["decision"]) for party in version["parties"]] == [
        (ANNE.hex(), None),
        (BERT.hex(), "accept"),
    ]
    assert agreements.view_key(log.fold(agreements)[0], ident("another")) is None
