"""Overlays: pure, total, mergeable folds of the log (001 section 11).

An overlay of your own is a ``KeyedOverlay`` over a ``Schema``, with one of the monoids:

>>> from veen.overlays import SUM, TEXT, Field, KeyedOverlay, Schema
>>> VOTE = Schema("example.vote.v1", Field("choice", TEXT))
>>> class Votes(KeyedOverlay):
...     name, schemas, monoid = "votes", (VOTE,), SUM
...
...     def cell(self, event):
...         return event.body["choice"], 1

``overlay`` defines the interface of all overlays, ``engine`` folds, and ``registry`` lists the built-in ones.
Names are loaded at first use.
"""

from typing import TYPE_CHECKING

from veen.core.encoding.field_types import B32, BOOL, BYTES, INT, TEXT, UINT, ListOf
from veen.core.encoding.shape import Field
from veen.stdx.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from veen.overlays.errors import (
        DamagedTreeError,
        FoldOrderError,
        InvalidBodyError,
        OverlayError,
        ParameterError,
    )
    from veen.overlays.event import Event, Record
    from veen.overlays.keyed_overlay import KeyedOverlay
    from veen.overlays.monoid import COUNT, FIRST, LOWEST, MAX, MIN, SET, SUM, Monoid, first
    from veen.overlays.overlay import Lowered, Overlay, Tables
    from veen.overlays.schema import ANY, ANY_MAP, Inner, Schema

__all__ = [
    "ANY",
    "ANY_MAP",
    "B32",
    "BOOL",
    "BYTES",
    "COUNT",
    "FIRST",
    "INT",
    "LOWEST",
    "MAX",
    "MIN",
    "SET",
    "SUM",
    "TEXT",
    "UINT",
    "DamagedTreeError",
    "Event",
    "Field",
    "FoldOrderError",
    "Inner",
    "InvalidBodyError",
    "KeyedOverlay",
    "ListOf",
    "Lowered",
    "Monoid",
    "Overlay",
    "OverlayError",
    "ParameterError",
    "Record",
    "Schema",
    "Tables",
    "first",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "errors": (
                "DamagedTreeError",
                "FoldOrderError",
                "InvalidBodyError",
                "OverlayError",
                "ParameterError",
            ),
            "event": ("Event", "Record"),
            "keyed_overlay": ("KeyedOverlay",),
            "monoid": ("COUNT", "FIRST", "LOWEST", "MAX", "MIN", "SET", "SUM", "Monoid", "first"),
            "overlay": ("Lowered", "Overlay", "Tables"),
            "schema": ("ANY", "ANY_MAP", "Inner", "Schema"),
        },
    )
