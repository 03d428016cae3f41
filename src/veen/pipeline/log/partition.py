"""Parts of a log: runs of consecutive entries of one label, which can be sent to tasks and read there.

Each kind of log has its own origin; file formats and names stay in storage and client (C-122).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from veen.client.effects import Query
from veen.client.transport.http import HttpHub
from veen.client.transport.portable_set import PAYLOADS, RECEIPTS
from veen.core.api.data_plane import StreamRequest, StreamResponse
from veen.core.encoding import cbor
from veen.core.errors import CborError, Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.merkle.mmr import Peaks
from veen.core.objects.entry import Entry
from veen.core.objects.msg import msg_end
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.pipeline.log.entry_columns import Entries, Frames, parse
from veen.stdx.grammar import counted
from veen.storage import Partition, read_frames

_PAGE_ITEMS: Final = 500


class Origin(Protocol):
    """The location of a part's entries."""

    @property
    def place(self) -> str:
        """The file or address, for display."""

    def read(self, part: "Part") -> Frames:
        """Return the entries, framed."""


@dataclass(frozen=True, slots=True)
class Part:
    """Entries ``first_seq`` to ``last_seq`` of a label."""

    label: Label
    first_seq: int
    last_seq: int
    # An estimate.
    nbytes: int
    origin: Origin
    # Stated peaks before the first entry: a hint that the user must verify. None: not known.
    peaks: Peaks | None = None
    limits: Limits = DEFAULT_LIMITS

    @property
    def place(self) -> str:
        """The file or address, for display."""
        return self.origin.place

    @property
    def count(self) -> int:
        return self.last_seq - self.first_seq + 1

    def read(self) -> Frames:
        """Return the framed entries; fewer if the file was truncated."""
        return self.origin.read(self)

    def entries(self) -> Entries:
        """Return all entries; raise InvalidEntryError for the first that is missing or invalid."""
        return self.parsed(self.read())

    def parsed(self, frames: Frames) -> Entries:
        """Parse what was read; raise InvalidEntryError unless all entries are there."""
        entries = parse(frames)
        if len(entries) != self.count:
            text = f"{counted(len(entries), 'entry')} instead of {self.count}"
            seq = self.first_seq + min(len(entries), self.count)
            raise frames.refused(seq, len(frames.data), Detail.ENTRY_LENGTH.value, text)
        return entries

    def beginning_at(self, peaks: Peaks) -> "Part":
        """Return the part with these peaks before it."""
        return replace(self, peaks=peaks)


@dataclass(frozen=True, slots=True)
class InDirectory:
    """Entries in the data directory of a hub."""

    root: str
    partition: Partition

    @property
    def place(self) -> str:
        return self.partition.path

    def read(self, part: Part) -> Frames:
        """Read the file under its current name."""
        path, data = read_frames(Path(self.root), self.partition)
        offset = None if self.partition.frames is not None else self.partition.offset
        return Frames(part.label, part.first_seq, data, path, offset, part.limits)


@dataclass(frozen=True, slots=True)
class InSet:
    """Entries in an exported set: a run of messages in one file, and of their receipts in another."""

    root: str
    msgs: tuple[int, int]
    receipts: tuple[int, int]

    @property
    def place(self) -> str:
        """The file with the messages."""
        return PAYLOADS

    def read(self, part: Part) -> Frames:
        """Read both, and frame each pair as a hub stores it."""
        directory = Path(self.root)
        msgs = _read_span(directory / PAYLOADS, self.msgs)
        receipts = _read_span(directory / RECEIPTS, self.receipts)
        data = b"".join(_framed(msgs, receipts, part))
        return Frames(part.label, part.first_seq, data, PAYLOADS, None, part.limits)


def _read_span(path: Path, span: tuple[int, int]) -> bytes:
    with path.open("rb") as file:
        file.seek(span[0])
        return file.read(span[1] - span[0])


def _framed(msgs: bytes, receipts: bytes, part: Part) -> Iterator[bytes]:
    receipt_at = msg_at = 0
    for seq in range(part.first_seq, part.last_seq + 1):
        try:
            receipt_end, msg_end_at = cbor.item_end(receipts, receipt_at), msg_end(msgs, msg_at)
            yield Entry(msgs[msg_at:msg_end_at], Receipt.decode(receipts[receipt_at:receipt_end])).encode()
        except (CborError, ProtocolError) as error:
            frames = Frames(part.label, seq, b"", RECEIPTS, None)
            raise frames.refused(seq, 0, error.detail.value, str(error)) from None
        receipt_at, msg_at = receipt_end, msg_end_at


@dataclass(frozen=True, slots=True)
class AtHub:
    """Entries at a hub, fetched from its URL."""

    url: str

    @property
    def place(self) -> str:
        return self.url

    def read(self, part: Part) -> Frames:
        """Fetch the entries page by page."""
        hub = HttpHub(self.url)
        try:
            data = b"".join(self._pages(hub, part))
        finally:
            hub.close()
        return Frames(part.label, part.first_seq, data, self.url, None, part.limits)

    def _pages(self, hub: HttpHub, part: Part) -> Iterator[bytes]:
        seq = part.first_seq
        while seq <= part.last_seq:
            request = StreamRequest(
                label=part.label,
                from_seq=seq,
                to_seq=part.last_seq,
                max_items=min(_PAGE_ITEMS, part.last_seq - seq + 1),
                with_receipts=True,
            )
            page = hub.answer(Query(request, StreamResponse))
            for item in page.items:
                if item.receipt is None or item.stream_seq != seq:
                    raise _missing(self.url, part, seq)
                yield Entry(item.msg.encode(), item.receipt).encode()
                seq += 1
            if not page.items:
                raise _missing(self.url, part, seq)


def _missing(url: str, part: Part, seq: int) -> Exception:
    frames = Frames(part.label, seq, b"", url, None)
    return frames.refused(seq, 0, Detail.PROOF_SEQ.value, "the hub does not show the entry")
