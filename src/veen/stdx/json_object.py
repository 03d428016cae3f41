"""JSON objects whose names are unique: ``json`` keeps the last value of a repeated name, silently."""

from collections.abc import Callable
from typing import Any


def unique_names(error: Callable[[str], Exception]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return an ``object_pairs_hook`` that raises ``error(name)`` for a repeated name."""

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    raise error(name)
                seen.add(name)
        return members

    return to_dict
