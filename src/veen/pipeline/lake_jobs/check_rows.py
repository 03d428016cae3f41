"""Compare the tables of a lake, row by row, with their sources; and the keys that sign its entries."""

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
from veen.stdx.grammar import counted
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
    """Known facts about the hub; none if neither lake nor log contain them."""

    keys: HubKeys | None = None
    profiles: tuple[Profile, ...] = ()

    def require_bound(self, fact: LabelFact) -> None:
        """Require that a label follows from its stream and epoch."""
        stream = fact.stream
        if stream is None or self.keys is None:
            return
        label = Label(bytes.fromhex(fact.label))
        if naming.label(self.keys.identity_of(label).routing_key, stream, fact.epoch) != label:
            text = f"label {fact.label} is not the one of stream {fact.stream_id} in epoch {fact.epoch}"
            raise DamagedLakeError(text)


def known_of(root: Path, state: State, log: "Log | None") -> KnownHub:
    """Return the lake's facts about its hub, which must be signed, and equal to those of the log."""
    stored = _kept(root, state)
    if log is None:
        return stored
    if stored.keys is None:
        return KnownHub(log.keys, tuple(log.profiles))
    listed = {key.hub_pk for key in log.keys.identity.hub_keys}
    for key in stored.keys.identity.hub_keys:
        if key.hub_pk not in listed:
            raise DamagedLakeError(
                f"the lake has a key of the hub that the log does not have: {key.key_id.hex()}"
            )
    return stored


def _kept(root: Path, state: State) -> KnownHub:
    """Read the stored identity, as from a data directory; it must be signed by its first key."""
    if f"{hub_files.FILES}/{hub_settings.IDENTITY}" not in state.hub:
        return KnownHub()
    with TemporaryDirectory(prefix="veen-check-") as place:
        _write_files(root, state, Path(place))
        with closing(RealFilesystem(Path(place))) as fs:
            try:
                identity = read_identity(fs)
                assert identity is not None
                keys = _keys(fs, identity[0], state)
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
    findings = Findings()
    loaded = load_keys(Source(fs, None), identity.hub_id, (), Level.FULL, findings)
    if findings.total:
        raise _unreliable(str(findings.kept[0]))
    copied = {}
    for label in loaded.copied:
        signers = loaded.signers_of(label)
        if signers is None or signers.identity is None:
            raise _unreliable(f"the signers of {label.hex()} are not known")
        copied[label] = signers.identity
    return HubKeys(identity, copied)


def _unreliable(text: str) -> DamagedLakeError:
    return DamagedLakeError(f"the hub's keys in the lake cannot be trusted: {text}")


# Columns of records that come from message and receipt, with their names in the bronze table.
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
    """The rows of a file, read in chunks of any size."""

    def __init__(self, path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._path = path
        self._schema = schema
        self._batches = batches
        self._left = schema.empty_table()

    def take(self, count: int) -> pa.Table:
        """Return the next ``count`` rows; raise if there are fewer."""
        chunks = [self._left]
        have = len(self._left)
        while have < count:
            batch = next(self._batches, None)
            if batch is None:
                raise self.wrong(
                    f"ends too early: {counted(count - have, 'row')} missing that the entries require"
                )
            chunks.append(pa.Table.from_batches([batch]))
            have += len(batch)
        joined = pa.concat_tables(chunks)
        self._left = joined.slice(count)
        return joined.slice(0, count)

    def require(self, expected: pa.RecordBatch) -> None:
        """Require that the next rows equal ``expected``."""
        expected_rows = pa.Table.from_batches([expected])
        rows = self.take(len(expected))
        if not rows.equals(expected_rows):
            raise self._differing(rows, expected_rows)

    def require_end(self) -> None:
        """Require that no rows remain."""
        if len(self._left) or next(self._batches, None) is not None:
            raise self.wrong("has rows that do not follow from the entries")

    def wrong(self, text: str) -> DamagedLakeError:
        return DamagedLakeError(f"{self._path} {text}")

    def _differing(self, rows: pa.Table, expected: pa.Table) -> DamagedLakeError:
        for name in expected.column_names:
            if not rows[name].equals(expected[name]):
                return self.differs(name, rows[name], expected[name], expected["stream_seq"])
        return self.wrong("does not follow from the entries")

    def differs(
        self, name: str, have: pa.ChunkedArray, want: pa.ChunkedArray, seqs: pa.ChunkedArray
    ) -> DamagedLakeError:
        """Return the error for a column, with the first row that differs."""
        pairs = zip(have.to_pylist(), want.to_pylist(), strict=True)
        nth = next((nth for nth, (one, other) in enumerate(pairs) if one != other), 0)
        return self.wrong(f"{name} does not follow from entry {seqs[nth].as_py()}")


def require_placed(rows: TableRows, records: pa.Table, entries: pa.RecordBatch) -> None:
    """Require that records have the positions and senders of the entries."""
    for name, source in PLACED.items():
        want = pa.chunked_array([entries.column(source)])
        if not records[name].equals(want):
            raise rows.differs(name, records[name], want, pa.chunked_array([entries.column("stream_seq")]))


def require_opened(rows: TableRows, records: pa.Table, opened: pa.RecordBatch, names: Sequence[str]) -> int:
    """Require that records equal the decrypted entries; return the number that could not be opened.

    Entries sealed for other readers cannot be compared.
    """
    expected = pa.Table.from_batches([opened])
    closed = pc.fill_null(pc.equal(expected["reason"], SEALED), fill_value=False)
    readable = pc.invert(closed)
    have, want = records.filter(readable), expected.filter(readable)
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
    return len(expected) - len(want)
