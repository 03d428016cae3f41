"""Types of all checkers of a log: how much they check, and what they report."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from veen.core.types import Label

# The verdict on whether a log holds what was written.
INTEGRITY: Final = "integrity"


class Level(IntEnum):
    """How much is checked; each level includes those before it."""

    NONE = 0
    FRAMES = 1
    HASHES = 2
    ROOTS = 3
    FULL = 4


@dataclass(frozen=True, slots=True)
class Location:
    """Where something is wrong: in a file, at an entry of a log, or both. Unknown fields are empty."""

    file: str = ""
    offset: int | None = None
    label: Label | None = None
    stream: str | None = None
    epoch: int | None = None
    seq: int | None = None

    def __str__(self) -> str:
        log = self.stream or (self.label or b"").hex()
        if log and self.seq is not None:
            log += f" entry {self.seq}"
        file = self.file if self.offset is None else f"{self.file} at byte {self.offset}"
        return ", ".join(part for part in (log, file) if part)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where, the stable name of the rule that it breaks, and an explanation."""

    where: Location
    code: str
    text: str
    # The verdict of the report that this finding makes negative.
    verdict: str = INTEGRITY

    def __str__(self) -> str:
        return f"{self.where}: {self.text} [{self.code}]"
