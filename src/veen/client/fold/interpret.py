"""Interpreting a stream: its entries, checked and opened, folded by an overlay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from veen.client.fold.incremental import FoldRequest, IncrementalFold, Reached, read_records, record_of
from veen.client.send import Draft
from veen.client.session import Driver
from veen.core.encoding.shape import Fields
from veen.core.types import JsonValue, LeafHash
from veen.overlays.engine import hash_state
from veen.overlays.event import Report
from veen.overlays.overlay import Key, Overlay, Tables
from veen.overlays.schema import Schema

__all__ = ["Interpretation", "Reached", "interpret", "read_records", "record_of", "typed"]


@dataclass(frozen=True, slots=True)
class Interpretation:
    """The state of a stream, by an overlay, at a position."""

    overlay: Overlay
    stream: str
    tables: Tables
    #: What became of the records (veen.overlays.event.Outcome).
    counts: dict[str, int]
    #: What is wrong with events, in their order.
    reports: Sequence[Report]
    #: One for each label; none if the stream has no entries.
    reached: list[Reached]
    #: Whether entries may still come before some that were read (OVR-012).
    provisional: bool = False
    #: What a person should know: why nothing was kept, or what was thrown away.
    notes: tuple[str, ...] = ()

    def view(self, now: int | None = None) -> JsonValue:
        """Return the whole state."""
        return self.overlay.view(self.tables, now)

    def view_key(self, key: Key, now: int | None = None) -> JsonValue:
        """Return the state of one key."""
        return self.overlay.view_key(self.tables, key, now)

    def state_hash(self) -> bytes:
        """Return the hash of the state."""
        return hash_state(self.overlay, self.tables)


def interpret(
    client: Driver,
    overlay: Overlay,
    stream: str,
    *,
    upto: int | None = None,
    epoch: int | None = None,
    since: int | None = None,
    bridges: frozenset[bytes] = frozenset(),
    cached: bool = True,
    code: bytes = b"",
    progress: Callable[[int], None] | None = None,
) -> Interpretation:
    """Fold a stream up to a position: number ``upto`` of an epoch, of the last one if none is named.

    With ``since`` only what entries from that number of the epoch on have done. Summaries are kept in the
    client's directory unless ``cached`` is false; ``code`` stands for the code of an overlay that may change
    without its version.
    """
    asked = FoldRequest(overlay, stream, upto, epoch, since, bridges, code)
    work = IncrementalFold(client, asked, progress)
    return Interpretation(overlay, stream, *(work.kept() if cached else work.fresh()))


def typed(
    schema: Schema, body: Fields, *, parent_id: LeafHash | None = None, expires_at: int | None = None
) -> Draft:
    """Return a message with a body of a schema, to be sent."""
    return Draft(
        None,
        schema=schema.schema_id,
        parent_id=parent_id,
        expires_at=expires_at,
        encoded=schema.encode(body),
    )
