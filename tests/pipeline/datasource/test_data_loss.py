"""Verdicts on entries that are not there: from what both sides hold, without any log."""

import pytest

from tests import builders
from veen.pipeline.datasource.data_loss import (
    LabelExtent,
    SourcePosition,
    judge_asked,
    judge_held,
    judge_next,
)
from veen.pipeline.errors import DataLossError, Loss, LossVerdict

LABEL = builders.some_label()
ROOT, OTHER = builders.digest("root"), builders.digest("other")


def verdicts(losses: list[Loss]) -> list[tuple[LossVerdict, int, int]]:
    return [(loss.verdict, loss.first_seq, loss.last_seq) for loss in losses]


@pytest.mark.parametrize(
    ("held", "has", "root_now", "expected"),
    [
        (SourcePosition(0), LabelExtent(), None, []),
        (SourcePosition(5, ROOT), LabelExtent(1, 5), ROOT, []),
        (SourcePosition(5, ROOT), LabelExtent(1, 9), ROOT, []),
        (SourcePosition(5, None), LabelExtent(1, 9), OTHER, []),
        (SourcePosition(5, ROOT), LabelExtent(1, 9), None, []),
        (SourcePosition(5, ROOT), LabelExtent(1, 9), OTHER, [(LossVerdict.FORKED, 5, 5)]),
        (SourcePosition(5, ROOT), LabelExtent(1, 3), None, [(LossVerdict.LOST, 4, 5)]),
        (SourcePosition(5, ROOT), LabelExtent(), None, [(LossVerdict.LOST, 1, 5)]),
    ],
)
def test_what_was_read_against_what_is_there(
    held: SourcePosition,
    has: LabelExtent,
    root_now: bytes | None,
    expected: list[tuple[LossVerdict, int, int]],
) -> None:
    assert verdicts(judge_held(LABEL, held, has, root_now)) == expected


@pytest.mark.parametrize(
    ("first", "last", "has", "expected"),
    [
        (1, None, LabelExtent(1, 9), []),
        (8, None, LabelExtent(8, 9, ((1, 7),)), []),
        (3, None, LabelExtent(8, 9, ((1, 7),)), [(LossVerdict.PRUNED, 3, 7)]),
        (3, None, LabelExtent(8, 9, ((1, 4), (5, 7))), [(LossVerdict.PRUNED, 3, 7)]),
        (3, 5, LabelExtent(8, 9, ((1, 7),)), [(LossVerdict.PRUNED, 3, 5)]),
        (3, None, LabelExtent(8, 9), [(LossVerdict.LOST, 3, 7)]),
        (3, None, LabelExtent(8, 9, ((1, 4), (6, 7))), [(LossVerdict.LOST, 3, 7)]),
        (1, None, LabelExtent(8, 9, ((1, 4), (5, 7)), ((1, 4),)), [(LossVerdict.PRUNED, 5, 7)]),
        (3, None, LabelExtent(8, 9, ((1, 4), (5, 7)), ((1, 4),)), [(LossVerdict.PRUNED, 5, 7)]),
        (1, None, LabelExtent(8, 9, ((1, 4), (5, 7)), ((5, 7),)), [(LossVerdict.PRUNED, 1, 4)]),
        (1, 6, LabelExtent(8, 9, ((1, 4), (5, 7)), ((5, 7),)), [(LossVerdict.PRUNED, 1, 4)]),
        (2, None, LabelExtent(8, 9, ((1, 4), (5, 7)), ((1, 4), (5, 7))), []),
        (
            1,
            None,
            LabelExtent(12, 15, ((1, 4), (5, 7), (8, 11)), ((1, 4), (8, 11))),
            [(LossVerdict.PRUNED, 5, 7)],
        ),
        (1, None, LabelExtent(8, 9, ((1, 4),), ((1, 4),)), [(LossVerdict.LOST, 5, 7)]),
    ],
)
def test_a_gap_is_pruned_only_if_the_log_says_so(
    first: int, last: int | None, has: LabelExtent, expected: list[tuple[LossVerdict, int, int]]
) -> None:
    assert verdicts(judge_next(LABEL, first, has, last)) == expected


@pytest.mark.parametrize(
    ("first", "last", "has", "expected"),
    [
        (1, 9, LabelExtent(1, 9), []),
        (10, 9, LabelExtent(1, 9), []),
        (11, 10, LabelExtent(1, 9), [(LossVerdict.NEVER_WRITTEN, 10, 10)]),
        (1, 12, LabelExtent(1, 9), [(LossVerdict.NEVER_WRITTEN, 10, 12)]),
        (4, 0, LabelExtent(), [(LossVerdict.NEVER_WRITTEN, 1, 3)]),
        (
            2,
            12,
            LabelExtent(5, 9, ((1, 4),)),
            [(LossVerdict.PRUNED, 2, 4), (LossVerdict.NEVER_WRITTEN, 10, 12)],
        ),
    ],
)
def test_what_is_asked_for_by_number(
    first: int, last: int, has: LabelExtent, expected: list[tuple[LossVerdict, int, int]]
) -> None:
    assert verdicts(judge_asked(LABEL, first, last, has)) == expected


def test_a_loss_is_told_in_one_line_with_all_that_one_needs() -> None:
    error = DataLossError(judge_held(LABEL, SourcePosition(5, ROOT), LabelExtent(1, 3), None))
    assert str(error) == (
        f"lost: entries 4 to 5 of {LABEL.hex()}: the log contained it, and now ends with entry 3. "
        "Set failOnDataLoss=false to continue with the remaining entries"
    )
