"""The tables that a task reads and adds to: what was before, and apart from it what its own records do."""

from collections.abc import Iterator, Mapping
from typing import Any

from veen.core import cbor
from veen.overlays import monoids
from veen.overlays.folding import Memory
from veen.overlays.monoids import Monoid
from veen.overlays.overlay import Key, Tables, sorted_items

#: Table -> encoded key -> encoded summary.
Packed = Mapping[str, Mapping[bytes, bytes]]


class Kept:
    """Tables of a fold that is gone on from, as bytes: few of their keys are looked at."""

    def __init__(self, kinds: Mapping[str, Monoid], packed: Packed) -> None:
        self._kinds = kinds
        self._packed = packed

    def get(self, table: str, key: Key) -> Any:  # noqa: ANN401 - of any kind
        """Return the summary of a key."""
        data = self._packed[table].get(cbor.encode(key))
        return None if data is None else monoids.decode(self._kinds[table], data)

    def items(self, table: str) -> Iterator[tuple[Key, Any]]:
        """Yield keys and summaries, sorted."""
        kind = self._kinds[table]
        for key, data in sorted(self._packed[table].items()):
            yield monoids.frozen(cbor.decode(key)), monoids.decode(kind, data)


class Layered:
    """Tables with a past: what is added is kept apart, since it is what a range amounts to."""

    def __init__(self, kinds: dict[str, Monoid], past: Tables | None = None) -> None:
        self._kinds = kinds
        self._past = past
        self.added = Memory(kinds)

    def settle(self) -> None:
        """Let all that was added be past."""
        if self._past is None:
            self._past = self.added
        else:
            below = Layered(self._kinds, self._past)
            below.added = self.added
            self._past = below
        self.added = Memory(self._kinds)

    def get(self, table: str, key: Key) -> Any:  # noqa: ANN401 - of any kind
        """Return the summary of a key."""
        added = self.added.get(table, key)
        if self._past is None:
            return added
        past = self._past.get(table, key)
        if past is None or added is None:
            return added if past is None else past
        return self._kinds[table].merge(past, added)

    def items(self, table: str) -> Iterator[tuple[Key, Any]]:
        """Yield keys and summaries, sorted."""
        past = () if self._past is None else self._past.items(table)
        keys = {**dict(past), **self.added.tables[table]}
        return sorted_items({key: self.get(table, key) for key in keys})

    def add(self, table: str, key: Key, summary: Any) -> None:  # noqa: ANN401 - of any kind
        """Join a summary to that of a key."""
        self.added.add(table, key, summary)
