"""A log in the data directory of a hub, which may be running."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import Tombstone
from veen.core.errors import Detail, ProtocolError
from veen.core.merkle.mmr import Peaks
from veen.core.objects import labels as naming
from veen.core.objects.checkpoint import Checkpoint
from veen.core.objects.finding import Finding, Level, Location
from veen.core.objects.hub_identity import HubIdentity
from veen.core.types import HubId, Label, StreamId
from veen.pipeline.errors import LogSourceError
from veen.pipeline.log.hub_keys import HubKeys
from veen.pipeline.log.log import MOST_BYTES, LabelHead, Pruned, chosen, smaller
from veen.pipeline.log.partition import InDirectory, Part
from veen.storage import Manifest, NotAStoreError, Reader, RealFilesystem, StorageError, fsck, plan
from veen.storage.directory import read_object, read_public, reading_limits
from veen.storage.errors import DamagedStoreError, StaleIndexError
from veen.storage.fsck.keys import Keys, load_keys
from veen.storage.fsck.report import DERIVED, Findings
from veen.storage.fsck.source import Source

#: Files that are written for entries which are there.
_PROMISES: Final = (paths.FileKind.CHECKPOINT, paths.FileKind.PEAKS, paths.FileKind.SUMMARY)


class DirectoryLog:
    """The log of a data directory."""

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self._root = str(root.resolve())
        self._fs = RealFilesystem(root)
        try:
            self.reader = Reader.open(self._fs)
        except NotAStoreError as error:
            self._fs.close()
            raise LogSourceError(
                f"{root} is neither a hub's data directory nor an exported set: {error}"
            ) from None
        except StaleIndexError as error:
            self._fs.close()
            raise LogSourceError(
                f"{root}: {error.what}; make it anew with veen repair, of a copy if this can not be written; "
                "veen fsck checks a log without it"
            ) from None
        except BaseException:
            self._fs.close()
            raise
        try:
            identity, settings = read_public(self._fs)
            self.profiles = settings.profiles
            self.keys = _keys(self._fs, identity)
        except BaseException:
            self.close()
            raise
        self._limits = reading_limits(self.reader.store)

    @property
    def hub_id(self) -> HubId:
        """Whose log it is."""
        return self.reader.store.hub_id

    def heads(self) -> dict[Label, LabelHead]:
        """Return how far each label goes."""
        reader = self.reader
        found = {}
        for label in sorted(reader.labels()):
            if reader.domain_of(label) is not Domain.DATA:
                continue
            known = reader.manifest(label)
            head, bound = known.head, reader.binding(label)
            stream, epoch = (None, 0) if bound is None else bound
            found[label] = LabelHead(label, stream, epoch, known.first_seq, head.seq, head.root)
        return found

    def labels_of(self, stream_id: StreamId) -> dict[int, Label]:
        reader, found = self.reader, {}
        for label in reader.labels_of(stream_id):
            bound = reader.binding(label)
            if bound is not None and reader.last_seq(label):
                found[bound.epoch] = label
        constant = naming.label(self.keys.identity.routing_key, stream_id, 0)
        if 0 not in found and reader.last_seq(constant):
            found[0] = constant
        return dict(sorted(found.items()))

    def seq_at(self, label: Label, hub_ts: int) -> int:
        """Return the first entry at or after a time."""
        return self.reader.seq_at(label, hub_ts)

    def plan(
        self,
        ranges: Mapping[Label, tuple[int, int]] | None = None,
        *,
        parts: int = 1,
        most_bytes: int = MOST_BYTES,
    ) -> list[Part]:
        """Divide entries by the index of the directory."""
        found = self._plan(ranges, most_bytes)
        return found if len(found) >= parts else self._plan(ranges, smaller(found, parts))

    def _plan(self, ranges: Mapping[Label, tuple[int, int]] | None, target_bytes: int) -> list[Part]:
        found = []
        for head, first, last in chosen(self.heads(), ranges):
            cut = plan(self.reader, [head.label], start_seq=first, end_seq=last, target_bytes=target_bytes)
            for item in cut:
                origin = InDirectory(self._root, item)
                span = item.start_seq, item.end_seq
                found.append(Part(head.label, *span, item.length, origin, limits=self._limits))
        return [replace(part, peaks=self._peaks(part.label, part.first_seq - 1)) for part in found]

    def _peaks(self, label: Label, size: int) -> Peaks | None:
        """Return what the nodes say of the peaks at an entry."""
        if not size:
            return Peaks.empty()
        try:
            return self.reader.peaks(label, size)
        except (ProtocolError, StorageError, OSError):  # derived files: the log itself says it too
            return None

    def checkpoints(self, label: Label) -> list[Checkpoint]:
        reader = self.reader
        stated = (
            reader.stated_checkpoint(label, seq)
            for seq in reader.checkpoint_seqs(label, 1, reader.last_seq(label))
        )
        return [item for item in stated if item is not None]

    def pruned(self, label: Label) -> list[Pruned]:
        """Return what the tombstones of a label say."""
        found = []
        for row in self.reader.manifest(label).chunks:
            if not row.pruned:
                continue
            path = paths.tombstone(Domain.DATA, label, row.start_seq, row.end_seq)
            made = read_object(self._fs, path, Tombstone)
            if made is None:
                raise DamagedStoreError(path, None, "the tombstone, which states what was pruned, is missing")
            clients = {item.client_id: (item.client_seq, item.prev_ack) for item in made.clients}
            span = made.start_seq, made.end_seq
            found.append(Pruned(*span, made.mmr_root_end, made.last_ts, clients, made.first_ts))
        return found

    def check_others(self) -> list[Finding]:
        """Check the logs of tokens and decisions, and files that speak of entries which are not here."""
        reader = self.reader
        reserved = [label for label in reader.labels() if reader.domain_of(label) is not Domain.DATA]
        found = []
        if reserved:
            report = fsck.check(self._fs, Level.FULL, labels=reserved)
            found = [item for item in report.findings if item.verdict != DERIVED]
        return found + self._strays()

    def _strays(self) -> list[Finding]:
        """Return what files promise, by their names, that the index does not know of."""
        named = [(name, paths.parse(name)) for name in self._fs.names(Domain.DATA)]
        self.refresh()  # what was made before the names were listed is known now
        known = {label: self.reader.manifest(label) for label in self.heads()}
        clean = self.reader.is_clean()
        found = []
        for name, parsed in named:
            text = None if parsed is None else self._stray(name, parsed, known.get(parsed.label), clean=clean)
            if parsed is not None and text is not None:
                seq = parsed.end_seq or parsed.start_seq or 0
                path = f"{Domain.DATA}/{name}"
                found.append(Finding(Location(path, label=parsed.label, seq=seq), Detail.PROOF_SEQ, text))
        return found

    def _stray(self, name: str, parsed: paths.FileName, known: Manifest | None, *, clean: bool) -> str | None:
        """Return what is wrong with a file, given what the index knows of its label."""
        last = 0 if known is None else known.head.seq
        if parsed.kind in _PROMISES and (parsed.end_seq or 0) > last:
            return f"there was an entry {parsed.end_seq}, and the log ends with {last}"
        if parsed.kind not in (paths.FileKind.CHUNK, paths.FileKind.OPEN_CHUNK):
            return None
        rows = {} if known is None else {row.start_seq: row for row in known.chunks}
        row = rows.get(parsed.start_seq or 0)
        if row is None:
            moved = 0 if known is None else known.head.seq - known.journal_entries
            # Behind what was moved a hub may be writing it now.
            unknown = clean or (parsed.start_seq or 0) <= moved
            return "the index does not know this chunk; run: veen fsck DATA_DIR" if unknown else None
        size = self._fs.size(f"{Domain.DATA}/{name}")
        grows = not row.end_seq and not clean
        if parsed.compressed or grows or row.pruned or size is None or size <= row.total_bytes:
            return None
        return f"{size - row.total_bytes} bytes after the last entry"

    def refresh(self) -> None:
        """See what has been acknowledged since."""
        self.reader.refresh()

    def close(self) -> None:
        """Close the index and the directory."""
        self.reader.close()
        self._fs.close()


def _keys(fs: RealFilesystem, identity: HubIdentity) -> HubKeys:
    """Return who signs for which label; a fork keeps the identities of its parents."""
    found = Findings()
    loaded = load_keys(Source(fs, None), identity.hub_id, (), Level.FULL, found)
    if found.total:
        raise LogSourceError(f"the keys of the log cannot be trusted: {found.kept[0]}")
    return HubKeys(identity, {label: _owner(loaded, label) for label in loaded.copied})


def _owner(keys: Keys, label: Label) -> HubIdentity:
    signers = keys.signers_of(label)
    if signers is None or signers.identity is None:
        raise LogSourceError(
            f"the signers of {label.hex()} are not known: the identity of the parent hub is missing"
        )
    return signers.identity
