"""From entries to Spark's partitions: how they are grouped, and what is stated of each for checking roots."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql.datasource import InputPartition

from veen.core.mmr import Peaks
from veen.core.types import Label, StreamId
from veen.pipeline.frames import parse
from veen.pipeline.kernel import Level
from veen.pipeline.logs import LabelHead, Log, PlaceError
from veen.pipeline.parts import Part
from veen.pipeline.signers import HubKeys
from veen.pipeline.source.looking import roots_at
from veen.pipeline.source.options import Options

#: A partition has about so much at most.
MOST_BYTES: Final = 64 << 20
#: Less than this is not worth a task of its own, if nobody asks for it.
_LEAST_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Piece:
    """A part to read, and what is known of it on the driver."""

    part: Part
    stream_id: StreamId | None
    epoch: int | None
    #: The peaks stated for the part behind it, which its own must come to.
    next_peaks: Peaks | None = None
    #: What is wrong with the peaks that are stated for it.
    suspect: str | None = None


class Group(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece], keys: HubKeys | None = None) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)
        self.keys = keys


def plan_groups(
    log: Log,
    heads: Mapping[Label, LabelHead],
    ranges: Mapping[Label, tuple[int, int]],
    options: Options,
    parallelism: int,
) -> list[Group]:
    """Return what tasks are to read: each entry of the ranges once."""
    level = options.verify.level
    target = options.min_partitions or parallelism * (2 if level >= Level.FULL else 1)
    parts = log.plan(ranges, parts=target) if ranges else []
    if level >= Level.ROOTS:
        pieces = _stated(log, heads, _with_peaks(log, parts))
    else:
        pieces = [Piece(part, None, None) for part in parts]
    named = [_named(piece, heads[piece.part.label]) for piece in pieces]
    least = 1 if options.min_partitions else _LEAST_BYTES
    keys = log.keys if level >= Level.FULL else None
    return [Group(one, keys) for one in grouped(named, target, least)]


def _named(piece: Piece, head: LabelHead) -> Piece:
    known = head.stream_id is not None
    return replace(piece, stream_id=head.stream_id, epoch=head.epoch if known else None)


def grouped(pieces: Sequence[Piece], target: int, least: int) -> Iterator[list[Piece]]:
    """Divide pieces, in their order, into about ``target`` groups of one size; more, if they get large."""
    total = sum(piece.part.nbytes for piece in pieces)
    limit = min(MOST_BYTES, max(-(-total // target), least))
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.part.nbytes > limit:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.part.nbytes
    if group:
        yield group


def _stated(log: Log, heads: Mapping[Label, LabelHead], parts: Sequence[Part]) -> list[Piece]:
    """Tell each part what its peaks must come to, so that a chain of peaks is checked link by link.

    The first part of a label has none before it in the query: its peaks must give the root in the receipt
    of the entry before, or the root that the log states for what was pruned.
    """
    pieces = []
    for part, behind in zip(parts, [*parts, None][1:], strict=True):
        follows = behind is not None and (behind.label, behind.first_seq) == (part.label, part.last_seq + 1)
        pieces.append(Piece(part, None, None, behind.peaks if behind is not None and follows else None))
    firsts = {part.label: part for part in reversed(parts)}
    before = {label: part.first_seq - 1 for label, part in firsts.items() if part.first_seq > 1}
    roots = roots_at(log, heads, before)
    for label in set(before) - set(roots):
        ends = {one.last_seq: one.mmr_root for one in log.pruned(label)}
        roots |= {label: ends[before[label]]} if before[label] in ends else {}
    wrong = {label for label in before if _differs(firsts[label].peaks, roots.get(label))}
    text = "the peaks that are stated before it are not those of the entry before it"
    return [
        replace(piece, suspect=text)
        if piece.part.label in wrong and piece.part is firsts[piece.part.label]
        else piece
        for piece in pieces
    ]


def _differs(peaks: Peaks | None, root: bytes | None) -> bool:
    return peaks is not None and root is not None and peaks.root != root


def _with_peaks(log: Log, parts: Sequence[Part]) -> list[Part]:
    """Return parts with peaks; where none are stated, the entries before them are gone through here."""
    found: list[Part] = []
    for part in parts:
        known = part.peaks
        if known is None:
            near = found[-1] if found and found[-1].label == part.label else None
            known = _peaks_before(log, part, near)
        found.append(part.beginning_at(known))
    return found


def _peaks_before(log: Log, part: Part, near: Part | None) -> Peaks:
    """Return the peaks before a part: of a part before it that has some, and of the entries between."""
    peaks = Peaks.empty() if near is None or near.peaks is None else near.peaks
    between: Iterable[Part] = log.plan({part.label: (peaks.size + 1, part.first_seq - 1)})
    for one in between:
        if one.first_seq != peaks.size + 1:
            break
        peaks, _ = peaks.extend(parse(one.read()).leaves())
    if peaks.size != part.first_seq - 1:
        raise PlaceError(
            f"{log.name}: the peaks before entry {part.first_seq} of {part.label.hex()} are neither stated "
            "nor can they be worked out, as entries before it were pruned; run: veen repair DATA_DIR"
        )
    return peaks
