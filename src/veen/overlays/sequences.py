"""Sequences of events that belong together: all grants of a subject, all that happened about a target.

Each is a row of its own, under its key and its number, and one more row says which numbers there are: over a
range of the log they do not begin with 0. So adding one costs the same however many there are. As one value
they would be copied each time, and whoever may write could make a fold slow.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from veen.overlays.monoids import COUNT, MIN, Monoid
from veen.overlays.overlay import Cell, Key, Tables


def sequence_tables(name: str) -> Mapping[str, Monoid]:
    """Return the tables of a sequence, to be declared by an overlay."""
    return {name: MIN, _counts(name): COUNT}


def _counts(name: str) -> str:
    return f"{name}.count"


def appended(before: Tables, name: str, key: Key, entry: tuple[Any, ...]) -> tuple[Cell, Cell]:
    """Return the cells that add an entry behind those of a key; it begins with its position."""
    counted = before.get(_counts(name), key)
    number = 0 if counted is None else counted[2] + 1
    return ((name, (key, number), entry), (_counts(name), key, (1, number, number)))


def sequence(tables: Tables, name: str, key: Key) -> Iterator[Any]:
    """Yield the entries of a key, in their order."""
    counted = tables.get(_counts(name), key)
    if counted is None:
        return
    for number in range(counted[1], counted[2] + 1):
        yield tables.get(name, (key, number))


def sequence_sizes(tables: Tables, name: str) -> Iterator[tuple[Key, int, bool]]:
    """Yield the keys that have entries, sorted: how many, and whether the first one ever is among them."""
    return ((key, count, first == 0) for key, (count, first, _) in tables.items(_counts(name)))


def sequence_keys(tables: Tables, name: str) -> list[bytes]:
    """Return the keys that have entries, sorted."""
    return [key for key, _, _ in sequence_sizes(tables, name) if isinstance(key, bytes)]
