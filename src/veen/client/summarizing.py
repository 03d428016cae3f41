"""Folding a stream on from where its summaries have come to.

They hold for the roots that they were made at: the log is asked for its receipts there, and if it has another
root, or an entry more in a label that was behind, everything is thrown away and made anew (OVR-003). Labels
that may get entries before others still are folded in memory only, behind those that are kept (OVR-012).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from veen.client.client import Client, ReadOptions
from veen.client.errors import ClientError, StateError
from veen.client.positions import fetch_receipt
from veen.client.reading import LATE_SEC, list_epochs
from veen.client.records import Reached, read_records
from veen.client.summaries import NotKeptError, SealedRows, SummaryFile
from veen.client.vault import Vault
from veen.core import cbor, labels
from veen.core.errors import CborError
from veen.core.hashing import ht
from veen.core.types import Label
from veen.overlays.events import Outcome, Record, Report
from veen.overlays.folding import Annotator, memory_of
from veen.overlays.overlay import Key, Overlay, Tables
from veen.overlays.tree.reading import Place, TreeReader
from veen.overlays.tree.rows import DamagedTreeError, LabelRow, MemoryRows, Rows
from veen.overlays.tree.writing import Meta, TreeWriter

#: Entries between two commits: what an interrupted fold loses.
_BATCH: Final = 20_000
#: Labels whose roots are compared at each use, the newest ones.
_MOST_COMPARED: Final = 256
#: The row with the reader keys that entries were opened with.
_KEYS_ROW: Final = b"k"
_NO_LIMIT: Final = 2**64


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be folded, how far, and from where on."""

    overlay: Overlay
    stream: str
    upto: int | None = None
    epoch: int | None = None
    since: int | None = None
    bridges: frozenset[bytes] = frozenset()
    code: bytes = b""


class Folded(NamedTuple):
    """What came of it; see ``Interpretation``."""

    tables: Tables
    counts: dict[str, int]
    reports: Sequence[Report]
    reached: list[Reached]
    provisional: bool
    notes: tuple[str, ...]


class Summarizing:
    """One fold of one stream."""

    def __init__(self, client: Client, asked: Asked, progress: Callable[[int], None] | None = None) -> None:
        self._client = client
        self._asked = asked
        self._progress = progress
        self._notes: list[str] = []
        client.meet()
        session = client.session
        self._epoch_sec = session.profiles[0].epoch_sec
        self._stream_id = labels.stream_id(asked.stream)
        self._epochs = self._list_epochs()
        last = self._epochs[-1] if self._epochs else 0
        #: What was asked for: no entry behind it is read.
        self._target: Place = (
            last if asked.epoch is None else asked.epoch,
            _NO_LIMIT if asked.upto is None else asked.upto,
        )
        self._since: Place | None = None if asked.since is None else (self._target[0], max(asked.since, 1))
        #: Labels before this epoch get no more entries.
        self._open_from = 0
        if self._epoch_sec:
            by_clock = (session.clock() - LATE_SEC) // self._epoch_sec
            self._open_from = max(by_clock, last - LATE_SEC // self._epoch_sec - 1, 0)

    def _list_epochs(self) -> list[int]:
        if not self._epoch_sec:
            return [self._asked.epoch or 0]
        return self._client.run(list_epochs(self._client.session, self._asked.stream, 0))

    # --- without what is kept -------------------------------------------------------------------------------

    def fresh(self) -> Folded:
        """Fold from the beginning, in memory."""
        if self._since is not None:  # what single entries have done is known to the tree
            rows = MemoryRows()
            self._grow(TreeWriter(rows, self._asked.overlay, self._asked.bridges), _NO_LIMIT)
            return self._served(rows)
        head = memory_of(self._asked.overlay)
        annotator = Annotator(self._asked.overlay, head, self._asked.bridges)
        counts: dict[str, int] = {}
        reports: list[Report] = []
        reached: dict[int, Reached] = {}
        for record, place in self._entries((0, 0), _NO_LIMIT):
            item = annotator.annotate(record)
            counts[item.outcome.value] = counts.get(item.outcome.value, 0) + 1
            reports += item.reports
            reached[place.epoch] = place
        found = list(reached.values())
        return Folded(head, counts, reports, found, self._provisional(found), tuple(self._notes))

    def _entries(self, behind: Place, before_epoch: int) -> Iterator[tuple[Record, Reached]]:
        """Yield the entries behind a place, up to the one that was asked for."""
        epoch, upto = self._target
        for each in self._epochs:
            if each < behind[0] or each > epoch or each >= before_epoch:
                continue
            start = behind[1] + 1 if each == behind[0] else 1
            last = upto if each == epoch and upto != _NO_LIMIT else None
            if last is not None and start > last:
                continue
            options = ReadOptions(from_seq=start, to_seq=last, epoch=each, looks_on=True)
            for found in read_records(self._client, self._asked.stream, options):
                yield found
                if self._progress is not None:
                    self._progress(1)

    def _provisional(self, reached: list[Reached]) -> bool:
        return bool(self._epoch_sec) and any(item.epoch > self._open_from for item in reached)

    # --- with what is kept ----------------------------------------------------------------------------------

    def kept(self) -> Folded:
        """Fold on from what is kept, and keep what can be."""
        try:
            file = SummaryFile(self._client.session.home.root, self._vault())
            return self._from_file(file)
        except NotKeptError as error:
            self._notes.append(f"summaries are not kept: {error}")
        except CborError as error:
            self._notes.append(f"summaries are not kept, one is too large: {error}")
        return self.fresh()

    def _vault(self) -> Vault:
        session, asked = self._client.session, self._asked
        assert session.pin is not None
        subject = [session.pin.identity.hub_id, self._stream_id, asked.overlay.identity, asked.code]
        purpose = cbor.encode(["summaries", *subject, sorted(asked.bridges)])
        return Vault(session.secrets, purpose, session.random)

    def _from_file(self, file: SummaryFile) -> Folded:
        for attempt in range(2):
            try:
                rows = self._grown(file)
                return self._served(rows, file)
            except DamagedTreeError as error:
                if attempt:
                    raise NotKeptError(str(error)) from None
                self._discard(file, str(error))
        raise AssertionError

    def _discard(self, file: SummaryFile, why: str) -> None:
        self._notes.append(f"{why}; they are made anew")
        with file.alone() as alone:
            if not alone:
                raise NotKeptError("another process is writing them")
            file.clear()

    def _grown(self, file: SummaryFile) -> Rows:
        """Return rows that reach as far as was asked for."""
        rows = file.snapshot()
        if self._holds(rows) and TreeReader(rows, self._asked.overlay).end >= self._target:
            return rows
        with file.alone() as alone:
            rows = file.snapshot()  # another may have written meanwhile
            holds = self._holds(rows)
            if not alone:
                self._notes.append("another process is writing summaries: this fold is not kept")
                return self._grown_in_memory(rows if holds else None)
            if not holds:
                if Meta.load(rows) is not None:
                    self._notes.append("summaries were of another log, or without keys that are here now")
                file.clear()
            self._write(file)
        rows = file.snapshot()
        return self._grown_in_memory(rows) if self._epoch_sec else rows

    def _write(self, file: SummaryFile) -> None:
        keys = self._keys_digest()
        with file.writing() as writing:
            if writing.rows.get(_KEYS_ROW) != keys:
                writing.rows.put(_KEYS_ROW, keys)
            writer = TreeWriter(writing.rows, self._asked.overlay, self._asked.bridges)
            self._grow(writer, self._open_from + 1 if self._epoch_sec else _NO_LIMIT, writing.commit)

    def _grow(self, writer: TreeWriter, before_epoch: int, commit: Callable[[], None] | None = None) -> None:
        """Add the entries that are missing, of labels before an epoch."""
        count = 0
        for count, (record, place) in enumerate(self._entries(writer.position, before_epoch), 1):
            writer.append(record, place.label, place.mmr_root)
            if commit is not None and count % _BATCH == 0:
                writer.flush()
                commit()
        if count:
            writer.flush()

    def _grown_in_memory(self, below: SealedRows | None) -> Rows:
        """Return the rows with what is not kept, over those that are."""
        rows = MemoryRows(below)
        self._grow(TreeWriter(rows, self._asked.overlay, self._asked.bridges), _NO_LIMIT)
        return rows

    # --- whether it still holds -----------------------------------------------------------------------------

    def _keys_digest(self) -> bytes:
        """Return what stands for the keys that open entries which came from elsewhere."""
        secrets = self._client.session.secrets
        shared = sorted(key.secret for key in secrets.streams if key.stream_id == self._stream_id)
        return ht("veen/summary-keys", secrets.id_dh + b"".join(shared))

    def _holds(self, rows: SealedRows) -> bool:
        """Return whether rows are of the log as it is, and whether we could read all that we can read now."""
        if Meta.load(rows) is None:
            return False
        tree = TreeReader(rows, self._asked.overlay)
        if rows.get(_KEYS_ROW) != self._keys_digest() and tree.tally(tree.end)[Outcome.UNREADABLE]:
            return False
        return self._same_labels(tree.labels())

    def _same_labels(self, kept: list[LabelRow]) -> bool:
        if not kept:
            return True
        *earlier, last = kept
        listed = [epoch for epoch in self._epochs if epoch < last.epoch]
        if self._epoch_sec and listed != [item.epoch for item in earlier]:
            return False  # a label has come up before others
        if any(self._root_at(item, item.upto_seq) != item.mmr_root for item in kept[-_MOST_COMPARED:]):
            return False
        window = 2 * LATE_SEC // (self._epoch_sec or 1) + 2
        recent = [item for item in earlier if item.epoch >= last.epoch - window]
        return all(self._root_at(item, item.upto_seq + 1) is None for item in recent)

    def _root_at(self, row: LabelRow, seq: int) -> bytes | None:
        receipt = self._client.run(fetch_receipt(self._client.session, Label(row.label), seq))
        return None if receipt is None else receipt.mmr_root

    # --- what comes of it -----------------------------------------------------------------------------------

    def _served(self, rows: Rows, file: SummaryFile | None = None) -> Folded:
        tree = TreeReader(rows, self._asked.overlay)
        upto = tree.clamp(self._target)
        tables: Tables = tree.tables(upto, self._since)
        if file is not None:
            tables = _Guarded(tables, self, file)
        counts = {outcome.value: count for outcome, count in tree.tally(upto, self._since).items() if count}
        reached = [Reached(item.epoch, Label(item.label), *item[2:]) for item in tree.labels(upto)]
        reports = tree.reports(upto, self._since)
        return Folded(tables, counts, reports, reached, self._provisional(reached), tuple(self._notes))

    def anew(self, file: SummaryFile, error: DamagedTreeError) -> Tables:
        """Return the same tables, folded again; what is kept was damaged."""
        with suppress(NotKeptError):  # if another writes them, that one will find out as well
            self._discard(file, str(error))
        try:
            return self.fresh().tables
        except ClientError:
            raise StateError("kept summaries were damaged, and have been removed: try again") from None


class _Guarded:
    """Tables that are folded again if rows of them turn out to be damaged."""

    def __init__(self, tables: Tables, work: Summarizing, file: SummaryFile) -> None:
        self._tables = tables
        self._work = work
        self._file = file

    def get(self, table: str, key: Key) -> Any:  # noqa: ANN401 - by the table
        """Return the summary of a key."""
        try:
            return self._tables.get(table, key)
        except DamagedTreeError as error:
            self._tables = self._work.anew(self._file, error)
            return self._tables.get(table, key)

    def items(self, table: str) -> list[tuple[Key, Any]]:
        """Return all keys of a table, sorted."""
        try:
            return list(self._tables.items(table))
        except DamagedTreeError as error:
            self._tables = self._work.anew(self._file, error)
            return list(self._tables.items(table))
