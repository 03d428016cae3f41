"""Sequences of events that belong together: all grants of a subject, all that happened about a target.

Each is a row of its own, under its key and its number, and one more row counts them. So adding one costs the
same however many there are. As one value they would be copied each time, and whoever may write could make a
fold slow.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from veen.overlays.monoids import MIN, SUM, Monoid
from veen.overlays.overlay import Cell, Key, Tables


def sequence_tables(name: str) -> Mapping[str, Monoid]:
    """Return the tables of a sequence, to be declared by an overlay."""
    return {name: MIN, _counts(name): SUM}


def _counts(name: str) -> str:
    return f"{name}.count"


def appended(before: Tables, name: str, key: Key, entry: tuple[Any, ...]) -> tuple[Cell, Cell]:
    """Return the cells that add an entry behind those of a key; it begins with its position."""
    number = before.get(_counts(name), key) or 0
    return ((name, (key, number), entry), (_counts(name), key, 1))


def sequence(tables: Tables, name: str, key: Key) -> Iterator[Any]:
    """Yield the entries of a key, in their order."""
    return (tables.get(name, (key, number)) for number in range(tables.get(_counts(name), key) or 0))


def sequence_keys(tables: Tables, name: str) -> list[bytes]:
    """Return the keys that have entries, sorted."""
    return [key for key, _ in tables.items(_counts(name)) if isinstance(key, bytes)]
