"""Interpreting a stream: its entries, verified and decrypted, folded by an overlay."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from veen.client.fold.incremental import FoldRequest, IncrementalFold, Reached, read_records, record_of
from veen.client.models import Draft
from veen.client.session import Driver
from veen.core.crypto.hash import sha256
from veen.core.encoding.shape import Fields
from veen.core.types import JsonValue, LeafHash
from veen.overlays.engine import hash_state
from veen.overlays.event import Report
from veen.overlays.overlay import Key, Overlay, Tables
from veen.overlays.schema import Schema

__all__ = ["FoldedState", "Reached", "interpret", "read_records", "record_of", "typed"]


@dataclass(frozen=True, slots=True)
class FoldedState:
    """The state of a stream under an overlay, at a position.

    Attributes:
        overlay: The overlay that folded the entries.
        stream: The stream that was folded.
        tables: The state, as tables of the overlay.
        counts: Number of records by outcome (``veen.overlays.event.Outcome``).
        reports: Problems with events, in their order.
        reached: The last entry of each label; empty if the stream has no entries.
        provisional: Whether entries may still arrive before some that were folded.
        notes: Why summaries were not cached, or were discarded.
        now: The time at which the state is viewed.
    """

    overlay: Overlay
    stream: str
    tables: Tables
    counts: dict[str, int]
    reports: Sequence[Report]
    reached: list[Reached]
    provisional: bool = False
    notes: tuple[str, ...] = ()
    now: int | None = None

    def __getitem__(self, key: Key) -> JsonValue:
        """Return the state of one key."""
        return self.overlay.view_key(self.tables, key, self.now)

    @property
    def position(self) -> int:
        """The position of the last folded entry, in the newest epoch; 0 if there is none."""
        return self.reached[-1].upto_seq if self.reached else 0

    @property
    def epoch(self) -> int:
        """The newest folded epoch."""
        return self.reached[-1].epoch if self.reached else 0

    @property
    def hash(self) -> bytes:
        """The hash of the state: equal states have equal hashes."""
        return hash_state(self.overlay, self.tables)

    def view(self) -> JsonValue:
        """Return the whole state as JSON."""
        return self.overlay.view(self.tables, self.now)


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
    now: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> FoldedState:
    """Fold a stream up to position ``upto`` of an epoch, by default of the last one.

    With ``since``, the state is only the effect of the entries from that position of the epoch on. Summaries
    are cached in the client directory unless ``cached`` is false, or the source of a user's overlay cannot be
    read: its code may change without its version.

    Raises:
        TypeError: The overlay is not an instance of ``Overlay``, but for example its class.
    """
    _check_is_overlay(overlay)
    code = source_digest(type(overlay))
    request = FoldRequest(overlay, stream, upto, epoch, since, bridges, code or b"")
    fold = IncrementalFold(client, request, progress)
    is_cached = cached and code is not None
    return FoldedState(overlay, stream, *(fold.cached() if is_cached else fold.fresh()), now)


def _check_is_overlay(overlay: object) -> None:
    if not isinstance(overlay, Overlay):
        hint = f"; did you mean {overlay.__name__}()?" if isinstance(overlay, type) else ""
        raise TypeError(f"an Overlay was expected, not {overlay!r}{hint}")


@cache  # loaded code does not change if the file does
def source_digest(overlay: type[Overlay]) -> bytes | None:
    """Digest the source files of an overlay class and its bases; None if one has no file that can be read.

    Empty for the overlays of VEEN: these are versioned. What the files import is not part of the digest.
    """
    modules = {cls.__module__ for cls in overlay.__mro__}
    own = sorted(name for name in modules if name.partition(".")[0] not in {"veen", *sys.stdlib_module_names})
    digests = b""
    for name in own:
        file = getattr(sys.modules.get(name), "__file__", None)
        try:
            digests += sha256(Path(file or "").read_bytes())
        except OSError:  # a class defined at a prompt, or loaded from elsewhere
            return None
    return sha256(digests) if digests else b""


def typed(
    schema: Schema, body: Fields, *, parent_id: LeafHash | None = None, expires_at: int | None = None
) -> Draft:
    """Return a draft with a body of a schema."""
    return Draft(
        None,
        schema=schema.schema_id,
        parent_id=parent_id,
        expires_at=expires_at,
        encoded=schema.encode(body),
    )
