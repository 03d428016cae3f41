"""Exponential backoff: how long to wait before the next attempt."""

# More doublings would overflow a float; every cap is reached earlier.
_MAX_DOUBLINGS = 64


def backoff_sec(failures: int, *, first_sec: float, cap_sec: float) -> float:
    """Return the pause after a number of failures in a row: ``first_sec``, then twice as long each time."""
    if failures < 1:
        raise ValueError("the pause is one after a failure")
    return min(cap_sec, first_sec * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
