"""Files that are missing, cut off, in the wrong place or at odds with each other are found and named."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests import builders
from tests.storage import handmade
from tests.storage.fsck.fsck_logs import a_log, first, found, reissued
from tests.storage.handmade import Admitted, Disk
from tests.storage.stores import HUB, TINY, A, new_store
from veen.core.data_dir import paths as layout
from veen.core.data_dir.chunk_artifacts import ChunkSummary
from veen.core.data_dir.paths import Domain
from veen.core.objects.finding import INTEGRITY, Level, Location
from veen.core.types import NodeHash, Signature
from veen.storage.fs import RealFilesystem
from veen.storage.fsck import DERIVED, LEVELS, check
from veen.storage.write.retention import make_tombstone

DATA = Domain.DATA
#: Every size in long runs (make faults); in others one of some, and those of whole frames.
STEP = 1 if os.environ.get("VEEN_FLIP_STEP") == "1" else 13


# --- truncation and removal ---------------------------------------------------------------------------------


def test_a_truncated_chunk_is_found_wherever_it_ends() -> None:
    hub, label = a_log(6)
    hub.authorize(builders.cap_token())
    hub.authorize(builders.cap_token(subject="other"))
    hub.control(b"a record")
    tree = handmade.directory(hub)
    paths = [path for path in tree if path.endswith(".log")]
    assert len(paths) == 4
    frames = {len(b"".join(item.frame for item in hub.entries(label)[4:][:count])) for count in range(3)}
    for path in paths:
        for size in {*range(0, len(tree[path]), STEP), *(size for size in frames if size < len(tree[path]))}:
            finding = found(tree | {path: tree[path][:size]}, Level.ROOTS)[0]
            assert (finding.where.file, finding.verdict) == (path, INTEGRITY)
            assert finding.where.offset is not None
            assert finding.where.offset <= size


def test_a_truncated_file_beside_the_chunks_is_found_wherever_it_ends() -> None:
    hub, label = a_log()
    hub.ask(label)
    tree = handmade.prune(hub, handmade.directory(hub, index=True), label)
    others = [path for path in tree if path != layout.LOCK and not path.endswith(".log")]
    for path in others:
        for size in range(0, len(tree[path]), 13):
            names = [item.where.file for item in found(tree | {path: tree[path][:size]})]
            assert names[0] == path or path.startswith("hub-identity"), (path, size)


def test_a_removed_file_is_missed() -> None:
    hub, label = a_log()
    hub.ask(label, 6)
    hub.authorize(builders.cap_token())
    tree = handmade.directory(hub, index=True)
    optional = {layout.LOCK, "hub-identity.cbor", layout.checkpoint_index(DATA, label)}
    for path in tree:
        rest = {name: content for name, content in tree.items() if name != path}
        if path in optional:
            assert check(Disk(rest)).ok, path
            continue
        finding = found(rest)[0]
        assert (finding.where.file, finding.code) == (path, "MISSING")
        assert finding.verdict == (DERIVED if path.endswith((".cborseq", ".mmr")) else INTEGRITY)


def test_a_removed_file_of_a_pruned_chunk_is_missed() -> None:
    hub, label = a_log()
    tree = handmade.prune(hub, handmade.directory(hub), label, 2)
    for path in tree:
        rest = {name: content for name, content in tree.items() if name != path}
        if label.hex() not in path:
            continue
        assert path in [item.where.file for item in found(rest)] or path.startswith("log/pruned"), path
        assert not check(Disk(rest)).ok


def test_a_removed_label_is_missed() -> None:
    hub, label = a_log()
    other = hub.label("other")
    hub.send(other)
    tree = {path: content for path, content in handmade.directory(hub).items() if label.hex() not in path}
    path, _, reason = first(tree)
    assert (path, reason) == (layout.open_chunk(DATA, label, 1), "MISSING")


def test_a_receipt_of_an_entry_that_never_was_is_stale_and_no_proof_of_loss() -> None:
    hub, label = a_log(2)
    tree = handmade.directory(hub)
    forged = reissued(hub, hub.entries(label)[1], stream_seq=3).receipt
    unsigned = replace(forged, hub_sig=Signature(bytes(64))).encode()
    report = check(Disk(tree | {layout.RECEIPTS: tree[layout.RECEIPTS] + unsigned}))
    assert (report.integrity, report.derived) == ("ok", "stale")
    report = check(Disk(tree | {layout.RECEIPTS: tree[layout.RECEIPTS] + forged.encode()}))
    assert (report.integrity, report.findings[0].where.file) == ("damaged", layout.open_chunk(DATA, label, 1))
    assert report.completeness == "broken"


# --- order of files and entries -----------------------------------------------------------------------------


def test_swapped_chunks() -> None:
    hub, label = a_log()
    tree = handmade.directory(hub)
    one, two = layout.chunk(DATA, label, 1, 4), layout.chunk(DATA, label, 5, 8)
    swapped = tree | {one: tree[two], two: tree[one]}
    for level in LEVELS:
        assert first(swapped, level) == (one, 0, "ORDER")
    assert {item.where.file for item in found(swapped)} >= {one, two}


def test_swapped_entries() -> None:
    hub, label = a_log()
    tree = handmade.directory(hub)
    path = layout.chunk(DATA, label, 1, 4)
    frames = [item.frame for item in hub.entries(label)[:4]]
    frames[1], frames[2] = frames[2], frames[1]
    assert first(tree | {path: b"".join(frames)}, Level.FRAMES) == (path, len(frames[0]), "ORDER")


def test_an_entry_of_another_label() -> None:
    hub, label = a_log(4)
    hub.send(hub.label("other"))
    foreign = hub.events[-1]
    assert isinstance(foreign, Admitted)
    tree = handmade.directory(hub)
    path = layout.chunk(DATA, label, 1, 4)
    rest = b"".join(item.frame for item in hub.entries(label)[1:])
    assert first(tree | {path: foreign.frame + rest}) == (path, 0, "ORDER")


def test_an_extra_chunk() -> None:
    hub, label = a_log()
    tree = handmade.directory(hub)
    frames = b"".join(item.frame for item in hub.entries(label)[4:6])
    for path in (layout.chunk(DATA, label, 5, 6), layout.open_chunk(DATA, label, 3)):
        assert path in [item.where.file for item in found(tree | {path: frames})]
    behind = layout.open_chunk(DATA, label, 12)
    assert (behind, "GAP") in [(item.where.file, item.code) for item in found(tree | {behind: frames})]


def test_an_open_chunk_that_is_not_the_last() -> None:
    hub, label = a_log()
    tree = handmade.directory(hub)
    sealed, still_open = layout.chunk(DATA, label, 5, 8), layout.open_chunk(DATA, label, 5)
    content = tree.pop(sealed)
    assert (still_open, None, "BOUNDARY") == first(tree | {still_open: content})


def test_a_gap_between_chunks() -> None:
    hub, label = a_log()
    tree = handmade.directory(hub)
    del tree[layout.chunk(DATA, label, 5, 8)], tree[layout.summary(DATA, label, 5, 8)]
    assert first(tree) == (layout.open_chunk(DATA, label, 9), None, "GAP")
    assert check(Disk(tree)).completeness == "broken"


def test_a_gap_between_chunks_and_journal() -> None:
    hub, label = a_log()
    tree = handmade.directory(hub, flushed=4, journal_from=5)
    path, offset, reason = first(tree)
    assert (path, reason) == (layout.journal(7), "GAP")
    assert tree[path][offset:].startswith(hub.entries(label)[5].frame)


def test_all_damaged_chunks_of_a_label_are_named() -> None:
    hub, label = a_log(18)
    tree = handmade.directory(hub)
    bad = [layout.chunk(DATA, label, 5, 8), layout.chunk(DATA, label, 13, 16)]
    for path in bad:
        tree[path] = tree[path][:300] + b"?" + tree[path][301:]
    assert [(item.where.file, item.code) for item in found(tree)] == [(path, "ENTRY_HASH") for path in bad]


def test_bytes_behind_the_last_entry() -> None:
    hub, label = a_log()
    tree = handmade.directory(hub)
    for path in (layout.chunk(DATA, label, 5, 8), layout.open_chunk(DATA, label, 9)):
        size = len(tree[path])
        assert first(tree | {path: tree[path] + b"\x01"})[:2] == (path, size)


# --- chunk ends ---------------------------------------------------------------------------------------------


def test_a_chunk_that_ends_early() -> None:
    hub, label = a_log(6)
    entries = hub.entries(label)
    early = [handmade.Chunk(entries[:3], sealed=True), handmade.Chunk(entries[3:])]
    tree = handmade.directory(hub) | {chunk.path(): chunk.content for chunk in early}
    for path in (
        layout.chunk(DATA, label, 1, 4),
        layout.summary(DATA, label, 1, 4),
        layout.open_chunk(DATA, label, 5),
    ):
        del tree[path]
    tree[layout.summary(DATA, label, 1, 3)] = handmade.summary(hub, early[0]).encode()
    assert first(tree, Level.FRAMES) == (layout.chunk(DATA, label, 1, 3), None, "BOUNDARY")


def test_a_last_chunk_that_ends_early() -> None:
    hub, label = a_log(3)
    tree = handmade.directory(hub)
    tree[layout.chunk(DATA, label, 1, 3)] = tree.pop(layout.open_chunk(DATA, label, 1))
    assert first(tree) == (layout.chunk(DATA, label, 1, 3), None, "BOUNDARY")


def test_a_chunk_that_ends_late_by_count() -> None:
    hub, label = a_log(6)
    tree = handmade.directory(hub)
    tree[layout.chunk(DATA, label, 1, 6)] = b"".join(item.frame for item in hub.entries(label))
    del tree[layout.chunk(DATA, label, 1, 4)], tree[layout.open_chunk(DATA, label, 5)]
    path, offset, reason = first(tree, Level.FRAMES)
    assert (path, reason) == (layout.chunk(DATA, label, 1, 6), "BOUNDARY")
    assert offset == sum(len(item.frame) for item in hub.entries(label)[:4])


def test_a_chunk_that_ends_late_by_size() -> None:
    hub, label = a_log(4, size=500)
    tree = handmade.directory(hub)
    assert layout.chunk(DATA, label, 1, 2) in tree
    late = layout.open_chunk(DATA, label, 1)
    tree = {path: content for path, content in tree.items() if not path.endswith(".log")}
    tree[late] = b"".join(item.frame for item in hub.entries(label))
    assert first(tree)[::2] == (late, "BOUNDARY")


def test_a_full_chunk_with_an_open_name() -> None:
    hub, label = a_log(4)
    tree = handmade.directory(hub)
    tree[layout.open_chunk(DATA, label, 1)] = tree.pop(layout.chunk(DATA, label, 1, 4))
    assert first(tree) == (layout.open_chunk(DATA, label, 1), None, "BOUNDARY")


# --- files beside the chunks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({"total_bytes": 1}, Level.FRAMES),
        ({"label": builders.some_label()}, Level.FRAMES),
        ({"start_seq": 2, "entry_count": 3}, Level.FRAMES),
        ({"entry_hashes_root": NodeHash(bytes(32))}, Level.HASHES),
        ({"mmr_root_end": NodeHash(bytes(32))}, Level.ROOTS),
    ],
)
def test_a_wrong_summary(change: dict[str, object], level: Level) -> None:
    hub, label = a_log()
    tree = handmade.directory(hub)
    path = layout.summary(DATA, label, 1, 4)
    tree[path] = replace(ChunkSummary.decode(tree[path]), **change).encode()  # type: ignore[arg-type]
    assert [(item.where.file, item.code) for item in found(tree, level)] == [(path, "SUMMARY")]
    for lower in LEVELS:
        assert check(Disk(tree), lower).ok == (lower < level)


def test_a_summary_of_no_chunk() -> None:
    hub, label = a_log()
    tree = handmade.directory(hub)
    path = layout.summary(DATA, label, 2, 3)
    made = handmade.summary(hub, handmade.Chunk(hub.entries(label)[1:3]))
    assert first(tree | {path: made.encode()}) == (path, None, "UNEXPECTED")


def test_a_checkpoint_with_another_root_signed_by_the_hub() -> None:
    hub, label = a_log()
    tree = handmade.directory(hub)
    path = layout.checkpoint(DATA, label, 4)
    wrong = hub.checkpoint(label, 4, root=NodeHash(builders.digest("another root")))
    assert first(tree | {path: wrong.encode()}, Level.ROOTS) == (path, 0, "CHECKPOINT_ROOT")
    assert check(Disk(tree | {path: wrong.encode()}), Level.HASHES).ok


def test_a_checkpoint_of_entries_that_are_not_there() -> None:
    hub, label = a_log()
    hub.ask(label, 10)
    tree = handmade.directory(hub)
    shorter, _ = a_log(9)
    short_tree = handmade.directory(shorter)
    ahead = {path: tree[path] for path in tree if path.endswith(f"{10:020}.cbor")}
    path, _, reason = first(short_tree | ahead)
    assert (path, reason) == (layout.open_chunk(DATA, label, 9), "MISSING")


def test_peaks_without_a_checkpoint_are_noted() -> None:
    hub, label = a_log()
    hub.ask(label, 6)
    lone = layout.peaks(DATA, label, 6)
    tree = handmade.directory(hub)
    hub.events.pop()
    report = check(Disk(handmade.directory(hub) | {lone: tree[lone]}))
    assert report.ok
    assert [note.split(":")[0] for note in report.notes] == [lone]


def test_derived_files_of_another_state() -> None:
    hub, label = a_log()
    tree, before = handmade.directory(hub, index=True), handmade.directory(hub, flushed=9)
    for path in (layout.nodes(DATA, label), layout.RECEIPTS):
        finding = found(tree | {path: before[path]})[0]
        assert (finding.where, finding.verdict) == (Location(path, len(before[path])), DERIVED)
    doubled = tree | {layout.RECEIPTS: tree[layout.RECEIPTS] + tree[layout.RECEIPTS][-174:]}
    assert first(doubled)[::2] == (layout.RECEIPTS, "RECEIPTS")
    doubled = tree | {layout.CHECKPOINTS: tree[layout.CHECKPOINTS] * 2}
    assert first(doubled) == (layout.CHECKPOINTS, len(tree[layout.CHECKPOINTS]), "CHECKPOINTS")
    longer = tree | {layout.nodes(DATA, label): tree[layout.nodes(DATA, label)] + b"?" * 31}
    assert first(longer)[::2] == (layout.nodes(DATA, label), "NODES")


def test_receipts_of_labels_may_be_mixed_but_not_those_of_one_label() -> None:
    hub, label = a_log(3)
    other = hub.label("other")
    hub.send(other)
    tree = handmade.directory(hub)
    own = [item.receipt.encode() for item in hub.entries(label)]
    foreign = hub.entries(other)[0].receipt.encode()
    mixed = tree | {layout.RECEIPTS: own[0] + foreign + own[1] + own[2]}
    assert check(Disk(mixed)).ok
    swapped = tree | {layout.RECEIPTS: own[1] + foreign + own[0] + own[2]}
    assert first(swapped) == (layout.RECEIPTS, 0, "RECEIPTS")


def test_a_wrong_receipt_in_the_derived_file_is_located() -> None:
    hub, label = a_log(7)
    tree = handmade.directory(hub)
    own = [item.receipt.encode() for item in hub.entries(label)]
    own[3] = reissued(hub, hub.entries(label)[3], hub_ts=1).receipt.encode()
    offset = sum(map(len, own[:3]))
    assert first(tree | {layout.RECEIPTS: b"".join(own)}) == (layout.RECEIPTS, offset, "RECEIPTS")


def test_an_index_may_be_older_than_the_newest_checkpoint() -> None:
    """It is written on a clean stop only."""
    hub, label = a_log()
    path = layout.checkpoint_index(DATA, label)
    old = handmade.directory(hub, flushed=6, index=True)[path]
    assert check(Disk(handmade.directory(hub) | {path: old})).ok
    assert check(Disk(handmade.directory(hub, index=True) | {path: b"\xa0"})).ok


def test_a_chunk_whose_pruning_was_interrupted_is_checked(tmp_path: Path) -> None:
    """The tombstone is durable, the index does not say "pruned" yet: the chunk counts, with its damage."""
    fs = RealFilesystem(tmp_path / "data")
    store = new_store(fs)
    for _ in range(6):
        store.append(A)
    store.writer.flush()
    with store.writer.reader.snapshot() as view:
        state = view.label(A)
        assert state is not None
        row = next(view.chunks(state.number))
    made = make_tombstone(fs, state, row, TINY)
    tombstone = layout.tombstone(Domain.DATA, A, 1, 4)
    (tmp_path / "data" / tombstone).write_bytes(made.encode())
    store.writer.close()
    report = check(fs, hub_keys=[HUB.public_key])
    assert report.ok
    assert any(tombstone in note for note in report.notes)
    chunk = tmp_path / "data" / layout.chunk(Domain.DATA, A, 1, 4)
    data = bytearray(chunk.read_bytes())
    data[100] ^= 1
    chunk.write_bytes(data)
    assert check(fs, hub_keys=[HUB.public_key]).findings[0].where.file == layout.chunk(Domain.DATA, A, 1, 4)
