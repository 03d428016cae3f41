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
from veen.stdx.grammar import counted
from veen.storage import Manifest, NotAStoreError, Reader, RealFilesystem, StorageError, fsck, plan
from veen.storage.directory import read_object, read_public, reading_limits
from veen.storage.errors import DamagedStoreError, StaleIndexError
from veen.storage.fsck.keys import Keys, load_keys
from veen.storage.fsck.report import DERIVED, Findings
from veen.storage.fsck.source import Source

# Files that are only written after the entries they refer to.
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
                f"{root}: {error.what}; rebuild it with veen repair (in a copy, if {root} is read-only); "
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
        return self.reader.store.hub_id

    def heads(self) -> dict[Label, LabelHead]:
        reader = self.reader
        heads = {}
        for label in sorted(reader.labels()):
            if reader.domain_of(label) is not Domain.DATA:
                continue
            known = reader.manifest(label)
            head, bound = known.head, reader.binding(label)
            stream, epoch = (None, 0) if bound is None else bound
            heads[label] = LabelHead(label, stream, epoch, known.first_seq, head.seq, head.root)
        return heads

    def labels_of(self, stream_id: StreamId) -> dict[int, Label]:
        reader, by_epoch = self.reader, {}
        for label in reader.labels_of(stream_id):
            bound = reader.binding(label)
            if bound is not None and reader.last_seq(label):
                by_epoch[bound.epoch] = label
        constant = naming.label(self.keys.identity.routing_key, stream_id, 0)
        if 0 not in by_epoch and reader.last_seq(constant):
            by_epoch[0] = constant
        return dict(sorted(by_epoch.items()))

    def seq_at(self, label: Label, hub_ts: int) -> int:
        return self.reader.seq_at(label, hub_ts)

    def plan(
        self,
        ranges: Mapping[Label, tuple[int, int]] | None = None,
        *,
        parts: int = 1,
        most_bytes: int = MOST_BYTES,
    ) -> list[Part]:
        """Divide entries by the index of the directory."""
        planned = self._plan(ranges, most_bytes)
        return planned if len(planned) >= parts else self._plan(ranges, smaller(planned, parts))

    def _plan(self, ranges: Mapping[Label, tuple[int, int]] | None, target_bytes: int) -> list[Part]:
        planned = []
        for head, first, last in chosen(self.heads(), ranges):
            cut = plan(self.reader, [head.label], start_seq=first, end_seq=last, target_bytes=target_bytes)
            for item in cut:
                origin = InDirectory(self._root, item)
                span = item.start_seq, item.end_seq
                planned.append(Part(head.label, *span, item.length, origin, limits=self._limits))
        return [replace(part, peaks=self._peaks(part.label, part.first_seq - 1)) for part in planned]

    def _peaks(self, label: Label, size: int) -> Peaks | None:
        """Return the peaks at an entry, from the stored nodes."""
        if not size:
            return Peaks.empty()
        try:
            return self.reader.peaks(label, size)
        except (ProtocolError, StorageError, OSError):  # derived files: peaks also follow from the log
            return None

    def checkpoints(self, label: Label) -> list[Checkpoint]:
        reader = self.reader
        stated = (
            reader.stated_checkpoint(label, seq)
            for seq in reader.checkpoint_seqs(label, 1, reader.last_seq(label))
        )
        return [item for item in stated if item is not None]

    def pruned(self, label: Label) -> list[Pruned]:
        """Return the pruned ranges, from the tombstones."""
        pruned = []
        for row in self.reader.manifest(label).chunks:
            if not row.pruned:
                continue
            path = paths.tombstone(Domain.DATA, label, row.start_seq, row.end_seq)
            tombstone = read_object(self._fs, path, Tombstone)
            if tombstone is None:
                raise DamagedStoreError(path, None, "the tombstone, which states what was pruned, is missing")
            clients = {item.client_id: (item.client_seq, item.prev_ack) for item in tombstone.clients}
            span = tombstone.start_seq, tombstone.end_seq
            pruned.append(
                Pruned(*span, tombstone.mmr_root_end, tombstone.last_ts, clients, tombstone.first_ts)
            )
        return pruned

    def check_others(self) -> list[Finding]:
        """Check the logs of tokens and decisions, and files that refer to missing entries."""
        reader = self.reader
        reserved = [label for label in reader.labels() if reader.domain_of(label) is not Domain.DATA]
        findings = []
        if reserved:
            report = fsck.check(self._fs, Level.FULL, labels=reserved)
            findings = [item for item in report.findings if item.verdict != DERIVED]
        return findings + self._strays()

    def _strays(self) -> list[Finding]:
        """Return files whose names imply entries that are not in the index."""
        named = [(name, paths.parse(name)) for name in self._fs.names(Domain.DATA)]
        self.refresh()  # so that the index has everything written before the names were listed
        known = {label: self.reader.manifest(label) for label in self.heads()}
        clean = self.reader.is_clean()
        findings = []
        for name, parsed in named:
            text = None if parsed is None else self._stray(name, parsed, known.get(parsed.label), clean=clean)
            if parsed is not None and text is not None:
                seq = parsed.end_seq or parsed.start_seq or 0
                path = f"{Domain.DATA}/{name}"
                findings.append(Finding(Location(path, label=parsed.label, seq=seq), Detail.PROOF_SEQ, text))
        return findings

    def _stray(self, name: str, parsed: paths.FileName, known: Manifest | None, *, clean: bool) -> str | None:
        """Return what is wrong with a file, compared with the index of its label; None: nothing."""
        last = 0 if known is None else known.head.seq
        if parsed.kind in _PROMISES and (parsed.end_seq or 0) > last:
            return f"there was an entry {parsed.end_seq}, and the log ends with {last}"
        if parsed.kind not in (paths.FileKind.CHUNK, paths.FileKind.OPEN_CHUNK):
            return None
        rows = {} if known is None else {row.start_seq: row for row in known.chunks}
        row = rows.get(parsed.start_seq or 0)
        if row is None:
            moved = 0 if known is None else known.head.seq - known.journal_entries
            # After the entries moved from the journal, a running hub may be writing this chunk now.
            unknown = clean or (parsed.start_seq or 0) <= moved
            return "the index does not know this chunk; run: veen fsck DATA_DIR" if unknown else None
        size = self._fs.size(f"{Domain.DATA}/{name}")
        grows = not row.end_seq and not clean
        if parsed.compressed or grows or row.pruned or size is None or size <= row.total_bytes:
            return None
        return f"{counted(size - row.total_bytes, 'byte')} after the last entry"

    def refresh(self) -> None:
        self.reader.refresh()

    def close(self) -> None:
        self.reader.close()
        self._fs.close()


def _keys(fs: RealFilesystem, identity: HubIdentity) -> HubKeys:
    """Return the signing keys by label; a fork's directory has the identities of its parents."""
    findings = Findings()
    loaded = load_keys(Source(fs, None), identity.hub_id, (), Level.FULL, findings)
    if findings.total:
        raise LogSourceError(f"the keys of the log cannot be trusted: {findings.kept[0]}")
    return HubKeys(identity, {label: _owner(loaded, label) for label in loaded.copied})


def _owner(keys: Keys, label: Label) -> HubIdentity:
    signers = keys.signers_of(label)
    if signers is None or signers.identity is None:
        raise LogSourceError(
            f"the signers of {label.hex()} are not known: the identity of the parent hub is missing"
        )
    return signers.identity
