"""The data of a hub that a lake stores beside its messages, so that the hub's directory can be restored.

These are identity and settings, the reserved logs, checkpoints and anchors, by hash; no secret keys.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from veen.core.data_dir import paths as directory
from veen.core.data_dir.paths import Domain
from veen.core.types import Label
from veen.pipeline.errors import DamagedLakeError
from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Blob, State
from veen.pipeline.lake.table_files import write_durably
from veen.pipeline.log.data_directory import DirectoryLog
from veen.pipeline.log.log import Log
from veen.storage import Filesystem, Reader
from veen.storage.maintain.copy import ARCHIVE_DIR, IDENTITY_FILES

FILES: Final = "file"
RESERVED: Final = "reserved"
CHECKPOINTS: Final = "checkpoints"
# The end of the stored checkpoints is compared with the hub's before further ones are added.
_OVERLAP: Final = 1 << 12


class HubBlobs(NamedTuple):
    """Blobs to store, by name."""

    name: str
    data: bytes


def keep(root: Path, state: State, log: Log) -> list[Blob]:
    """Store what a lake does not have yet of a hub's data directory; other logs have no such data."""
    if not isinstance(log, DirectoryLog):
        return []
    reader = log.reader  # a process can open an index only once
    found = []
    for held in _collect(root, state, reader):
        digest = hashlib.sha256(held.data).hexdigest()
        blob = Blob(held.name, len(held.data), digest)
        if state.hub.get(held.name) != blob:
            path = root / layout.HUB / digest
            if not path.exists():
                write_durably(path, held.data)
            found.append(blob)
    return found


def read_blob(root: Path, blob: Blob) -> bytes:
    """Return a stored blob; raise if its hash differs."""
    try:
        data = (root / layout.HUB / blob.sha256).read_bytes()
    except OSError as error:
        raise DamagedLakeError(f"{blob.name} of the hub cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != blob.sha256:
        raise DamagedLakeError(f"{layout.HUB}/{blob.sha256} is not what was written ({blob.name} of the hub)")
    return data


def _collect(root: Path, state: State, reader: Reader) -> Iterator[HubBlobs]:
    fs = reader.fs
    for name in (*IDENTITY_FILES, directory.STORE, directory.FORK):
        if fs.size(name) is not None:
            yield HubBlobs(f"{FILES}/{name}", fs.read(name))
    for place in (directory.ANCHORS_DIR, *_archives(fs)):
        for name in fs.names(place):
            yield HubBlobs(f"{FILES}/{place}/{name}", fs.read(f"{place}/{name}"))
    for label in sorted(reader.labels()):
        domain = reader.domain_of(label)
        if domain is not Domain.DATA:
            yield from _reserved(state, reader, domain, label)
    yield from _checkpoints(root, state, reader)


def _archives(fs: Filesystem) -> Iterator[str]:
    place = ARCHIVE_DIR
    while fs.names(place):
        yield from (place, f"{place}/{Domain.AUTHORIZE}", f"{place}/{Domain.CONTROL}")
        place = f"{place}/{ARCHIVE_DIR}"


def _reserved(state: State, reader: Reader, domain: Domain, label: Label) -> Iterator[HubBlobs]:
    """Yield new entries of a log of tokens or of the hub's own decisions."""
    prefix = f"{RESERVED}/{domain}/{label.hex()}/"
    known = max((span_of(name)[1] for name in state.hub if name.startswith(prefix)), default=0)
    last = reader.last_seq(label)
    if last > known:
        frames = b"".join(place.entry.encode() for place in reader.entries(label, known + 1, last))
        yield HubBlobs(f"{prefix}{layout.number(known + 1)}-{layout.number(last)}", frames)
    for item in reader.checkpoints(label, 1, last):
        path = directory.checkpoint(domain, label, item.upto_seq)
        yield HubBlobs(f"{FILES}/{path}", item.encode())


def _checkpoints(root: Path, state: State, reader: Reader) -> Iterator[HubBlobs]:
    """Yield new checkpoints of messages; all of them if the hub has rewritten their file."""
    with reader.snapshot() as view:
        size = view.meta().checkpoints_bytes
    kept = sorted((span_of(name), name) for name in state.hub if name.startswith(f"{CHECKPOINTS}/"))
    known = kept[-1][0][1] if kept else 0
    if kept and known <= size:
        last = read_blob(root, state.hub[kept[-1][1]])[-_OVERLAP:]
        if reader.fs.read(directory.CHECKPOINTS, known - len(last), len(last)) != last:
            known = 0
    if size > known:
        data = reader.fs.read(directory.CHECKPOINTS, known, size - known)
        yield HubBlobs(f"{CHECKPOINTS}/{layout.number(known)}-{layout.number(size)}", data)


def span_of(name: str) -> tuple[int, int]:
    """Return the range at the end of a name."""
    first, _, last = name.rpartition("/")[2].partition("-")
    return int(first), int(last)
