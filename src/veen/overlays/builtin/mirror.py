"""Mirror records: which entries of another hub were observed and copied (FSY lines)."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, ClassVar, Final

from veen.core.crypto.hash import sha256
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.types import JsonValue
from veen.overlays.errors import ParameterError
from veen.overlays.event import Event
from veen.overlays.monoid import FIRST, Monoid, first
from veen.overlays.operations.schemas import MIRROR
from veen.overlays.overlay import (
    Cell,
    Key,
    Lowered,
    Overlay,
    Tables,
    appended,
    sequence,
    sequence_sizes,
    sequence_tables,
)
from veen.overlays.schema import Schema

# Number of items in a key: hub, source, target.
_PARTS: Final = 3


class Mirrors(Overlay):
    """The recorded entries of each source and target, and the first record of each entry."""

    name: ClassVar[str] = "federation.mirror"
    version: ClassVar[int] = 2
    about: ClassVar[str] = "Mirrors: what was copied from other hubs, with gaps and conflicts."
    schemas: ClassVar[tuple[Schema, ...]] = (MIRROR,)
    tables: ClassVar[Mapping[str, Monoid]] = {
        "records": FIRST,
        # For each source and target the numbers of recorded entries, repeats included.
        **sequence_tables("seen"),
        # For each source and target the entries with two conflicting records, and both records.
        **sequence_tables("conflicts"),
    }
    state_class: ClassVar[str] = "federation.mirror"
    grouped: ClassVar[bool] = True

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Add a record; the first record of an entry counts (FSY-006)."""
        body = event.body
        if body["source_label"] == body["target_label"]:  # FSY-008
            return Lowered((), (("OP.MIRROR_LOOP", "a label cannot be a mirror of itself"),))
        road = _road(event)
        seq, leaf, root = body["source_stream_seq"], body["source_leaf_hash"], body["source_receipt_root"]
        content = sha256(leaf + root)
        record = first(event.position, content, leaf, root)
        cells: list[Cell] = [
            *appended(before, "seen", road, (event.position, seq)),
            ("records", (*road, seq), record),
        ]
        known = before.get("records", (*road, seq))
        reports = []
        if known is not None:
            same = known[0][1] == content
            text = "the entry was recorded before" + ("" if same else ", with another hash or root")
            reports.append(("OP.MIRROR_DUPLICATE" if same else "OP.MIRROR_CONFLICT", text))
            if not same and known[1] is None:
                conflict = (event.position, seq, known[0], record[0])
                cells += appended(before, "conflicts", road, conflict)
        return Lowered(cells, reports)

    def group(self, event: Event) -> Key:
        """Return source and target."""
        return _road(event)

    def parse_key(self, text: str) -> Key:
        """Parse HUB,SOURCE_LABEL,TARGET_LABEL."""
        parts = text.rsplit(",", 2)
        if len(parts) != _PARTS:
            raise ParameterError(f"the key of a mirror is HUB,SOURCE_LABEL,TARGET_LABEL, not {text!r}")
        return (parts[0], parse_hex32(parts[1].strip()), parse_hex32(parts[2].strip()))

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the records of a source: ranges, gaps, duplicates and conflicts."""
        seen = [seq for _, seq in sequence(tables, "seen", key)]
        return _shown(key, seen, sequence(tables, "conflicts", key)) if seen else None

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:
        """Return all sources and targets."""
        return [self.view_key(tables, key, now) for key, _, _ in sequence_sizes(tables, "seen")]

    def serialized(self, tables: Tables) -> list[Any]:
        """Return the first record of each entry."""
        return [[*key, record[0][2], record[0][3]] for key, record in tables.items("records")]


def _road(event: Event) -> tuple[str, bytes, bytes]:
    body = event.body
    return (body["source_hub_identifier"], body["source_label"], body["target_label"])


def _said(record: Any) -> JsonValue:
    place, _, leaf, root = record
    return {
        "stream_seq": place[1],
        "source_leaf_hash": leaf.hex(),
        "source_receipt_root": root.hex(),
    }


def _ranges(seen: Iterable[int]) -> list[tuple[int, int]]:
    """Return the numbers as disjoint closed ranges."""
    ranges: list[tuple[int, int]] = []
    for seq in sorted(seen):
        if ranges and seq <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges


def _shown(key: Any, seen: list[int], conflicts: Iterable[Any]) -> JsonValue:
    ranges = _ranges(seen)
    hub, source, target = key
    gaps: list[JsonValue] = [[1, ranges[0][0] - 1]] if ranges[0][0] > 1 else []
    gaps += [[left[1] + 1, right[0] - 1] for left, right in pairwise(ranges)]
    return {
        "source_hub_identifier": hub,
        "source_label": source.hex(),
        "target_label": target.hex(),
        "ranges": [list(one) for one in ranges],
        "gaps": gaps,
        "records": len(seen),
        "duplicates": len(seen) - len(set(seen)),
        "conflicts": [
            {"source_stream_seq": seq, "first": _said(one), "other": _said(other)}
            for _, seq, one, other in sorted(conflicts, key=lambda row: row[1])
        ],
    }
