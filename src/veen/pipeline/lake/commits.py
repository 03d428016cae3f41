"""Commits: what a lake is. Each names files that come and go, what they hold of the log, and its forerunner.

A commit is one JSON document with sorted names and no spaces, so that equal commits are equal bytes. It holds
no time and no place: the same log taken in by the same steps gives the same commits.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels as naming
from veen.core.objects.hub_identity import HubIdentity
from veen.core.types import Label, NodeHash, RoutingKey, StreamId
from veen.pipeline.errors import DamagedLakeError, LakeBusyError, LakeError
from veen.pipeline.lake import layout
from veen.pipeline.lake.table_files import write_durably

VERSION: Final = 2
#: Every so many commits all of them are written as one, so that a run does not read all that ever were.
_SNAPSHOT_EVERY: Final = 32


class FileFact(NamedTuple):
    """A file of a table: which entries of which label it is made of, and its content by hash."""

    path: str
    table: str
    label: str
    from_seq: int
    upto_seq: int
    first_ts: int
    last_ts: int
    rows: int
    bytes: int
    sha256: str


class Blob(NamedTuple):
    """Something of the hub, kept by its hash."""

    name: str
    bytes: int
    sha256: str


class Missing(NamedTuple):
    """Entries that were pruned before they could be taken in, and the peaks after them, as the log states."""

    first: int
    last: int
    peaks: tuple[str, ...]

    @property
    def range(self) -> Peaks:
        """The peaks after them."""
        return _range(self.last, self.peaks)


def _range(size: int, peaks: Iterable[str]) -> Peaks:
    return Peaks(size, tuple(NodeHash(bytes.fromhex(node)) for node in peaks))


class LabelFact(NamedTuple):
    """How far a label is in the lake, and the root of the log there."""

    label: str
    stream_id: str | None
    epoch: int
    from_seq: int
    upto_seq: int
    mmr_root: str
    peaks: tuple[str, ...]
    missing: tuple[Missing, ...] = ()
    #: Entries that no key has opened, and which keyrings were tried on all of them, by their public keys.
    sealed: int = 0
    tried: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        label: Label,
        stream_id: StreamId | None,
        epoch: int,
        *,
        span: tuple[int, int],
        peaks: Peaks,
        missing: Iterable[Missing] = (),
        sealed: int = 0,
        tried: Iterable[str] = (),
    ) -> Self:
        return cls(
            label.hex(),
            None if stream_id is None else stream_id.hex(),
            epoch,
            *span,
            peaks.root.hex(),
            hexed(peaks),
            tuple(missing),
            sealed,
            tuple(sorted(tried)) if sealed else (),
        )

    @property
    def range(self) -> Peaks:
        """The peaks of the label where the lake ends."""
        return _range(self.upto_seq, self.peaks)

    @property
    def stream(self) -> StreamId | None:
        """The stream that it is of, if it is known."""
        return None if self.stream_id is None else StreamId(bytes.fromhex(self.stream_id))

    def after(self, before: "LabelFact | None") -> "LabelFact":
        """Return what holds for all of the label when this is added to what there was."""
        if before is None:
            return self
        return self._replace(
            from_seq=before.from_seq,
            missing=before.missing + self.missing,
            sealed=before.sealed + self.sealed,
            tried=_tried_on_both(before, self),
        )

    def is_own(self, routing: RoutingKey) -> bool:
        """Tell whether this hub gives the label to the stream; a fork also has labels of its parent."""
        stream = self.stream
        return stream is not None and self.label == naming.label(routing, stream, self.epoch).hex()


def _tried_on_both(one: LabelFact, other: LabelFact) -> tuple[str, ...]:
    if not one.sealed or not other.sealed:
        return one.tried or other.tried
    return tuple(sorted({*one.tried} & {*other.tried}))


class Remade(NamedTuple):
    """What is known anew of a label whose tables were made again: its stream, and what is still sealed."""

    label: str
    stream_id: str | None
    epoch: int
    sealed: int
    tried: tuple[str, ...]

    def applied(self, before: LabelFact) -> LabelFact:
        """Return the label as it is now."""
        return before._replace(
            stream_id=self.stream_id, epoch=self.epoch, sealed=self.sealed, tried=tuple(self.tried)
        )


def hexed(peaks: Peaks) -> tuple[str, ...]:
    """Return peaks as commits have them."""
    return tuple(node.hex() for node in peaks.hashes)


@dataclass(slots=True, kw_only=True)
class Changes:
    """What a commit changes."""

    kind: str
    labels: list[LabelFact] = field(default_factory=list)
    remade: list[Remade] = field(default_factory=list)
    added: list[FileFact] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    hub: list[Blob] = field(default_factory=list)
    gold: list[dict[str, Any]] = field(default_factory=list)
    #: States that no longer hold, by overlay and stream.
    dropped: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.labels or self.remade or self.added or self.removed or self.hub or self.gold or self.dropped
        )


def canonical(value: object) -> bytes:
    """Return JSON whose bytes follow from the value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


@dataclass(slots=True)
class State:
    """A lake after its last commit."""

    hub_id: str | None = None
    #: What labels follow from: that of the hub's id, or one that the hub was given (C-30).
    routing_key: str | None = None
    number: int = 0
    hash: str | None = None
    labels: dict[str, LabelFact] = field(default_factory=dict)
    files: dict[str, FileFact] = field(default_factory=dict)
    hub: dict[str, Blob] = field(default_factory=dict)
    #: By overlay and stream.
    gold: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def document(self, changes: Changes, identity: HubIdentity | None) -> dict[str, Any]:
        """Return the next commit; ``identity`` is the hub's, and may be left out if there was a commit."""
        hub_id, routing = self.hub_id, self.routing_key
        if identity is not None:
            hub_id, routing = identity.hub_id.hex(), identity.routing_key.hex()
        assert hub_id is not None, "the first commit must name the hub of the lake"
        return {
            "ver": VERSION,
            "number": self.number + 1,
            "before": self.hash,
            "hub_id": hub_id,
            "routing_key": routing,
            "kind": changes.kind,
            "verified": "full",
            "labels": [item._asdict() for item in changes.labels],
            "remade": [item._asdict() for item in changes.remade],
            "added": [item._asdict() for item in changes.added],
            "removed": changes.removed,
            "hub": [item._asdict() for item in changes.hub],
            "gold": changes.gold,
            "dropped": [list(item) for item in changes.dropped],
        }

    def apply(self, document: Mapping[str, Any], digest: str) -> None:
        """Go on by a commit."""
        if (document["number"], document["before"]) != (self.number + 1, self.hash):
            raise DamagedLakeError(f"commit {document['number']} does not follow commit {self.number}")
        if self.hub_id not in (None, document["hub_id"]):
            raise DamagedLakeError(f"commit {document['number']} is of another hub")
        self.hub_id, self.number, self.hash = document["hub_id"], document["number"], digest
        self.routing_key = document["routing_key"]
        for path in document["removed"]:
            if self.files.pop(path, None) is None:
                raise DamagedLakeError(f"commit {self.number} removes {path}, which is not there")
        for item in document["added"]:
            self.files[item["path"]] = FileFact(**item)
        for item in document["labels"]:
            made = _label_fact(item)
            self.labels[made.label] = made.after(self.labels.get(made.label))
        for item in document["remade"]:
            self.labels[item["label"]] = Remade(**item).applied(self.labels[item["label"]])
        for item in document["hub"]:
            self.hub[item["name"]] = Blob(**item)
        for overlay, stream in document["dropped"]:
            del self.gold[overlay, stream]
        for item in document["gold"]:
            self.gold[item["overlay"], item["stream_id"]] = item

    def snapshot(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "ver": VERSION,
            "hub_id": self.hub_id,
            "routing_key": self.routing_key,
            "number": self.number,
            "hash": self.hash,
            "labels": [item._asdict() for item in self.labels.values()],
            "files": [item._asdict() for item in self.files.values()],
            "hub": [item._asdict() for item in self.hub.values()],
            "gold": list(self.gold.values()),
        }

    @classmethod
    def of_snapshot(cls, value: Mapping[str, Any]) -> Self:
        """Return what a snapshot holds."""
        return cls(
            value["hub_id"],
            value["routing_key"],
            value["number"],
            value["hash"],
            {item["label"]: _label_fact(item) for item in value["labels"]},
            {item["path"]: FileFact(**item) for item in value["files"]},
            {item["name"]: Blob(**item) for item in value["hub"]},
            {(item["overlay"], item["stream_id"]): item for item in value["gold"]},
        )

    def of_table(self, table: str) -> list[FileFact]:
        """Return the files of a table, by label and in order."""
        found = [item for item in self.files.values() if item.table == table]
        return sorted(found, key=lambda item: (item.label, item.from_seq))

    def own_labels(self) -> dict[str, list[LabelFact]]:
        """Return the hub's own labels of each stream that is known, by epoch: what states are made of."""
        if self.routing_key is None:
            return {}
        routing = RoutingKey(bytes.fromhex(self.routing_key))
        found: dict[str, list[LabelFact]] = {}
        for fact in sorted(self.labels.values(), key=lambda fact: fact.epoch):
            if fact.stream_id is not None and fact.is_own(routing):
                found.setdefault(fact.stream_id, []).append(fact)
        return found

    @property
    def sealed(self) -> int:
        """How many entries no key has opened."""
        return sum(fact.sealed for fact in self.labels.values())

    def tables(self) -> list[str]:
        """Return the tables that have files."""
        return sorted({item.table for item in self.files.values()})


def _label_fact(item: Mapping[str, Any]) -> LabelFact:
    lists = {
        "peaks": tuple(item["peaks"]),
        "tried": tuple(item["tried"]),
        "missing": tuple(Missing(first, last, tuple(peaks)) for first, last, peaks in item["missing"]),
    }
    return LabelFact(**{**item, **lists})


class Commits:
    """The commits of a lake."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def numbers(self) -> list[int]:
        """Return the numbers of all commits; there is none missing."""
        return self._numbers(layout.COMMITS)

    def _numbers(self, place: str) -> list[int]:
        directory = self.root / place
        names = directory.iterdir() if directory.is_dir() else ()
        return sorted(int(path.stem) for path in names if path.suffix == ".json" and path.stem.isdigit())

    def load(self, *, snapshots: bool = True) -> State:
        """Return the lake as it is; without snapshots, from its first commit."""
        numbers = self.numbers()
        if numbers != list(range(1, len(numbers) + 1)):
            raise DamagedLakeError(
                f"{self.root / layout.COMMITS} has not all commits from 1 to {numbers[-1]}"
            )
        state = self._latest_snapshot(len(numbers)) if snapshots else State()
        for number in range(state.number + 1, len(numbers) + 1):
            self.follow(state, number)
        return state

    def follow(self, state: State, number: int) -> dict[str, Any]:
        """Go on by one commit, and return it."""
        path = self.root / layout.commit_file(number)
        data = path.read_bytes()
        try:
            document: dict[str, Any] = json.loads(data)
            if document["ver"] != VERSION:
                raise LakeError(f"{path} is of version {document['ver']}; this program knows {VERSION}")
            if canonical(document) != data:
                raise DamagedLakeError(f"{path} is not as it was written")
            state.apply(document, hashlib.sha256(data).hexdigest())
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedLakeError(f"{path} is damaged: {error!r}") from None
        return document

    def _latest_snapshot(self, upto: int) -> State:
        for number in reversed(self._numbers(layout.SNAPSHOTS)):
            if number > upto:
                continue
            commit = (self.root / layout.commit_file(number)).read_bytes()
            try:
                state = State.of_snapshot(json.loads((self.root / layout.snapshot_file(number)).read_bytes()))
            except (ValueError, KeyError, TypeError):
                continue  # it can be made again
            if (state.number, state.hash) == (number, hashlib.sha256(commit).hexdigest()):
                return state
        return State()

    def add(self, state: State, changes: Changes, identity: HubIdentity | None = None) -> None:
        """Write the next commit: when this returns, its files are the lake."""
        document = state.document(changes, identity)
        data = canonical(document)
        path = self.root / layout.commit_file(state.number + 1)
        try:
            write_durably(path, data, once=True)
        except FileExistsError:
            raise LakeBusyError(f"{path} was written by another process in the meantime") from None
        state.apply(document, hashlib.sha256(data).hexdigest())
        if state.number % _SNAPSHOT_EVERY == 0:
            write_durably(self.root / layout.snapshot_file(state.number), canonical(state.snapshot()))
