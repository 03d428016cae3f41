"""The overlays and schemas by name; the module of an overlay is loaded at first use.

An overlay that Spark folds in SQL has its form in ``veen.pipeline.fold_sql`` (``FORMS``).
"""

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from veen.overlays.overlay import Overlay
from veen.overlays.schema import Schema

# Name of an overlay -> module and class.
_HOMES: Final[Mapping[str, tuple[str, str]]] = {
    "crdt.lww": ("builtin.crdt", "LwwMap"),
    "crdt.orset": ("builtin.crdt", "OrSet"),
    "crdt.gcnt": ("builtin.crdt", "GCounter"),
    "wallet": ("wallet.overlay", "Wallets"),
    "wallet.literal": ("wallet.literal", "LiteralWallets"),
    "paid.ledger": ("operations.paid_ledger", "PaidLedger"),
    "rpc": ("builtin.rpc", "Calls"),
    "access": ("operations.access", "Access"),
    "delegated": ("operations.delegation", "Delegated"),
    "agreement": ("operations.agreement", "Agreements"),
    "publication": ("operations.publication", "Publications"),
    "snapshot": ("builtin.snapshot", "Snapshots"),
    "recovery": ("operations.recovery", "Recoveries"),
    "query.audit": ("operations.query_audit", "QueryAudit"),
    "federation.mirror": ("builtin.mirror", "Mirrors"),
    "recorder": ("recorder.overlay", "Recorder"),
    "label.class": ("control.label_class", "LabelClasses"),
}
# Aliases: short names for operators, and the classes of states (SNP-004).
_ALIASES: Final[Mapping[str, str]] = {
    "lww.map": "crdt.lww",
    "configuration.map": "crdt.lww",
    "orset": "crdt.orset",
    "counter.map": "crdt.gcnt",
    "wallet.account": "wallet",
    "wallet.ledger": "paid.ledger",
    "paid": "paid.ledger",
    "audit": "query.audit",
    "mirror": "federation.mirror",
}


def names() -> list[str]:
    """Return the names of all overlays."""
    return list(_HOMES)


def overlay_class(name: str) -> type[Overlay]:
    """Return an overlay by its name or alias; KeyError if there is none."""
    module, attribute = _HOMES[_ALIASES.get(name, name)]
    overlay: type[Overlay] = getattr(importlib.import_module(f"veen.overlays.{module}"), attribute)
    return overlay


def overlays() -> Iterator[type[Overlay]]:
    """Yield all overlays."""
    return map(overlay_class, _HOMES)


@cache
def schemas() -> Mapping[str, Schema]:
    """Return all schemas by name."""
    return {schema.name: schema for overlay in overlays() for schema in overlay.schemas}


@cache
def schemas_by_id() -> Mapping[bytes, Schema]:
    """Return all schemas by id."""
    return {schema.schema_id: schema for schema in schemas().values()}
