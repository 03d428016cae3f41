"""Small items combined into tasks of a minimum size: a thousand small files are not a thousand tasks."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

# A task above this size is split, however few tasks were requested.
_TASK_BYTES: Final = 8 << 20
# The cost of opening a file, in bytes that could be read meanwhile.
FILE_COST: Final = 32 << 10


def group_into_tasks(items: Sequence[T], cost: Callable[[T], int], min_tasks: int) -> list[list[T]]:
    """Divide items, in order, into about ``min_tasks`` groups; more if these would be large."""
    room = min(_TASK_BYTES, sum(map(cost, items)) // max(min_tasks, 1) + 1)
    groups: list[list[T]] = []
    size = room
    for item in items:
        if size >= room:
            groups.append([])
            size = 0
        groups[-1].append(item)
        size += cost(item)
    return groups
