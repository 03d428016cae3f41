"""Tables of a lake compared, row by row, with what they derive from, and the keys that sign its entries."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from veen.core.data_dir import hub_settings
from veen.core.data_dir.hub_settings import HubSettings
from veen.core.errors import ProtocolError
from veen.core.objects import labels as naming
from veen.core.objects.finding import Level
from veen.core.objects.hub_identity import HubIdentity
from veen.core.profile import Profile
from veen.core.types import Label
from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake import hub_files
from veen.pipeline.lake.commits import LabelFact, State
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.open.decrypt import SEALED
from veen.storage import RealFilesystem
from veen.storage.directory import read_identity
from veen.storage.errors import StorageError
from veen.storage.fsck.keys import load_keys
from veen.storage.fsck.report import Findings
from veen.storage.fsck.source import Source

if TYPE_CHECKING:
    from veen.pipeline.log.log import Log


@dataclass(frozen=True, slots=True)
class KnownHub:
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


def known_of(root: Path, state: State, log: "Log | None") -> KnownHub:
    """Return what the lake keeps of its hub, which must be signed, and the same as the log says."""
    kept = _kept(root, state)
    if log is None:
        return kept
    if kept.keys is None:
        return KnownHub(log.keys, tuple(log.profiles))
    listed = {key.hub_pk for key in log.keys.identity.hub_keys}
    for key in kept.keys.identity.hub_keys:
        if key.hub_pk not in listed:
            raise DamagedLakeError(
                f"the lake has a key of the hub that the log does not have: {key.key_id.hex()}"
            )
    return kept


def _kept(root: Path, state: State) -> KnownHub:
    """Read the identity that the lake keeps, as that of a directory is read; its first key has signed it."""
    if f"{hub_files.FILES}/{hub_settings.IDENTITY}" not in state.hub:
        return KnownHub()
    with TemporaryDirectory(prefix="veen-check-") as place:
        _write_files(root, state, Path(place))
        with closing(RealFilesystem(Path(place))) as fs:
            try:
                found = read_identity(fs)
                assert found is not None
                keys = _keys(fs, found[0], state)
            except (StorageError, ProtocolError) as error:
                raise _unreliable(str(error)) from None
    blob = state.hub.get(f"{hub_files.FILES}/{hub_settings.SETTINGS}")
    try:
        settings = None if blob is None else HubSettings.decode(hub_files.read_blob(root, blob))
    except ProtocolError as error:
        raise _unreliable(str(error)) from None
    return KnownHub(keys, () if settings is None else settings.profiles)


def _write_files(root: Path, state: State, place: Path) -> None:
    for name, blob in state.hub.items():
        kind, _, path = name.partition("/")
        target = (place / path).resolve()
        if kind == hub_files.FILES and target.is_relative_to(place.resolve()):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(hub_files.read_blob(root, blob))


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
            raise _unreliable(f"the signers of {label.hex()} are not known")
        copied[label] = signers.identity
    return HubKeys(identity, copied)


def _unreliable(text: str) -> DamagedLakeError:
    return DamagedLakeError(f"the hub's keys in the lake cannot be trusted: {text}")


#: Columns of records that come from message and receipt, and what they are called in the bronze table.
PLACED: Final = {
    "stream_id": "stream_id",
    "epoch": "epoch",
    "label": "label",
    "stream_seq": "stream_seq",
    "msg_id": "leaf_hash",
    "client_id": "client_id",
    "client_seq": "client_seq",
    "hub_ts": "hub_ts",
    "receipt_id": "receipt_id",
    "auth_ref": "auth_ref",
}


class TableRows:
    """The rows of a file, in portions of any size."""

    def __init__(self, path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._path = path
        self._schema = schema
        self._batches = batches
        self._left = schema.empty_table()

    def take(self, count: int) -> pa.Table:
        """Return the next rows; raise if there are not so many."""
        found = [self._left]
        have = len(self._left)
        while have < count:
            batch = next(self._batches, None)
            if batch is None:
                raise self.wrong(
                    f"ends too early: {count - have} rows that follow from the entries are missing"
                )
            found.append(pa.Table.from_batches([batch]))
            have += len(batch)
        joined = pa.concat_tables(found)
        self._left = joined.slice(count)
        return joined.slice(0, count)

    def require(self, expected: pa.RecordBatch) -> None:
        """Require that the next rows are these."""
        made = pa.Table.from_batches([expected])
        taken = self.take(len(expected))
        if not taken.equals(made):
            raise self._differing(taken, made)

    def require_end(self) -> None:
        """Require that there are no rows left."""
        if len(self._left) or next(self._batches, None) is not None:
            raise self.wrong("has rows that do not follow from the entries")

    def wrong(self, text: str) -> DamagedLakeError:
        return DamagedLakeError(f"{self._path} {text}")

    def _differing(self, taken: pa.Table, made: pa.Table) -> DamagedLakeError:
        for name in made.column_names:
            if not taken[name].equals(made[name]):
                return self.differs(name, taken[name], made[name], made["stream_seq"])
        return self.wrong("does not follow from the entries")

    def differs(
        self, name: str, have: pa.ChunkedArray, want: pa.ChunkedArray, seqs: pa.ChunkedArray
    ) -> DamagedLakeError:
        """Return the error for a column, with the first row that is wrong."""
        pairs = zip(have.to_pylist(), want.to_pylist(), strict=True)
        nth = next((nth for nth, (one, other) in enumerate(pairs) if one != other), 0)
        return self.wrong(f"{name} does not follow from entry {seqs[nth].as_py()}")


def require_placed(rows: TableRows, records: pa.Table, entries: pa.RecordBatch) -> None:
    """Require that records say where entries stand, and who has sent them, as the entries do."""
    for name, source in PLACED.items():
        want = pa.chunked_array([entries.column(source)])
        if not records[name].equals(want):
            raise rows.differs(name, records[name], want, pa.chunked_array([entries.column("stream_seq")]))


def require_opened(rows: TableRows, records: pa.Table, opened: pa.RecordBatch, names: Sequence[str]) -> int:
    """Require that records say what opening their entries gives; returns how many could not be opened.

    What is sealed for somebody else than the reader who checks can not be compared.
    """
    made = pa.Table.from_batches([opened])
    closed = pc.fill_null(pc.equal(made["reason"], SEALED), fill_value=False)
    kept = pc.invert(closed)
    have, want = records.filter(kept), made.filter(kept)
    for name in names:
        if not have[name].equals(want[name]):
            if pc.any(pc.equal(have["reason"], SEALED)).as_py():
                nth = have["reason"].to_pylist().index(SEALED)
                seq = want["stream_seq"][nth].as_py()
                text = (
                    "is sealed in the lake, but this keyring opens it: ingested without the key, or changed"
                )
                raise rows.wrong(f"entry {seq} {text}")
            raise rows.differs(name, have[name], want[name], want["stream_seq"])
    return len(made) - len(want)
