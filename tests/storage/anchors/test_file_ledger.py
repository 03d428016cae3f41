"""The file ledger: what it gives back can be verified, and whatever is done to its files is noticed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import builders
from veen.core.encoding.wire_object import decode_sequence
from veen.core.objects.anchor import RFC3161, AnchorRef, LedgerEntry, LedgerHead
from veen.core.types import NodeHash
from veen.storage.anchors import AnchorError, FileLedger
from veen.storage.errors import DamagedStoreError, StoreBusyError
from veen.storage.fs import RealFilesystem

LEDGER, HEAD = "ledger.cborseq", "ledger.ack"
COUNT = 4


def root(number: int) -> NodeHash:
    return NodeHash(builders.digest(f"root {number}"))


def nonce(number: int) -> bytes:
    return builders.digest(f"nonce {number}")[: 16 + number % 17]


def publish(ledger: FileLedger, number: int) -> bytes:
    return ledger.publish(root(number), number, 1_700_000_000 + number, nonce(number))


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[RealFilesystem]:
    made = RealFilesystem(tmp_path)
    yield made
    made.close()


@pytest.fixture
def refs(fs: RealFilesystem) -> list[bytes]:
    """Some anchors, in a ledger that is closed."""
    ledger = FileLedger(fs, LEDGER)
    made = [publish(ledger, number) for number in range(COUNT)]
    ledger.close()
    return made


def count_bound(fs: RealFilesystem, refs: list[bytes]) -> int:
    """Return how many anchors still hold."""
    ledger = FileLedger(fs, LEDGER)
    return sum(bool(ledger.verify(root(number), ref)) for number, ref in enumerate(refs))


# --- as it should be ----------------------------------------------------------------------------------------


def test_an_anchor_binds_its_root_and_no_other(fs: RealFilesystem, refs: list[bytes]) -> None:
    ledger = FileLedger(fs, LEDGER)
    for number, ref in enumerate(refs):
        for other in range(COUNT):
            verdict = ledger.verify(root(other), ref)
            assert verdict.ok == bool(verdict) == (number == other), verdict
            assert verdict.reason


def test_the_file_is_a_chain_of_entries(tmp_path: Path, refs: list[bytes]) -> None:
    entries = decode_sequence((tmp_path / LEDGER).read_bytes(), LedgerEntry)
    before = bytes(32)
    for number, (entry, ref) in enumerate(zip(entries, map(AnchorRef.decode, refs), strict=True)):
        assert (entry.index, entry.prev_hash, entry.mmr_root) == (number, before, root(number))
        assert (ref.backend, ref.index, ref.entry_hash) == ("file", number, entry.entry_hash)
        assert (ref.epoch, ref.ts, ref.nonce) == (entry.epoch, entry.ts, entry.nonce)
        before = entry.entry_hash
    size = (tmp_path / LEDGER).stat().st_size
    head = LedgerHead(count=COUNT, size=size, last_hash=before)
    assert LedgerHead.decode((tmp_path / HEAD).read_bytes()) == head


def test_a_ledger_goes_on_where_it_ended(fs: RealFilesystem, refs: list[bytes]) -> None:
    ledger = FileLedger(fs, LEDGER)
    refs.append(publish(ledger, COUNT))
    assert count_bound(fs, refs) == COUNT + 1
    ledger.close()


def test_there_is_one_writer_and_any_number_of_readers(fs: RealFilesystem, refs: list[bytes]) -> None:
    first = FileLedger(fs, LEDGER, "the first")
    refs.append(publish(first, COUNT))
    second = FileLedger(RealFilesystem(fs.root), LEDGER, "the second")
    with pytest.raises(StoreBusyError, match="the first"):
        publish(second, COUNT + 1)
    assert count_bound(fs, refs) == COUNT + 1
    first.close()
    refs.append(publish(second, COUNT + 1))
    second.close()
    assert count_bound(fs, refs) == COUNT + 2


def test_a_ledger_longer_than_one_read(fs: RealFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veen.storage.anchors.file_ledger._BLOCK_BYTES", 200)
    ledger = FileLedger(fs, LEDGER)
    refs = [publish(ledger, number) for number in range(40)]
    ledger.close()
    assert count_bound(fs, refs) == 40
    refs.append(publish(ledger, 40))
    ledger.close()
    assert count_bound(fs, refs) == 41


def test_a_place_that_can_not_be_written_is_an_error_and_works_later(tmp_path: Path) -> None:
    ledger = FileLedger(RealFilesystem(tmp_path / "later"), LEDGER)
    with pytest.raises(AnchorError, match="cannot be written"):
        publish(ledger, 0)
    assert not ledger.verify(root(0), AnchorRef.decode(_some_ref()).encode())
    (tmp_path / "later").mkdir()
    assert ledger.verify(root(0), publish(ledger, 0))
    ledger.close()


def _some_ref(**changed: object) -> bytes:
    made: dict[str, object] = {"backend": "file", "epoch": 0, "ts": 0, "nonce": bytes(16)}
    made |= {"index": 0, "entry_hash": bytes(32)} | changed
    return AnchorRef(**made).encode()  # type: ignore[arg-type] # by name


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        (b"", "not an anchor_ref"),
        (b"\xff", "not an anchor_ref"),
        (_some_ref(index=COUNT), f"no entry {COUNT}"),
        (_some_ref(index=2**64 - 1), "no entry"),
        (_some_ref(), "a different one"),
        (_some_ref(backend=RFC3161, index=None, entry_hash=None, token=b"x"), "not in a ledger"),
    ],
)
@pytest.mark.usefixtures("refs")
def test_what_is_no_anchor_here_binds_nothing(fs: RealFilesystem, ref: bytes, says: str) -> None:
    verdict = FileLedger(fs, LEDGER).verify(root(0), ref)
    assert not verdict
    assert says in verdict.reason


@pytest.mark.parametrize("field", ["epoch", "ts", "nonce"])
def test_what_the_digest_was_made_of_is_bound_too(fs: RealFilesystem, refs: list[bytes], field: str) -> None:
    found = AnchorRef.decode(refs[1])
    values = {name: getattr(found, name) for name in ("epoch", "ts", "nonce", "index", "entry_hash")}
    other = _some_ref(**values | {field: bytes(16) if field == "nonce" else values[field] + 1})
    verdict = FileLedger(fs, LEDGER).verify(root(1), other)
    assert not verdict
    assert "another epoch, ts or nonce" in verdict.reason


# --- as it should not be ------------------------------------------------------------------------------------


def test_a_cut_at_any_byte_is_refused(tmp_path: Path, fs: RealFilesystem, refs: list[bytes]) -> None:
    """All that is in the file was acknowledged: nothing of it may be missing, and nothing is made up for."""
    whole = (tmp_path / LEDGER).read_bytes()
    for size in range(len(whole)):
        (tmp_path / LEDGER).write_bytes(whole[:size])
        assert count_bound(fs, refs) == 0
        ledger = FileLedger(fs, LEDGER)
        with pytest.raises(DamagedStoreError):
            publish(ledger, COUNT)
        ledger.close()
        assert (tmp_path / LEDGER).read_bytes() == whole[:size]
    (tmp_path / LEDGER).unlink()
    with pytest.raises(DamagedStoreError, match="missing"):
        publish(FileLedger(fs, LEDGER), COUNT)


def test_a_write_that_was_cut_short_is_cut_off(tmp_path: Path, fs: RealFilesystem, refs: list[bytes]) -> None:
    """Behind what was acknowledged, any part of the next entry, also all of it: nobody was told of it."""
    ledger = FileLedger(fs, LEDGER)
    acknowledged, head = (tmp_path / LEDGER).read_bytes(), (tmp_path / HEAD).read_bytes()
    publish(ledger, COUNT)
    ledger.close()
    whole = (tmp_path / LEDGER).read_bytes()
    for size in range(len(acknowledged), len(whole) + 1):
        for fill in (b"", bytes(len(whole) - size), b"\xa5" * (len(whole) - size)):
            (tmp_path / LEDGER).write_bytes(whole[:size] + fill)
            (tmp_path / HEAD).write_bytes(head)
            assert count_bound(fs, refs) == COUNT
            ledger = FileLedger(fs, LEDGER)
            fresh = publish(ledger, 99)
            ledger.close()
            assert AnchorRef.decode(fresh).index == COUNT
            assert (tmp_path / LEDGER).read_bytes().startswith(acknowledged)
            assert count_bound(fs, refs) == COUNT
            assert FileLedger(fs, LEDGER).verify(root(99), fresh)


@pytest.mark.usefixtures("refs")
def test_more_than_one_write_behind_the_head_is_refused(tmp_path: Path, fs: RealFilesystem) -> None:
    with (tmp_path / LEDGER).open("ab") as file:
        file.write(bytes(200))
    with pytest.raises(DamagedStoreError, match="more bytes after"):
        publish(FileLedger(fs, LEDGER), COUNT)


@pytest.mark.sweep
def test_every_flipped_bit_is_noticed(tmp_path: Path, fs: RealFilesystem, refs: list[bytes]) -> None:
    for name in (LEDGER, HEAD):
        whole = (tmp_path / name).read_bytes()
        for at in range(len(whole)):
            for bit in range(8):
                flipped = bytearray(whole)
                flipped[at] ^= 1 << bit
                (tmp_path / name).write_bytes(flipped)
                ledger = FileLedger(fs, LEDGER)
                with pytest.raises(DamagedStoreError):
                    publish(ledger, COUNT)
                ledger.close()
                assert (tmp_path / name).read_bytes() == flipped
            assert count_bound(fs, refs) == 0
        (tmp_path / name).write_bytes(whole)
    assert count_bound(fs, refs) == COUNT


def test_entries_in_another_order_are_noticed(tmp_path: Path, fs: RealFilesystem, refs: list[bytes]) -> None:
    whole = (tmp_path / LEDGER).read_bytes()
    parts = [entry.encode() for entry in decode_sequence(whole, LedgerEntry)]
    one_less, twice = [parts[0], *parts[2:]], [*parts[:2], *parts[1:]]
    for order in ([parts[1], parts[0], *parts[2:]], parts[::-1], one_less, twice):
        (tmp_path / LEDGER).write_bytes(b"".join(order))
        assert count_bound(fs, refs) == 0
        ledger = FileLedger(fs, LEDGER)
        with pytest.raises(DamagedStoreError):
            publish(ledger, COUNT)
        ledger.close()


def test_a_ledger_that_was_written_anew_is_noticed(
    tmp_path: Path, fs: RealFilesystem, refs: list[bytes]
) -> None:
    """Sound in itself, and with other entries: the anchors that were given out say so."""
    for name in (LEDGER, HEAD):
        (tmp_path / name).unlink()
    forged = FileLedger(fs, LEDGER)
    for number in (0, 1, 9, 3):
        publish(forged, number)
    forged.close()
    assert count_bound(fs, refs) == 2


def test_a_ledger_alone_can_be_read_but_not_written(
    tmp_path: Path, fs: RealFilesystem, refs: list[bytes]
) -> None:
    (tmp_path / HEAD).unlink()
    assert count_bound(fs, refs) == COUNT
    with pytest.raises(DamagedStoreError, match="it is not known"):
        publish(FileLedger(fs, LEDGER), COUNT)
    with (tmp_path / LEDGER).open("ab") as file:
        file.write(b"\x87\x01")
    verdict = FileLedger(fs, LEDGER).verify(root(0), refs[0])
    assert "ends within an entry" in verdict.reason
