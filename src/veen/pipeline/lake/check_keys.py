"""Who signs for the entries of a lake: the identity of the hub, as the lake keeps it."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from veen.core import hubfiles
from veen.core import labels as naming
from veen.core.errors import ProtocolError
from veen.core.hubfiles import HubSettings
from veen.core.identity import HubIdentity
from veen.core.profile import Profile
from veen.core.types import Label
from veen.pipeline.lake import hub
from veen.pipeline.lake.commits import LabelFact, State
from veen.pipeline.lake.errors import DamagedLakeError
from veen.pipeline.signers import HubKeys
from veen.storage import RealFilesystem
from veen.storage.errors import StorageError
from veen.storage.fsck.keys import load_keys
from veen.storage.fsck.report import Findings, Level
from veen.storage.fsck.source import Source
from veen.storage.public import read_identity

if TYPE_CHECKING:
    from veen.pipeline.logs import Log


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the hub: nothing, if neither lake nor log tell."""

    keys: HubKeys | None = None
    profiles: tuple[Profile, ...] = ()

    def require_bound(self, fact: LabelFact) -> None:
        """Require that a label is the one of its stream: it follows from the names of both."""
        stream = fact.stream
        if stream is None or self.keys is None:
            return
        label = Label(bytes.fromhex(fact.label))
        if naming.label(self.keys.identity_of(label).routing_key, stream, fact.epoch) != label:
            text = f"label {fact.label} is not the one of stream {fact.stream_id} in epoch {fact.epoch}"
            raise DamagedLakeError(text)


def known_of(root: Path, state: State, log: "Log | None") -> Known:
    """Return what the lake keeps of its hub, which must be signed, and the same as the log says."""
    kept = _kept(root, state)
    if log is None:
        return kept
    if kept.keys is None:
        return Known(log.keys, tuple(log.profiles))
    listed = {key.hub_pk for key in log.keys.identity.hub_keys}
    for key in kept.keys.identity.hub_keys:
        if key.hub_pk not in listed:
            raise DamagedLakeError(
                f"the lake has a key of the hub that the log does not have: {key.key_id.hex()}"
            )
    return kept


def _kept(root: Path, state: State) -> Known:
    """Read the identity that the lake keeps, as that of a directory is read; its first key has signed it."""
    if f"{hub.FILES}/{hubfiles.IDENTITY}" not in state.hub:
        return Known()
    with TemporaryDirectory(prefix="veen-check-") as place:
        _write_files(root, state, Path(place))
        with closing(RealFilesystem(Path(place))) as fs:
            try:
                found = read_identity(fs)
                assert found is not None
                keys = _keys(fs, found[0], state)
            except (StorageError, ProtocolError) as error:
                raise _unreliable(str(error)) from None
    blob = state.hub.get(f"{hub.FILES}/{hubfiles.SETTINGS}")
    try:
        settings = None if blob is None else HubSettings.decode(hub.read_blob(root, blob))
    except ProtocolError as error:
        raise _unreliable(str(error)) from None
    return Known(keys, () if settings is None else settings.profiles)


def _write_files(root: Path, state: State, place: Path) -> None:
    for name, blob in state.hub.items():
        kind, _, path = name.partition("/")
        target = (place / path).resolve()
        if kind == hub.FILES and target.is_relative_to(place.resolve()):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(hub.read_blob(root, blob))


def _keys(fs: RealFilesystem, identity: HubIdentity, state: State) -> HubKeys:
    if identity.hub_id.hex() != state.hub_id:
        raise _unreliable(f"it is the identity of {identity.hub_id.hex()}, and the lake is of {state.hub_id}")
    found = Findings()
    loaded = load_keys(Source(fs, None), identity.hub_id, (), Level.FULL, found)
    if found.total:
        raise _unreliable(str(found.kept[0]))
    copied = {}
    for label in loaded.copied:
        signers = loaded.signers_of(label)
        if signers is None or signers.identity is None:
            raise _unreliable(f"nobody knows who has signed {label.hex()}")
        copied[label] = signers.identity
    return HubKeys(identity, copied)


def _unreliable(text: str) -> DamagedLakeError:
    return DamagedLakeError(f"what the lake keeps of its hub's keys can not be relied on: {text}")
