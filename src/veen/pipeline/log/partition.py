"""Parts of a log: runs of consecutive entries of one label, which read themselves wherever they are sent.

Each kind of place has its own way to be read; formats and names of files stay in storage and client (C-122).
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
from veen.storage import Partition, read_frames

_PAGE_ITEMS: Final = 500


class Origin(Protocol):
    """Where the entries of a part are."""

    @property
    def place(self) -> str:
        """The file or address, for people."""

    def read(self, part: "Part") -> Frames:
        """Return the entries, framed."""


@dataclass(frozen=True, slots=True)
class Part:
    """Entries ``first_seq`` to ``last_seq`` of a label."""

    label: Label
    first_seq: int
    last_seq: int
    #: About how much is read.
    nbytes: int
    origin: Origin
    #: Stated peaks before the first entry: a hint, which whoever uses it must check. None: nobody knows.
    peaks: Peaks | None = None
    limits: Limits = DEFAULT_LIMITS

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self.origin.place

    @property
    def count(self) -> int:
        """How many entries there are."""
        return self.last_seq - self.first_seq + 1

    def read(self) -> Frames:
        """Return what there is of the entries; a file that was cut has less."""
        return self.origin.read(self)

    def entries(self) -> Entries:
        """Return all entries; raise InvalidEntryError for the first that is missing or invalid."""
        return self.parsed(self.read())

    def parsed(self, frames: Frames) -> Entries:
        """Return what was read as entries, all of them."""
        found = parse(frames)
        if len(found) != self.count:
            text = f"there are {len(found)} entries where {self.count} should be"
            seq = self.first_seq + min(len(found), self.count)
            raise frames.refused(seq, len(frames.data), Detail.ENTRY_LENGTH.value, text)
        return found

    def beginning_at(self, peaks: Peaks) -> "Part":
        """Return the part with other peaks before it."""
        return replace(self, peaks=peaks)


@dataclass(frozen=True, slots=True)
class InDirectory:
    """In the data directory of a hub."""

    root: str
    partition: Partition

    @property
    def place(self) -> str:
        return self.partition.path

    def read(self, part: Part) -> Frames:
        """Read the file, by the name that it has now."""
        path, data = read_frames(Path(self.root), self.partition)
        offset = None if self.partition.frames is not None else self.partition.offset
        return Frames(part.label, part.first_seq, data, path, offset, part.limits)


@dataclass(frozen=True, slots=True)
class InSet:
    """In an exported set: a run of messages in one file, and of their receipts in another."""

    root: str
    msgs: tuple[int, int]
    receipts: tuple[int, int]

    @property
    def place(self) -> str:
        """The file with the messages."""
        return PAYLOADS

    def read(self, part: Part) -> Frames:
        """Read both, and frame each pair as a hub would have."""
        place = Path(self.root)
        msgs = _read_span(place / PAYLOADS, self.msgs)
        receipts = _read_span(place / RECEIPTS, self.receipts)
        data = b"".join(_framed(msgs, receipts, part))
        return Frames(part.label, part.first_seq, data, PAYLOADS, None, part.limits)


def _read_span(path: Path, span: tuple[int, int]) -> bytes:
    with path.open("rb") as file:
        file.seek(span[0])
        return file.read(span[1] - span[0])


def _framed(msgs: bytes, receipts: bytes, part: Part) -> Iterator[bytes]:
    at = where = 0
    for seq in range(part.first_seq, part.last_seq + 1):
        try:
            end, behind = cbor.item_end(receipts, at), msg_end(msgs, where)
            yield Entry(msgs[where:behind], Receipt.decode(receipts[at:end])).encode()
        except (CborError, ProtocolError) as error:
            frames = Frames(part.label, seq, b"", RECEIPTS, None)
            raise frames.refused(seq, 0, error.detail.value, str(error)) from None
        at, where = end, behind


@dataclass(frozen=True, slots=True)
class AtHub:
    """At a hub that answers under an address."""

    url: str

    @property
    def place(self) -> str:
        return self.url

    def read(self, part: Part) -> Frames:
        """Fetch the entries, page after page."""
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
