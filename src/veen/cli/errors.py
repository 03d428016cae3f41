"""Errors that end a command: each class has an exit code.

    VeenError
    └── CommandError            a command cannot do what it was asked to do
        ├── UsageError            1  its arguments, or the files and settings that they name, do not allow it
        ├── UnreachableError      2  the hub cannot be reached, or does not answer in time
        ├── MalformedError        3  a response or a file does not have the format of the protocol
        ├── FailedError           4  the hub rejected the request, or a check failed
        └── TerminatedError     143  a signal ended the command

``output.command`` prints them and ends the process. ``as_command_error`` maps the errors of the layers below
to them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from veen.client.errors import (
    BodyError,
    ClientError,
    ContextError,
    DamagedLogError,
    DivergenceError,
    InvalidResponseError,
    NetworkError,
    PinError,
    ReadOnlyError,
    RejectedError,
    UnsentError,
)
from veen.core.errors import ProtocolError, VeenError
from veen.overlays.errors import OverlayError
from veen.storage.errors import DamagedStoreError, StorageError

OK: Final = 0
USAGE: Final = 1
NETWORK: Final = 2
MALFORMED: Final = 3
FAILED: Final = 4
SELFTEST: Final = 5


class CommandError(VeenError):
    """A command cannot do what it was asked to do; the text says what to do next.

    Attributes:
        code: What scripts branch on: the error code of the hub, or one of the command itself.
        document: What scripts get beside code and detail.
    """

    exit_code: ClassVar[int]

    def __init__(
        self, message: str, code: str = "", document: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        super().__init__(message)
        self.code = code or "E.USAGE"
        self.document = document

    def with_text(self, message: str) -> Self:
        """Return the same error with another text."""
        return type(self)(message, self.code, self.document)

    def with_document(self, document: Mapping[str, Any]) -> Self:
        """Return the same error with more for scripts."""
        return type(self)(str(self), self.code, document)

    def to_json(self) -> dict[str, Any]:
        """Return what scripts get."""
        return {"ok": False, "code": self.code, "detail": str(self), **self.document}


class UsageError(CommandError):
    """The arguments, or the files and settings that they name, do not allow it."""

    exit_code = USAGE


class UnreachableError(CommandError):
    """The hub cannot be reached, or does not answer in time."""

    exit_code = NETWORK


class MalformedError(CommandError):
    """A response or a file does not have the format of the protocol."""

    exit_code = MALFORMED


class FailedError(CommandError):
    """The hub rejected the request, or a check failed."""

    exit_code = FAILED


class TerminatedError(CommandError):
    """A signal ended the command."""

    exit_code = 143  # 128 and the number of SIGTERM, as shells count


def interrupted() -> UsageError:
    """Return the error of a command that was interrupted from the keyboard."""
    return UsageError("interrupted", "E.INTERRUPTED")


def as_command_error(error: Exception) -> CommandError | None:
    """Return the error that ends a command, for an error of the layers below; None for a bug."""
    match error:
        case CommandError():
            return error
        case BrokenPipeError():
            return None  # the reader of our output has left
        case AssertionError():
            return None  # a bug, even where it is one of our classes
        case RejectedError():
            return FailedError(str(error), error.code)
        case NetworkError():
            return UnreachableError(str(error), "E.NETWORK")
        case InvalidResponseError():
            return MalformedError(str(error), "E.MALFORMED")
        case DivergenceError():
            where = f"; the evidence is in {error.path}, check it with: veen verify-fraud {error.path}"
            return FailedError(f"{error}{where if error.path else ''}", "E.DIVERGENCE")
        case ReadOnlyError():
            return UnreachableError(str(error), "E.NETWORK")
        case PinError():
            return FailedError(str(error), "E.PIN")
        case UnsentError():
            return FailedError(str(error), "E.UNSENT")
        case DamagedLogError():
            return FailedError(str(error), "E.DAMAGED")
        case ContextError():
            return UsageError(str(error))
        case OverlayError():
            return UsageError(str(error))
        case BodyError():
            return UsageError(str(error))
        case ClientError():
            return UsageError(str(error), "E.CLIENT")
        case DamagedStoreError():
            return FailedError(str(error), "E.DAMAGED")
        case StorageError():
            return UsageError(str(error), "E.STORAGE")
        case ProtocolError():
            seq = error.fields.get("stream_seq")
            where = f"entry {seq}: " if isinstance(seq, int) else ""
            return FailedError(f"{where}{error}", error.code.value)
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return UsageError(f"{where}{error.strerror or error}", "E.FILE")
        case VeenError():
            return FailedError(str(error))
    return None
