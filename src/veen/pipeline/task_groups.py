"""Small things put together to tasks of some size: a thousand small files are not a thousand tasks."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

#: What a task is given at most, if there is enough for all.
_TASK_BYTES: Final = 8 << 20
#: What opening a file costs, in bytes that could be read meanwhile.
FILE_COST: Final = 32 << 10


def group_into_tasks(items: Sequence[T], cost: Callable[[T], int], least: int) -> list[list[T]]:
    """Return items in groups, in their order: about ``least`` of them, and more if they would be large."""
    room = min(_TASK_BYTES, sum(map(cost, items)) // max(least, 1) + 1)
    groups: list[list[T]] = []
    size = room
    for item in items:
        if size >= room:
            groups.append([])
            size = 0
        groups[-1].append(item)
        size += cost(item)
    return groups
