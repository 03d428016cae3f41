"""Names of the files of a data directory (001 section 4.8.3; decisions C-80, C-82, C-88).

All names are relative and use ``/``. Sequence numbers are decimal, zero-padded to 20 digits, so that names
sort as numbers do; labels are lowercase hex.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from veen.core.crypto.hash import U64_MAX
from veen.core.encoding.hexadecimal import HEX32_PATTERN
from veen.core.types import Label

STORE: Final = "store.cbor"
FORK: Final = "fork.cbor"
RECEIPTS: Final = "receipts.cborseq"
CHECKPOINTS: Final = "checkpoints.cborseq"
STATE_DIR: Final = "state"
LOCK: Final = "state/lock"
INDEX: Final = "state/index"
ANCHORS_DIR: Final = "anchors"
# The file ledger, unless the operator has configured another path.
LEDGER: Final = "ledger.cborseq"
# Of a running hub: its process, its address, and the operator's socket.
HUB_PID: Final = "hub.pid"
HUB_RUNNING: Final = "state/hub.json"
ADMIN_SOCKET: Final = "state/admin.sock"
# Suffix of a chunk compressed after it was sealed (C-87).
COMPRESSED: Final = ".bz2"

_SEQ_DIGITS: Final = 20


class Domain(StrEnum):
    """A directory of chunks. Reserved logs have their own, which chunk readers never encounter (C-53)."""

    DATA = "log"
    AUTHORIZE = "authorize"
    CONTROL = "control"


class FileKind(StrEnum):
    """The kind of a file in a chunk directory."""

    CHUNK = "chunk"
    OPEN_CHUNK = "open chunk"
    SUMMARY = "summary"
    PEAKS = "peaks"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_INDEX = "checkpoint index"
    NODES = "nodes"
    TOMBSTONE = "tombstone"


@dataclass(frozen=True, slots=True)
class FileName:
    """The parsed name of a file in a chunk directory."""

    kind: FileKind
    label: Label
    start_seq: int | None = None
    end_seq: int | None = None
    compressed: bool = False


def _seq(number: int) -> str:
    return f"{number:0{_SEQ_DIGITS}d}"


def chunk(domain: Domain, label: Label, start_seq: int, end_seq: int) -> str:
    """Return the name of a sealed chunk."""
    return f"{domain}/chunk-{label.hex()}-{_seq(start_seq)}-{_seq(end_seq)}.log"


def open_chunk(domain: Domain, label: Label, start_seq: int) -> str:
    """Return the name of a chunk that still grows (C-80)."""
    return f"{domain}/chunk-{label.hex()}-{_seq(start_seq)}-open.log"


def summary(domain: Domain, label: Label, start_seq: int, end_seq: int) -> str:
    """Return the name of a sealed chunk's summary."""
    return f"{domain}/chunk-{label.hex()}-{_seq(start_seq)}-{_seq(end_seq)}.summary"


def tombstone(domain: Domain, label: Label, start_seq: int, end_seq: int) -> str:
    """Return the name of what remains of a pruned chunk (C-85)."""
    return f"{domain}/pruned-{label.hex()}-{_seq(start_seq)}-{_seq(end_seq)}.cbor"


def peaks(domain: Domain, label: Label, upto_seq: int) -> str:
    """Return the name of a peak snapshot."""
    return f"{domain}/peaks-{label.hex()}-{_seq(upto_seq)}.cbor"


def checkpoint(domain: Domain, label: Label, upto_seq: int) -> str:
    """Return the name of a checkpoint."""
    return f"{domain}/checkpoint-{label.hex()}-{_seq(upto_seq)}.cbor"


def checkpoint_index(domain: Domain, label: Label) -> str:
    """Return the name of a label's checkpoint index."""
    return f"{domain}/checkpoint-index-{label.hex()}.cbor"


def nodes(domain: Domain, label: Label) -> str:
    """Return the name of a label's node store: 32 bytes a node, by position."""
    return f"{domain}/nodes-{label.hex()}.mmr"


def journal(segment: int) -> str:
    """Return the name of a journal segment."""
    return f"{STATE_DIR}/journal-{_seq(segment)}.wal"


def anchor(label: Label, upto_seq: int) -> str:
    """Return the name of the anchor of a checkpoint."""
    return f"{ANCHORS_DIR}/{anchor_name(label, upto_seq)}"


def anchor_name(label: Label, upto_seq: int) -> str:
    """Return the file name of an anchor inside the directory of anchors."""
    return f"anchor-{label.hex()}-{_seq(upto_seq)}.cbor"


_JOURNAL: Final = re.compile(r"journal-([0-9]{20})\.wal")

_ANCHOR: Final = re.compile(rf"anchor-({HEX32_PATTERN})-([0-9]{{20}})\.cbor")

_L: Final = f"(?P<label>{HEX32_PATTERN})"
_START, _END = r"(?P<start>[0-9]{20})", r"(?P<end>[0-9]{20})"
_PATTERNS: Final = (
    (FileKind.CHUNK, re.compile(rf"chunk-{_L}-{_START}-{_END}\.log(?P<packed>\.bz2)?")),
    (FileKind.OPEN_CHUNK, re.compile(rf"chunk-{_L}-{_START}-open\.log")),
    (FileKind.SUMMARY, re.compile(rf"chunk-{_L}-{_START}-{_END}\.summary")),
    (FileKind.PEAKS, re.compile(rf"peaks-{_L}-{_END}\.cbor")),
    (FileKind.CHECKPOINT, re.compile(rf"checkpoint-{_L}-{_END}\.cbor")),
    (FileKind.CHECKPOINT_INDEX, re.compile(rf"checkpoint-index-{_L}\.cbor")),
    (FileKind.NODES, re.compile(rf"nodes-{_L}\.mmr")),
    (FileKind.TOMBSTONE, re.compile(rf"pruned-{_L}-{_START}-{_END}\.cbor")),
)


def parse(name: str) -> FileName | None:
    """Parse a file name inside a chunk directory; None if the file is not one of VEEN's."""
    for kind, pattern in _PATTERNS:
        match = pattern.fullmatch(name)
        if match is None:
            continue
        parts = match.groupdict()
        start, end = (int(parts[key]) if parts.get(key) else None for key in ("start", "end"))
        if max(start or 0, end or 0) > U64_MAX:
            return None
        return FileName(kind, Label(bytes.fromhex(parts["label"])), start, end, bool(parts.get("packed")))
    return None


def parse_journal(name: str) -> int | None:
    """Return the number of a journal segment from its name inside the state directory."""
    match = _JOURNAL.fullmatch(name)
    return int(match[1]) if match else None


def parse_anchor(name: str) -> tuple[Label, int] | None:
    """Return label and upto_seq from the name of an anchor inside its directory."""
    match = _ANCHOR.fullmatch(name)
    if match is None or int(match[2]) > U64_MAX:
        return None
    return Label(bytes.fromhex(match[1])), int(match[2])
