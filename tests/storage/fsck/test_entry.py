"""Entries that should not be in a log are found: wrong roots, times, clients and signatures."""

from dataclasses import replace

import pytest

from tests import builders
from tests.storage import handmade, handmade_fork
from tests.storage.fsck.fsck_logs import a_log, first, found, reissued, replaced
from tests.storage.handmade import Disk, Hub, Tree
from veen.core.data_dir import paths
from veen.core.data_dir.chunk_artifacts import PeakSnapshot
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import ForkRecord, Tombstone
from veen.core.objects.entry import Entry
from veen.core.objects.finding import Level
from veen.core.objects.hub_identity import ForkParent
from veen.core.types import Label, LeafHash, NodeHash, Signature
from veen.storage.fsck import LEVELS, check

DATA = Domain.DATA


# --- content ------------------------------------------------------------------------------------------------


def test_a_wrong_root_signed_by_the_hub() -> None:
    hub, label = a_log()
    bad = reissued(hub, hub.entries(label)[5], mmr_root=NodeHash(builders.digest("another root")))
    replaced(hub, label, 6, bad)
    tree = handmade.directory(hub)
    path = paths.chunk(DATA, label, 5, 8)
    assert first(tree, Level.ROOTS) == (path, len(hub.entries(label)[4].frame), "PROOF_ROOT")
    assert check(Disk(tree), Level.HASHES).ok


def test_a_leaf_that_is_not_the_message() -> None:
    hub, label = a_log(2)
    bad = reissued(hub, hub.entries(label)[1], leaf_hash=LeafHash(builders.digest("another leaf")))
    replaced(hub, label, 2, bad)
    assert first(handmade.directory(hub), Level.HASHES)[::2] == (
        paths.open_chunk(DATA, label, 1),
        "LEAF_HASH",
    )
    assert check(Disk(handmade.directory(hub)), Level.FRAMES).ok


def test_a_receipt_of_another_place() -> None:
    hub, label = a_log(2)
    item = hub.entries(label)[1]
    other = reissued(hub, item, label=builders.some_label())
    frame = other.frame[:2] + label + other.frame[34:]
    replaced(hub, label, 2, replace(item, frame=frame))
    assert first(handmade.directory(hub))[2] == "ENTRY_RECEIPT"


def test_time_that_goes_back() -> None:
    hub, label = a_log(2)
    hub.clock = 500
    hub.send(label)
    assert first(handmade.directory(hub), Level.ROOTS)[2] == "HUB_TS"
    assert first(handmade.directory(hub, flushed=2), Level.ROOTS)[2] == "HUB_TS"


def test_time_that_goes_back_between_labels_shows_in_the_journal() -> None:
    hub, _ = a_log(2)
    hub.clock = 500
    hub.send(hub.label("other"))
    assert first(handmade.directory(hub, flushed=0), Level.ROOTS)[::2] == (paths.journal(7), "HUB_TS")
    assert check(Disk(handmade.directory(hub)), Level.ROOTS).ok


@pytest.mark.parametrize(("client_seq", "reason"), [(5, "DUPLICATE"), (7, "CLIENT_SEQ"), (1, "DUPLICATE")])
def test_client_seq_is_not_the_next(client_seq: int, reason: str) -> None:
    hub, label = a_log()
    hub.send(label, "client 0", client_seq=client_seq)
    tree = handmade.directory(hub)
    assert first(tree)[::2] == (paths.open_chunk(DATA, label, 9), reason)
    assert check(Disk(tree), Level.ROOTS).ok
    assert check(Disk(tree)).completeness == "broken"
    assert first(handmade.directory(hub, flushed=10))[::2] == (paths.journal(7), reason)


def test_client_seq_starts_at_1() -> None:
    hub, label = a_log()
    hub.send(label, "new", client_seq=2)
    assert first(handmade.directory(hub))[2] == "CLIENT_SEQ"


@pytest.mark.parametrize("prev_ack", [5, 11])
def test_prev_ack_went_back_or_is_beyond_the_head(prev_ack: int) -> None:
    hub, label = a_log()
    hub.send(label, "client 0", prev_ack=prev_ack)
    assert first(handmade.directory(hub))[2] == "PREV_ACK"


def test_signatures() -> None:
    hub, label = a_log(2)
    item = hub.entries(label)[1]
    assert item.msg is not None
    hub_unsigned = replace(item.receipt, hub_sig=Signature(bytes(64)))
    client_unsigned = replace(item.msg, sig=Signature(bytes(64)))
    for body, receipt in ((item.msg, hub_unsigned), (client_unsigned, item.receipt)):
        replaced(hub, label, 2, replace(item, frame=Entry(body.encode(), receipt).encode(), receipt=receipt))
        tree = handmade.directory(hub)
        path = paths.open_chunk(DATA, label, 1)
        assert first(tree) == (path, len(hub.entries(label)[0].frame), "SIG_INVALID")
        assert check(Disk(tree), Level.ROOTS).ok
        hub.events[1] = item


def test_a_key_that_was_not_active() -> None:
    hub, label = a_log(2)
    late = Hub(later_keys={1_001: "second key"})
    tree = handmade.directory(hub) | {
        "hub-identity.cbor": late.identity.encode(),
        "hub-identity.sig": late.identity.sign(builders.signing_key("hub")),
    }
    path = paths.open_chunk(DATA, label, 1)
    assert first(tree) == (path, len(hub.entries(label)[0].frame), "SIG_INVALID")


def test_a_token_that_does_not_verify() -> None:
    hub = Hub()
    token = builders.cap_token()
    forged = replace(token, sig_chain=(Signature(bytes(64)),))
    hub.authorize(token)
    hub.authorize(forged)
    tree = handmade.directory(hub)
    path = next(path for path in tree if path.endswith("open.log"))
    assert first(tree)[::2] == (path, "CAP_INVALID")
    assert check(Disk(tree), Level.ROOTS).ok


def test_a_leaf_that_is_not_the_token_or_the_record() -> None:
    for domain in (Domain.AUTHORIZE, Domain.CONTROL):
        hub = Hub()
        item = hub.authorize(builders.cap_token()) if domain is Domain.AUTHORIZE else hub.control(b"a record")
        bad = reissued(hub, item, leaf_hash=LeafHash(bytes(32)), mmr_root=NodeHash(bytes(32)))
        replaced(hub, item.label, 1, bad)
        path = paths.open_chunk(domain, item.label, 1)
        assert first(handmade.directory(hub), Level.HASHES) == (path, 0, "LEAF_HASH")


def test_receipts_and_checkpoints_of_reserved_logs_are_not_in_the_derived_files() -> None:
    hub, _ = a_log(2)
    token = hub.authorize(builders.cap_token())
    tree = handmade.directory(hub)
    size = len(tree[paths.RECEIPTS])
    added = tree | {paths.RECEIPTS: tree[paths.RECEIPTS] + token.receipt.encode()}
    assert first(added) == (paths.RECEIPTS, size, "RECEIPTS")
    added = tree | {paths.CHECKPOINTS: hub.checkpoint(token.label, 1).encode()}
    assert first(added) == (paths.CHECKPOINTS, 0, "CHECKPOINTS")


def test_an_identity_of_another_hub() -> None:
    hub, _ = a_log(2)
    other = Hub(name="other")
    tree = handmade.directory(hub) | {paths.STORE: other.store.encode()}
    assert first(tree)[::2] == (paths.STORE, "HUB_ID")


def test_a_reserved_log_of_another_hub() -> None:
    other = Hub(name="other")
    other.authorize(builders.cap_token())
    tree = handmade.directory(Hub()) | handmade.chunk_files(other, other.events)
    assert first(tree)[2] == "UNEXPECTED"


# --- compression and pruning --------------------------------------------------------------------------------


def test_compressed_chunks_that_do_not_unpack() -> None:
    hub, label = a_log()
    plain = paths.chunk(DATA, label, 1, 4)
    tree = handmade.compress(handmade.directory(hub), plain)
    path = plain + ".bz2"
    for content in (b"", tree[path][:-1], tree[path] + b"\x00", tree[path] * 2, b"BZh9" + bytes(50)):
        assert first(tree | {path: content})[::2] == (path, "COMPRESSION")
    both = handmade.directory(hub) | {path: tree[path]}
    both[path] = handmade.compress({plain: both[plain][:-1]}, plain)[path]
    assert first(both)[::2] == (path, "COMPRESSION")


def test_a_compressed_chunk_larger_than_any_chunk_is_not_unpacked() -> None:
    hub, label = a_log()
    plain = paths.chunk(DATA, label, 1, 4)
    tree = handmade.compress(handmade.directory(hub) | {plain: bytes(1_000_000)}, plain)
    finding = found(tree)[0]
    assert finding.code == "COMPRESSION"
    assert "more than" in finding.text


@pytest.mark.parametrize(
    "change",
    [
        {"total_bytes": 1},
        {"first_ts": 1_004},
        {"mmr_root_end": NodeHash(bytes(32))},
        {"clients": ()},
        {"end_seq": 5},
        {"label": builders.some_label()},
    ],
)
def test_a_wrong_tombstone(change: dict[str, object]) -> None:
    hub, label = a_log()
    tree = handmade.prune(hub, handmade.directory(hub), label, 2)
    path = paths.tombstone(DATA, label, 1, 4)
    stone = Tombstone.decode(tree[path])
    last_ts = {"last_ts": 1_005} if "first_ts" in change else {}
    tree[path] = replace(stone, **(change | last_ts)).encode()  # type: ignore[arg-type]
    assert label.hex() in first(tree)[0]
    assert first(tree)[0].startswith("log/pruned")


def test_tombstones_out_of_time() -> None:
    hub, label = a_log()
    token = builders.cap_token()
    hub.events.clear()
    for _ in range(10):
        hub.send(label, auth=token.auth_ref)
    tree = handmade.prune(hub, handmade.directory(hub), label, 2)
    path = paths.tombstone(DATA, label, 5, 8)
    stone = Tombstone.decode(tree[path])
    early = replace(stone, first_ts=hub.entries(label)[3].receipt.hub_ts - 1)
    assert first(tree | {path: early.encode()}) == (path, 0, "HUB_TS")
    use = replace(stone.first_uses[0], hub_ts=stone.last_ts + 1)
    assert first(tree | {path: replace(stone, first_uses=(use,)).encode()}) == (path, 0, "TOMBSTONE")


def test_nodes_of_pruned_entries_lead_to_the_peaks() -> None:
    """The last leaf of an odd range has no node above it; only the peaks tell that it is wrong."""
    hub = Hub()
    label = hub.label("stream")
    for size in (400, 400, 8, 600, 8):
        hub.send(label, size=size)
    tree = handmade.prune(hub, handmade.directory(hub), label)
    assert paths.tombstone(DATA, label, 1, 3) in tree
    path = paths.nodes(DATA, label)
    assert first(tree | {path: tree[path][:96] + b"?" * 32 + tree[path][128:]}) == (path, 0, "NODES")


def test_pruned_chunks_at_each_level() -> None:
    hub, label = a_log()
    tree = handmade.prune(hub, handmade.directory(hub), label, 2)
    for level in LEVELS:
        assert check(Disk(tree), level).ok


def test_a_tombstone_in_the_middle() -> None:
    hub, label = a_log()
    tree = handmade.prune(hub, handmade.directory(hub), label, 2)
    one = handmade.directory(hub)[paths.chunk(DATA, label, 1, 4)]
    del tree[paths.tombstone(DATA, label, 1, 4)]
    tree[paths.chunk(DATA, label, 1, 4)] = one
    assert first(tree)[::2] == (paths.tombstone(DATA, label, 5, 8), "GAP")


def test_clients_go_on_behind_pruned_chunks() -> None:
    hub, label = a_log(9)
    hub.send(label, "client 1", client_seq=6)
    tree = handmade.prune(hub, handmade.directory(hub), label, 2)
    assert first(tree)[::2] == (paths.open_chunk(DATA, label, 9), "CLIENT_SEQ")


# --- forks --------------------------------------------------------------------------------------------------


def a_fork(count: int = 6) -> tuple[Hub, Hub, Label]:
    hub, label = a_log(count)
    hub.authorize(builders.cap_token())
    child = Hub(name="child", clock=3_000)
    child.send(child.label("its own"))
    return hub, child, label


def with_receipts(tree: Tree, *hubs: Hub) -> Tree:
    receipts = b"".join(item.receipt.encode() for hub in hubs for item in hub.entries_of(DATA))
    return tree | {paths.RECEIPTS: receipts}


def test_a_fork_that_lost_part_of_its_copy() -> None:
    hub, child, label = a_fork()
    tree = handmade_fork.fork(hub, child)
    lost = {path: content for path, content in tree.items() if label.hex() not in path}
    assert first(lost)[::2] == (paths.open_chunk(DATA, label, 1), "MISSING")
    shorter, _ = a_log(3)
    cut = lost | handmade.chunk_files(shorter, shorter.events) | {paths.CHECKPOINTS: b""}
    assert first(with_receipts(cut, shorter, child))[::2] == (paths.open_chunk(DATA, label, 1), "MISSING")


def test_a_fork_that_added_to_its_copy() -> None:
    hub, child, label = a_fork()
    tree = handmade_fork.fork(hub, child)
    assert paths.open_chunk(DATA, label, 5) not in tree
    longer = tree | {
        paths.open_chunk(DATA, label, 5): b"".join(item.frame for item in hub.entries(label)[4:]),
        paths.nodes(DATA, label): handmade.directory(hub)[paths.nodes(DATA, label)],
    }
    assert first(with_receipts(longer, hub, child))[::2] == (paths.open_chunk(DATA, label, 5), "UNEXPECTED")


def test_a_fork_does_not_sign_its_parents_log() -> None:
    hub, child, label = a_fork()
    tree = handmade_fork.fork(hub, child)
    bad = reissued(child, hub.entries(label)[3])
    path = paths.chunk(DATA, label, 1, 4)
    tree[path] = b"".join(item.frame for item in [*hub.entries(label)[:3], bad])
    assert first(tree)[::2] == (path, "SIG_INVALID")


def test_a_fork_may_sign_checkpoints_of_its_parents_log() -> None:
    hub, child, label = a_fork()
    tree = handmade_fork.fork(hub, child)
    root = hub.entries(label)[1].receipt.mmr_root
    for signer, expected in ((child, True), (Hub(name="somebody"), False)):
        made = signer.checkpoint(label, 2, root=root).encode()
        asked = {
            paths.checkpoint(DATA, label, 2): made,
            paths.peaks(DATA, label, 2): PeakSnapshot(
                handmade.peaks_of(hub.entries(label)[:2]).hashes
            ).encode(),
            paths.CHECKPOINTS: tree[paths.CHECKPOINTS] + made,
        }
        assert check(Disk(tree | asked)).ok == expected


def test_a_fork_names_its_parent() -> None:
    hub, child, _ = a_fork()
    tree = handmade_fork.fork(hub, child)
    del tree[paths.FORK]
    assert first(tree)[::2] == (paths.FORK, "MISSING")
    strange = handmade_fork.fork(hub, child) | {
        paths.FORK: handmade_fork.fork(Hub(name="x"), child)[paths.FORK]
    }
    assert first(strange)[::2] == (paths.FORK, "HUB_ID")


def test_the_archive_of_a_fork() -> None:
    hub, child, _ = a_fork()
    tree = handmade_fork.fork(hub, child)
    del tree["archive/store.cbor"]
    assert first(tree)[::2] == ("archive/store.cbor", "MISSING")
    tree = handmade_fork.fork(hub, child) | {"archive/store.cbor": child.store.encode()}
    assert first(tree)[::2] == ("archive/store.cbor", "HUB_ID")
    tree = handmade_fork.fork(hub, child) | {"archive/hub-identity.cbor": Hub(name="x").identity.encode()}
    tree["archive/hub-identity.sig"] = Hub(name="x").identity.sign(builders.signing_key("x"))
    assert first(tree)[::2] == (paths.FORK, "HUB_ID")


def test_a_fork_of_a_fork() -> None:
    """Every part of the log is checked under the keys of the hub that made it."""
    hub, child, label = a_fork()
    for _ in range(3):
        child.send(child.label("its own"))
    grandchild = Hub(name="grandchild", clock=5_000)
    grandchild.send(grandchild.label("its own too"))
    first_fork, second_fork = handmade_fork.fork(hub, child), handmade_fork.fork(child, grandchild)
    record = ForkRecord.decode(second_fork[paths.FORK])
    copied = ForkRecord.decode(first_fork[paths.FORK]).checkpoints
    checkpoints = sorted((*record.checkpoints, *copied), key=lambda item: item.label_curr)
    record = replace(record, checkpoints=tuple(checkpoints))
    grandchild.parent = ForkParent(hub_id=record.parent_hub_id, fork_hash=record.fork_hash)
    logs = {
        path: content
        for tree in (first_fork, second_fork)
        for path, content in tree.items()
        if "log/" in path
    }
    names = ("hub-identity.cbor", "hub-identity.sig", paths.STORE, paths.FORK)
    tree = (
        second_fork
        | logs
        | {
            paths.FORK: record.encode(),
            "hub-identity.cbor": grandchild.identity.encode(),
            "hub-identity.sig": grandchild.identity.sign(builders.signing_key("grandchild")),
            paths.CHECKPOINTS: b"".join(item.encode() for item in checkpoints),
        }
    )
    tree |= {f"archive/{path}": first_fork[path] for path in names}
    tree |= {f"archive/{path}": first_fork[path] for path in first_fork if path.startswith("archive/")}
    four = replace(hub, events=[item for item in hub.entries(label) if item.seq <= 4])
    tree = with_receipts(tree, four, child, grandchild)
    report = check(Disk(tree))
    assert [str(item) for item in report.findings] == []
    assert report.signatures == "ok"
    del tree["archive/archive/hub-identity.cbor"]
    assert check(Disk(tree)).signatures == "not checked: no identity of the parent hub"
