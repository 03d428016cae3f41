"""Comparing two executions of one query, item by item (QRY-060)."""

from dataclasses import dataclass

from veen.core.encoding.canonical_json import Json
from veen.query.descriptor import Descriptor
from veen.query.digest import ResultDigest


@dataclass(frozen=True, slots=True)
class Item:
    """One compared item."""

    name: str
    equal: bool
    a: Json
    b: Json

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form: both values only if they differ."""
        form: dict[str, Json] = {"equal": self.equal}
        return form if self.equal else {**form, "a": self.a, "b": self.b}


@dataclass(frozen=True, slots=True)
class Comparison:
    """All compared items.

    ``evidence_hash`` is one of them for equal evidence settings only; otherwise ``evidence_policy`` is, which
    differs. ``upto`` is one if both digests have it; ``descriptor`` if both are known. ``unread`` differs if
    the second execution could not read everything, and the first does not state the same number.
    """

    items: tuple[Item, ...]

    @property
    def equal(self) -> bool:
        """Whether all items are equal."""
        return all(item.equal for item in self.items)

    @property
    def differing(self) -> tuple[str, ...]:
        """The names of the items that differ."""
        return tuple(item.name for item in self.items if not item.equal)

    def to_json(self) -> dict[str, Json]:
        return {"equal": self.equal, "items": {item.name: item.to_json() for item in self.items}}


def compare(
    descriptor_a: Descriptor | None, digest_a: ResultDigest, descriptor_b: Descriptor, digest_b: ResultDigest
) -> Comparison:
    """Compare an answer with its repetition; result_id, executed_at and hub_id may differ."""
    form_a, form_b = digest_a.to_json(), digest_b.to_json()
    names = ["query_id", "row_count", "rows_hash"]
    # The evidence settings follow from the descriptor: a digest with others belongs to another answer.
    same_policy = digest_a.evidence_policy == digest_b.evidence_policy
    names.append("evidence_hash" if same_policy else "evidence_policy")
    if digest_a.upto is not None and digest_b.upto is not None:
        names.append("upto")
    items: list[Item] = []
    if descriptor_a is not None:
        same = descriptor_a.encode() == descriptor_b.encode()
        items.append(Item("descriptor", same, descriptor_a.to_json(), descriptor_b.to_json()))
    items += [Item(name, form_a[name] == form_b[name], form_a[name], form_b[name]) for name in names]
    if digest_b.unread is not None:
        same = digest_b.unread in (0, digest_a.unread)
        items.append(Item("unread", same, digest_a.unread, digest_b.unread))
    return Comparison(tuple(items))
