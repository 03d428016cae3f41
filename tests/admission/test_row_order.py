"""Each row of the admission table alone, and every pair of rows: the earlier one decides (ADM-034)."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.defects import BASELINE, DEFECTS, Defect, with_all
from tests.admission.memory_hub import NOW, View, refusal
from tests.expect import refused
from veen.core.errors import ADMISSION_TABLE, Detail

#: Pairs that no message can show, and why.
IMPOSSIBLE = {
    ("15 beyond the head", "15 went back"): "the last prev_ack was not beyond the head, and heads only grow",
    ("16 used", "17 gap"): "a number is below the next one, or above it",
}
PAIRS = list(combinations(DEFECTS, 2))
POSSIBLE = [(one, other) for one, other in PAIRS if (one.name, other.name) not in IMPOSSIBLE]


def check(*defects: Defect) -> None:
    """Expect the first of these defects to be the answer."""
    case, first = with_all(*defects), defects[0]
    body, cookie = case.request()
    with refused(first.detail) as caught:
        case.hub().submit(body, cookie)
    found = caught.value
    if first.name == "15 went back" and any(defect.name == "16 used" for defect in defects):
        assert found.fields.pop("stream_seq"), (
            "what is in the log already is named, whatever is refused (C-63)"
        )
    assert refusal(found) == first.expected(case)


def test_the_baseline_is_admitted() -> None:
    body, cookie = BASELINE.request()
    admitted = BASELINE.hub().submit(body, cookie)
    assert (admitted.record.client_seq, admitted.hub_ts) == (3, NOW)
    assert admitted.binding is None, "the messages before have shown it"


def test_the_messages_before_were_admitted_too() -> None:
    told = BASELINE.hub()
    hub = replace(told, view=View())
    hub.view.authorize(BASELINE.token, BASELINE.issued_at)
    for record in BASELINE.history():
        hub.take(record, BASELINE.before)
    assert hub.view == told.view


def test_there_is_a_defect_for_every_row_that_a_hub_checks() -> None:
    rows = [row.detail for row in ADMISSION_TABLE if row.detail is not Detail.ATT_ROOT]
    assert list(dict.fromkeys(defect.detail for defect in DEFECTS)) == rows


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_alone_gives_its_row(defect: Defect) -> None:
    check(defect)


@pytest.mark.parametrize(("one", "other"), POSSIBLE, ids=lambda defect: defect.name)
def test_of_two_defects_the_earlier_row_decides(one: Defect, other: Defect) -> None:
    check(one, other)


def test_no_pair_is_left_out_without_a_reason() -> None:
    names = [(one.name, other.name) for one, other in PAIRS]
    assert IMPOSSIBLE.keys() <= set(names)
    assert len(POSSIBLE) + len(IMPOSSIBLE) == len(DEFECTS) * (len(DEFECTS) - 1) // 2
    shared = [(one.name, other.name) for one, other in PAIRS if one.changes.keys() & other.changes.keys()]
    assert shared == list(IMPOSSIBLE), "what can be had together is tried together"


@given(st.sets(st.sampled_from(range(len(DEFECTS))), min_size=3))
def test_of_many_defects_the_earliest_row_decides(chosen: set[int]) -> None:
    found: list[Defect] = []
    for number in sorted(chosen):
        defect = DEFECTS[number]
        if all(not defect.changes.keys() & earlier.changes.keys() for earlier in found):
            found.append(defect)
    check(*found)
