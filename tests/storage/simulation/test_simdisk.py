"""What the simulated disk keeps, loses and breaks: a fault test is worth as much as the disk it runs on."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.storage.simulation.sim_plan import CRASHES, chance
from tests.storage.simulation.simdisk import Fault, Plan, SimDisk, Snapshot
from veen.storage.fs import Filesystem, Write

SEEDS = range(300)
BIG = bytes(range(1, 251)) * 40  # 10,000 bytes, none of them zero


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SimDisk]:
    """A disk with a data directory and two directories in it."""
    with SimDisk(tmp_path) as made:
        fs = made.filesystem()
        for path in ("", "log", "state"):
            fs.make_dir(path)
        yield made
    assert list(tmp_path.iterdir()) == []


def put(fs: Filesystem, path: str, data: bytes) -> None:
    """Write a file durably, name and all."""
    fs.write_all([Write(path, 0, data)])
    fs.sync_dir(path.rpartition("/")[0])


def outcomes(disk: SimDisk, *, harsh: bool = False) -> list[dict[str, bytes]]:
    """Return what each of many power losses would leave, without repetitions."""
    snapshot = disk.snapshot()
    found: list[dict[str, bytes]] = []
    for seed in SEEDS:
        with SimDisk.from_snapshot(snapshot) as copy:
            copy.power_loss(seed, harsh=harsh)
            files = copy.files()
            assert copy.durable_files() == files
            if files not in found:
                found.append(files)
    return found


def contents(disk: SimDisk, path: str, *, harsh: bool = False) -> list[bytes]:
    return [files[path] for files in outcomes(disk, harsh=harsh)]


def contains(found: list[bytes], *expected: bytes) -> bool:
    return all(content in found for content in expected)


# --- contents -----------------------------------------------------------------------------------------------


def test_the_seam(disk: SimDisk) -> None:
    fs: Filesystem = disk.filesystem()
    assert fs.names("") == []


def test_unsynced_bytes_can_vanish_and_synced_ones_cannot(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"durable")
    file = fs.open_append("log/a")
    file.write(b"+synced")
    file.sync()
    file.write(b"+lost")
    assert disk.files() == {"log/a": b"durable+synced+lost"}
    assert disk.durable_files() == {"log/a": b"durable+synced"}
    found = contents(disk, "log/a")
    assert contains(found, b"durable+synced", b"durable+synced+lost")
    assert all(content.startswith(b"durable+synced") for content in found)


def test_the_end_of_a_process_loses_nothing_written(disk: SimDisk) -> None:
    fs = disk.filesystem()
    fs.write_all([Write("log/a", 0, b"1")])
    file = fs.open_append("log/a")
    file.write(b"2")
    disk.process_crash()
    assert disk.files() == {"log/a": b"12"}
    assert disk.filesystem().read("log/a") == b"12"
    assert disk.durable_files() == {}


def test_a_new_process_can_sync_what_an_old_one_wrote(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"1")
    fs.open_append("log/a").write(b"2")
    disk.process_crash()
    disk.filesystem().open_append("log/a").sync()
    disk.power_loss(0)
    assert disk.files() == {"log/a": b"12"}


def test_what_survives_a_power_loss_is_durable(disk: SimDisk) -> None:
    fs = disk.filesystem()
    fs.write_all([Write("log/a", 0, b"1")])
    fs.open_append("log/a").write(b"2")
    disk.power_loss(1)
    assert disk.files() == {"log/a": b"12"}
    disk.power_loss(0)
    assert disk.files() == {"log/a": b"12"}


@pytest.mark.parametrize("harsh", [False, True])
def test_writes_are_torn_in_every_way(disk: SimDisk, *, harsh: bool) -> None:
    fs = disk.filesystem()
    put(fs, "log/other", b"\xff" * 300)
    put(fs, "log/a", b"durable")
    fs.open_append("log/a").write(BIG)
    found = contents(disk, "log/a", harsh=harsh)
    assert all(content.startswith(b"durable") and len(content) <= 7 + len(BIG) for content in found)
    tails = [content[7:] for content in found]
    assert contains(tails, b"", BIG, bytes(len(BIG)))  # nothing, all, a size without data
    whole = [len(tail) + 7 for tail in tails if tail and BIG.startswith(tail) and tail != BIG]
    assert any(length % 4096 == 0 for length in whole)
    assert any(length % 512 == 0 and length % 4096 for length in whole)
    assert any(length % 512 for length in whole)
    assert any(tail.startswith(bytes(505)) and tail.endswith(BIG[-512:]) for tail in tails)  # holes
    if not harsh:
        assert bytes(4089) + BIG[4089:] in tails  # of whole pages
        assert any(
            BIG[: 505 + 512 * n] + bytes(10_000 - 505 - 512 * n) in tails for n in range(18) if n % 8 < 7
        )
    assert any(b"\xff" * 200 in tail for tail in tails)  # bytes of another file
    known = bytes(range(251)) + b"\xff"
    assert any(byte not in known for tail in tails for byte in tail)  # noise


def test_writes_to_one_sector_get_there_in_order(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"")
    file = fs.open_append("log/a")
    for part in (b"aa", b"bb", b"cc"):
        file.write(part)
    found = contents(disk, "log/a")
    assert contains(found, b"", b"aa", b"aabb", b"aabbcc", b"aabbc", b"aa\0\0", bytes(6))
    reordered = [b"\0\0bb", b"\0\0\0\0cc", b"aa\0\0cc"]
    assert not any(content in found for content in reordered)
    assert contains(contents(disk, "log/a", harsh=True), b"", b"aa", b"aabb", b"aabbcc", *reordered)


def test_writes_to_several_sectors_get_there_in_any_order(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", bytes(500))
    file = fs.open_append("log/a")
    for part in (b"a" * 24, b"b" * 500):  # bytes 500 to 523, so in two sectors
        file.write(part)
    found = contents(disk, "log/a")
    assert contains(found, bytes(500) + b"a" * 24, bytes(512) + b"a" * 12 + b"b" * 500)
    assert bytes(524) + b"b" * 500 not in found


def test_a_truncate_is_pending_until_synced(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"0123")
    file = fs.open_append("log/a")
    file.truncate(2)
    file.write(b"x")
    assert fs.read("log/a") == b"01x"
    assert contains(contents(disk, "log/a"), b"0123", b"01", b"01x", b"012", b"01x\0", b"01\0")
    assert contains(contents(disk, "log/a", harsh=True), b"0123", b"01", b"01x", b"01x3", b"01\0")
    file.sync()
    assert contents(disk, "log/a") == [b"01x"]
    fs.truncate("log/a", 1)
    assert contents(disk, "log/a") == [b"0"]


def test_what_was_cut_off_can_come_back(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"")
    file = fs.open_append("log/a")
    file.write(b"old")
    file.truncate(0)
    file.write(b"new")
    assert contains(contents(disk, "log/a"), b"", b"old", b"new")
    file.sync()
    assert contents(disk, "log/a") == [b"new"]


# --- names --------------------------------------------------------------------------------------------------


def test_a_name_can_vanish_until_its_directory_is_synced(disk: SimDisk) -> None:
    fs = disk.filesystem()
    fs.write_all([Write("log/a", 0, b"synced")])
    assert outcomes(disk) == [{}, {"log/a": b"synced"}]
    fs.sync_dir("state")
    fs.sync_dir("")
    assert {} in outcomes(disk)
    fs.sync_dir("log")
    assert outcomes(disk) == [{"log/a": b"synced"}]


def test_a_durable_name_does_not_make_its_bytes_durable(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"")
    fs.open_append("log/a").write(b"data")
    fs.sync_dir("log")
    assert contains(contents(disk, "log/a"), b"", b"data")


def test_directories_are_durable_at_once(disk: SimDisk) -> None:
    disk.filesystem().make_dir("anchors")
    disk.power_loss(0)
    fs = disk.filesystem()
    put(fs, "anchors/a", b"1")
    assert fs.names("anchors") == ["a"]


def test_a_rename_is_whole(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a.tmp", b"new")
    put(fs, "log/a", b"old")
    fs.rename("log/a.tmp", "log/a")
    before, after = {"log/a": b"old", "log/a.tmp": b"new"}, {"log/a": b"new"}
    assert outcomes(disk) == [before, after]
    fs.sync_dir("log")
    assert outcomes(disk) == [after]


def test_any_subset_of_renames_can_survive(disk: SimDisk) -> None:
    fs = disk.filesystem()
    for name in "abc":
        put(fs, f"log/{name}1", name.encode())
    for name in "abc":
        fs.rename(f"log/{name}1", f"log/{name}2")
    found = outcomes(disk)
    assert len(found) == 8
    for files in found:
        assert [path[4] for path in sorted(files)] == ["a", "b", "c"]


def test_changes_to_one_name_stay_in_order(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"1")
    fs.unlink("log/a")
    fs.write_all([Write("log/a", 0, b"2")])
    fs.rename("log/a", "log/b")
    fs.write_all([Write("log/a", 0, b"3")])
    found = outcomes(disk)
    steps: list[dict[str, bytes]] = [{}]
    steps += [{"log/a": b"1"}, {"log/a": b"2"}, {"log/b": b"2"}, {"log/a": b"3", "log/b": b"2"}]
    assert len(found) == 5
    assert all(files in found for files in steps)


def test_an_unlinked_file_can_come_back(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"1")
    fs.unlink("log/a")
    assert outcomes(disk) == [{"log/a": b"1"}, {}]
    fs.sync_dir("log")
    assert outcomes(disk) == [{}]


@pytest.mark.parametrize("synced", ["log", "state"])
def test_a_rename_between_directories(disk: SimDisk, synced: str) -> None:
    fs = disk.filesystem()
    fs.write_all([Write("state/a", 0, b"1"), Write("state/b", 0, b"2")])
    fs.rename("state/a", "log/a")
    found = outcomes(disk)
    assert {"log/a": b"1"} in found
    assert {"state/a": b"1"} in found
    assert not any("log/a" in files and "state/a" in files for files in found)
    fs.sync_dir(synced)
    assert all(files["log/a"] == b"1" and "state/a" not in files for files in outcomes(disk))
    assert any("state/b" not in files for files in outcomes(disk)) == (synced == "log")


# --- copies, damage, determinism ----------------------------------------------------------------------------


def test_copies_are_independent(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"1")
    file = fs.open_append("log/a")
    file.write(b"2")
    fs.write_all([Write("log/b", 0, b"pending name")])
    snapshot = disk.snapshot()
    file.write(b"3")
    file.sync()
    disk.flip("log/a", 0, 0)
    for _ in range(2):
        with SimDisk.from_snapshot(snapshot) as copy:
            assert copy.files() == {"log/a": b"12", "log/b": b"pending name"}
            assert copy.durable_files() == {"log/a": b"1"}
            copy.filesystem().unlink("log/a")
            copy.filesystem().open_append("log/b").write(b"!")
            copy.power_loss(1)
            assert copy.files() == {"log/b": b"pending name!"}
    assert disk.files()["log/a"] == b"023"


def test_bits_rot_durably(disk: SimDisk) -> None:
    fs = disk.filesystem()
    put(fs, "log/a", b"abc")
    disk.flip("log/a", 1, 7)
    disk.power_loss(0)
    assert disk.files() == {"log/a": b"a\xe2c"}
    disk.filesystem().open_append("log/a").write(b"unsynced")
    disk.truncate_file("log/a", 1)
    disk.power_loss(1)
    assert disk.files() == {"log/a": b"a"}
    with pytest.raises(FileNotFoundError):
        disk.flip("log/b", 0, 0)


def busy(snapshot: Snapshot, seed: int) -> tuple[object, ...]:
    """Write at random, meet a fault and a power loss, and return everything that can be seen of it."""
    decide = chance(seed)
    fault = decide.choice([fault for fault in Fault if fault not in CRASHES])
    plan = Plan(fault, decide.randrange(1, 9), seed=seed)
    with SimDisk.from_snapshot(snapshot) as disk:
        fs = disk.filesystem(plan, seed=seed)
        for turn in range(6):
            try:
                fs.write_all([Write(f"log/{turn}{name}", 0, decide.randbytes(900)) for name in "abcdefg"])
                fs.rename(f"log/{turn}a", "log/x")
                fs.open_append("log/x").write(decide.randbytes(2000))
            except OSError:
                continue
        seen = disk.files()
        disk.power_loss(seed)
        return fs.operations, plan.hits, seen, disk.files()


def test_the_same_seed_is_the_same_disaster(disk: SimDisk) -> None:
    snapshot = disk.snapshot()
    results = [busy(snapshot, seed) for seed in range(40)]
    assert [busy(snapshot, seed) for seed in range(40)] == results
    assert all(results[0][0] != result[0] for result in results[1:])
    assert all(results[2][3] != result[3] for result in results[3:])


SCRIPT = """
import hashlib, pathlib, sys
from tests.storage.simulation.simdisk import SimDisk
from tests.storage.simulation.test_simdisk import busy
disk = SimDisk(pathlib.Path(sys.argv[1]))
fs = disk.filesystem()
fs.make_dir(""); fs.make_dir("log")
print(hashlib.sha256(repr([busy(disk.snapshot(), seed) for seed in range(20)]).encode()).hexdigest())
"""


def test_no_decision_depends_on_the_process(tmp_path: Path) -> None:
    results = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert results[0]
    assert results[0] == results[1]
