"""The client: keys, sending, reading and checking (docs/adr/0009-the-client.md).

from veen.client import Client

Names are loaded when they are asked for: a program that blocks needs nothing of asyncio, and a command that
only asks a hub nothing of the rest.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from veen.client.aio import AsyncClient
    from veen.client.authorizing import Authorized
    from veen.client.bodies import Attachment, BodyError
    from veen.client.calling import CallOptions, RpcError, RpcTimeoutError
    from veen.client.card import IdentityCard
    from veen.client.client import Client, Opening, ReadOptions
    from veen.client.errors import (
        AnswerError,
        ClientError,
        DivergenceError,
        KeystoreError,
        NetworkError,
        PinError,
        ReadOnlyError,
        RefusedError,
        StateError,
        UnsentError,
    )
    from veen.client.fraud import Fraud
    from veen.client.home import ClientHome
    from veen.client.keystore import Secrets
    from veen.client.operations import Granted, grant_access, send_operation
    from veen.client.pins import Trust
    from veen.client.reading import Message
    from veen.client.resyncing import Consistency, Resynced
    from veen.client.retrying import Retry
    from veen.client.sending import Draft, Options, Sent
    from veen.client.serving import Call, Handled, RpcServer, serve
    from veen.client.session import Rotation
    from veen.client.snapshots import SnapshotCheck, make_snapshot, verify_snapshot

#: Where each public name is written.
_MODULES: Final = {
    "aio": ("AsyncClient",),
    "authorizing": ("Authorized",),
    "bodies": ("Attachment", "BodyError"),
    "calling": ("CallOptions", "RpcError", "RpcTimeoutError"),
    "card": ("IdentityCard",),
    "client": ("Client", "Opening", "ReadOptions"),
    "errors": (
        "AnswerError",
        "ClientError",
        "DivergenceError",
        "KeystoreError",
        "NetworkError",
        "PinError",
        "ReadOnlyError",
        "RefusedError",
        "StateError",
        "UnsentError",
    ),
    "fraud": ("Fraud",),
    "home": ("ClientHome",),
    "keystore": ("Secrets",),
    "operations": ("Granted", "grant_access", "send_operation"),
    "pins": ("Trust",),
    "reading": ("Message",),
    "resyncing": ("Consistency", "Resynced"),
    "retrying": ("Retry",),
    "sending": ("Draft", "Options", "Sent"),
    "serving": ("Call", "Handled", "RpcServer", "serve"),
    "session": ("Rotation",),
    "snapshots": ("SnapshotCheck", "make_snapshot", "verify_snapshot"),
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AnswerError",
    "AsyncClient",
    "Attachment",
    "Authorized",
    "BodyError",
    "Call",
    "CallOptions",
    "Client",
    "ClientError",
    "ClientHome",
    "Consistency",
    "DivergenceError",
    "Draft",
    "Fraud",
    "Granted",
    "Handled",
    "IdentityCard",
    "KeystoreError",
    "Message",
    "NetworkError",
    "Opening",
    "Options",
    "PinError",
    "ReadOnlyError",
    "ReadOptions",
    "RefusedError",
    "Resynced",
    "Retry",
    "Rotation",
    "RpcError",
    "RpcServer",
    "RpcTimeoutError",
    "Secrets",
    "Sent",
    "SnapshotCheck",
    "StateError",
    "Trust",
    "UnsentError",
    "grant_access",
    "make_snapshot",
    "send_operation",
    "serve",
    "verify_snapshot",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of its module
    """Load a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"veen.client.{_HOMES[name]}"), name)
