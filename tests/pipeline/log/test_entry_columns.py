"""Entries in columns: the same answer as the decoder of core, for good bytes and for bad ones."""

import pickle
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.pipeline.log_builder import Hub, varied
from veen.core.errors import Detail, ProtocolError
from veen.core.objects.entry import Entry, Frame
from veen.core.types import Label
from veen.pipeline.errors import InvalidEntryError
from veen.pipeline.log.entry_columns import Entries, Frames, binary, parse, rows
from veen.pipeline.log.open import open_log


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Frames:
    root = tmp_path_factory.mktemp("log")
    hub = varied(root, 120)
    hub.leave()
    log = open_log(str(root))
    try:
        parts = log.plan(most_bytes=1 << 30)
        return max((part.read() for part in parts), key=lambda item: len(item.data))
    finally:
        log.close()


def _judged(frames: Frames) -> str | None:
    """Return what core says of entries, one after the other."""
    at, seq = 0, frames.first_seq
    while at < len(frames.data):
        try:
            frame, at = Frame.read(frames.data, at, frames.limits)
            frame.entry(frames.limits).msg(frames.limits)
        except ProtocolError as error:
            return f"{seq} {error.detail.value}"
        if (frame.label, frame.stream_seq) != (frames.label, seq):
            return f"{seq} place"
        seq += 1
    return None


def _refusal(frames: Frames) -> InvalidEntryError | None:
    try:
        parse(frames)
    except InvalidEntryError as error:
        return error
    return None


def test_every_column_is_the_field_that_core_decodes(frames: Frames) -> None:
    entries = parse(frames)
    assert len(entries) > 10
    at = 0
    for nth in range(len(entries)):
        entry, end = Entry.decode(frames.data, at)
        msg, receipt = entry.msg(), entry.receipt
        assert entries.frame(nth) == frames.data[at:end]
        assert entries.msg_bytes(nth) == entry.msg_bytes
        assert entries.receipt_bytes(nth) == receipt.encode()
        assert entries.ciphertext(nth) == msg.ciphertext
        for name in ("profile_id", "client_id", "ct_hash", "sig"):
            assert getattr(entries, name)[nth].tobytes() == getattr(msg, name)
        for name in ("leaf_hash", "mmr_root", "hub_sig"):
            assert getattr(entries, name)[nth].tobytes() == getattr(receipt, name)
        numbers = msg.client_seq, msg.prev_ack, receipt.hub_ts, receipt.stream_seq
        columns = entries.client_seq, entries.prev_ack, entries.hub_ts, entries.stream_seq
        assert tuple(int(column[nth]) for column in columns) == numbers
        assert bool(entries.has_auth_ref[nth]) == (msg.auth_ref is not None)
        assert entries.offset(nth) == (None if frames.offset is None else frames.offset + at)
        at = end


def test_a_flipped_bit_is_judged_as_core_judges_it(frames: Frames) -> None:
    """The columns see structure; what only a hash can tell they leave to the kernel."""
    chance = random.Random(5)
    structural = 0
    for _ in range(300):
        place, bit = chance.randrange(len(frames.data)), 1 << chance.randrange(8)
        data = bytearray(frames.data)
        data[place] ^= bit
        flipped = frames._replace(data=bytes(data))
        expected = _judged(flipped)
        assert expected is not None
        refusal = _refusal(flipped)
        if refusal is not None:
            structural += 1
            assert f"{refusal.seq}" == expected.partition(" ")[0]
            if not expected.endswith("place"):
                assert refusal.finding.code == expected.partition(" ")[2]
        else:
            assert expected.endswith(Detail.ENTRY_HASH.value)
    assert structural > 20


@pytest.mark.parametrize("keep", [0, 1, 41, 81, 82, 100, 300])
def test_cut_bytes_name_the_entry_that_is_cut(frames: Frames, keep: int) -> None:
    starts = parse(frames).starts
    cut = frames._replace(data=frames.data[: int(starts[3]) + keep])
    if not keep:
        assert len(parse(cut)) == 3
        return
    with pytest.raises(InvalidEntryError) as caught:
        parse(cut)
    assert caught.value.seq == frames.first_seq + 3
    assert caught.value.finding.code == Detail.ENTRY_LENGTH
    assert len(parse(cut.before(caught.value.seq))) == 3


def test_entries_of_another_place_are_refused(frames: Frames) -> None:
    for other in (frames._replace(first_seq=frames.first_seq + 1), frames._replace(label=Label(bytes(32)))):
        with pytest.raises(InvalidEntryError, match="is at the position of"):
            parse(other)


def test_the_error_travels(frames: Frames) -> None:
    with pytest.raises(InvalidEntryError) as caught:
        parse(frames._replace(data=frames.data[:-1]))
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert str(again) == str(caught.value)


def test_no_entries_are_no_entries(frames: Frames) -> None:
    assert len(parse(frames._replace(data=b""))) == 0


def test_columns_become_arrow_without_losing_nulls(frames: Frames) -> None:
    entries: Entries = parse(frames)
    assert binary(entries.leaf_hash).to_pylist() == rows(entries.leaf_hash)
    valid = np.arange(len(entries)) % 3 == 0
    found = binary(entries.client_id, valid)
    assert found.type == pa.binary()
    assert [item is not None for item in found.to_pylist()] == valid.tolist()


def test_numbers_of_every_width_are_read(tmp_path: Path) -> None:
    """client_seq and prev_ack are one, two and three bytes long when a label has three hundred entries."""
    with Hub(tmp_path) as hub:
        hub.write("long", *[b"x"] * 300)
    log = open_log(str(tmp_path))
    try:
        found = [int(seq) for part in log.plan() for seq in part.entries().client_seq]
    finally:
        log.close()
    assert found == list(range(1, 301))
