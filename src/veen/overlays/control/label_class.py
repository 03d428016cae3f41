"""Classes of labels: how sensitive their content is, and how long it is to be retained (CTL-007)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from veen.core.encoding.field_types import B32, TEXT, UINT
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.encoding.shape import Field, Fields
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Event
from veen.overlays.monoid import MAX, Monoid
from veen.overlays.overlay import Key, Lowered, Overlay, Tables
from veen.overlays.schema import Schema

SENSITIVITIES: Final = ("low", "medium", "high")


def _is_known(body: Fields) -> None:
    sensitivity = body.get("sensitivity")
    if sensitivity is not None and sensitivity not in SENSITIVITIES:
        raise InvalidBodyError("CLS.SENSITIVITY", f"a sensitivity is one of {', '.join(SENSITIVITIES)}")


CLASS: Final = Schema(
    "veen.label.class.v1",
    Field("label", B32),
    Field("class", TEXT),
    Field("sensitivity", TEXT, optional=True),
    # Seconds.
    Field("retention_hint", UINT, optional=True),
    checks=(_is_known,),
)


class LabelClasses(Overlay):
    """The last classification of each label."""

    name: ClassVar[str] = "label.class"
    about: ClassVar[str] = "Classes of labels: sensitivity and retention; the last one of each label counts."
    schemas: ClassVar[tuple[Schema, ...]] = (CLASS,)
    tables: ClassVar[Mapping[str, Monoid]] = {"classes": MAX}
    state_class: ClassVar[str] = "label.class"
    needs_past: ClassVar[bool] = False

    # If not empty, classifications from other authors do not count.
    admins: frozenset[bytes] = frozenset()

    def lower(self, event: Event, before: Tables) -> Lowered:  # noqa: ARG002 - the last word counts
        """Apply a classification."""
        client_id, body = event.record.client_id, event.body
        if self.admins and client_id not in self.admins:
            return Lowered((), (("CLS.NOT_AN_ADMIN", f"{client_id.hex()} is not an admin"),))
        row = (event.position, body["class"], body.get("sensitivity"), body.get("retention_hint"), client_id)
        return Lowered((("classes", body["label"], row),))

    def parse_key(self, text: str) -> Key:
        """Parse a label."""
        return parse_hex32(text)

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the class of a label."""
        row = tables.get("classes", key)
        return None if row is None else _shown(key, row)

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return the classes of all labels."""
        return [_shown(key, row) for key, row in tables.items("classes")]

    def serialized(self, tables: Tables) -> Mapping[bytes, Any]:
        """Return the classification of each label."""
        return {key: list(row[1:4]) for key, row in tables.items("classes") if isinstance(key, bytes)}


def _shown(key: Key, row: Any) -> dict[str, JsonValue]:
    assert isinstance(key, bytes)
    return {
        "label": key.hex(),
        "class": row[1],
        "sensitivity": row[2],
        "retention_hint": row[3],
        "client_id": row[4].hex(),
    }
