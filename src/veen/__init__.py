"""VEEN: an ephemeral, verifiable, end-to-end encrypted event fabric.

import veen

with veen.Client.open("alice", "http://127.0.0.1:37411") as client:
    sent = client.send("orders", {"item": "tea"}, schema="order.v1")
    sent.save("tea.receipt")

The public packages are ``veen.core`` (the protocol), ``veen.client``, ``veen.overlays``, ``veen.recorder``,
``veen.pipeline`` (Spark), ``veen.errors`` and ``veen.testing``; everything else is internal. Names and
packages are loaded when they are first used, so that importing ``veen`` stays cheap.
"""

from typing import TYPE_CHECKING

from veen.stdx.lazy_exports import lazy_exports
from veen.version import __version__

if TYPE_CHECKING:
    from veen import client, core, errors, overlays, pipeline, recorder, testing
    from veen.client.async_client import AsyncClient
    from veen.client.client import Client
    from veen.client.models import Draft, Message, Sent
    from veen.client.rpc.async_serve import AsyncRpcServer
    from veen.client.rpc.serve import RpcServer
    from veen.client.verify.offline import verify_fraud, verify_proof, verify_receipt

__all__ = [
    "AsyncClient",
    "AsyncRpcServer",
    "Client",
    "Draft",
    "Message",
    "RpcServer",
    "Sent",
    "__version__",
    "client",
    "core",
    "errors",
    "overlays",
    "pipeline",
    "recorder",
    "testing",
    "verify_fraud",
    "verify_proof",
    "verify_receipt",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "client.async_client": ("AsyncClient",),
            "client.client": ("Client",),
            "client.models": ("Draft", "Message", "Sent"),
            "client.rpc.async_serve": ("AsyncRpcServer",),
            "client.rpc.serve": ("RpcServer",),
            "client.verify.offline": ("verify_fraud", "verify_proof", "verify_receipt"),
        },
        submodules=("client", "core", "errors", "overlays", "pipeline", "recorder", "testing"),
    )
