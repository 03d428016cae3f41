"""The reference pages of schemas and overlays, generated from their declarations."""

from dataclasses import fields

from tools.cli_docs import table
from veen.overlays import registry
from veen.overlays.overlay import Overlay
from veen.overlays.report_codes import CODES
from veen.overlays.schema import Schema


def _family(name: str) -> str:
    return name.partition(".")[0]


def _schema(schema: Schema) -> str:
    rows = [
        (f"`{field.name}`", field.kind.name, "may be absent" if field.optional else "")
        for field in schema.fields
    ]
    return "\n".join(
        (f"### {schema.name}", "", f"`{schema.schema_id.hex()}`", "", table(("field", "type", ""), rows), "")
    )


def schemas_page(note: str) -> str:
    """Return the page of all schemas."""
    schemas = list(registry.schemas().values())
    parts = [
        "# Schemas",
        "",
        note,
        "Bodies of events are maps with text keys **in the order listed here**, without others; integers are",
        "the shortest, lengths definite, no tags, no fractions. Any other body is rejected with a code (see",
        "[overlays](overlays.md#codes)). A field that may be absent may also be null: the operation profiles",
        "write null, others omit it, readers accept both. `any` is deterministic CBOR with sorted keys.",
        "",
        "The id of a schema is H(name) in the families `id`, `wallet`, `rpc`, `crdt`, `disc` and `veen`, and",
        'H("veen/schema:" + name) for all others: `veen schema-id NAME`.',
        "",
    ]
    for family in dict.fromkeys(_family(schema.name) for schema in schemas):
        parts += [f"## {family}", ""]
        parts += [_schema(schema) for schema in schemas if _family(schema.name) == family]
    return "\n".join(parts)


def _overlay(overlay: type[Overlay]) -> str:
    rows = [(f"`{name}`", kind.name, "") for name, kind in overlay.tables.items()]
    rows += [(f"`{name}`", kind.name, "for verdicts only") for name, kind in overlay.indexes.items()]
    read = ", ".join(f"[{schema.name}](schemas.md#{_anchor(schema.name)})" for schema in overlay.schemas)
    parts = [
        f"### {overlay.name}",
        "",
        overlay.about,
        "",
        f"Reads {read}. Its state is hashed as `{overlay.state_class}`.",
    ]
    parameters = ", ".join(f"`{item.name}`" for item in fields(overlay))
    if parameters:
        parts += ["", f"Parameters: {parameters}."]
    return "\n".join((*parts, "", table(("table", "monoid", ""), rows), ""))


def _anchor(name: str) -> str:
    return name.replace(".", "").lower()


def overlays_page(note: str) -> str:
    """Return the page of all overlays."""
    parts = [
        "# Overlays",
        "",
        note,
        "An overlay folds a stream to a state: see [Interpret a log](../how-to/interpret.md) for its use and",
        "[ADR 11](../adr/0011-overlays.md) for its design. A table holds one summary per key, joined by a",
        "monoid: MAX and MIN hold the record with the greatest or least order, FIRST the first record and",
        "the first that differs from it, SUM a sum, CNT a count with first and last, SET records by id, PFX",
        "a running sum with its lowest value. Other monoids belong to their overlay.",
        "",
        'The hash of a state is Ht("veen/state-" + class, bytes of the state).',
        "",
        "## The overlays",
        "",
        *map(_overlay, registry.overlays()),
        "## Codes",
        "",
        "The codes that a fold reports for events. Unless the meaning ends with *reported only*, the event",
        "does not count. `veen explain-error CODE` shows the meaning.",
        "",
        table(("code", "meaning"), ((f"`{code}`", meaning) for code, meaning in sorted(CODES.items()))),
    ]
    return "\n".join(parts)
