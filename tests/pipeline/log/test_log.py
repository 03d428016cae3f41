"""The same log wherever it is: a data directory, an exported set, a hub's address."""

import shutil
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import builders
from tests.hub.hub_process import HubProcess, veen
from tests.pipeline.log_builder import Hub, varied
from veen.client.errors import ClientStateError, DamagedLogError, PinError
from veen.core.objects import labels
from veen.core.objects.hub_identity import HubIdentity, HubKey
from veen.core.types import HubId, Label, StreamId
from veen.pipeline.errors import InvalidEntryError, LogSourceError
from veen.pipeline.log.log import Log
from veen.pipeline.log.open import open_log
from veen.pipeline.log.partition import Part

STREAMS = ("alpha", "beta", "gamma")


@pytest.fixture(scope="module", params=[0, 60])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    made = varied(tmp_path_factory.mktemp("log") / "hub", 150, epoch_sec=request.param)
    made.close()
    return made


@pytest.fixture(scope="module")
def exported(hub: Hub) -> Path:
    place = hub.root.parent / "set"
    if not place.exists():
        done = veen("export", "--hub", hub.root, "--all", "--out", place)
        assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def directory(hub: Hub) -> Iterator[Log]:
    log = open_log(str(hub.root))
    yield log
    log.close()


@pytest.fixture(params=["set", "hub"])
def elsewhere(request: pytest.FixtureRequest, hub: Hub, exported: Path) -> Iterator[Log]:
    """The same log in another place."""
    if request.param == "set":
        log = open_log(str(exported))
        yield log
        log.close()
        return
    with HubProcess(hub.root) as running:
        log = open_log(running.url, streams=STREAMS)
        yield log
        log.close()


def frames_of(parts: list[Part]) -> dict[Label, bytes]:
    """Return the whole entries of each label."""
    found: dict[Label, bytes] = {}
    for part in parts:
        entries = part.entries()
        frames = b"".join(entries.frame(nth) for nth in range(len(entries)))
        found[part.label] = found.get(part.label, b"") + frames
    return found


def test_every_place_tells_the_same_of_the_log(elsewhere: Log, directory: Log) -> None:
    assert elsewhere.hub_id == directory.hub_id
    assert elsewhere.keys.identity == directory.keys.identity
    assert elsewhere.heads() == directory.heads()
    for name in STREAMS:
        stream = labels.stream_id(name)
        assert elsewhere.labels_of(stream) == directory.labels_of(stream)


@pytest.mark.parametrize("parts", [1, 2, 7, 64])
def test_entries_are_the_same_bytes_from_every_place(elsewhere: Log, directory: Log, parts: int) -> None:
    expected = frames_of(directory.plan())
    assert frames_of(directory.plan(parts=parts)) == expected
    assert frames_of(elsewhere.plan(parts=parts)) == expected


def test_parts_are_as_many_as_were_asked_for_and_in_order(directory: Log) -> None:
    planned = directory.plan(parts=64)
    assert len(planned) >= 60
    assert planned == sorted(planned, key=lambda part: (part.label, part.first_seq))
    for part in planned:
        assert part.peaks is not None
        assert part.peaks.size == part.first_seq - 1


def test_a_range_is_read_and_nothing_around_it(elsewhere: Log, directory: Log) -> None:
    label, head = max(directory.heads().items(), key=lambda item: item[1].last_seq)
    for span in ((1, 1), (3, 9), (head.last_seq - 1, head.last_seq + 5), (head.last_seq + 1, 99)):
        for log in (elsewhere, directory):
            found = [int(seq) for part in log.plan({label: span}) for seq in part.entries().stream_seq]
            assert found == list(range(span[0], min(span[1], head.last_seq) + 1))


def test_stated_peaks_lead_to_the_roots_of_receipts(elsewhere: Log) -> None:
    for part in elsewhere.plan(parts=9):
        if part.peaks is None:
            continue
        entries = part.entries()
        after, roots = part.peaks.extend(entries.leaves())
        assert after.size == part.last_seq
        assert [bytes(root) for root in roots] == [root.tobytes() for root in entries.mmr_root]


def test_a_time_is_found_wherever_the_log_is(elsewhere: Log, directory: Log) -> None:
    label = max(directory.heads(), key=lambda item: directory.heads()[item].last_seq)
    times = [int(ts) for part in directory.plan({label: (1, 1 << 40)}) for ts in part.entries().hub_ts]
    for ts in (0, times[0], times[0] + 1, times[len(times) // 2], times[-1], times[-1] + 1):
        exact = next((seq for seq, one in enumerate(times, 1) if one >= ts), len(times) + 1)
        assert directory.seq_at(label, ts) == elsewhere.seq_at(label, ts) == exact


def test_any_time_is_found_in_a_long_set(tmp_path: Path) -> None:
    """With several marks, and many entries of one second."""
    with Hub(tmp_path / "hub") as hub:
        for number in range(70):
            hub.write("alpha", *[b"x"] * (10 if number % 7 else 1))
            hub.tick(number % 3)
    done = veen("export", "--hub", hub.root, "--all", "--out", tmp_path / "set")
    assert done.returncode == 0, done.stderr
    log, label = open_log(str(tmp_path / "set")), hub.label("alpha")
    times = [receipt.hub_ts for receipt in hub.receipts]
    assert len(times) > 600
    for ts in range(times[0] - 1, times[-1] + 2):
        assert log.seq_at(label, ts) == bisect_left(times, ts) + 1
    log.close()


def test_checkpoints_are_those_of_the_hub(elsewhere: Log, directory: Log) -> None:
    for label in directory.heads():
        known = {item.upto_seq: item for item in directory.checkpoints(label)}
        for item in elsewhere.checkpoints(label):
            if item.upto_seq in known:
                assert item.mmr_root == known[item.upto_seq].mmr_root


def test_a_hub_is_asked_for_no_other_epochs_than_those_that_are_wanted(hub: Hub, directory: Log) -> None:
    epoch = min(head.epoch for head in directory.heads().values())
    with HubProcess(hub.root) as running:
        log = open_log(running.url, streams=STREAMS, epochs=range(epoch, epoch + 1))
        expected = {label: head for label, head in directory.heads().items() if head.epoch == epoch}
        assert log.heads() == expected
        log.close()


# --- what is no log, or another one -------------------------------------------------------------------------


def test_another_hub_is_refused(hub: Hub) -> None:
    with pytest.raises(PinError, match="not of"):
        open_log(str(hub.root), HubId(bytes(32)))


def test_a_place_without_a_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(LogSourceError, match="there is no directory"):
        open_log(str(tmp_path / "nowhere"))
    with pytest.raises(LogSourceError, match="neither a hub's data directory nor an exported set"):
        open_log(str(tmp_path))


def test_a_hub_needs_the_names_of_streams(hub: Hub) -> None:
    with HubProcess(hub.root) as running, pytest.raises(LogSourceError, match="name the streams"):
        open_log(running.url)


def test_a_stream_that_nobody_has_written_to_has_no_labels(directory: Log, elsewhere: Log) -> None:
    nobody: StreamId = labels.stream_id("nobody")
    assert directory.labels_of(nobody) == {}
    assert not set(elsewhere.labels_of(nobody).values()) & set(elsewhere.heads())


def test_a_set_that_is_cut_is_refused_or_named(exported: Path, tmp_path: Path) -> None:
    for name in ("payloads.cborseq", "receipts.cborseq"):
        place = tmp_path / name
        shutil.copytree(exported, place)
        data = (place / name).read_bytes()
        (place / name).write_bytes(data[:-1])
        with pytest.raises(DamagedLogError):
            open_log(str(place))
    place = tmp_path / "incomplete"
    shutil.copytree(exported, place)
    (place / "checkpoints.cborseq").unlink()
    with pytest.raises(ClientStateError, match="not a complete set"):
        open_log(str(place))


def test_a_set_with_another_key_in_its_identity_is_refused(exported: Path, tmp_path: Path) -> None:
    """Whoever hands the set over could add a key of his own; the first one has to sign for it."""
    place = tmp_path / "set"
    shutil.copytree(exported, place)
    identity = HubIdentity.decode((place / "hub-identity.cbor").read_bytes())
    added = HubKey.of(builders.verify_key("a stranger"), 1_900_000_000)
    (place / "hub-identity.cbor").write_bytes(
        replace(identity, hub_keys=(*identity.hub_keys, added)).encode()
    )
    with pytest.raises(DamagedLogError):
        open_log(str(place))


def test_a_file_that_was_cut_names_the_entry_that_is_gone(hub: Hub, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(hub.root, place, ignore=shutil.ignore_patterns("*.sock"))
    chunk = max((place / "log").glob("chunk-*.log"), key=lambda path: path.stat().st_size)
    log = open_log(str(place))
    try:
        part = next(item for item in log.plan() if chunk.name in item.place)
        whole = part.entries()
        chunk.write_bytes(chunk.read_bytes()[: int(whole.starts[2])])
        with pytest.raises(InvalidEntryError) as caught:
            part.entries()
    finally:
        log.close()
    assert caught.value.seq == part.first_seq + 2
