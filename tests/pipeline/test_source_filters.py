"""Which filters are done by reading less, and which Spark must still evaluate."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from veen.pipeline.source.filters import Span, Wanted, push

LABEL, SEQ, EPOCH, TS, TIME, STREAM = (
    (name,) for name in ("label", "stream_seq", "epoch", "hub_ts", "hub_time", "stream_id")
)
TOP = 2**63 - 1
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_TS = int(NOON.timestamp())
HALF = NOON.replace(microsecond=500_000)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([EqualTo(LABEL, b"a")], Wanted(labels=frozenset({b"a"}))),
        ([EqualNullSafe(LABEL, b"a")], Wanted(labels=frozenset({b"a"}))),
        ([In(LABEL, (b"a", b"b")), EqualTo(LABEL, b"b")], Wanted(labels=frozenset({b"b"}))),
        ([EqualTo(LABEL, b"a"), EqualTo(LABEL, b"b")], Wanted(labels=frozenset())),
        ([EqualTo(STREAM, b"s")], Wanted(stream_ids=frozenset({b"s"}))),
        ([EqualTo(SEQ, 5)], Wanted(seqs=Span(5, 5))),
        ([GreaterThan(SEQ, 5), LessThan(SEQ, 9)], Wanted(seqs=Span(6, 8))),
        ([GreaterThanOrEqual(SEQ, 5), LessThanOrEqual(SEQ, 9)], Wanted(seqs=Span(5, 9))),
        ([EqualTo(EPOCH, 3)], Wanted(epochs=Span(3, 3))),
        ([IsNotNull(LABEL), IsNotNull(SEQ), IsNotNull(TS)], Wanted()),
    ],
)
def test_what_selects_labels_and_runs_is_done_here(filters: list[Filter], wanted: Wanted) -> None:
    assert push(filters) == (wanted, [])


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (In(SEQ, (3, 9)), Wanted(seqs=Span(3, 9))),
        (GreaterThan(TS, 5), Wanted(times=Span(6, TOP))),
        (EqualTo(TIME, NOON), Wanted(times=Span(NOON_TS, NOON_TS))),
        (EqualTo(TIME, HALF), Wanted(times=Span(NOON_TS + 1, NOON_TS))),
        (GreaterThan(TIME, HALF), Wanted(times=Span(NOON_TS + 1, TOP))),
        (LessThanOrEqual(TIME, HALF), Wanted(times=Span(0, NOON_TS))),
        (LessThan(TIME, NOON), Wanted(times=Span(0, NOON_TS))),
    ],
)
def test_what_only_narrows_is_handed_back_too(one: Filter, wanted: Wanted) -> None:
    assert push([one]) == (wanted, [one])


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(LABEL, b"a")),
        IsNull(LABEL),
        IsNotNull(STREAM),
        EqualTo(LABEL, None),
        EqualNullSafe(STREAM, None),
        In(LABEL, (b"a", None)),
        In(SEQ, ()),
        EqualTo(SEQ, None),
        EqualTo(SEQ, value=True),
        GreaterThan(SEQ, 1.5),
        GreaterThan(TIME, NOON.replace(tzinfo=None)),
        EqualTo(("client_id",), b"a"),
        EqualTo(("label", "inner"), b"a"),
        StringStartsWith(("file",), "log"),
    ],
)
def test_anything_else_is_left_to_spark(one: Filter) -> None:
    assert push([one]) == (Wanted(), [one])
