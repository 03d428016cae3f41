"""A flush that was interrupted, and a hub that works while the checker reads: neither is damage."""

import itertools
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage import handmade
from tests.storage.fsck.fsck_logs import a_log, first, several_labels
from tests.storage.handmade import Disk, Hub, Tree
from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain
from veen.core.objects.finding import Level
from veen.core.types import Label
from veen.storage.fsck import Report, check

DATA = Domain.DATA


# --- any state between two ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Growth:
    """A file that a flush makes longer: its content before (empty: it was not there) and after."""

    names: tuple[str, ...]
    before: bytes
    after: bytes
    existed: bool
    #: The name that it has only when it is complete.
    final: str | None = None


def growths(before: Tree, after: Tree) -> list[Growth]:
    """Return how a flush gets from one directory to the other."""
    made = []
    for path, content in sorted(after.items()):
        old = before.get(path, b"")
        if old == content:
            continue
        still_open = _open_name(path)
        if still_open in before:  # an open chunk that is complete now: renamed when it is durable
            made.append(Growth((still_open,), before[still_open], content, existed=True, final=path))
        elif still_open is not None:  # a chunk that is all new may be written under either name
            made.append(Growth((still_open, path), b"", content, existed=False))
        else:
            made.append(Growth((path,), old, content, existed=path in before))
    return made


def _open_name(path: str) -> str | None:
    """Return the open name of a sealed chunk."""
    if not path.endswith(".log") or path.endswith("open.log"):
        return None
    name = paths.parse(path.removeprefix("log/"))
    assert name is not None
    assert name.start_seq is not None
    return paths.open_chunk(DATA, name.label, name.start_seq)


@st.composite
def interrupted(draw: st.DrawFn, before: Tree, after: Tree) -> Tree:
    """Return a directory in which each file got anywhere on its way, with zeros where data was to come."""
    tree = dict(before)
    for growth in growths(before, after):
        if growth.final is not None and draw(st.booleans()):
            del tree[growth.names[0]]
            tree[growth.final] = growth.after
            continue
        if not growth.existed and draw(st.booleans()):
            continue
        added = growth.after[len(growth.before) :]
        ends = [0, len(added)]
        written = draw(st.sampled_from(ends) | st.integers(0, len(added)))
        blank = draw(st.just(0) | st.integers(0, len(added) - written))
        name = growth.names[draw(st.integers(0, len(growth.names) - 1))]
        tree[name] = growth.before + added[:written] + bytes(blank)
    return tree


def steps(hub: Hub, start: int, end: int) -> tuple[Tree, Tree]:
    """Return the directory before and after a flush of these events; the journal is there all the time."""
    return (
        handmade.directory(hub, flushed=start, journal_from=start),
        handmade.directory(hub, flushed=end, journal_from=start),
    )


HUB, FIRST, SECOND = several_labels()
POINTS = [(0, 16), (3, 9), (5, 16), (9, 12)]


@pytest.mark.sweep
@pytest.mark.parametrize(("start", "end"), POINTS)
@given(data=st.data())
def test_an_interrupted_flush_is_no_damage(start: int, end: int, data: st.DataObject) -> None:
    before, after = steps(HUB, start, end)
    tree = data.draw(interrupted(before, after))
    report = check(Disk(tree), Level.ROOTS)
    assert [str(finding) for finding in report.findings] == []
    assert {item.label: item.head_seq for item in report.labels} == {
        event.label: event.seq for event in HUB.events if isinstance(event, handmade.Admitted)
    }
    if tree in (before, after):
        assert report.notes == ()


@pytest.mark.sweep
@given(data=st.data())
def test_the_same_without_the_journal_is_damage(data: st.DataObject) -> None:
    """Nothing passes that is not exactly the directory after some of the entries."""
    hub, _ = a_log(10)
    before, after = steps(hub, 2, 10)
    tree = data.draw(interrupted(before, after))
    tree = {path: content for path, content in tree.items() if not path.endswith(".wal")}
    report = check(Disk(tree), Level.ROOTS)
    whole = [handmade.directory(hub, flushed=count, journal_from=10) for count in range(2, 11)]
    assert report.ok == (tree in whole)


# --- some of them one by one --------------------------------------------------------------------------------


def flushing(start: int = 2, end: int = 6) -> tuple[Tree, Tree, Label]:
    hub, label = a_log(6)
    before, after = steps(hub, start, end)
    return before, after, label


def noted(tree: Tree) -> list[str]:
    report = check(Disk(tree))
    assert [str(finding) for finding in report.findings] == []
    assert all("interrupted flush, will be redone at start" in note for note in report.notes)
    return [note.split(" at byte ")[0].split(": ")[0] for note in report.notes]


def without_journal(tree: Tree) -> Tree:
    return {path: content for path, content in tree.items() if not path.endswith(".wal")}


def test_an_open_chunk_breaks_off() -> None:
    before, after, label = flushing()
    path = paths.open_chunk(DATA, label, 1)
    content = after[paths.chunk(DATA, label, 1, 4)]
    for size in range(len(before[path]) + 1, len(content), 50):
        tree = before | {path: content[:size]}
        assert path in noted(tree)
        assert path in [item.where.file for item in check(Disk(without_journal(tree))).findings]


def test_what_was_there_before_the_flush_must_be_whole() -> None:
    before, _, label = flushing()
    path = paths.open_chunk(DATA, label, 1)
    for size in range(0, len(before[path]), 50):
        assert first(before | {path: before[path][:size]})[0] == path


def test_a_sealed_name_is_missing() -> None:
    before, after, label = flushing()
    content = after[paths.chunk(DATA, label, 1, 4)]
    tree = dict(after)
    del tree[paths.chunk(DATA, label, 1, 4)]
    tree[paths.open_chunk(DATA, label, 1)] = content
    assert paths.open_chunk(DATA, label, 1) in noted(tree)
    assert first(without_journal(tree))[::2] == (paths.open_chunk(DATA, label, 1), "BOUNDARY")
    assert paths.open_chunk(DATA, label, 1) in before


@pytest.mark.parametrize("kind", [paths.peaks, paths.checkpoint])
def test_a_file_beside_a_new_chunk_is_missing_or_torn(kind: object) -> None:
    _, after, label = flushing()
    path = paths.peaks(DATA, label, 4) if kind is paths.peaks else paths.checkpoint(DATA, label, 4)
    rest = {name: content for name, content in after.items() if name != path}
    for tree in (rest, rest | {path: b""}, rest | {path: after[path][:-1] + b"\x00"}):
        assert path in noted(tree)
        assert first(without_journal(tree))[0] == path


def test_a_chunk_with_a_sealed_name_was_durable() -> None:
    """A chunk is renamed when its content is on the disk: what differs then was changed later."""
    _, after, label = flushing()
    path = paths.chunk(DATA, label, 1, 4)
    changed = after[path][:-1] + bytes([after[path][-1] ^ 1])
    assert first(after | {path: changed})[::2] == (path, "CONFLICT")


def test_a_chunk_ended_by_the_first_entry_of_the_journal() -> None:
    """The entry that is too much for a chunk ends it, so it stays open until that entry is moved."""
    hub, label = a_log(2, size=500)
    hub.send(label, "client 0", size=500)
    before, after = steps(hub, 2, 3)
    assert paths.open_chunk(DATA, label, 1) in before
    assert paths.chunk(DATA, label, 1, 2) in after
    assert noted(before) == noted(after) == []
    for path in (paths.summary(DATA, label, 1, 2), paths.checkpoint(DATA, label, 2)):
        torn = after | {path: after[path][:-1] + b"\x00"}
        assert path in noted(torn)
        assert first(without_journal(torn))[0] == path


def test_a_checkpoint_at_the_end_of_the_chunks_is_finished_if_no_chunk_ends_there() -> None:
    hub, label = a_log(3)
    hub.ask(label, 2)
    hub.send(label)
    tree = handmade.directory(hub, flushed=4)
    checkpoint, peaks = paths.checkpoint(DATA, label, 2), paths.peaks(DATA, label, 2)
    hub2, _ = a_log(2)
    hub2.ask(label, 2)
    hub2.send(label, "client 0")
    tree = handmade.directory(hub2, flushed=3)
    assert noted(tree) == []
    for path in (checkpoint, peaks):
        assert first(tree | {path: tree[path][:-1]})[0] == path


def test_files_of_the_newest_entry_that_no_flush_will_write() -> None:
    hub, label = a_log(6)
    tree = handmade.directory(hub, flushed=4)
    path = paths.peaks(DATA, label, 6)
    assert first(tree | {path: tree[paths.peaks(DATA, label, 4)]})[0] == path


# --- a hub at work ------------------------------------------------------------------------------------------


class Moving(Disk):
    """A disk on which a hub works: after so many looks it is in its next state."""

    def __init__(self, states: list[Tree], moves: list[int]) -> None:
        super().__init__(states[0])
        self._states = states
        self._moves = moves
        self._looks = 0

    def _look(self) -> None:
        self._looks += 1
        self.tree = self._states[sum(self._looks > move for move in self._moves)]

    def names(self, directory: str) -> list[str]:
        self._look()
        return super().names(directory)

    def size(self, path: str) -> int | None:
        self._look()
        return super().size(path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self._look()
        return super().read(path, offset, length)


def at_work(hub: Hub) -> list[Tree]:
    """Return the states of a directory while a hub moves a segment and writes the next one."""
    return [
        handmade.directory(hub, flushed=4, journal_from=4, segment_events=6),
        handmade.directory(hub, flushed=10, journal_from=4, segment_events=6),
        handmade.directory(hub, flushed=10, journal_from=10, segment_events=6, first_segment=8),
    ]


def test_a_hub_moves_entries_while_they_are_checked() -> None:
    states = at_work(HUB)
    looks = _count_looks(states[0])
    for first_move, distance in itertools.product(range(0, looks, 3), (0, 1, 5, 20, 1_000)):
        report = check(Moving(states, [first_move, first_move + distance]))
        assert _problems(report) == [], (first_move, distance)


@pytest.mark.parametrize("interval", [6, 15, 40, 100])
def test_a_busy_hub(interval: int) -> None:
    """The log grows and moves all the time; what was there at the beginning is checked."""
    hub, label = a_log(60)
    states = [
        handmade.directory(
            replace(hub, events=hub.events[: done + 8]),
            flushed=done,
            segment_events=4,
            first_segment=done // 4,
        )
        for done in range(8, 53, 4)
    ]
    moves = [interval * number for number in range(1, len(states))]
    report = check(Moving(states, moves))
    assert _problems(report) == []
    assert [item.label for item in report.labels] == [label]
    assert report.labels[0].head_seq >= 16


def test_a_chunk_is_compressed_or_pruned_while_it_is_checked() -> None:
    tree = handmade.directory(HUB)
    packed = handmade.compress(tree, paths.chunk(DATA, FIRST, 1, 4))
    pruned = handmade.prune(HUB, packed | tree, FIRST)
    pruned.pop(paths.chunk(DATA, FIRST, 1, 4) + ".bz2", None)
    for state in (packed, pruned):
        for move in range(_count_looks(tree)):
            assert _problems(check(Moving([tree, state], [move]))) == [], move


def _count_looks(tree: Tree) -> int:
    disk = Moving([tree], [])
    check(disk)
    return disk._looks


def _problems(report: Report) -> list[str]:
    return [str(finding) for finding in report.findings]


def test_damage_is_reported_although_a_hub_is_at_work() -> None:
    path = paths.chunk(DATA, FIRST, 1, 4)
    states = [tree | {path: tree.get(path, b"")[:-1]} for tree in at_work(HUB)]
    assert path in [item.where.file for item in check(Moving(states, [20, 40])).findings]
