"""The recorder's configuration: streams that the log declares, and how long they are kept (SDR-008).

Streams of the recorder have fixed names. Readers of a stream are those who have its key, or to whom it is
sealed; a client that has neither seals to itself.
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

#: What labels of the recorder are said to be.
_CLASS: Final = "record"


@dataclass(frozen=True, slots=True)
class Declared:
    """What the log says of a stream."""

    #: declared, renamed, split or retired.
    state: str
    into: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    retention_hint: int | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The streams of the recorder as the log declares them."""

    profile_id: bytes
    streams: Mapping[str, Declared] = field(default_factory=dict)
    #: Keys that have changed streams, in hex.
    admins: frozenset[str] = frozenset()
    #: Changes that this client cannot open.
    unreadable: int = 0

    @property
    def names(self) -> list[str]:
        """All streams that there are or were, and the recorder's own, in the order of their bytes."""
        return sorted({*self.streams, CHANGES_STREAM, CHECKPOINTS_STREAM}, key=str.encode)

    @property
    def shared_types(self) -> dict[str, list[str]]:
        """Types of events that more than one stream is declared for (SDR-005)."""
        return shared_types((name, declared.event_types) for name, declared in sorted(self.streams.items()))

    def kept_for(self, stream: str, least: int) -> int:
        """Return for how many seconds entries of a stream are to be kept: as declared, else the least."""
        declared = self.streams.get(stream)
        return least if declared is None else declared.retention_hint or least

    def streams_of(self, event_type: str) -> list[str]:
        """Return the streams that a type of events is declared for (SDR-005)."""
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
    """Return a change of streams, to be sent to the stream of changes."""
    return typed(CHANGE, CHANGE.make(change=change, stream=stream, **more))


def send_change(client: Client, change: str, stream: str, **more: Any) -> Sent:  # noqa: ANN401 - by the schema
    """Change the streams of the recorder, by an event of their own."""
    draft = change_draft(change, stream, change_time=client.session.clock(), **more)
    return send_draft(client, CHANGES_STREAM, draft, RECORDING)


def known_record_streams(client: Client) -> list[str]:
    """Return the streams under record/ that this client has used at the hub, declared or not."""
    hub_id = client.connect().identity.hub_id
    kept = client.session.home.load().labels.values()
    names = {item.stream for item in kept if item.hub_id == hub_id and item.stream is not None}
    return sorted(name for name in names if name.startswith(STREAMS))


# --- labels and their classes -------------------------------------------------------------------------------


def stream_labels(client: Client, stream: str, from_epoch: int = 0) -> Iterator[tuple[int, Label]]:
    """Yield the epochs in which a stream has, or can have, entries; with their labels."""
    client.connect()
    session, stream_id = client.session, labels.stream_id(stream)
    rotates = session.profiles[0].epoch_sec
    for epoch in client.run(list_epochs(session, stream, from_epoch)) if rotates else [0]:
        yield epoch, session.label(stream_id, epoch)


def label_now(client: Client, stream: str) -> Label:
    """Return the label that a stream has at this time."""
    client.connect()
    session = client.session
    epoch = labels.epoch_at(session.clock(), session.profiles[0].epoch_sec)
    return session.label(labels.stream_id(stream), epoch)


def class_stream(realm: str = DEFAULT_REALM) -> str:
    """Return the stream of classes, by its id."""
    return labels.label_class_stream(labels.realm_id(realm)).hex()


@dataclass(frozen=True, slots=True)
class LabelClass:
    """What was said last of a label."""

    name: str
    sensitivity: str | None
    retention_hint: int | None
    client_id: bytes


def keeps(label_class: LabelClass | None, seconds: int) -> bool:
    """Tell whether what was said of a label keeps it so long (SDR-006)."""
    return label_class is not None and (label_class.retention_hint or 0) >= seconds


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of labels, and how many entries say so or cannot be opened."""

    labels: Mapping[bytes, LabelClass] = field(default_factory=dict)
    entries: int = 0
    unreadable: int = 0


def read_classes(client: Client, realm: str = DEFAULT_REALM) -> dict[bytes, LabelClass]:
    """Fold the stream of classes (CTL-007)."""
    return dict(fold_classes(client, realm).labels)


def fold_classes(client: Client, realm: str = DEFAULT_REALM) -> Classes:
    """Fold the stream of classes, and count what cannot be read."""
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
    """Say of what class a label is."""
    fields = {"label": label, "class": name, "sensitivity": sensitivity, "retention_hint": retention_hint}
    draft = typed(CLASS, CLASS.make(**fields))
    return send_draft(client, class_stream(realm), draft, RECORDING)


def keep_labels(client: Client, wanted: Mapping[Label, int]) -> int:
    """Say of labels for how many seconds they are kept; returns of how many it was not said yet (SDR-006)."""
    classes = read_classes(client)
    short = [
        label for label, seconds in sorted(wanted.items()) if not keeps(classes.get(bytes(label)), seconds)
    ]
    for label in short:
        set_class(client, label, _CLASS, retention_hint=wanted[label])
    return len(short)


def record_stream(name: str) -> str:
    """Return the name of a recorder stream; raise StreamNameError for any other, the bare prefix too."""
    if not name.startswith(STREAMS) or name == STREAMS:
        raise StreamNameError(f"{name!r} is not a recorder stream: its name is {STREAMS} and more")
    return name


#: What to do about it, but for ``--to``.
GET_KEY: Final = (
    "an admin shares the key (veen recorder share), and the client accepts it (veen reader accept)"
)


def has_readers(secrets: Secrets, options: SendOptions, stream: str) -> bool:
    """Tell whether anybody can read what is sealed for a stream, but for the client that seals it."""
    return options.to is not None or secrets.stream_key(labels.stream_id(stream)) is not None
