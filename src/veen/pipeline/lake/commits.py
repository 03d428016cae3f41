"""Commits define a lake. Each lists added and removed files, their entries of the log, and its predecessor.

A commit is one JSON document with sorted names and no spaces, so that equal commits are equal bytes. It
contains no time and no path: the same log ingested in the same steps gives the same commits.
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

# Also counts changes of texts that rows hold: what a report says, why a message was not opened.
VERSION: Final = 3
# The interval of snapshots, which spare a run reading all commits.
_SNAPSHOT_EVERY: Final = 32


class FileFact(NamedTuple):
    """A file of a table: the label and range of its entries, and the hash of its content."""

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
    """Data of the hub, stored by its hash."""

    name: str
    bytes: int
    sha256: str


class Missing(NamedTuple):
    """Entries pruned before ingest, and the peaks after them, as the log states."""

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
    """The end of a label in the lake, and the root of the log there."""

    label: str
    stream_id: str | None
    epoch: int
    from_seq: int
    upto_seq: int
    mmr_root: str
    peaks: tuple[str, ...]
    missing: tuple[Missing, ...] = ()
    # Entries that no key could open, and the keyrings tried on all of them, by their public keys.
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
        """The peaks at the end of the label in the lake."""
        return _range(self.upto_seq, self.peaks)

    @property
    def stream(self) -> StreamId | None:
        """The label's stream, if known."""
        return None if self.stream_id is None else StreamId(bytes.fromhex(self.stream_id))

    def after(self, before: "LabelFact | None") -> "LabelFact":
        """Return the facts about the whole label after these are added to the previous ones."""
        if before is None:
            return self
        return self._replace(
            from_seq=before.from_seq,
            missing=before.missing + self.missing,
            sealed=before.sealed + self.sealed,
            tried=_tried_on_both(before, self),
        )

    def is_own(self, routing: RoutingKey) -> bool:
        """Return whether the label is this hub's for the stream; a fork also has labels of its parent."""
        stream = self.stream
        return stream is not None and self.label == naming.label(routing, stream, self.epoch).hex()


def _tried_on_both(one: LabelFact, other: LabelFact) -> tuple[str, ...]:
    if not one.sealed or not other.sealed:
        return one.tried or other.tried
    return tuple(sorted({*one.tried} & {*other.tried}))


class Remade(NamedTuple):
    """New facts about a label whose tables were rebuilt: its stream, and the entries still sealed."""

    label: str
    stream_id: str | None
    epoch: int
    sealed: int
    tried: tuple[str, ...]

    def applied(self, before: LabelFact) -> LabelFact:
        """Return the label's facts after the rebuild."""
        return before._replace(
            stream_id=self.stream_id, epoch=self.epoch, sealed=self.sealed, tried=tuple(self.tried)
        )


def hexed(peaks: Peaks) -> tuple[str, ...]:
    """Return peaks in the form of commits."""
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
    # Invalidated states, by overlay and stream.
    dropped: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.labels or self.remade or self.added or self.removed or self.hub or self.gold or self.dropped
        )


def canonical(value: object) -> bytes:
    """Return canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


@dataclass(slots=True)
class State:
    """A lake after its last commit."""

    hub_id: str | None = None
    # The routing key of labels: that of the hub's id, or a configured one (C-30).
    routing_key: str | None = None
    number: int = 0
    hash: str | None = None
    labels: dict[str, LabelFact] = field(default_factory=dict)
    files: dict[str, FileFact] = field(default_factory=dict)
    hub: dict[str, Blob] = field(default_factory=dict)
    # By overlay and stream.
    gold: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def document(self, changes: Changes, identity: HubIdentity | None) -> dict[str, Any]:
        """Return the next commit; ``identity`` is the hub's, and optional after the first commit."""
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
        """Apply a commit."""
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
        """Return the state as a JSON object."""
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
        """Return the state in a snapshot."""
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
        """Return the hub's own labels of each known stream, by epoch: the inputs of states."""
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
        """The number of entries that no key could open."""
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
        """Return the numbers of all commits, which are consecutive."""
        return self._numbers(layout.COMMITS)

    def _numbers(self, place: str) -> list[int]:
        directory = self.root / place
        names = directory.iterdir() if directory.is_dir() else ()
        return sorted(int(path.stem) for path in names if path.suffix == ".json" and path.stem.isdigit())

    def load(self, *, snapshots: bool = True) -> State:
        """Return the current state; without ``snapshots``, from the first commit."""
        numbers = self.numbers()
        if numbers != list(range(1, len(numbers) + 1)):
            raise DamagedLakeError(
                f"{self.root / layout.COMMITS} lacks some of the commits from 1 to {numbers[-1]}"
            )
        state = self._latest_snapshot(len(numbers)) if snapshots else State()
        for number in range(state.number + 1, len(numbers) + 1):
            self.follow(state, number)
        return state

    def follow(self, state: State, number: int) -> dict[str, Any]:
        """Apply the next commit, and return it."""
        path = self.root / layout.commit_file(number)
        data = path.read_bytes()
        try:
            document: dict[str, Any] = json.loads(data)
            if document["ver"] != VERSION:
                raise LakeError(
                    f"{path} is of lake format {document['ver']}, and this program reads format {VERSION}; "
                    "ingest the log into a new directory"
                )
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
                snapshot = json.loads((self.root / layout.snapshot_file(number)).read_bytes())
                if snapshot["ver"] != VERSION:
                    continue  # the commits, which are of that format too, say what to do
                state = State.of_snapshot(snapshot)
            except (ValueError, KeyError, TypeError):
                continue  # it can be rebuilt
            if (state.number, state.hash) == (number, hashlib.sha256(commit).hexdigest()):
                return state
        return State()

    def add(self, state: State, changes: Changes, identity: HubIdentity | None = None) -> None:
        """Write the next commit, durably: when this returns, its files are part of the lake."""
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
