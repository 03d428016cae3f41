"""Errors of queries, with the codes of the interface (QRY-052, QRY-053).

VeenError
└── QueryError    a query cannot be accepted, executed or answered: error_code
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from veen.core.errors import VeenError

# The HTTP status of every error code.
STATUS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "invalid_json": 400,
        "invalid_query_descriptor": 400,
        "unsupported_version": 400,
        "unauthorized": 401,
        "forbidden": 403,
        "forbidden_scope": 403,
        "query_not_found": 404,
        "duplicate_query_id": 409,
        "result_not_ready": 409,
        "execution_failed": 500,
        "internal_error": 500,
        "cancelled": 500,
    }
)


class QueryError(VeenError):
    """A query cannot be accepted, executed or answered; ``error_code`` is one of ``STATUS``."""

    def __init__(self, error_code: str, message: str) -> None:
        """Set the code of the failure, and a sentence that describes it."""
        assert error_code in STATUS, "every code has a status"
        super().__init__(error_code, message)
        self.error_code: Final = error_code
        self.message: Final = message

    @property
    def status(self) -> int:
        """The HTTP status of the failure."""
        return STATUS[self.error_code]

    def __str__(self) -> str:
        """Return the message with its code."""
        return f"{self.message} [{self.error_code}]"


def not_a_stream(name: str) -> QueryError:
    """Return the error for a stream: the same whether it does not exist or the caller may not read it."""
    return QueryError("forbidden_scope", f"{name} is not a stream that you may query")
