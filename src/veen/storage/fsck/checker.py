"""The complete check: store, keys and journal first, then each label, then the derived files."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from veen.core.data_dir import paths as layout
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import StoreRecord
from veen.core.errors import ProtocolError, not_found
from veen.core.objects.finding import Level
from veen.core.types import Label, RoutingKey, VerifyKey
from veen.storage.errors import FindingError, NotAStoreError
from veen.storage.fsck.context import Context, rules_of, widest_limits
from veen.storage.fsck.files import Directory, LabelFiles, read_directory, read_label
from veen.storage.fsck.journal import Journal, read_journal
from veen.storage.fsck.keys import Keys, load_keys, reserved_labels
from veen.storage.fsck.label import LabelCheck, LabelFacts
from veen.storage.fsck.report import (
    DERIVED,
    MAX_LISTED,
    Findings,
    LabelReport,
    Reason,
    Report,
    damage,
    refused,
    wrong,
)
from veen.storage.fsck.sequence_files import CheckpointsCheck, ReceiptsCheck
from veen.storage.fsck.source import Files, Source

# Attempts before something is reported: a running hub may have moved it meanwhile.
_ATTEMPTS: Final = 3
# How many labels are rechecked; if more are damaged, a running hub is not the cause.
_RECHECKS: Final = 100
_LOCK_CHARACTERS: Final = 200

# Called with bytes read so far and bytes in total.
ShowProgress = Callable[[int, int], None]


def check(
    files: Files,
    level: Level = Level.FULL,
    hub_keys: Sequence[VerifyKey] = (),
    progress: ShowProgress | None = None,
    labels: Iterable[Label] | None = None,
) -> Report:
    """Check a data directory, or some of its labels; nothing is written, locked or repaired.

    Raise NotAStoreError if there is no data directory, and NOT_FOUND for a label that it does not have.
    """
    return _Check(files, level, hub_keys, progress, labels).report()


class _Check:
    def __init__(
        self,
        files: Files,
        level: Level,
        hub_keys: Sequence[VerifyKey],
        progress: ShowProgress | None,
        labels: Iterable[Label] | None,
    ) -> None:
        self._show = progress
        self._done = self._total = 0
        self._source = Source(files, None if progress is None else self._advance)
        self._level = level
        self._hub_keys = hub_keys
        self._only = None if labels is None else frozenset(labels)
        self._found = Findings()
        self._notes: list[str] = []
        self._directories: dict[Domain, Directory] = {}
        self._reports: list[LabelReport] = []
        self._facts: dict[Label, LabelFacts] = {}
        self._no_hub_keys = "no store record"
        self._routing: RoutingKey | None = None
        self._rechecks = _RECHECKS

    def _advance(self, count: int) -> None:
        self._done += count
        if self._show is not None:
            self._show(min(self._done, self._total), self._total)

    def report(self) -> Report:
        try:
            store = self._store()
            if store is not None:
                self._check(store)
        except FindingError as error:
            self._found.add(error.finding)
        return Report(
            level=self._level,
            findings=tuple(sorted(self._found.kept, key=lambda finding: finding.verdict == DERIVED)),
            findings_total=self._found.total,
            damages_total=self._found.damages,
            reasons=frozenset(self._found.reasons),
            notes=tuple(self._notes),
            labels=tuple(self._reports),
            no_hub_keys=self._no_hub_keys,
            lock=self._lock(),
        )

    def _check(self, store: StoreRecord) -> None:
        # What is read first may be older than what is read later, but never newer. So: sizes of the derived
        # files, then the journal, then the chunks that a running hub flushes the journal to.
        sizes = {path: self._source.size(path) or 0 for path in (layout.RECEIPTS, layout.CHECKPOINTS)}
        keys = load_keys(self._source, store.hub_id, self._hub_keys, self._level, self._found)
        self._no_hub_keys, self._routing = keys.unknown, keys.routing
        context = self._context(self._source, store, keys)
        context.journal = self._journal()
        self._list(context)
        if self._show is not None:
            self._total = self._bytes_to_read()
        before, self._found = self._found, Findings()
        for domain, label in self._labels(context):
            self._label(context, domain, label)
        self._copied_labels(context)
        for ancestor in list(keys.lineage())[1:]:
            self._archive(ancestor)
        if self._level >= Level.ROOTS:
            self._derived(context, sizes)
        # The journal may have been reread; its finding is reported before those that result from it.
        if context.journal.finding is not None:
            before.add(context.journal.finding)
        before.absorb(self._found)
        self._found = before
        self._notes = [*context.journal.notes, *self._notes][:MAX_LISTED]

    def _context(self, source: Source, store: StoreRecord, keys: Keys) -> Context:
        return Context(
            source=source,
            level=self._level,
            limits=widest_limits(store),
            rules=rules_of(store),
            keys=keys,
            reserved=reserved_labels(store.hub_id),
            archived=bool(keys.where),
        )

    # --- the parts ------------------------------------------------------------------------------------------

    def _store(self) -> StoreRecord | None:
        data = self._source.read_if_there(layout.STORE)
        if data is None:
            if not self._has_log():
                raise NotAStoreError(f"no {layout.STORE} here: this is not a data directory")
            self._found.add(
                damage(layout.STORE, None, Reason.MISSING, "it is not known which hub wrote this log")
            )
            return None
        try:
            return StoreRecord.decode(data)
        except ProtocolError as error:
            self._found.add(refused(layout.STORE, 0, error).finding)
            return None

    def _has_log(self) -> bool:
        segments = map(layout.parse_journal, self._source.names(layout.STATE_DIR))
        if any(number is not None for number in segments):
            return True
        return any(layout.parse(name) is not None for domain in Domain for name in self._source.names(domain))

    def _lock(self) -> str:
        try:
            text = (self._source.read_if_there(layout.LOCK) or b"").decode(errors="replace")
        except FindingError:  # informational only
            return ""
        return " ".join(text.split())[:_LOCK_CHARACTERS]

    def _note(self, notes: Iterable[str]) -> None:
        self._notes += islice(notes, MAX_LISTED - len(self._notes))

    def _journal(self) -> Journal:
        """Read the journal; if it has a finding, read it again."""
        journal = Journal()
        for _ in range(_ATTEMPTS):
            before = journal.finding
            try:
                journal = read_journal(self._source, self._level, self._routing)
            except FileNotFoundError as error:
                journal = Journal(
                    notes=[f"{error.filename}: a running hub deleted it before it was read; not checked"]
                )
                continue
            if journal.finding is None or journal.finding == before:
                break
        return journal

    def _list(self, context: Context) -> None:
        for domain in Domain:
            self._directories[domain] = read_directory(context.source, domain)
        for domain, directory in self._directories.items():
            self._note(f"{path}: unknown file" for path in directory.unknown)
            for label, files in directory.labels.items():
                if context.reserved.get(label, Domain.DATA) is not domain:
                    detail = f"{label.hex()} is not a label of {domain}/"
                    self._found.add(damage(files.some_path, None, Reason.UNEXPECTED, detail))

    def _bytes_to_read(self) -> int:
        paths = [layout.RECEIPTS, layout.CHECKPOINTS]
        for directory in self._directories.values():
            for files in directory.labels.values():
                paths += [item.path for item in files.chunks]
        return self._done + sum(self._source.size(path) or 0 for path in paths)

    def _labels(self, context: Context) -> list[tuple[Domain, Label]]:
        """Return the labels to check: those with files, and those that are only in the journal yet."""
        keys = [
            (domain, label) for domain, directory in self._directories.items() for label in directory.labels
        ]
        for label in context.journal.runs.keys() | context.journal.checkpoints.keys():
            domain = context.reserved.get(label, Domain.DATA)
            if label not in self._directories[domain].labels:
                keys.append((domain, label))
        if self._only is not None:
            keys = [key for key in keys if key[1] in self._only]
            absent = self._only.difference(label for _, label in keys)
            if absent:
                raise not_found("label", f"no label {min(absent).hex()} in this data directory")
        return sorted(keys)

    def _label(self, context: Context, domain: Domain, label: Label) -> None:
        """Check a label; if there are findings, check it again before they are reported."""
        label_check = self._one_label(context, domain, label)
        for _ in range(_ATTEMPTS - 1):
            if not (label_check.found.total or label_check.broken) or not self._rechecks:
                break
            before = label_check.found.kept
            self._rechecks -= 1
            self._look_again(context, domain, label)
            label_check = self._one_label(context, domain, label)
            if label_check.found.kept == before and not label_check.moved:
                break
        self._found.absorb(label_check.found)
        self._note(label_check.notes)
        self._facts[label] = label_check.facts()
        self._reports.append(_report(label_check, self._level))

    def _one_label(self, context: Context, domain: Domain, label: Label) -> LabelCheck:
        files = self._directories[domain].labels.get(label) or LabelFiles(domain, label)
        label_check = LabelCheck(context, files, partial(self._look_again, context, domain, label))
        try:
            label_check.check()
        except FileNotFoundError as error:
            label_check.notes.append(
                f"{error.filename}: a running hub moved it while it was read; not fully checked"
            )
            label_check.moved = label_check.broken = True
        return label_check

    def _look_again(self, context: Context, domain: Domain, label: Label) -> LabelFiles:
        """Reread the journal and the directory, in this order; return the label's files."""
        context.journal = self._journal()
        self._directories[domain] = read_directory(context.source, domain)
        return self._directories[domain].labels.get(label) or LabelFiles(domain, label)

    def _copied_labels(self, context: Context) -> None:
        """Report labels of the fork record that have no files."""
        for label in sorted(context.keys.copied):
            if label not in self._facts and self._only is None:
                path = layout.open_chunk(context.reserved.get(label, Domain.DATA), label, 1)
                self._found.add(damage(path, None, Reason.MISSING, f"{layout.FORK} names this label"))

    def _archive(self, keys: Keys) -> None:
        """Check the archived reserved logs of an ancestor of this fork."""
        source = self._source.below(keys.where)
        if self._only is not None or not source.names(""):
            return
        path = keys.where + layout.STORE
        try:
            data = self._source.read_if_there(path)
            if data is None:
                raise wrong(path, None, Reason.MISSING, "the parent of the fork had it")
            store = StoreRecord.decode(data)
        except ProtocolError as error:
            self._found.add(refused(path, 0, error).finding)
            return
        except FindingError as error:
            self._found.add(error.finding)
            return
        if store.hub_id != keys.hub_id:
            self._found.add(damage(path, 0, Reason.HUB_ID, "hub_id is not the one of the parent"))
        context = self._context(source, store, keys)
        for domain in (Domain.AUTHORIZE, Domain.CONTROL):
            for label, files in sorted(read_directory(source, domain).labels.items()):
                label_check = LabelCheck(context, files, partial(read_label, source, domain, label))
                label_check.check()
                self._found.absorb(label_check.found, keys.where)
                self._note(keys.where + note for note in label_check.notes)
                if context.reserved.get(label) is not domain:
                    detail = f"{label.hex()} is not a label of {domain}/"
                    path = keys.where + files.some_path
                    self._found.add(damage(path, None, Reason.UNEXPECTED, detail))
                self._reports.append(_report(label_check, self._level, keys.where))

    def _derived(self, context: Context, sizes: dict[str, int]) -> None:
        for kind in (ReceiptsCheck, CheckpointsCheck):
            partial, size = self._only is not None, self._source.size(kind.path)
            file_check = kind(context, self._facts, partial=partial, size_before=sizes[kind.path])
            file_check.check()
            # If the size has changed, a running hub has written to it.
            if file_check.found.total and self._source.size(kind.path) != size:
                file_check = kind(context, self._facts, partial=partial, size_before=sizes[kind.path])
                file_check.check()
            self._found.absorb(file_check.found)
            self._note(file_check.notes)


def _report(label_check: LabelCheck, level: Level, where: str = "") -> LabelReport:
    log, files = label_check.log, label_check.files
    followed = level >= Level.FULL and log.whole and not label_check.broken
    return LabelReport(
        domain=where + files.domain,
        label=files.label,
        ok=not label_check.found.total,
        head_seq=log.seq,
        head_root=log.root,
        newest_ts=log.newest_ts,
        newest_checkpoint=max(files.checkpoints, default=None),
        journal_entries=log.seq - label_check.in_chunks,
        pruned_to=label_check.pruned_to,
        clients=len(log.clients) if followed else None,
    )
