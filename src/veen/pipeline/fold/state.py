"""The state of a fold: the tables that a task reads and extends, and the bytes from which it resumes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from veen.core.encoding import cbor
from veen.core.errors import CborError
from veen.overlays import monoid
from veen.overlays.engine import Fold, MemoryTables, Summary, memory_of
from veen.overlays.monoid import Monoid
from veen.overlays.overlay import Key, Overlay, Tables, sorted_items
from veen.overlays.summary_tree.reader import Place
from veen.pipeline.errors import FoldStateError

# Table -> encoded key -> encoded summary.
Packed = Mapping[str, Mapping[bytes, bytes]]


class PackedTables:
    """Tables of a resumed fold, as bytes: few of their keys are read."""

    def __init__(self, kinds: Mapping[str, Monoid], packed: Packed) -> None:
        self._kinds = kinds
        self._packed = packed

    def get(self, table: str, key: Key) -> Any:  # noqa: ANN401 - of any kind
        data = self._packed[table].get(cbor.encode(key))
        return None if data is None else monoid.decode(self._kinds[table], data)

    def items(self, table: str) -> Iterator[tuple[Key, Any]]:
        """Yield keys and summaries, sorted."""
        kind = self._kinds[table]
        for key, data in sorted(self._packed[table].items()):
            yield monoid.frozen(cbor.decode(key)), monoid.decode(kind, data)


class Layered:
    """Tables with a past; additions are stored separately, since they are the summary of a range."""

    def __init__(self, kinds: dict[str, Monoid], past: Tables | None = None) -> None:
        self._kinds = kinds
        self._past = past
        self.added = MemoryTables(kinds)

    def settle(self) -> None:
        """Make all additions part of the past."""
        if self._past is None:
            self._past = self.added
        else:
            below = Layered(self._kinds, self._past)
            below.added = self.added
            self._past = below
        self.added = MemoryTables(self._kinds)

    def get(self, table: str, key: Key) -> Any:  # noqa: ANN401 - of any kind
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
        """Merge a summary into that of a key."""
        self.added.add(table, key, summary)


_VERSION: Final = 1


def whole_fold(overlay: Overlay) -> Fold:
    """Return a fold with the overlay's tables and the indexes that its verdicts need."""
    folding = Fold(overlay)
    folding.kinds = memory_of(overlay).kinds
    return folding


@dataclass(frozen=True, slots=True)
class FoldState:
    """The state after some records of a stream, from its start."""

    overlay: Overlay
    summary: Summary
    bridges: frozenset[bytes] = frozenset()

    @classmethod
    def initial(cls, overlay: Overlay, bridges: frozenset[bytes] = frozenset()) -> Self:
        """Return the state before the first record."""
        return cls(overlay, whole_fold(overlay).empty(), bridges)

    @property
    def place(self) -> Place:
        """The last record in it; (0, 0) if there is none."""
        runs = self.summary.runs
        return (runs[-1][0], runs[-1][2]) if runs else (0, 0)

    def then(self, more: Summary) -> Self:
        """Return the state after further records, given their summary."""
        return type(self)(self.overlay, whole_fold(self.overlay).merge(self.summary, more), self.bridges)

    def packed(self) -> Packed:
        """Return the tables in the form sent to tasks."""
        kinds = memory_of(self.overlay).kinds
        return {
            name: {
                cbor.encode(key, max_items=None): monoid.encode(kinds[name], value)
                for key, value in table.items()
            }
            for name, table in self.summary.tables.items()
        }

    def encode(self) -> bytes:
        """Return the canonical bytes: equal states have equal bytes."""
        content = whole_fold(self.overlay).encode(self.summary)
        return cbor.encode([_VERSION, self.overlay.identity, sorted(self.bridges), content], max_items=None)

    @classmethod
    def decode(cls, overlay: Overlay, data: bytes, bridges: frozenset[bytes] = frozenset()) -> Self:
        """Decode a state; it must be of the same overlay, parameters and bridges."""
        try:
            decoded: Any = cbor.decode(data, max_items=None)
            version, identity, listed, content = decoded
            if (version, identity, listed) != (_VERSION, overlay.identity, sorted(bridges)):
                raise FoldStateError(f"a state of another fold than {overlay.name} with these parameters")
            return cls(overlay, whole_fold(overlay).decode(content), bridges)
        except (CborError, ValueError, TypeError, KeyError) as error:
            raise FoldStateError(f"a state of {overlay.name} is damaged: {error}") from None
