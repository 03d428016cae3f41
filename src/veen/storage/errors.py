"""Errors of the storage, with advice for the operator.

VeenError
├── StorageError                 errors of a hub's files
│   ├── DamagedStoreError        stored bytes are not what was written: file, offset, advice
│   │   └── StaleIndexError      ... of a file that can be rebuilt from the log
│   ├── NotAStoreError           not a data directory, or not of a format that this release can use
│   ├── StoreBusyError           another process writes to the directory
│   ├── StoreFullError           no space left on the device; the writer can continue later
│   ├── WriterStoppedError       the writer met a disk error and must be opened again
│   └── AnchorError              a root could not be published; retry later
├── FindingError                 a check found damage: the finding
└── PrunedEntryError             the entry was pruned (a ProtocolError and a PrunedError)
"""

from veen.core.errors import PRUNED_FIELD, Code, Detail, ProtocolError, PrunedError, VeenError
from veen.core.objects.finding import Finding


class StorageError(VeenError):
    """Base of the errors that concern files."""


class DamagedStoreError(StorageError):
    """Stored bytes are not what was written, or incomplete. They are never guessed or repaired silently."""

    def __init__(
        self, path: str, offset: int | None, what: str, advice: str = "run: veen fsck DATA_DIR"
    ) -> None:
        self.path = path
        self.offset = offset
        self.what = what
        self.advice = advice
        place = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{place}: {what}; {advice}")


class StaleIndexError(DamagedStoreError):
    """The index or another derived file does not match the log; the log itself is not affected."""

    def __init__(
        self, path: str, offset: int | None, what: str, advice: str = "run: veen repair DATA_DIR"
    ) -> None:
        super().__init__(path, offset, what, advice)


class StoreBusyError(StorageError):
    """Another process writes to the directory."""


class WriterStoppedError(StorageError):
    """The writer stopped after a disk error; it accepts no entries until it is opened again."""


class StoreFullError(StorageError):
    """No space left. The batch was rolled back, and the writer can continue when there is space."""


class AnchorError(StorageError):
    """A root could not be published; can be retried, and nothing else is affected."""


class NotAStoreError(StorageError):
    """Not a data directory, or not in a format that this release can use."""


class FindingError(VeenError):
    """A check found damage; raised to the caller that decides how the rest of the check continues."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class PrunedEntryError(ProtocolError, PrunedError):
    """The entry was pruned: E.NOT_FOUND, as for an entry that never existed, with another ``field``."""

    def __init__(self, message: str) -> None:
        super().__init__(Detail.VALUE, message, code=Code.NOT_FOUND, field=PRUNED_FIELD)
