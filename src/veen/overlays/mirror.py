"""Records of mirrors: which entries of another hub somebody has seen and copied (FSY lines)."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from veen.core.hashing import h
from veen.core.types import JsonValue
from veen.overlays.events import Event
from veen.overlays.identities import parse_id
from veen.overlays.monoids import COVER, FIRST, Monoid, first
from veen.overlays.operation_schemas import MIRROR
from veen.overlays.overlay import Key, Lowered, Overlay, Tables
from veen.overlays.schema import Schema


@dataclass(frozen=True)
class Mirrors(Overlay):
    """Of each source and target the entries that are recorded, and the first record of each."""

    name: ClassVar[str] = "federation.mirror"
    about: ClassVar[str] = "Records of mirrors: what was copied from another hub; gaps and contradictions."
    schemas: ClassVar[tuple[Schema, ...]] = (MIRROR,)
    tables: ClassVar[Mapping[str, Monoid]] = {"cover": COVER, "records": FIRST}
    state_class: ClassVar[str] = "federation.mirror"

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Enter a record; of an entry the first one counts (FSY-006)."""
        body = event.body
        if body["source_label"] == body["target_label"]:  # FSY-008
            return Lowered((), (("OP.MIRROR_LOOP", "a label is no mirror of itself"),))
        road = (body["source_hub_identifier"], body["source_label"], body["target_label"])
        seq, leaf, root = body["source_stream_seq"], body["source_leaf_hash"], body["source_receipt_root"]
        said = h(leaf + root)
        known = before.get("records", (*road, seq))
        reports = []
        if known is not None:
            same = known[0][1] == said
            text = "the entry was recorded before" + ("" if same else ", with another hash or root")
            reports.append(("OP.MIRROR_DUPLICATE" if same else "OP.MIRROR_CONFLICT", text))
        return Lowered(
            (
                ("cover", road, (((seq, seq),), 1)),
                ("records", (*road, seq), first(event.position, said, leaf, root)),
            ),
            reports,
        )

    def parse_key(self, text: str) -> Key:
        """Take HUB,SOURCE_LABEL,TARGET_LABEL."""
        hub, source, target = text.rsplit(",", 2)
        return (hub, parse_id(source), parse_id(target))

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return what is recorded of a source: ranges, gaps, duplicates and contradictions."""
        found = tables.get("cover", key)
        return None if found is None else _shown(key, found, self._conflicts(tables).get(key, []))

    def _conflicts(self, tables: Tables) -> dict[Any, list[JsonValue]]:
        found: dict[Any, list[JsonValue]] = {}
        for key, (one, other) in tables.items("records"):
            assert isinstance(key, tuple)
            if other is not None:
                found.setdefault(key[:3], []).append(
                    {"source_stream_seq": key[3], "first": _said(one), "other": _said(other)}
                )
        return found

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return all sources and targets."""
        conflicts = self._conflicts(tables)
        return [_shown(key, found, conflicts.get(key, [])) for key, found in tables.items("cover")]

    def serialized(self, tables: Tables) -> list[Any]:
        """Return the first record of each entry."""
        return [[*key, found[0][2], found[0][3]] for key, found in tables.items("records")]


def _said(record: Any) -> JsonValue:
    place, _, leaf, root = record
    return {
        "stream_seq": place[1],
        "source_leaf_hash": leaf.hex(),
        "source_receipt_root": root.hex(),
    }


def _shown(key: Any, found: Any, conflicts: list[JsonValue]) -> JsonValue:
    ranges, count = found
    hub, source, target = key
    gaps: list[JsonValue] = [[1, ranges[0][0] - 1]] if ranges[0][0] > 1 else []
    gaps += [[left[1] + 1, right[0] - 1] for left, right in pairwise(ranges)]
    return {
        "source_hub_identifier": hub,
        "source_label": source.hex(),
        "target_label": target.hex(),
        "ranges": [list(one) for one in ranges],
        "gaps": gaps,
        "records": count,
        "duplicates": count - sum(high - low + 1 for low, high in ranges),
        "conflicts": conflicts,
    }
