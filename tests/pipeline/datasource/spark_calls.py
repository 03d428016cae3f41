"""Reading through the source without Spark, by the calls that Spark makes; and by the plain reader."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from tests.hub.hub_process import HubProcess, veen
from veen.core.data_dir.paths import Domain
from veen.core.objects.entry import entry_hash
from veen.pipeline.datasource.datasource import VeenSource
from veen.pipeline.datasource.stream_reader import VeenStreamReader
from veen.storage import Reader, RealFilesystem

Row = dict[str, Any]


def source(place: str | Path, **options: object) -> VeenSource:
    """Return the source with options, as Spark makes it."""
    return VeenSource(CaseInsensitiveDict({"path": str(place), **{k: str(v) for k, v in options.items()}}))


def reader_of(place: str | Path, **options: object) -> DataSourceReader:
    made = source(place, **options)
    return made.reader(made.schema())


def read(place: str | Path, **options: object) -> list[Row]:
    """Return the rows of a batch, by label and number."""
    reader = reader_of(place, **options)
    return in_order(row for part in reader.partitions() for row in rows_of(reader.read(part)))


def rows_of(batches: Iterator[Any]) -> Iterator[Row]:
    for batch in batches:
        assert isinstance(batch, pa.RecordBatch)
        batch.validate(full=True)
        yield from batch.to_pylist()


def in_order(rows: Iterator[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["label"], row["stream_seq"]))


def plain(root: Path) -> list[Row]:
    """Return what the reader of the storage engine says of all entries, decoded by core."""
    with closing(RealFilesystem(root)) as fs, closing(Reader.open(fs)) as reader:
        return list(_plain(reader))


def _plain(reader: Reader) -> Iterator[Row]:
    for label in sorted(reader.labels()):
        if reader.domain_of(label) is not Domain.DATA:
            continue
        known, bound = reader.manifest(label), reader.binding(label)
        for place in reader.entries(label, known.first_seq, known.head.seq):
            msg, receipt = place.entry.msg(), place.entry.receipt
            yield {
                "label": label,
                "stream_seq": receipt.stream_seq,
                "stream_id": bound.stream_id if bound else None,
                "epoch": bound.epoch if bound else None,
                **{name: getattr(receipt, name) for name in ("hub_ts", "leaf_hash", "mmr_root", "hub_sig")},
                **{name: getattr(msg, name) for name in MSG_FIELDS},
                "entry_hash": entry_hash(place.frame.msg_bytes, place.frame.receipt_bytes),
                "offset": place.offset,
            }


MSG_FIELDS = ("profile_id", "client_id", "client_seq", "prev_ack", "auth_ref", "ct_hash", "ciphertext", "sig")


@contextmanager
def everywhere(root: Path) -> Iterator[dict[str, str]]:
    """Have the log of a directory in every place that a log can be in: exported beside it, and at a hub."""
    exported = root.with_name(f"{root.name}-set")
    done = veen("export", "--hub", root, "--all", "--out", exported)
    assert done.returncode == 0, done.stderr
    with HubProcess(root) as running:
        yield {"directory": str(root), "set": str(exported), "hub": running.url}


def keys_of(rows: Sequence[Row]) -> list[tuple[bytes, int]]:
    return [(row["label"], row["stream_seq"]) for row in rows]


def those(rows: list[Row], since: int | None, until: int | None) -> list[tuple[bytes, int]]:
    """Return the entries of a time, in milliseconds: what the options are to leave."""
    return keys_of(
        [
            row
            for row in rows
            if (since is None or row["hub_ts"] * 1000 >= since)
            and (until is None or row["hub_ts"] * 1000 < until)
        ]
    )


def asked(since: int | None, until: int | None) -> dict[str, object]:
    said = {"startingTimestamp": since, "endingTimestamp": until}
    return {name: value for name, value in said.items() if value is not None}


def seqs(rows: list[Row]) -> list[int]:
    return [row["stream_seq"] for row in rows]


class Stream:
    """A streaming query: the calls that Spark's engine makes, one batch at a time.

    Between them the log is let go, so that the test can write it in the same process.
    """

    def __init__(self, place: str | Path, **options: object) -> None:
        self._place, self._options = place, options
        #: What Spark has in its checkpoint: the ends of batches. Where the first began is not among them.
        self.offsets: list[dict[str, Any]] = []
        self._initial: dict[str, Any] | None = None
        self._open: VeenStreamReader | None = None

    def _reader(self) -> VeenStreamReader:
        if self._open is None:
            made = source(self._place, **self._options)
            found = made.streamReader(made.schema())
            assert isinstance(found, VeenStreamReader)
            self._open = found
        return self._open

    def restart(self, **options: object) -> None:
        """End the query, as a kill does; the next call begins from the offsets."""
        self.stop()
        self._initial = None
        self._options |= options

    def stop(self) -> None:
        if self._open is not None:
            self._open.stop()
            self._open = None

    def take(self, limit: ReadLimit | None = None) -> list[Row]:
        """Run one trigger; an empty list if there is nothing new."""
        reader = self._reader()
        start = self.offsets[-1] if self.offsets else self._first()
        end = reader.latestOffset(start, limit or reader.getDefaultReadLimit())
        reader.stop()
        if end == start:
            return []
        self.offsets.append(end)
        return self.replay()

    def _first(self) -> dict[str, Any]:
        """Ask where to begin, once in each run of a query."""
        if self._initial is None:
            self._initial = self._reader().initialOffset()
        return self._initial

    def replay(self) -> list[Row]:
        """Read the last batch that was decided on; after a restart again."""
        reader = self._reader()
        start = self.offsets[-2] if len(self.offsets) > 1 else self._first()
        end = self.offsets[-1]
        found = in_order(row for part in reader.partitions(start, end) for row in rows_of(reader.read(part)))
        reader.stop()
        return found

    def take_all(self) -> list[Row]:
        """Run one trigger that takes whatever there is."""
        return self.take(ReadAllAvailable())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def runs_without_gaps(rows: Sequence[Row]) -> bool:
    """Tell whether entries of each label follow each other, each once."""
    by_label: dict[bytes, list[int]] = {}
    for row in rows:
        by_label.setdefault(row["label"], []).append(row["stream_seq"])
    return all(b == a + 1 for seqs in by_label.values() for a, b in pairwise(sorted(seqs)))
