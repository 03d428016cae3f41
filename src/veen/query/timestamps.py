"""Times in queries: UTC, whole seconds, ``YYYY-MM-DDTHH:MM:SSZ`` (QRY-007, QRY-008)."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

# 9999-12-31T23:59:59Z. The recorder's schemas have the same bound; neither package may import the other.
LAST_TIME: Final = 253_402_300_799

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTES: Final = tuple(f"T{hour:02}:{minute:02}:" for hour in range(24) for minute in range(60))
_FORM: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")


def format_time(seconds: int) -> str:
    """Format a time, given in seconds since 1970."""
    if not 0 <= seconds <= LAST_TIME:
        raise ValueError(f"{seconds} is not a time from 1970 to 9999")
    minutes, second = divmod(seconds, 60)
    day, minute = divmod(minutes, len(_MINUTES))
    return f"{_date(day)}{_MINUTES[minute]}{second:02}Z"


@lru_cache(maxsize=4096)  # every row has a time, and most are within a few days
def _date(day: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


def parse_time(text: str) -> int:
    """Return the seconds since 1970 of a time; raises ValueError for other formats."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time of the form 2026-01-31T23:59:59Z")
    year, month, day, hour, minute, second = map(int, match.groups())
    try:
        since = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    except ValueError:
        raise ValueError(f"{text!r} is not a date of the calendar") from None
    if since < timedelta(0):
        raise ValueError(f"{text!r} is before 1970")
    return since // timedelta(seconds=1)
