"""One flipped bit anywhere in a directory that nobody writes to: nothing is lost, or the file is named."""

from dataclasses import replace

from tests.storage.simulation.machine_model import Model
from tests.storage.simulation.machine_parts import open_at
from tests.storage.simulation.simdisk import SimDisk, Snapshot
from tests.storage.stores import HUB
from veen.core.data_dir import paths
from veen.core.data_dir.paths import FileKind
from veen.core.data_dir.store_records import StoreRecord
from veen.core.errors import ProtocolError
from veen.core.types import RandomBytes
from veen.storage.errors import StorageError
from veen.storage.fsck import check
from veen.storage.journal import journal
from veen.storage.read.reader import Reader

#: Files that a reader hands out as they are: whoever gets one verifies it, and the checker finds it.
_VERIFIED_BY_OTHERS = (FileKind.CHECKPOINT, FileKind.SUMMARY, FileKind.PEAKS, FileKind.CHECKPOINT_INDEX)


def flip(snapshot: Snapshot, model: Model, random: RandomBytes, *, choice: int, place: int, bit: int) -> None:
    """Flip a bit in a copy of the disk, and try everything."""
    with SimDisk.from_snapshot(snapshot) as disk:
        files = {path: data for path, data in disk.files().items() if data and path != paths.LOCK}
        path = sorted(files)[choice % len(files)]
        at = place % len(files[path])
        disk.flip(path, at, bit)
        named = {
            finding.where.file for finding in check(disk.filesystem(), hub_keys=[HUB.public_key]).findings
        }
        try:
            _use(disk, model, random)
        except StorageError as error:
            if path not in str(error) and path != paths.STORE:  # other limits make other files look wrong
                raise
        except (AssertionError, ProtocolError) as error:
            excused = path in named and (
                _kind(path) in _VERIFIED_BY_OTHERS or _is_all_that_is_left(path, model)
            )
            unseen = _looks_torn(path, files[path], at) or _has_other_limits(path, files[path], at, bit)
            if not (excused or unseen):
                error.add_note(f"after bit {bit} of byte {at} of {path} flipped; the checker names {named}")
                raise


def _use(disk: SimDisk, model: Model, random: RandomBytes) -> None:
    reader = Reader.open(disk.filesystem())
    try:
        model.fits(reader)
    finally:
        reader.close()
    writer = open_at(disk.filesystem(), random)
    try:
        model.fits(writer.reader)
    finally:
        writer.abandon()


def _kind(path: str) -> FileKind | None:
    parsed = paths.parse(path.rpartition("/")[2])
    return None if parsed is None else parsed.kind


def _is_all_that_is_left(path: str, model: Model) -> bool:
    """Tell whether these are nodes of pruned entries: nothing else is there to compare them with."""
    parsed = paths.parse(path.rpartition("/")[2])
    return parsed is not None and parsed.kind is FileKind.NODES and parsed.label in model.pruned


def _looks_torn(path: str, before: bytes, at: int) -> bool:
    """Tell whether this is the one damage that nobody can see: a last batch without its ``committed``."""
    number = paths.parse_journal(path.rpartition("/")[2])
    if number is None:
        return False
    read = journal.parse(before, number)
    return bool(read.records) and at >= read.records[-1].position and read.valid_bytes == read.records[-1].end


def _has_other_limits(path: str, before: bytes, at: int, bit: int) -> bool:
    """Tell whether these are limits that no chunk shows yet: only a hub can compare them, with its own."""
    if path != paths.STORE:
        return False
    stored = StoreRecord.decode(before)
    flipped = StoreRecord.decode(before[:at] + bytes([before[at] ^ 1 << bit]) + before[at + 1 :])
    return stored == replace(flipped, registries=stored.registries)
