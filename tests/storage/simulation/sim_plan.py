"""What can go wrong on a simulated disk, and when: operations, faults, and plans that bring them together."""

import random
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple


class Crash(BaseException):
    """The process ended here. Not an ``Exception``, so that no error handling can survive it."""


class Op(StrEnum):
    """A step that the disk counts."""

    MAKE_DIR = "make_dir"
    CREATE = "create"
    WRITE = "write"
    SYNC = "sync"
    TRUNCATE = "truncate"
    RENAME = "rename"
    UNLINK = "unlink"
    SYNC_DIR = "sync_dir"
    LOCK = "lock"
    OPEN_INDEX = "open_index"
    COMMIT = "commit"
    # These change nothing. No crash is planned at them: it would be the crash before the next change.
    READ = "read"
    SIZE = "size"
    NAMES = "names"
    OPEN = "open"


class Operation(NamedTuple):
    """One counted step: ``number`` runs from 1 over all steps of a filesystem object."""

    number: int
    op: Op
    path: str
    size: int


class Fault(StrEnum):
    """What happens instead of success. The last two are lies: tests may expect detection, not survival."""

    CRASH_BEFORE = "crash before"
    CRASH_INSIDE = "crash inside"  # a write of which a prefix was done
    CRASH_AFTER = "crash after"
    EIO = "EIO"  # not done (of a write: perhaps a prefix); a later try works, also of a sync
    EIO_AFTER = "EIO after"  # done, and an error nevertheless
    ENOSPC = "ENOSPC"  # not done; of a write perhaps a prefix, perhaps nothing
    SHORT = "short"  # a write of which a prefix, neither empty nor all, was done; then ENOSPC
    FAILED_SYNC = "failed sync"  # EIO; what was unsynced counts as clean, and no later sync helps
    READ_EIO = "read EIO"
    MISDIRECTED = "misdirected"  # a write that went to another place, reported as success
    LOST_WRITE = "lost write"  # a write that stays in the cache forever, reported as success, like its sync


CHANGES: Final = frozenset(Op) - {Op.READ, Op.SIZE, Op.NAMES, Op.OPEN}
_SYNCS: Final = frozenset({Op.SYNC, Op.SYNC_DIR})
_WRITES: Final = frozenset({Op.WRITE})
_APPLIES: Final = {
    Fault.CRASH_BEFORE: CHANGES,
    Fault.CRASH_INSIDE: _WRITES,
    Fault.CRASH_AFTER: CHANGES,
    Fault.EIO: CHANGES,
    Fault.EIO_AFTER: CHANGES - {Op.LOCK, Op.OPEN_INDEX},  # what those give is given up with the error
    Fault.ENOSPC: frozenset({Op.MAKE_DIR, Op.CREATE, Op.WRITE, Op.RENAME, Op.OPEN_INDEX, Op.COMMIT}),
    Fault.SHORT: _WRITES,
    Fault.FAILED_SYNC: _SYNCS,
    Fault.READ_EIO: frozenset({Op.READ, Op.SIZE, Op.NAMES, Op.OPEN}),
    Fault.MISDIRECTED: _WRITES,
    Fault.LOST_WRITE: _WRITES,
}

CRASHES: Final = (Fault.CRASH_BEFORE, Fault.CRASH_INSIDE, Fault.CRASH_AFTER)
ERRORS: Final = (
    Fault.EIO,
    Fault.EIO_AFTER,
    Fault.ENOSPC,
    Fault.SHORT,
    Fault.FAILED_SYNC,
    Fault.READ_EIO,
)
LIES: Final = (Fault.MISDIRECTED, Fault.LOST_WRITE)


def chance(seed: int) -> random.Random:
    """Return a source of decisions that is the same in every run."""
    return random.Random(seed)


class Plan:
    """One fault, at the ``at``-th operation that it can hit; once, or from then on until ``stop()``.

    ``at`` counts only operations to which the fault applies and which ``where`` accepts, so that a sweep over
    1, 2, 3 ... meets each of them once. Without ``at`` nothing is hit: what could be hit is in ``seen``.
    """

    def __init__(
        self,
        fault: Fault,
        at: int | None = 1,
        *,
        persistent: bool = False,
        seed: int = 0,
        where: Callable[[Operation], bool] | None = None,
    ) -> None:
        assert at is None or at >= 1
        self.fault = fault
        self.at = at
        self.persistent = persistent
        self.random = chance(seed)
        self.seen: Counter[Op] = Counter()
        self.hits: list[Operation] = []
        self._where = where
        self._stopped = False
        self._applies = _APPLIES[fault]
        self._least = 2 if fault in (Fault.SHORT, Fault.CRASH_INSIDE) else 0

    def __repr__(self) -> str:
        return f"{self.fault} at {self.at}: {', '.join(map(str, self.hits)) or 'not injected'}"

    @property
    def injected(self) -> bool:
        """Whether it happened."""
        return bool(self.hits)

    def stop(self) -> None:
        """End a persistent fault: there is space again, the disk was replaced."""
        self._stopped = True

    def take(self, operation: Operation) -> bool:
        """Count an operation and say whether it is hit."""
        if operation.op not in self._applies or operation.size < self._least:
            return False
        if self._where is not None and not self._where(operation):
            return False
        self.seen[operation.op] += 1
        if self.at is None or self._stopped:
            return False
        count = self.seen.total()
        if not (count >= self.at if self.persistent else count == self.at):
            return False
        self.hits.append(operation)
        return True

    def prefix(self, size: int) -> int:
        """Return how many bytes of a write are done before its fault."""
        if self._least:
            return self.random.randrange(1, size)
        return self.random.choice((0, self.random.randrange(size), max(size - 1, 0)))
