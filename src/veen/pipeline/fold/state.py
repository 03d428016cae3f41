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

#: Table -> encoded key -> encoded summary.
Packed = Mapping[str, Mapping[bytes, bytes]]


class PackedTables:
    """Tables of a fold that is gone on from, as bytes: few of their keys are looked at."""

    def __init__(self, kinds: Mapping[str, Monoid], packed: Packed) -> None:
        self._kinds = kinds
        self._packed = packed

    def get(self, table: str, key: Key) -> Any:  # noqa: ANN401 - of any kind
        """Return the summary of a key."""
        data = self._packed[table].get(cbor.encode(key))
        return None if data is None else monoid.decode(self._kinds[table], data)

    def items(self, table: str) -> Iterator[tuple[Key, Any]]:
        """Yield keys and summaries, sorted."""
        kind = self._kinds[table]
        for key, data in sorted(self._packed[table].items()):
            yield monoid.frozen(cbor.decode(key)), monoid.decode(kind, data)


class Layered:
    """Tables with a past: what is added is kept apart, since it is what a range amounts to."""

    def __init__(self, kinds: dict[str, Monoid], past: Tables | None = None) -> None:
        self._kinds = kinds
        self._past = past
        self.added = MemoryTables(kinds)

    def settle(self) -> None:
        """Let all that was added be past."""
        if self._past is None:
            self._past = self.added
        else:
            below = Layered(self._kinds, self._past)
            below.added = self.added
            self._past = below
        self.added = MemoryTables(self._kinds)

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


_VERSION: Final = 1


def whole_fold(overlay: Overlay) -> Fold:
    """Return a fold whose tables are those of the state and the indexes that verdicts need."""
    folding = Fold(overlay)
    folding.kinds = memory_of(overlay).kinds
    return folding


@dataclass(frozen=True, slots=True)
class FoldState:
    """What is known after some records of a stream, from its beginning."""

    overlay: Overlay
    summary: Summary
    bridges: frozenset[bytes] = frozenset()

    @classmethod
    def initial(cls, overlay: Overlay, bridges: frozenset[bytes] = frozenset()) -> Self:
        """Return what is known before the first record."""
        return cls(overlay, whole_fold(overlay).empty(), bridges)

    @property
    def place(self) -> Place:
        """The last record that is in it; (0, 0) if there is none."""
        runs = self.summary.runs
        return (runs[-1][0], runs[-1][2]) if runs else (0, 0)

    def then(self, more: Summary) -> Self:
        """Return what is known after the records that follow."""
        return type(self)(self.overlay, whole_fold(self.overlay).merge(self.summary, more), self.bridges)

    def packed(self) -> Packed:
        """Return the tables as tasks are given them."""
        kinds = memory_of(self.overlay).kinds
        return {
            name: {
                cbor.encode(key, most=None): monoid.encode(kinds[name], value) for key, value in table.items()
            }
            for name, table in self.summary.tables.items()
        }

    def encode(self) -> bytes:
        """Return its bytes: equal states, equal bytes."""
        content = whole_fold(self.overlay).encode(self.summary)
        return cbor.encode([_VERSION, self.overlay.identity, sorted(self.bridges), content], most=None)

    @classmethod
    def decode(cls, overlay: Overlay, data: bytes, bridges: frozenset[bytes] = frozenset()) -> Self:
        """Return the state that bytes are of; they are to be of the same overlay, parameters and bridges."""
        try:
            said: Any = cbor.decode(data, most=None)
            version, identity, listed, content = said
            if (version, identity, listed) != (_VERSION, overlay.identity, sorted(bridges)):
                raise FoldStateError(f"a state of another fold than {overlay.name} with these parameters")
            return cls(overlay, whole_fold(overlay).decode(content), bridges)
        except (CborError, ValueError, TypeError, KeyError) as error:
            raise FoldStateError(f"a state of {overlay.name} is damaged: {error}") from None
