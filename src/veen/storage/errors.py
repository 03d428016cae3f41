"""Errors of the storage: what can go wrong with a data directory, each with what to do about it.

VeenError
├── StorageError                 everything about the files of a hub
│   ├── DamagedStoreError        bytes on disk are not what was written: file, offset, advice
│   │   └── StaleIndexError      ... of a file that can be rebuilt from the log
│   ├── NotAStoreError           not a data directory, or not of a format that this release can use
│   ├── StoreBusyError           another process writes to the directory
│   ├── StoreFullError           no space left on the device; the writer can continue later
│   ├── WriterStoppedError       the writer met a disk error and must be opened again
│   └── AnchorError              a root could not be published for now
├── FindingError                 a check found damage: the finding
└── PrunedEntryError             the entry was pruned (a ProtocolError and a PrunedError)
"""

from veen.core.errors import PRUNED_FIELD, Code, Detail, ProtocolError, PrunedError, VeenError
from veen.core.objects.finding import Finding


class StorageError(VeenError):
    """Base of everything this package raises about files."""


class DamagedStoreError(StorageError):
    """Bytes on disk are not what was written, or not all that was written. Nothing is guessed."""

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
    """The index or another derived file does not fit the log; the log itself is not in doubt."""

    def __init__(
        self, path: str, offset: int | None, what: str, advice: str = "run: veen repair DATA_DIR"
    ) -> None:
        super().__init__(path, offset, what, advice)


class StoreBusyError(StorageError):
    """Another process writes to the directory."""


class WriterStoppedError(StorageError):
    """The writer has met a disk error and takes no more entries until it is opened again."""


class StoreFullError(StorageError):
    """No space left; nothing of the batch was kept, and the writer can go on when there is space again."""


class AnchorError(StorageError):
    """A root could not be published, for now; nothing else is affected."""


class NotAStoreError(StorageError):
    """The directory is not a data directory, or not one that this release can use."""


class FindingError(VeenError):
    """A check found damage: on its way to the caller that knows what it means for the rest of the check."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class PrunedEntryError(ProtocolError, PrunedError):
    """The entry was pruned: E.NOT_FOUND, as for one that was never written, with another ``field``."""

    def __init__(self, message: str) -> None:
        super().__init__(Detail.VALUE, message, code=Code.NOT_FOUND, field=PRUNED_FIELD)
