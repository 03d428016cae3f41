"""Times: one way to write each second from 1970 to 9999."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.query import reference
from veen.overlays.recorder import schemas
from veen.query.timestamps import LAST_TIME, format_time, parse_time

KNOWN = {
    0: "1970-01-01T00:00:00Z",
    59: "1970-01-01T00:00:59Z",
    86_399: "1970-01-01T23:59:59Z",
    86_400: "1970-01-02T00:00:00Z",
    951_782_400: "2000-02-29T00:00:00Z",
    1_700_000_000: "2023-11-14T22:13:20Z",
    253_402_300_799: "9999-12-31T23:59:59Z",
}


@pytest.mark.parametrize(("seconds", "text"), KNOWN.items())
def test_known_times(seconds: int, text: str) -> None:
    assert format_time(seconds) == text
    assert parse_time(text) == seconds


@given(st.integers(0, LAST_TIME))
def test_there_and_back(seconds: int) -> None:
    assert parse_time(format_time(seconds)) == seconds
    assert format_time(seconds) == reference.stamp(seconds)


WRONG = [
    "", "2026", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00z", "2026-01-01t00:00:00Z",
    "2026-01-01 00:00:00Z", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.000Z", "2026-1-1T0:0:0Z",
    "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-32T00:00:00Z",
    "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2016-12-31T23:59:60Z", "1969-12-31T23:59:59Z",
    "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "+2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z\n",
    " 2026-01-01T00:00:00Z", "\uff12\uff10\uff12\uff16-01-01T00:00:00Z",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_other_ways_to_write_a_time_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"2026|calendar|1970"):
        parse_time(text)


@pytest.mark.parametrize("seconds", [-1, LAST_TIME + 1, 2**64])
def test_times_that_have_no_date(seconds: int) -> None:
    with pytest.raises(ValueError, match="1970 to 9999"):
        format_time(seconds)


def test_the_recorder_has_the_same_last_time() -> None:
    assert schemas.LAST_TIME == LAST_TIME
