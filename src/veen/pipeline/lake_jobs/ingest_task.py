"""The work of an ingest task: a slice of a label, from bytes of the log to durable files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from veen.core.merkle.mmr import Peaks
from veen.core.objects.finding import Finding, Level, Location
from veen.core.profile import Profile
from veen.core.types import Label, StreamId
from veen.pipeline.lake import layout, tables
from veen.pipeline.lake.commits import FileFact
from veen.pipeline.lake.table_files import SliceFiles, Written
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.partition import Part
from veen.pipeline.open.decrypt import SEALED, open_entries
from veen.pipeline.open.keyring import ReaderKeys
from veen.pipeline.shared_keys import SharedKeys
from veen.pipeline.verify.kernel import check
from veen.pipeline.verify.task import read_entries


@dataclass(frozen=True, slots=True)
class Slice:
    """Entries ``first`` to ``last`` of a label, within one slice."""

    label: Label
    stream_id: StreamId | None
    epoch: int
    first: int
    last: int
    parts: tuple[Part, ...]
    # The peaks before the first entry: known, or as the log states.
    peaks: Peaks | None

    @property
    def nbytes(self) -> int:
        """The estimated bytes to read."""
        return sum(part.nbytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class SliceSettings:
    """The common settings of a run's tasks."""

    root: str
    keys: HubKeys
    profiles: tuple[Profile, ...]
    shared: SharedKeys | None

    def reader_keys(self) -> ReaderKeys:
        """Return the decryption keys. Called in a task, which drops them when it ends."""
        return ReaderKeys({}, ()) if self.shared is None else self.shared.open()


@dataclass(frozen=True, slots=True)
class SliceResult:
    """The result of a slice: its files, or its fault."""

    label: Label
    first: int
    last: int
    files: tuple[FileFact, ...] = ()
    peaks: Peaks | None = None
    # Entries that no key could open.
    sealed: int = 0
    trouble: Finding | None = None
    # Why files could not be written.
    failure: str | None = None


def count_sealed(records: pa.RecordBatch) -> int:
    """Return the number of records of entries that no key could open."""
    return pc.sum(pc.equal(records.column("reason"), SEALED)).as_py() or 0


def take_in(slices: Iterable[Slice], setting: SliceSettings) -> Iterator[SliceResult]:
    """Check, decrypt and write slices."""
    keys = setting.reader_keys()
    for item in slices:
        yield _SliceJob(item, setting, keys).run()


class _SliceJob:
    """The ingest of one slice."""

    def __init__(self, item: Slice, setting: SliceSettings, keys: ReaderKeys) -> None:
        self._item = item
        self._setting = setting
        self._keys = keys
        self._peaks = item.peaks
        self._times: list[int] = []
        self._sealed = 0
        self._out = SliceFiles(Path(setting.root), self._name, tables.columns_by_table())

    def _name(self, table: str) -> str:
        return layout.table_file(table, self._item.label, self._item.first, self._item.last)

    def run(self) -> SliceResult:
        """Ingest all parts, or none."""
        item = self._item
        try:
            for part in item.parts:
                trouble = self._add(part)
                if trouble is not None:
                    return SliceResult(item.label, item.first, item.last, trouble=trouble)
            written = self._out.finish()
        except OSError as error:
            return SliceResult(item.label, item.first, item.last, failure=str(error))
        finally:
            self._out.discard()
        files = tuple(self._facts(written))
        return SliceResult(item.label, item.first, item.last, files, self._peaks, self._sealed)

    def _add(self, part: Part) -> Finding | None:
        entries, bad = read_entries(part)
        if entries is None or bad is not None:
            return bad
        checked = check(entries, Level.FULL, keys=self._setting.keys, peaks=self._peaks)
        for fault in checked.faults:
            at = entries.offset(fault.seq - part.first_seq)
            return Finding(Location(entries.file, at, part.label, seq=fault.seq), fault.detail, fault.text)
        self._peaks = checked.peaks
        self._times += [checked.first_ts, checked.last_ts]
        item = self._item
        self._out.add(layout.ENTRIES, tables.bronze(entries, item.stream_id, item.epoch))
        records = open_entries(entries, self._keys, self._setting.profiles, item.stream_id, item.epoch)
        self._sealed += count_sealed(records)
        self._out.add(layout.RECORDS, records)
        for table, batch in tables.typed(records):
            self._out.add(table, batch)
        return None

    def _facts(self, written: dict[str, Written]) -> Iterator[FileFact]:
        item = self._item
        for table, file in written.items():
            yield FileFact(
                file.path,
                table,
                item.label.hex(),
                item.first,
                item.last,
                self._times[0],
                self._times[-1],
                file.rows,
                file.size,
                file.sha256,
            )
