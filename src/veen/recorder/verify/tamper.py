"""Finding out what was done to a log at its first invalid entry: removed, reordered or edited."""

import bz2
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from veen.client.client import Client
from veen.client.errors import DamagedLogError, DivergenceError, RejectedError
from veen.core.api.data_plane import StreamItem, StreamRequest, StreamResponse
from veen.core.data_dir import paths
from veen.core.errors import Detail, ProtocolError, VeenError
from veen.core.objects import labels
from veen.core.objects.entry import Frame
from veen.core.types import Label

# How far after its position an entry is searched for.
_NEAR: Final = 500
EDITED, REMOVED, REORDERED = "edited", "removed", "reordered"
# The end of a label that this client has seen is missing.
FORGOTTEN: Final = "forgotten"


def diagnose(client: Client, stream: str, epoch: int, seq: int, error: VeenError) -> tuple[int, str]:
    """Return the first invalid entry from ``seq`` on, and what was done to it."""
    if isinstance(error, DivergenceError):
        return max(seq, error.fraud.second.stream_seq), EDITED
    if isinstance(error, ProtocolError):
        stated = error.fields.get("stream_seq")
        seq = stated if isinstance(stated, int) else seq
        if error.detail is not Detail.PROOF_SEQ:
            return seq, EDITED
    label = client.session.label(labels.stream_id(stream), epoch)
    for place in range(seq, seq + _NEAR):
        try:
            items = _entries(client, label, place, place)
        except DamagedLogError as damage:
            return place, _in_files(damage, place)
        except ProtocolError:
            return place, EDITED
        if not items:
            return place, FORGOTTEN
        receipt = items[0].receipt
        if receipt is not None and receipt.stream_seq != place:
            return place, _moved(client, label, place)
    return seq, EDITED


def _moved(client: Client, label: Label, seq: int) -> str:
    """Return whether a missing entry was moved to a later position, or removed."""
    behind = _entries(client, label, seq, seq + _NEAR)
    is_later = any(item.receipt is not None and item.receipt.stream_seq == seq for item in behind)
    return REORDERED if is_later else REMOVED


def _entries(client: Client, label: Label, first: int, last: int) -> list[StreamItem]:
    """Return entries as served, unverified; an empty list if there are none."""
    request = StreamRequest(
        label=label, from_seq=first, to_seq=last, max_items=last - first + 1, with_receipts=True
    )
    try:
        return list(client.run(client.session.ask(request, StreamResponse)).items)
    except RejectedError:
        return []


# --- in the files of a hub ----------------------------------------------------------------------------------


def _in_files(damage: DamagedLogError, seq: int) -> str:
    """Examine the entries of a file from the damaged offset on."""
    if damage.file is None or damage.offset is None:
        return EDITED
    numbers = _numbers(damage.file, damage.offset)
    first = next(numbers, None)
    if first is None:
        return REMOVED
    if first in (seq, 0):
        return EDITED
    return REORDERED if seq in numbers else REMOVED


def _numbers(file: Path, offset: int) -> Iterator[int]:
    """Yield the numbers of the entries in a file from an offset on; 0 for a damaged one."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        packed = file.with_name(file.name + paths.COMPRESSED)
        data = bz2.decompress(packed.read_bytes()) if packed.exists() else b""
    while offset < len(data):
        try:
            frame, offset = Frame.read(data, offset)
        except ProtocolError:
            yield 0
            return
        yield frame.stream_seq
