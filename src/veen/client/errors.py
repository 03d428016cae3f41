"""Errors of the client, besides data that breaks a rule (``ProtocolError``).

VeenError
└── ClientError                      base class of the errors of the client library
    ├── NetworkError                 the hub cannot be reached, or did not answer in time
    ├── InvalidResponseError         the response is not a valid response of a hub
    ├── RejectedError                the hub rejected the request: code, detail
    │   ├── EpochError               ... the label belongs to an epoch outside the window of the hub
    │   ├── PrunedByHubError         ... the hub pruned the entry (a PrunedError as well)
    │   └── UnknownLabelError        ... the hub has no entries of the label
    ├── UnsentError                  a message was rejected permanently; its bytes are in a file
    ├── DivergenceError              the hub signed two contradicting statements: the evidence
    ├── PinError                     the hub is unknown, or not the pinned one
    ├── ContextError                 no client or hub is named, or its name cannot be used
    ├── KeystoreError                the keys of the client cannot be used
    ├── ClientStateError             the client's files are missing, damaged or in conflict
    │   ├── DamagedClientFileError   ... a file of the client is damaged
    │   └── DamagedLogError          ... a log read from files is damaged: file, offset
    ├── ReadOnlyError                a hub that is read from its files accepts nothing
    ├── BodyError                    CBOR cannot represent the body (a ValueError as well)
    ├── SummaryCacheError            summaries cannot be cached here
    ├── RpcError                     the method failed: code, detail
    └── RpcTimeoutError              no reply came in time (a TimeoutError as well)
"""

from pathlib import Path

from veen.client.fraud import Fraud
from veen.core.errors import PRUNED_FIELD, Code, Detail, DetailValue, PrunedError, VeenError
from veen.core.objects.error_envelope import ErrorEnvelope


class ClientError(VeenError):
    """Base class of the errors of the client library."""


class NetworkError(ClientError):
    """The hub cannot be reached or did not respond in time; it is unknown whether it acted."""


class InvalidResponseError(ClientError):
    """The response is not a valid response of a hub."""


class RejectedError(ClientError):
    """The hub rejected a request; ``code`` and ``detail`` say why."""

    def __init__(self, envelope: ErrorEnvelope) -> None:
        super().__init__(f"{envelope.code}: {envelope.message}")
        self.envelope = envelope

    @property
    def code(self) -> str:
        """The error code, for programs."""
        return self.envelope.code

    @property
    def detail(self) -> str:
        """Which check failed; empty if the hub did not report it."""
        return self.envelope.detail_enum

    def field(self, name: str) -> DetailValue | None:
        """Return a field of the error."""
        return self.envelope.field(name)


class EpochError(RejectedError):
    """The label belongs to an epoch outside the hub's window: the clocks of hub and client differ."""


class PrunedByHubError(RejectedError, PrunedError):
    """The hub pruned the entry."""


class UnknownLabelError(RejectedError):
    """The hub has no entries of the label."""


def rejection_of(envelope: ErrorEnvelope) -> RejectedError:
    """Return the error for a hub's error response, of the class that programs branch on."""
    error = RejectedError(envelope)
    if error.code == Code.TIME.value and error.detail == Detail.EPOCH.value:
        return EpochError(envelope)
    if error.code == Code.NOT_FOUND.value:
        classes: dict[str, type[RejectedError]] = {PRUNED_FIELD: PrunedByHubError, "label": UnknownLabelError}
        return classes.get(str(error.field("field")), RejectedError)(envelope)
    return error


class KeystoreError(ClientError):
    """The keys of the client cannot be used; the text says what to do."""


class PinError(ClientError):
    """The hub is unknown, or is not the pinned one."""


class ContextError(ClientError):
    """No client or hub is named, or the name cannot be used: an invalid URL or configuration file."""


class ClientStateError(ClientError):
    """The files of a client are missing, damaged or in conflict."""


class DamagedClientFileError(ClientStateError):
    """A file of the client is damaged; the text says which and why."""


class DamagedLogError(ClientStateError):
    """A log that is read from files is damaged; ``file``, and the ``offset`` in it, if they are known."""

    def __init__(self, message: str, file: Path | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset


class ReadOnlyError(ClientError):
    """A log that is read from files accepts no messages."""


class UnsentError(ClientError):
    """A message was rejected permanently; ``kept`` is the file with its bytes."""

    def __init__(self, message: str, kept: Path) -> None:
        super().__init__(message)
        self.kept = kept


class DivergenceError(ClientError):
    """The hub signed two contradicting statements; ``fraud`` is the evidence, ``path`` the file with it."""

    def __init__(self, message: str, fraud: Fraud) -> None:
        super().__init__(message)
        self.fraud = fraud
        self.path: Path | None = None


class BodyError(ClientError, ValueError):
    """Deterministic CBOR cannot represent this body; the text says which part of it."""


class SummaryCacheError(ClientError):
    """Summaries cannot be cached, for example for lack of space or permission; the text says why."""


class RpcError(ClientError):
    """The method failed; ``code`` and ``detail`` are the server's."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail


class RpcTimeoutError(ClientError, TimeoutError):
    """No reply came in time; it is unknown whether the method was executed."""
