"""The work of a task: read its parts, check them, and return batches to Spark."""

import gc
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from veen.core.errors import Detail, PrunedError
from veen.core.merkle.mmr import Peaks
from veen.pipeline.datasource.columns import EntryRange, batch
from veen.pipeline.datasource.options import Mode, Options, Times
from veen.pipeline.datasource.plan import Group, Piece, open_source
from veen.pipeline.errors import DataLossError, InvalidEntryError, Loss, LossVerdict
from veen.pipeline.log.entry_columns import Entries, parse
from veen.pipeline.verify.kernel import EntryFault, check
from veen.stdx.grammar import counted

_log = logging.getLogger(__name__)
# Rows of a batch: more are not faster, fewer are slower.
BATCH_ROWS: Final = 16_384


def read_group(group: Group, options: Options, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the entries of a group, in order."""
    _set_aside()
    peaks: Peaks | None = None
    before: Piece | None = None
    for planned in group.pieces:
        for piece, entries in _read(planned, options):
            carried = peaks if before is not None and _follows(before, piece) else None
            faults, peaks = _check(piece, entries, group, options, carried)
            before = piece
            yield from _batches(piece, entries, faults, options, schema)


@cache
def _set_aside() -> None:
    """Exclude loaded modules from garbage collection, which Spark's workers run after each task."""
    gc.collect()
    gc.freeze()


def _follows(before: Piece, piece: Piece) -> bool:
    return (before.part.label, before.part.last_seq + 1) == (piece.part.label, piece.part.first_seq)


def _read(piece: Piece, options: Options) -> Iterator[tuple[Piece, Entries]]:
    """Yield the entries of a part; entries pruned since it was planned are a loss."""
    part = piece.part
    try:
        entries = parse(part.read())
    except PrunedError:
        loss = Loss(
            LossVerdict.PRUNED,
            part.label,
            part.first_seq,
            part.last_seq,
            "some were pruned since the query was planned",
        )
        if options.fail_on_data_loss:
            raise DataLossError([loss]) from None
        _log.warning("%s", loss)
        yield from _read_what_is_left(piece, options)
        return
    if len(entries) != part.count:
        seq = part.first_seq + min(len(entries), part.count)
        text = f"{counted(len(entries), 'entry')} instead of {part.count}"
        raise entries.frames.refused(seq, 0, Detail.ENTRY_LENGTH.value, text)
    yield piece, entries


def _read_what_is_left(piece: Piece, options: Options) -> Iterator[tuple[Piece, Entries]]:
    part = piece.part
    log = open_source(options)
    try:
        parts = log.plan({part.label: (part.first_seq, part.last_seq)})
    finally:
        log.close()
    for one in parts:
        last = one.last_seq == part.last_seq
        yield replace(piece, part=one, next_peaks=piece.next_peaks if last else None), parse(one.read())


def _check(
    piece: Piece, entries: Entries, group: Group, options: Options, carried: Peaks | None
) -> tuple[dict[int, str], Peaks | None]:
    """Return the faults by entry and the peaks after the part; with FAILFAST raise the first fault."""
    checked = check(entries, options.verify.level, keys=group.keys, peaks=carried or piece.part.peaks)
    outside = _time_faults(entries, options.times)
    links = _link_faults(piece, checked.peaks, carried)
    faults = {fault.seq: fault for fault in [*outside, *links, *checked.faults]}
    if faults and options.mode is Mode.FAILFAST:
        raise _refusal(entries, faults[min(faults)])
    return {seq: f"{fault.detail}: {fault.text}" for seq, fault in faults.items()}, checked.peaks


def _time_faults(entries: Entries, times: Times) -> Iterator[EntryFault]:
    """Yield entries outside the requested times that lie between entries within them."""
    early = entries.hub_ts < (times.since or 0)
    late = np.full_like(early, fill_value=False) if times.until is None else entries.hub_ts >= times.until
    for nth in np.flatnonzero(early | late).tolist():
        text = f"hub_ts {entries.hub_ts[nth]} is not of the time asked for, as it is in entries around it"
        yield EntryFault(int(entries.stream_seq[nth]), Detail.VALUE.value, text)


def _link_faults(piece: Piece, after: Peaks | None, carried: Peaks | None) -> Iterator[EntryFault]:
    """Yield the places where the peaks stated for parts do not follow from each other."""
    if piece.suspect is not None and carried is None:
        yield EntryFault(piece.part.first_seq, Detail.PROOF_PEAKS.value, piece.suspect)
    if None not in (after, piece.next_peaks) and after != piece.next_peaks:
        text = "the peaks stated after it are not those of the entries up to it"
        yield EntryFault(piece.part.last_seq, Detail.PROOF_PEAKS.value, text)


def _refusal(entries: Entries, fault: EntryFault) -> InvalidEntryError:
    at = int(entries.starts[fault.seq - entries.frames.first_seq])
    return entries.frames.refused(fault.seq, at, fault.detail, fault.text)


def _batches(
    piece: Piece, entries: Entries, faults: dict[int, str], options: Options, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    count = len(entries)
    for low in range(0, count, BATCH_ROWS):
        high = min(low + BATCH_ROWS, count)
        rows = EntryRange(entries, low, high, piece.stream_id, piece.epoch, options.verify.value, faults)
        yield batch(rows, schema)
