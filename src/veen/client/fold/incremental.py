"""Incremental folds: continue from the cached summaries of a stream.

Summaries are valid for the roots at which they were computed: the receipts there are fetched from the log,
and if a root differs, or an earlier label has another entry, all of them are discarded and rebuilt (OVR-003).
Labels that may still get entries before those of later ones are folded in memory only, on top of the cached
labels (OVR-012).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from veen.client.errors import ClientError, ClientStateError, SummaryCacheError
from veen.client.fold.summary_cache import SealedRows, SummaryFile
from veen.client.keys.row_vault import Vault
from veen.client.models import Message
from veen.client.read import LATE_SEC, ReadOptions, list_epochs, read_stream
from veen.client.session import Driver
from veen.client.verify.label import fetch_receipt
from veen.core.crypto.hash import tagged_hash
from veen.core.encoding import cbor
from veen.core.errors import CborError
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels
from veen.core.types import Label
from veen.overlays.engine import Annotator, memory_of
from veen.overlays.errors import DamagedTreeError
from veen.overlays.event import Outcome, Record, Report
from veen.overlays.overlay import Overlay, Tables
from veen.overlays.summary_tree.reader import Place, TreeReader
from veen.overlays.summary_tree.rows import META, LabelRow, MemoryRows, Rows, decoded
from veen.overlays.summary_tree.writer import Meta, TreeWriter


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a label was read for a state."""

    epoch: int
    label: Label
    upto_seq: int
    mmr_root: bytes


def record_of(message: Message) -> Record:
    """Return the fields of an entry that a fold may depend on (C-105)."""
    msg, receipt, header = message.msg, message.receipt, message.header
    return Record(
        stream_seq=receipt.stream_seq,
        msg_id=receipt.leaf_hash,
        client_id=msg.client_id,
        client_seq=msg.client_seq,
        hub_ts=receipt.hub_ts,
        schema=None if header is None else header.schema,
        body=message.raw_body(),
        epoch=message.epoch,
        parent_id=None if header is None else header.parent_id,
        auth_ref=msg.auth_ref,
        cap_ref=None if header is None else header.cap_ref,
        expires_at=None if header is None else header.expires_at,
    )


def stream_epochs(client: Driver, stream: str) -> list[int]:
    """Return the epochs in which a stream has entries; only 0 where labels do not rotate."""
    session = client.session
    return client.run(list_epochs(session, stream, 0)) if session.profiles[0].epoch_sec else [0]


def read_records(client: Driver, stream: str, options: ReadOptions) -> Iterator[tuple[Record, Reached]]:
    """Yield the entries of a stream as folds see them, with the position and root of each."""
    for message in read_stream(client, stream, options):
        receipt = message.receipt
        yield (
            record_of(message),
            Reached(message.epoch, receipt.label, receipt.stream_seq, receipt.mmr_root),
        )


# Entries between two commits: at most what an interrupted fold loses.
_BATCH: Final = 5_000
# The newest labels, whose roots are compared at each use.
_MAX_COMPARED_LABELS: Final = 256
# Rows with a digest of the reader keys that opened the entries, and of the code that folded them.
_KEYS_ROW, _CODE_ROW = b"k", b"o"
# The row with the peaks of the last label.
_PEAKS_ROW: Final = b"p"
_NO_LIMIT: Final = 2**64


@dataclass(frozen=True, slots=True)
class FoldRequest:
    """What to fold; see ``interpret``."""

    overlay: Overlay
    stream: str
    upto: int | None = None
    epoch: int | None = None
    since: int | None = None
    bridges: frozenset[bytes] = frozenset()
    code: bytes = b""


class Folded(NamedTuple):
    """The outcome of a fold; see ``FoldedState``."""

    tables: Tables
    counts: dict[str, int]
    reports: Sequence[Report]
    reached: list[Reached]
    provisional: bool
    notes: tuple[str, ...]


class IncrementalFold:
    """One fold of one stream."""

    def __init__(
        self, client: Driver, request: FoldRequest, progress: Callable[[int], None] | None = None
    ) -> None:
        self._client = client
        self._request = request
        self._progress = progress
        self._notes: list[str] = []
        session = client.session
        client.run(session.connect())
        self._epoch_sec = session.profiles[0].epoch_sec
        self._stream_id = labels.stream_id(request.stream)
        self._epochs = stream_epochs(client, request.stream)
        last = self._epochs[-1] if self._epochs else 0
        # The requested position: no entry after it is read.
        self._target: Place = (
            last if request.epoch is None else request.epoch,
            _NO_LIMIT if request.upto is None else request.upto,
        )
        self._since: Place | None = (
            None if request.since is None else (self._target[0], max(request.since, 1))
        )
        # Labels before this epoch get no more entries.
        self._open_from = 0
        if self._epoch_sec:
            by_clock = (session.clock() - LATE_SEC) // self._epoch_sec
            self._open_from = max(by_clock, last - LATE_SEC // self._epoch_sec - 1, 0)

    # --- without the cache ----------------------------------------------------------------------------------

    def fresh(self) -> Folded:
        """Fold from the beginning, in memory."""
        if self._since is not None:  # only the tree knows the effect of a range of entries
            rows = MemoryRows()
            self._grow(rows, _NO_LIMIT)
            return self._served(rows)
        head = memory_of(self._request.overlay)
        annotator = Annotator(self._request.overlay, head, self._stream_id, self._request.bridges)
        counts: dict[str, int] = {}
        reports: list[Report] = []
        reached: dict[int, Reached] = {}
        for record, position in self._entries((0, 0), _NO_LIMIT):
            item = annotator.annotate(record)
            counts[item.outcome.value] = counts.get(item.outcome.value, 0) + 1
            reports += item.reports
            reached[position.epoch] = position
        all_reached = list(reached.values())
        return Folded(head, counts, reports, all_reached, self._provisional(all_reached), tuple(self._notes))

    def _entries(self, behind: Place, before_epoch: int) -> Iterator[tuple[Record, Reached]]:
        """Yield the entries after a position, up to the requested one."""
        last_epoch, upto = self._target
        for epoch in self._epochs:
            if epoch < behind[0] or epoch > last_epoch or epoch >= before_epoch:
                continue
            start = behind[1] + 1 if epoch == behind[0] else 1
            last = upto if epoch == last_epoch and upto != _NO_LIMIT else None
            if last is not None and start > last:
                continue
            options = ReadOptions(start=start, stop=last, epoch=epoch, peek=True)
            for entry in read_records(self._client, self._request.stream, options):
                yield entry
                if self._progress is not None:
                    self._progress(1)

    def _provisional(self, reached: list[Reached]) -> bool:
        return bool(self._epoch_sec) and any(item.epoch > self._open_from for item in reached)

    # --- with the cache -------------------------------------------------------------------------------------

    def cached(self) -> Folded:
        """Continue from the cached summaries, and cache new ones."""
        try:
            file = SummaryFile(self._client.session.home.root, self.vault())
            return self._from_file(file)
        except SummaryCacheError as error:
            self._notes.append(f"summaries are not cached: {error}")
        except CborError as error:
            self._notes.append(f"summaries are not cached, because one cannot be encoded: {error}")
        return self.fresh()

    def vault(self) -> Vault:
        """Return the vault that seals the rows of this fold; rows of another fold cannot be decrypted."""
        session, request = self._client.session, self._request
        assert session.pin is not None
        subject = [session.pin.identity.hub_id, self._stream_id, request.overlay.identity]
        purpose = cbor.encode(["summaries", *subject, sorted(request.bridges)])
        return Vault(session.secrets, purpose, session.random)

    def _from_file(self, file: SummaryFile) -> Folded:
        for attempt in range(2):
            try:
                rows = self._grown(file)
                return self._served(rows, file)
            except DamagedTreeError as error:
                if attempt:
                    raise SummaryCacheError(str(error)) from None
                self._discard(file, str(error))
        raise AssertionError

    def _discard(self, file: SummaryFile, why: str) -> None:
        self._notes.append(f"{why}; they are rebuilt")
        with file.alone() as alone:
            if not alone:
                raise SummaryCacheError("another process is writing them")
            file.clear()

    def _grown(self, file: SummaryFile) -> Rows:
        """Return rows that reach the requested position."""
        rows = file.snapshot()
        holds = self._is_valid(rows)
        if holds and TreeReader(rows, self._request.overlay).end >= self._target:
            return rows
        with file.alone() as alone:
            newer = file.snapshot()
            if newer.get(META) != rows.get(META):  # another process has written meanwhile
                rows, holds = newer, self._is_valid(newer)
            if not alone:
                self._notes.append("another process is writing summaries: this fold is not cached")
                return self._grown_in_memory(rows if holds else None)
            if not holds:
                if Meta.load(rows) is not None:
                    self._notes.append(
                        "the cached summaries were of another log, of other code, or of other keys"
                    )
                file.clear()
            self._write(file)
        rows = file.snapshot()
        return self._grown_in_memory(rows) if self._epoch_sec else rows

    def _write(self, file: SummaryFile) -> None:
        with file.writing() as writing:
            for row, value in ((_KEYS_ROW, self._keys_digest()), (_CODE_ROW, self._request.code)):
                if writing.rows.get(row) != value:
                    writing.rows.put(row, value)
            self._grow(writing.rows, self._open_from + 1 if self._epoch_sec else _NO_LIMIT, writing.commit)

    def _grow(self, rows: Rows, before_epoch: int, commit: Callable[[], None] | None = None) -> None:
        """Fold the missing entries, of labels before an epoch."""
        writer = TreeWriter(rows, self._request.overlay, self._stream_id, self._request.bridges)
        count = 0
        leaves = _Leaves(rows, writer.position)
        for count, (record, position) in enumerate(self._entries(writer.position, before_epoch), 1):
            leaves.append(record, position)
            writer.append(record, position.label, position.mmr_root)
            if commit is not None and count % _BATCH == 0:
                leaves.check()
                writer.flush()
                commit()
        if count:
            leaves.check()
            writer.flush()

    def _grown_in_memory(self, below: SealedRows | None) -> Rows:
        """Fold the missing entries in memory, on top of the cached rows."""
        rows = MemoryRows(below)
        self._grow(rows, _NO_LIMIT)
        return rows

    # --- validity of the cache ------------------------------------------------------------------------------

    def _keys_digest(self) -> bytes:
        """Return a digest of the keys that open the entries of others."""
        secrets = self._client.session.secrets
        shared = sorted(key.secret for key in secrets.streams if key.stream_id == self._stream_id)
        return tagged_hash("veen/summary-keys", secrets.id_dh + b"".join(shared))

    def _is_valid(self, rows: SealedRows) -> bool:
        """Return whether rows match the log and the code, and no key was added that could open more."""
        if Meta.load(rows) is None or rows.get(_CODE_ROW) != self._request.code:
            return False
        tree = TreeReader(rows, self._request.overlay)
        if rows.get(_KEYS_ROW) != self._keys_digest() and tree.tally(tree.end)[Outcome.UNREADABLE]:
            return False
        return self._same_labels(tree.labels())

    def _same_labels(self, cached: list[LabelRow]) -> bool:
        if not cached:
            return True
        *earlier, last = cached
        listed = [epoch for epoch in self._epochs if epoch < last.epoch]
        if self._epoch_sec and listed != [item.epoch for item in earlier]:
            return False  # a label has appeared before others
        if any(
            self._root_at(item, item.upto_seq) != item.mmr_root for item in cached[-_MAX_COMPARED_LABELS:]
        ):
            return False
        window = 2 * LATE_SEC // (self._epoch_sec or 1) + 2
        recent = [item for item in earlier if item.epoch >= last.epoch - window]
        return all(self._root_at(item, item.upto_seq + 1) is None for item in recent)

    def _root_at(self, row: LabelRow, seq: int) -> bytes | None:
        receipt = self._client.run(fetch_receipt(self._client.session, Label(row.label), seq))
        return None if receipt is None else receipt.mmr_root

    # --- results --------------------------------------------------------------------------------------------

    def _served(self, rows: Rows, file: SummaryFile | None = None) -> Folded:
        upto = TreeReader(rows, self._request.overlay).clamp(self._target)
        if file is not None:
            rows = _GuardedRows(rows, lambda error: self._rebuild_in_memory(file, error, upto))
        tree = TreeReader(rows, self._request.overlay)
        counts = {outcome.value: count for outcome, count in tree.tally(upto, self._since).items() if count}
        reached = [Reached(item.epoch, Label(item.label), *item[2:]) for item in tree.labels(upto)]
        return Folded(
            tree.tables(upto, self._since),
            counts,
            tree.reports(upto, self._since),
            reached,
            self._provisional(reached),
            tuple(self._notes),
        )

    def _rebuild_in_memory(self, file: SummaryFile, error: DamagedTreeError, upto: Place) -> Rows:
        """Rebuild damaged rows from the log, in memory."""
        with suppress(SummaryCacheError):  # another process that writes them will detect the damage too
            self._discard(file, str(error))
        rows = MemoryRows(name=file.name)
        self._target = upto
        try:
            self._grow(rows, _NO_LIMIT)
        except ClientError:
            raise ClientStateError("the cached summaries were damaged and are removed; fold again") from None
        return rows


class _Leaves:
    """The peaks of the entries that were folded, to check that they add up to the root that is stored.

    A hub may serve one request from one log and the next from another; the reader checks each on its own.
    """

    def __init__(self, rows: Rows, position: Place) -> None:
        self._rows = rows
        self._epoch = position[0]
        self._peaks = Peaks.empty()
        data = rows.get(_PEAKS_ROW)
        if data is not None:
            size, hashes = decoded(data)
            self._peaks = Peaks(size, tuple(hashes))
        self._last: Reached | None = None

    def append(self, record: Record, position: Reached) -> None:
        """Append the next entry."""
        if position.epoch != self._epoch:
            self.check()
            self._epoch, self._peaks = position.epoch, Peaks.empty()
        self._peaks = self._peaks.append(record.msg_id)
        self._last = position

    def check(self) -> None:
        """Check that the entries give the root, and store the peaks to continue from."""
        if self._last is not None and self._peaks.root != self._last.mmr_root:
            raise DamagedTreeError("the cached summaries do not match the log")
        self._rows.put(_PEAKS_ROW, cbor.encode([self._peaks.size, self._peaks.hashes]))


class _GuardedRows:
    """Rows that are rebuilt if some turn out to be damaged."""

    def __init__(self, rows: Rows, rebuild: Callable[[DamagedTreeError], Rows]) -> None:
        self._rows = rows
        self._rebuild_in_memory = rebuild
        self.name = rows.name

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        return self._guarded(lambda rows: rows.get(key))

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""
        self._rows.put(key, value)

    def seek(self, key: bytes) -> bytes | None:
        """Return the key of the first row at or after a key."""
        return self._guarded(lambda rows: rows.seek(key))

    def seek_back(self, key: bytes) -> bytes | None:
        """Return the key of the last row at or before a key."""
        return self._guarded(lambda rows: rows.seek_back(key))

    def _guarded(self, ask: Callable[[Rows], bytes | None]) -> bytes | None:
        try:
            return ask(self._rows)
        except DamagedTreeError as error:
            self._rows = self._rebuild_in_memory(error)
            return ask(self._rows)
