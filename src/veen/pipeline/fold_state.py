"""A fold at a place of the log, to be gone on from: tables, indexes, counts and reports, as bytes."""

from dataclasses import dataclass
from typing import Any, Final, Self

from veen.core import cbor
from veen.core.errors import CborError, VeenError
from veen.overlays import monoids
from veen.overlays.folding import Fold, Summary, memory_of
from veen.overlays.overlay import Overlay
from veen.overlays.tree.reading import Place
from veen.pipeline.fold_heads import Packed

_VERSION: Final = 1


class StateError(VeenError):
    """A state is of another fold, or damaged."""


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
                cbor.encode(key, most=None): monoids.encode(kinds[name], value)
                for key, value in table.items()
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
                raise StateError(f"a state of another fold than {overlay.name} with these parameters")
            return cls(overlay, whole_fold(overlay).decode(content), bridges)
        except (CborError, ValueError, TypeError, KeyError) as error:
            raise StateError(f"a state of {overlay.name} is damaged: {error}") from None
