"""Errors of the query service, in addition to those of queries (``veen.query.errors.QueryError``).

VeenError
├── QueryServiceError
│   ├── PolicyError              a policy file cannot be used: the path, and what is wrong with it
│   ├── StoreError               the state of a service cannot be used
│   ├── StateBusyError           another service uses the state directory
│   ├── BusyError                the service accepts no more queries, or sends no more pages, for now
│   ├── QueueFullError           the maximum number of queries is waiting
│   ├── DuplicateQueryError      there is a query with this id
│   ├── IngestBusyError          the log cannot be searched for a stream while it is ingested
│   ├── RunCancelledError        a run was ended because its query is cancelled
│   └── EngineEndedError         the engine has ended; a restart of the service brings it back
└── QueryError
    └── UnauthorizedError        a request has neither a token nor a certificate of the policy
"""

from veen.core.errors import VeenError
from veen.query.errors import QueryError


class QueryServiceError(VeenError):
    """Base of the service's own errors."""


class PolicyError(QueryServiceError):
    """A policy cannot be used; the text says why."""


class StoreError(QueryServiceError):
    """The state of a service cannot be used; the text says why."""


class StateBusyError(QueryServiceError):
    """Another service uses the state directory."""


class BusyError(QueryServiceError):
    """The service accepts no more queries, or sends no more pages, for now."""


class QueueFullError(QueryServiceError):
    """The maximum number of queries is waiting."""


class DuplicateQueryError(QueryServiceError):
    """There is a query with this id."""


class IngestBusyError(QueryServiceError):
    """The log cannot be searched for a stream while it is ingested."""


class RunCancelledError(QueryServiceError):
    """A run was ended because its query is cancelled."""

    def __init__(self) -> None:
        super().__init__("the query was cancelled")


class EngineEndedError(QueryServiceError):
    """The engine has ended; a restart of the service brings it back."""

    def __init__(self) -> None:
        super().__init__("the engine has ended")


class UnauthorizedError(QueryError):
    """A request has neither a token nor a certificate of the policy."""

    def __init__(self) -> None:
        super().__init__("unauthorized", "a bearer token or a client certificate of this service is needed")
