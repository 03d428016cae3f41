"""The recorder's configuration: streams as declared in the log, and their retention (SDR-008).

Streams of the recorder have fixed names. The readers of a stream have its key, or are recipients of its
messages; a client without either seals to itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from veen.client.client import Client
from veen.client.fold.interpret import interpret, typed
from veen.client.keys.keystore import Secrets
from veen.client.models import Draft, SendOptions, Sent
from veen.client.read import list_epochs
from veen.client.send import send_draft
from veen.core.objects import labels
from veen.core.objects.labels import DEFAULT_REALM
from veen.core.types import Label
from veen.overlays.control.label_class import CLASS, LabelClasses
from veen.overlays.event import Outcome
from veen.overlays.recorder.overlay import Recorder, profile_id, shared_types
from veen.overlays.recorder.schemas import CHANGE, CHANGES_STREAM, CHECKPOINTS_STREAM, STREAMS
from veen.recorder.errors import StreamNameError
from veen.recorder.event import RECORDING

# The class of the recorder's labels.
_CLASS: Final = "record"


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a stream."""

    # declared, renamed, split or retired.
    state: str
    into: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    retention_hint: int | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The streams of the recorder as the log declares them."""

    profile_id: bytes
    streams: Mapping[str, Declared] = field(default_factory=dict)
    # Keys that have changed streams, in hex.
    admins: frozenset[str] = frozenset()
    # Number of changes that this client cannot decrypt.
    unreadable: int = 0

    @property
    def names(self) -> list[str]:
        """All present and former streams, and the recorder's own, in byte order."""
        return sorted({*self.streams, CHANGES_STREAM, CHECKPOINTS_STREAM}, key=str.encode)

    @property
    def shared_types(self) -> dict[str, list[str]]:
        """Types of events that more than one stream declares (SDR-005)."""
        return shared_types((name, declared.event_types) for name, declared in sorted(self.streams.items()))

    def kept_for(self, stream: str, min_seconds: int) -> int:
        """Return the retention of a stream in seconds: as declared, else the minimum."""
        declared = self.streams.get(stream)
        return min_seconds if declared is None else declared.retention_hint or min_seconds

    def streams_of(self, event_type: str) -> list[str]:
        """Return the streams that declare a type of events (SDR-005)."""
        return sorted(name for name, declared in self.streams.items() if event_type in declared.event_types)


def read_configuration(client: Client) -> Configuration:
    """Fold the stream of changes."""
    client.connect()
    state = interpret(client, Recorder(), CHANGES_STREAM)
    streams = {str(name): Declared(*row[1:]) for name, row in state.tables.items("streams")}
    admins = frozenset(str(key) for key, _ in state.tables.items("admins"))
    unreadable = state.counts.get(Outcome.UNREADABLE.value, 0)
    return Configuration(profile_id(state.tables), streams, admins, unreadable)


def change_draft(change: str, stream: str, **more: Any) -> Draft:  # noqa: ANN401 - by the schema
    """Return a change of streams as a draft for the stream of changes."""
    return typed(CHANGE, CHANGE.make(change=change, stream=stream, **more))


def send_change(client: Client, change: str, stream: str, **more: Any) -> Sent:  # noqa: ANN401 - by the schema
    """Send a change of streams."""
    draft = change_draft(change, stream, change_time=client.session.clock(), **more)
    return send_draft(client, CHANGES_STREAM, draft, RECORDING)


def known_record_streams(client: Client) -> list[str]:
    """Return the streams under record/ that this client has used at the hub, declared or not."""
    hub_id = client.connect().identity.hub_id
    label_states = client.session.home.load().labels.values()
    names = {item.stream for item in label_states if item.hub_id == hub_id and item.stream is not None}
    return sorted(name for name in names if name.startswith(STREAMS))


# --- labels and their classes -------------------------------------------------------------------------------


def stream_labels(client: Client, stream: str, from_epoch: int = 0) -> Iterator[tuple[int, Label]]:
    """Yield the epochs in which a stream has, or can have, entries, with the labels."""
    client.connect()
    session, stream_id = client.session, labels.stream_id(stream)
    rotates = session.profiles[0].epoch_sec
    for epoch in client.run(list_epochs(session, stream, from_epoch)) if rotates else [0]:
        yield epoch, session.label(stream_id, epoch)


def label_now(client: Client, stream: str) -> Label:
    """Return the current label of a stream."""
    client.connect()
    session = client.session
    epoch = labels.epoch_at(session.clock(), session.profiles[0].epoch_sec)
    return session.label(labels.stream_id(stream), epoch)


def class_stream(realm: str = DEFAULT_REALM) -> str:
    """Return the stream of label classes, by its id."""
    return labels.label_class_stream(labels.realm_id(realm)).hex()


@dataclass(frozen=True, slots=True)
class LabelClass:
    """The last classification of a label."""

    name: str
    sensitivity: str | None
    retention_hint: int | None
    client_id: bytes


def keeps(label_class: LabelClass | None, seconds: int) -> bool:
    """Whether a label is classified with at least this retention (SDR-006)."""
    return label_class is not None and (label_class.retention_hint or 0) >= seconds


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of labels, with the number of entries and of unreadable ones."""

    labels: Mapping[bytes, LabelClass] = field(default_factory=dict)
    entries: int = 0
    unreadable: int = 0


def read_classes(client: Client, realm: str = DEFAULT_REALM) -> dict[bytes, LabelClass]:
    """Fold the stream of classes (CTL-007)."""
    return dict(fold_classes(client, realm).labels)


def fold_classes(client: Client, realm: str = DEFAULT_REALM) -> Classes:
    """Fold the stream of classes, and count its unreadable entries."""
    client.connect()
    state = interpret(client, LabelClasses(), class_stream(realm))
    classes = {bytes(label): LabelClass(*row[1:]) for label, row in state.tables.items("classes")}  # type: ignore[arg-type] # labels are bytes
    return Classes(classes, sum(state.counts.values()), state.counts.get(Outcome.UNREADABLE.value, 0))


def set_class(
    client: Client,
    label: bytes,
    name: str,
    *,
    sensitivity: str | None = None,
    retention_hint: int | None = None,
    realm: str = DEFAULT_REALM,
) -> Sent:
    """Classify a label."""
    fields = {"label": label, "class": name, "sensitivity": sensitivity, "retention_hint": retention_hint}
    draft = typed(CLASS, CLASS.make(**fields))
    return send_draft(client, class_stream(realm), draft, RECORDING)


def keep_labels(client: Client, retention_of: Mapping[Label, int]) -> int:
    """Declare the retention of labels; return how many were not declared with it yet (SDR-006)."""
    classes = read_classes(client)
    short = [
        label
        for label, seconds in sorted(retention_of.items())
        if not keeps(classes.get(bytes(label)), seconds)
    ]
    for label in short:
        set_class(client, label, _CLASS, retention_hint=retention_of[label])
    return len(short)


def record_stream(name: str) -> str:
    """Return the name of a recorder stream; raise StreamNameError for others, also the bare prefix."""
    if not name.startswith(STREAMS) or name == STREAMS:
        raise StreamNameError(f"{name!r} is not a recorder stream: names start with {STREAMS}")
    return name


# The remedy other than ``--to``.
GET_KEY: Final = (
    "an admin shares the key (veen recorder share), and the client accepts it (veen reader accept)"
)


def has_readers(secrets: Secrets, options: SendOptions, stream: str) -> bool:
    """Whether any client but the sealing one can read what is sealed for a stream."""
    return options.to is not None or secrets.stream_key(labels.stream_id(stream)) is not None
