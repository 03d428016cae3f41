"""Publications: the published versions, by the root of their content (PUB lines).

The root of published data (PUB-003, PUB-004): a Merkle range over files, sorted by their names.

    leaf  Ht("veen/content-leaf", u64be(len(name)) || name || u64be(size) || H(bytes))
    node  Ht("veen/content-node", left || right)
    root  Ht("veen/content-root", peaks), by increasing height as in the log; of a single peak too

A name is the path relative to the published directory, in UTF-8, with ``/``; names are sorted by their bytes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from veen.core.crypto.hash import tag_prefix, tagged_hash, u64be
from veen.core.encoding.hexadecimal import parse_hex32
from veen.core.merkle.mmr import Peaks
from veen.core.types import JsonValue
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Event
from veen.overlays.monoid import FIRST, MAX, Monoid, first
from veen.overlays.operations.schemas import PUBLICATION, operation_body
from veen.overlays.overlay import (
    Key,
    Lowered,
    Overlay,
    Tables,
    appended,
    sequence,
    sequence_keys,
    sequence_tables,
)
from veen.overlays.schema import Schema

_NODE_TAG: Final = tag_prefix("veen/content-node")


class Part(NamedTuple):
    """A published file."""

    name: str
    size: int
    # H of its bytes.
    digest: bytes


def leaf(part: Part) -> bytes:
    """Return the leaf of a file."""
    name = part.name.encode()
    return tagged_hash("veen/content-leaf", u64be(len(name)) + name + u64be(part.size) + part.digest)


def content_root(parts: Iterable[Part]) -> bytes:
    """Return the root of some files: at least one, with unique names."""
    ordered = sorted(parts, key=lambda part: part.name.encode())
    if not ordered:
        raise InvalidBodyError("OP.CONTENT_EMPTY", "published content has at least one file")
    if len({part.name for part in ordered}) != len(ordered):
        raise InvalidBodyError("OP.CONTENT_NAMES", "two files have the same name")
    peaks = Peaks.empty()
    for part in ordered:
        peaks = peaks.append(leaf(part), _NODE_TAG)
    return tagged_hash("veen/content-root", b"".join(peaks.hashes))


class Publications(Overlay):
    """The first publication of each version; the last new version of each publication."""

    name: ClassVar[str] = "publication"
    version: ClassVar[int] = 2
    about: ClassVar[str] = "Publications: the first content of each version, and the latest version."
    schemas: ClassVar[tuple[Schema, ...]] = (PUBLICATION,)
    tables: ClassVar[Mapping[str, Monoid]] = {
        "editions": FIRST,
        # The versions of each publication, in log order.
        **sequence_tables("versions"),
        "latest": MAX,
    }
    state_class: ClassVar[str] = "publication"
    grouped: ClassVar[bool] = True

    def lower(self, event: Event, before: Tables) -> Lowered:
        """Apply a publication; an existing version does not change (PUB-002)."""
        body = event.body
        one, version, root = body["publication_id"], body["version"], body["content_root"]
        record = first(event.position, root, event.record.client_id, operation_body(event))
        edition = ("editions", (one, version), record)
        known = before.get("editions", (one, version))
        if known is None:
            latest = (event.position, version)
            return Lowered((edition, *appended(before, "versions", one, latest), ("latest", one, latest)))
        if known[0][1] == root:
            report = ("OP.PUBLICATION_DUPLICATE", "the version was published before, with the same content")
        else:
            report = ("OP.PUBLICATION_CONFLICT", "the version was published before, with other content")
        return Lowered((edition,), (report,))

    def group(self, event: Event) -> Key:
        """Return the publication."""
        publication_id: Key = event.body["publication_id"]
        return publication_id

    def parse_key(self, text: str) -> Key:
        """Parse the id of a publication: hex."""
        return parse_hex32(text)

    def edition(self, tables: Tables, publication_id: Key, version: str) -> dict[str, JsonValue] | None:
        """Return a version; None if it was not published."""
        row = tables.get("editions", (publication_id, version))
        if row is None:
            return None
        (place, _, client_id, body), other = row
        decoded = PUBLICATION.decode(body)
        return {
            **PUBLICATION.to_json(decoded),
            "stream_seq": place[1],
            "client_id": client_id.hex(),
            "signed_by_publisher": client_id == decoded["publisher_identity"],
            "conflict": None if other is None else other[1].hex(),
        }

    def latest(self, tables: Tables, publication_id: Key) -> str | None:
        """Return the version that was published last (PUB-006)."""
        newest = tables.get("latest", publication_id)
        return None if newest is None else newest[1]

    def view_key(self, tables: Tables, key: Key, now: int | None = None) -> JsonValue:  # noqa: ARG002
        """Return a publication with its versions."""
        version = self.latest(tables, key)
        if version is None:
            return None
        versions = (name for _, name in sequence(tables, "versions", key))
        return {"latest": version, "versions": {name: self.edition(tables, key, name) for name in versions}}

    def view(self, tables: Tables, now: int | None = None) -> JsonValue:
        """Return every publication."""
        return {one.hex(): self.view_key(tables, one, now) for one in sequence_keys(tables, "versions")}

    def serialized(self, tables: Tables) -> list[Any]:
        """Return the content of each version."""
        return [[*key, edition[0][1]] for key, edition in tables.items("editions")]
