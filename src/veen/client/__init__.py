"""The client: keys, sending, reading and verification (docs/adr/0009-the-client.md).

from veen.client import Client

Names are loaded when they are first used: a blocking program does not import asyncio, and a command that only
queries a hub does not import the rest.
"""

from typing import TYPE_CHECKING

from veen.stdx.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from veen.client.async_client import AsyncClient
    from veen.client.body import Attachment
    from veen.client.client import Client
    from veen.client.errors import (
        BodyError,
        ClientError,
        ClientStateError,
        ContextError,
        DivergenceError,
        InvalidResponseError,
        KeystoreError,
        NetworkError,
        PinError,
        ReadOnlyError,
        RejectedError,
        RpcError,
        RpcTimeoutError,
        UnsentError,
    )
    from veen.client.fold.interpret import FoldedState
    from veen.client.fold.snapshots import SnapshotCheck, make_snapshot, verify_snapshot
    from veen.client.fraud import Fraud
    from veen.client.home.directory import ClientHome
    from veen.client.home.pins import Trust
    from veen.client.keys.identity_card import IdentityCard
    from veen.client.keys.keystore import Secrets
    from veen.client.models import Draft, Message, Sent
    from veen.client.operations import Granted, grant_access, send_operation
    from veen.client.resync import Consistency, Resynced
    from veen.client.retry import Retry
    from veen.client.rpc.async_serve import AsyncRpcServer
    from veen.client.rpc.serve import Call, Handled, RpcServer
    from veen.client.session import Rotation
    from veen.client.tokens import Authorized

__all__ = [
    "AsyncClient",
    "AsyncRpcServer",
    "Attachment",
    "Authorized",
    "BodyError",
    "Call",
    "Client",
    "ClientError",
    "ClientHome",
    "ClientStateError",
    "Consistency",
    "ContextError",
    "DivergenceError",
    "Draft",
    "FoldedState",
    "Fraud",
    "Granted",
    "Handled",
    "IdentityCard",
    "InvalidResponseError",
    "KeystoreError",
    "Message",
    "NetworkError",
    "PinError",
    "ReadOnlyError",
    "RejectedError",
    "Resynced",
    "Retry",
    "Rotation",
    "RpcError",
    "RpcServer",
    "RpcTimeoutError",
    "Secrets",
    "Sent",
    "SnapshotCheck",
    "Trust",
    "UnsentError",
    "grant_access",
    "make_snapshot",
    "send_operation",
    "verify_snapshot",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "async_client": ("AsyncClient",),
            "tokens": ("Authorized",),
            "body": ("Attachment",),
            "rpc.async_serve": ("AsyncRpcServer",),
            "keys.identity_card": ("IdentityCard",),
            "client": ("Client",),
            "errors": (
                "BodyError",
                "ClientError",
                "ClientStateError",
                "ContextError",
                "DivergenceError",
                "InvalidResponseError",
                "KeystoreError",
                "NetworkError",
                "PinError",
                "ReadOnlyError",
                "RejectedError",
                "RpcError",
                "RpcTimeoutError",
                "UnsentError",
            ),
            "fold.interpret": ("FoldedState",),
            "fraud": ("Fraud",),
            "home.directory": ("ClientHome",),
            "keys.keystore": ("Secrets",),
            "operations": ("Granted", "grant_access", "send_operation"),
            "home.pins": ("Trust",),
            "models": ("Draft", "Message", "Sent"),
            "resync": ("Consistency", "Resynced"),
            "retry": ("Retry",),
            "rpc.serve": ("Call", "Handled", "RpcServer"),
            "session": ("Rotation",),
            "fold.snapshots": ("SnapshotCheck", "make_snapshot", "verify_snapshot"),
        },
    )
