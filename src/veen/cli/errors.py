"""How a command ends: its exit codes, and the error that carries one."""

from typing import Final

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
from veen.storage.errors import DamagedStoreError, StorageError

OK: Final = 0
USAGE: Final = 1
NETWORK: Final = 2
MALFORMED: Final = 3
REFUSED: Final = 4
SELFTEST: Final = 5


class CommandError(Exception):
    """A command can not do what was asked; the text says what to do next."""

    def __init__(self, message: str, exit_code: int, code: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        #: The hub's error code, if it was the hub that refused.
        self.code = code


def as_command_error(error: Exception) -> CommandError | None:
    """Return how an error of the layers below ends a command; None if it is a fault of the program."""
    match error:
        case CommandError():
            return error
        case BrokenPipeError():
            return None  # whoever read our output has seen enough
        case AssertionError():
            return None  # a fault of the program, even where it is one of our classes
        case RejectedError():
            return CommandError(str(error), REFUSED, error.code)
        case NetworkError():
            return CommandError(str(error), NETWORK, "E.NETWORK")
        case InvalidResponseError():
            return CommandError(str(error), MALFORMED, "E.MALFORMED")
        case DivergenceError():
            where = f"; the evidence is in {error.path}, check it with: veen verify-fraud {error.path}"
            return CommandError(f"{error}{where if error.path else ''}", REFUSED, "E.DIVERGENCE")
        case ReadOnlyError():
            return CommandError(str(error), NETWORK, "E.NETWORK")
        case PinError() | UnsentError():
            return CommandError(str(error), REFUSED, "E.PIN" if isinstance(error, PinError) else "E.UNSENT")
        case DamagedLogError():
            return CommandError(str(error), REFUSED, "E.DAMAGED")
        case ContextError():
            return CommandError(str(error), USAGE)
        case BodyError():
            return CommandError(str(error), USAGE, "E.USAGE")
        case ClientError():
            return CommandError(str(error), USAGE, "E.CLIENT")
        case DamagedStoreError():
            return CommandError(str(error), REFUSED, "E.DAMAGED")
        case StorageError():
            return CommandError(str(error), USAGE, "E.STORAGE")
        case ProtocolError():
            seq = error.fields.get("stream_seq")
            where = f"entry {seq}: " if isinstance(seq, int) else ""
            return CommandError(f"{where}{error}", REFUSED, error.code.value)
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return CommandError(f"{where}{error.strerror or error}", USAGE, "E.FILE")
        case VeenError():
            return CommandError(str(error), REFUSED)
    return None
