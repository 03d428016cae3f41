"""The checker on directories that are as they should be: every form that the format allows is accepted."""

import errno
from pathlib import Path

import pytest

from tests import builders
from tests.storage import handmade, handmade_fork
from tests.storage.handmade import Disk, Hub, Tree
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import Registry
from veen.core.errors import Code
from veen.core.limits import Limits
from veen.core.objects.finding import Level
from veen.core.types import Label
from veen.storage.errors import NotAStoreError
from veen.storage.fs import RealFilesystem
from veen.storage.fsck import LEVELS, Report, check


def a_history() -> tuple[Hub, Label, Label]:
    """Return a hub with two labels, three clients, both reserved logs, asked checkpoints and two keys."""
    hub = Hub(later_keys={1_006: "second key"})
    first, second = hub.label("first"), hub.label("second", epoch=3)
    token = builders.cap_token(links=2)
    hub.authorize(token)
    hub.control(b"a record")
    for number in range(9):
        hub.send(first, f"client {number % 2}", auth=token.auth_ref if number == 3 else None)
        if number % 2:
            hub.send(second, "client 2", size=400)
        if number in (2, 6):
            hub.ask(first)
    hub.ask(second, 1)
    return hub, first, second


def clean(tree: Tree, level: Level = Level.FULL) -> Report:
    """Check a directory that nothing is wrong with."""
    report = check(Disk(tree), level)
    assert [str(finding) for finding in report.findings] == []
    assert report.notes == ()
    assert report.ok
    return report


def heads(report: Report) -> dict[Label, int]:
    return {item.label: item.head_seq for item in report.labels}


# --- forms of a directory -----------------------------------------------------------------------------------


def test_everything_in_chunks() -> None:
    hub, first, second = a_history()
    report = clean(handmade.directory(hub, index=True))
    assert (report.integrity, report.signatures, report.completeness, report.derived) == ("ok",) * 4
    assert [item.domain for item in report.labels] == ["authorize", "control", "log", "log"]
    assert [(item.head_seq, item.clients) for item in report.labels[:2]] == [(1, 0), (1, 0)]
    assert report.journal_entries == 0
    by_label = {item.label: item for item in report.labels}
    assert [(by_label[label].head_seq, by_label[label].clients) for label in (first, second)] == [
        (9, 2),
        (4, 1),
    ]
    assert by_label[first].head_root == hub.entries(first)[-1].receipt.mmr_root
    assert by_label[first].newest_ts == hub.entries(first)[-1].receipt.hub_ts
    assert by_label[first].newest_checkpoint == 8
    assert report.lock == "pid 4711"


@pytest.mark.parametrize("segment_events", [1, 3, 100])
def test_any_part_of_it_only_in_the_journal(segment_events: int) -> None:
    hub, first, second = a_history()
    entries = [event for event in hub.events if isinstance(event, handmade.Admitted)]
    for flushed in range(len(hub.events) + 1):
        report = clean(handmade.directory(hub, flushed=flushed, segment_events=segment_events))
        moved = [event for event in hub.events[:flushed] if isinstance(event, handmade.Admitted)]
        assert report.journal_entries == len(entries) - len(moved)
        assert heads(report)[first] == 9
        assert heads(report)[second] == 4


def test_a_journal_that_was_moved_but_not_deleted_yet() -> None:
    hub, *_ = a_history()
    for journal_from in range(len(hub.events)):
        report = clean(handmade.directory(hub, journal_from=journal_from, segment_events=4))
        assert report.journal_entries == 0


@pytest.mark.parametrize("level", LEVELS)
def test_each_level(level: Level) -> None:
    hub, *_ = a_history()
    report = clean(handmade.directory(hub, flushed=10, index=True), level)
    assert report.integrity == ("not checked" if level == Level.FRAMES else "ok")
    assert report.signatures == ("ok" if level == Level.FULL else f"not checked: level {level.name.lower()}")
    assert report.completeness == ("ok" if level == Level.FULL else "not checked")
    assert report.derived == ("ok" if level >= Level.ROOTS else "not checked")


def test_an_empty_directory() -> None:
    report = clean(handmade.directory(Hub()))
    assert (report.labels, report.integrity, report.completeness) == ((), "ok", "ok")


def test_on_a_disk(tmp_path: Path) -> None:
    hub, *_ = a_history()
    handmade.write(tmp_path, handmade.directory(hub, flushed=9))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    files = RealFilesystem(tmp_path)
    assert check(files).ok
    files.close()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_progress_ends_where_it_should() -> None:
    hub, *_ = a_history()
    seen: list[tuple[int, int]] = []
    check(Disk(handmade.directory(hub)), progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] > 0


# --- compression, pruning, limits, forks --------------------------------------------------------------------


def sealed_chunks(tree: Tree) -> list[str]:
    return sorted(path for path in tree if path.endswith(".log") and "-open" not in path)


def test_compressed_chunks() -> None:
    hub, *_ = a_history()
    tree = handmade.directory(hub)
    for path in sealed_chunks(tree):
        tree = handmade.compress(tree, path)
    assert sealed_chunks(tree) == []
    clean(tree)


def test_a_chunk_in_both_forms_is_noted() -> None:
    hub, *_ = a_history()
    tree = handmade.directory(hub)
    path = sealed_chunks(tree)[0]
    report = check(Disk(tree | handmade.compress(tree, path)))
    assert report.ok
    assert [note.split(":")[0] for note in report.notes] == [path + ".bz2"]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("with_receipts", [True, False])
def test_pruned_chunks(count: int, with_receipts: bool) -> None:  # noqa: FBT001 - a parameter of the test
    hub, first, _ = a_history()
    tree = handmade.prune(hub, handmade.directory(hub, index=True), first, count)
    if not with_receipts:  # as veen repair would make the file anew
        pruned = b"".join(item.receipt.encode() for item in hub.entries(first)[: 4 * count])
        assert pruned in tree[paths.RECEIPTS]
        tree[paths.RECEIPTS] = tree[paths.RECEIPTS].replace(pruned, b"")
    report = clean(tree)
    assert report.completeness == "ok"
    assert report.to_json()["pruned"] == [[first.hex(), 1, 4 * count]]
    assert heads(report)[first] == 9


def test_pruned_chunks_with_the_rest_in_the_journal() -> None:
    hub, first, _ = a_history()
    flushed = hub.events.index(hub.entries(first)[7]) + 1
    tree = handmade.prune(hub, handmade.directory(hub, flushed=flushed), first, 2)
    report = clean(tree)
    assert heads(report)[first] == 9


def test_a_chunk_that_pruning_has_not_deleted_yet_is_noted() -> None:
    hub, first, _ = a_history()
    tree = handmade.directory(hub)
    report = check(Disk(tree | handmade.prune(hub, tree, first)))
    assert report.ok
    assert [note.split(": ")[0] for note in report.notes] == [paths.tombstone(Domain.DATA, first, 1, 4)]


def test_chunks_end_by_the_limits_of_their_time() -> None:
    wide = Limits(max_msg_bytes=1_000, max_chunk_bytes=20_000, max_checkpoint_interval=6)
    narrow = Limits(max_msg_bytes=1_000, max_chunk_bytes=1_300, max_checkpoint_interval=2)
    registries = (
        Registry.of(wide),
        Registry.of(narrow, effective_from=1_008),
        Registry.of(wide, effective_from=1_012),
    )
    hub = Hub(registries=registries)
    label = hub.label("a")
    for _ in range(20):
        hub.send(label)
    tree = handmade.directory(hub)
    ends = [int(path[-24:-4]) for path in sealed_chunks(tree)]
    assert ends == [6, 8, 10, 12, 18]
    for flushed in range(21):
        clean(handmade.directory(hub, flushed=flushed))
    other = tree | {paths.STORE: Hub(registries=registries[:1]).store.encode()}
    assert [item.code for item in check(Disk(other)).findings][:1] == ["BOUNDARY"]


def test_an_entry_larger_than_a_chunk_has_one_to_itself() -> None:
    """A token may be larger than max_chunk_bytes: only the largest message must fit."""
    small = Limits(max_msg_bytes=300, max_chunk_bytes=600, max_checkpoint_interval=4)
    hub = Hub(registries=(Registry.of(small),))
    for links in (1, 8, 8, 2):
        hub.authorize(builders.cap_token(subject=f"subject {links} {hub.clock}", links=links))
    assert len(hub.entries(hub.entries_of(Domain.AUTHORIZE)[0].label)[1].frame) > 600
    clean(handmade.directory(hub))


def a_fork() -> tuple[Hub, Hub]:
    parent, *_ = a_history()
    child = Hub(name="child", clock=3_000)
    for _ in range(5):
        child.send(child.label("first"))
    child.authorize(builders.cap_token())
    return parent, child


def test_a_fork() -> None:
    report = clean(handmade_fork.fork(*a_fork()))
    assert len(report.labels) == 6
    assert report.signatures == "ok"


def test_a_fork_without_the_identity_of_its_parent() -> None:
    tree = handmade_fork.fork(*a_fork())
    del tree["archive/hub-identity.cbor"]
    report = clean(tree)
    assert report.signatures == "not checked: no identity of the parent hub"


# --- keys ---------------------------------------------------------------------------------------------------


def without_identity(tree: Tree) -> Tree:
    return {path: content for path, content in tree.items() if not path.startswith("hub-identity")}


def test_without_an_identity_signatures_of_the_hub_are_not_checked() -> None:
    hub, *_ = a_history()
    report = clean(without_identity(handmade.directory(hub)))
    assert report.signatures == "not checked: no hub identity"


def test_keys_by_hand_take_the_place_of_the_identity() -> None:
    hub, *_ = a_history()
    tree = without_identity(handmade.directory(hub))
    keys = [builders.verify_key("hub"), builders.verify_key("second key")]
    report = check(Disk(tree), hub_keys=keys)
    assert (report.ok, report.signatures) == (True, "ok")
    report = check(Disk(tree), hub_keys=keys[1:])
    assert {item.code for item in report.findings} == {"SIG_INVALID"}


def test_an_identity_may_be_signed_by_a_key_given_by_hand() -> None:
    hub, *_ = a_history()
    tree = handmade.directory(hub)
    tree["hub-identity.sig"] = hub.identity.sign(builders.signing_key("offline root"))
    assert check(Disk(tree)).findings[0].where.file == "hub-identity.sig"
    keys = [builders.verify_key(name) for name in ("offline root", "hub", "second key")]
    assert check(Disk(tree), hub_keys=keys).ok


# --- names --------------------------------------------------------------------------------------------------


def test_names_that_are_not_ours_are_noted_and_unfinished_files_ignored() -> None:
    hub, first, _ = a_history()
    tree = handmade.directory(hub)
    tree |= {"log/notes.txt": b"", "log/chunk-1-2.log": b"x", "control/x": b""}
    tree[paths.chunk(Domain.DATA, first, 99, 100) + ".tmp"] = b"half"
    report = check(Disk(tree))
    assert report.ok
    assert [note.split(":")[0] for note in report.notes] == [
        "log/chunk-1-2.log",
        "log/notes.txt",
        "control/x",
    ]


def test_what_is_no_data_directory() -> None:
    with pytest.raises(NotAStoreError):
        check(Disk({}))
    with pytest.raises(NotAStoreError):
        check(Disk({"log/syslog": b"", "state/lock": b""}))


def test_a_log_without_its_store_record_is_damaged() -> None:
    hub, *_ = a_history()
    for flushed in (0, None):
        tree = handmade.directory(hub, flushed=flushed)
        del tree[paths.STORE]
        report = check(Disk(tree))
        assert [(item.where.file, item.code) for item in report.findings] == [(paths.STORE, "MISSING")]
        assert report.integrity == "damaged"


# --- one label ----------------------------------------------------------------------------------------------


def test_only_some_labels() -> None:
    hub, first, second = a_history()
    tree = handmade.directory(hub, flushed=12)
    path = next(path for path in tree if f"chunk-{second.hex()}" in path)
    damaged = tree | {path: b"\xff" + tree[path][1:]}
    report = check(Disk(damaged), labels=[first])
    assert report.ok
    assert heads(report) == {first: 9}
    assert not check(Disk(damaged), labels=[second]).ok
    assert not check(Disk(damaged), labels=[first, second]).ok


def test_a_label_that_is_not_there() -> None:
    hub, *_ = a_history()
    with pytest.raises(Exception, match="no label") as caught:
        check(Disk(handmade.directory(hub)), labels=[builders.some_label()])
    assert getattr(caught.value, "code", None) == Code.NOT_FOUND


# --- bounds -------------------------------------------------------------------------------------------------


def test_findings_are_kept_up_to_a_bound_and_counted_beyond() -> None:
    hub = Hub()
    for number in range(120):
        hub.send(hub.label(f"stream {number}"))
    tree = handmade.directory(hub)
    for path in tree:
        if path.startswith("log/chunk"):
            tree[path] = tree[path][:-1]
    report = check(Disk(tree))
    assert (len(report.findings), report.findings_total) == (100, 120)


class Unreadable(Disk):
    """A disk with one bad file."""

    def __init__(self, tree: Tree, bad: str, error: OSError) -> None:
        super().__init__(tree)
        self.bad = bad
        self.error = error

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if path == self.bad:
            raise self.error
        return super().read(path, offset, length)


def test_a_file_that_can_not_be_read_is_named() -> None:
    hub, first, _ = a_history()
    flushed = handmade.directory(hub, flushed=9, index=True)
    for tree in (handmade.prune(hub, handmade.directory(hub), first), flushed, handmade_fork.fork(*a_fork())):
        assert check(Unreadable(tree, paths.LOCK, OSError(errno.EIO, "Input/output error"))).ok
        for path in sorted(tree.keys() - {paths.LOCK}):
            report = check(Unreadable(tree, path, OSError(errno.EIO, "Input/output error")))
            assert path in [item.where.file for item in report.findings], path


def test_missing_permission_is_nobodys_damage() -> None:
    hub, *_ = a_history()
    tree = handmade.directory(hub)
    with pytest.raises(PermissionError):
        check(Unreadable(tree, paths.STORE, PermissionError(errno.EACCES, "Permission denied")))
