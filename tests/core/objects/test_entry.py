"""The framed log entry: no bit of it can change unseen, and no length of it is believed."""

import tracemalloc
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from tests import rawcbor as raw
from tests.builders import cap_token, context, digest, entry, msg, receipt, some_label, verify_key
from tests.expect import faulty, refused
from veen.core.errors import Detail, Fault, ProtocolError, Stage
from veen.core.limits import Limits
from veen.core.objects.entry import Entry, EntryHeader, entry_hash
from veen.core.types import Label, LeafHash, NodeHash

GOOD = entry(stream_seq=258)
DATA = GOOD.encode()


def framed(
    msg_bytes: bytes,
    receipt_bytes: bytes,
    *,
    version: int = 1,
    flags: int = 0,
    label: bytes | None = None,
    stream_seq: int = 258,
    msg_len: int | None = None,
    receipt_len: int | None = None,
    checksum: bytes | None = None,
) -> bytes:
    """Return a frame field by field, each of which may be wrong."""
    return b"".join(
        (
            bytes((version, flags)),
            some_label() if label is None else label,
            stream_seq.to_bytes(8, "big"),
            (len(msg_bytes) if msg_len is None else msg_len).to_bytes(4, "big"),
            (len(receipt_bytes) if receipt_len is None else receipt_len).to_bytes(4, "big"),
            sha256(b"veen/entry" + msg_bytes + receipt_bytes).digest() if checksum is None else checksum,
            msg_bytes,
            receipt_bytes,
        )
    )


MSG = GOOD.msg_bytes
RECEIPT = GOOD.receipt.encode()


def test_the_frame_is_an_82_byte_header_and_both_objects() -> None:
    assert framed(MSG, RECEIPT) == DATA
    assert len(DATA) == 82 + len(MSG) + len(RECEIPT)
    assert DATA[82:] == MSG + RECEIPT


def test_the_checksum_has_no_separator_behind_its_tag() -> None:
    assert entry_hash(MSG, RECEIPT) == sha256(b"veen/entry" + MSG + RECEIPT).digest()
    assert GOOD.entry_hash == entry_hash(MSG, RECEIPT)
    assert entry_hash(MSG, RECEIPT) != sha256(b"veen/entry\x00" + MSG + RECEIPT).digest()


def test_entries_are_read_one_after_the_other() -> None:
    log = b"".join(entry(stream_seq=seq).encode() for seq in (1, 2, 3))
    offset, seqs = 0, []
    while offset < len(log):
        header = EntryHeader.decode(log, offset)
        item, end = Entry.decode(log, offset)
        assert end == offset + header.entry_len
        assert (header.label, header.stream_seq) == (item.receipt.label, item.receipt.stream_seq)
        assert item.encode() == log[offset:end]
        offset = end
        seqs.append(item.receipt.stream_seq)
    assert seqs == [1, 2, 3]


def test_a_good_entry_decodes_and_verifies() -> None:
    item = Entry.decode_one(DATA)
    assert item == GOOD
    assert item.encode() == DATA
    assert item.verify(verify_key("hub")) == msg()


# --- refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused(version: int) -> None:
    with refused(Detail.ENTRY_VERSION) as caught:
        Entry.decode(framed(MSG, RECEIPT, version=version))
    assert caught.value.stage == Stage.STRUCTURAL


@pytest.mark.parametrize("flags", [1 << bit for bit in range(8)])
def test_any_flag_is_refused(flags: int) -> None:
    with refused(Detail.ENTRY_FLAGS):
        Entry.decode(framed(MSG, RECEIPT, flags=flags))


def test_every_truncation_is_refused() -> None:
    for length in range(len(DATA)):
        with refused(Detail.ENTRY_LENGTH):
            Entry.decode(DATA[:length])


def test_a_header_alone_can_be_read_to_walk_a_log() -> None:
    header = EntryHeader.decode(DATA[:82])
    assert (header.label, header.stream_seq) == (some_label(), 258)
    assert (header.msg_len, header.receipt_len) == (len(MSG), len(RECEIPT))
    assert header.entry_hash == GOOD.entry_hash
    assert header.entry_len == len(DATA)


def test_bytes_after_a_lone_entry_are_refused() -> None:
    with refused(Detail.ENTRY_LENGTH):
        Entry.decode_one(DATA + b"\x00")
    with refused(Detail.ENTRY_LENGTH):
        Entry.decode_one(DATA + DATA)


def test_an_offset_at_or_beyond_the_end_is_refused() -> None:
    for offset in (len(DATA), len(DATA) + 1, len(DATA) - 81):
        with refused(Detail.ENTRY_LENGTH):
            EntryHeader.decode(DATA, offset)


def test_every_changed_bit_is_refused_or_seen() -> None:
    """The checksum covers the objects; label, sequence and lengths are compared with them."""
    number = int.from_bytes(DATA, "big")
    for bit in range(8 * len(DATA)):
        changed = (number ^ 1 << bit).to_bytes(len(DATA), "big")
        with pytest.raises(ProtocolError):
            Entry.decode_one(changed)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [("msg_len", 1_048_577, 1_048_576), ("msg_len", 2**32 - 1, 1_048_576), ("receipt_len", 189, 188)],
)
def test_lengths_are_bounded_before_anything_is_read(name: str, value: int, allowed: int) -> None:
    wrong: Any = {name: value}
    data = framed(MSG, RECEIPT, **wrong)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError) as caught:
            EntryHeader.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 16_384
    finally:
        tracemalloc.stop()
    assert caught.value.detail == Detail.ENTRY_LENGTH
    assert caught.value.fields == {"field": name, "max_allowed": allowed}


def test_the_limit_on_messages_is_the_registrys() -> None:
    with refused(Detail.ENTRY_LENGTH, field="msg_len"):
        Entry.decode(DATA, limits=Limits(max_msg_bytes=len(MSG) - 1))
    Entry.decode(DATA, limits=Limits(max_msg_bytes=len(MSG)))


@pytest.mark.parametrize("difference", [-1, 1])
def test_lengths_that_do_not_split_the_objects_are_refused(difference: int) -> None:
    shifted = framed(
        MSG, RECEIPT, msg_len=len(MSG) + difference, receipt_len=len(RECEIPT) - difference, checksum=None
    )
    with pytest.raises(ProtocolError):
        Entry.decode_one(shifted)


def test_a_wrong_checksum_is_refused() -> None:
    with refused(Detail.ENTRY_HASH, field="entry_hash"):
        Entry.decode(framed(MSG, RECEIPT, checksum=digest("other")))


def test_a_header_that_is_not_its_receipts_is_refused() -> None:
    for wrong in (framed(MSG, RECEIPT, stream_seq=259), framed(MSG, RECEIPT, label=digest("other"))):
        with refused(Detail.ENTRY_RECEIPT) as caught:
            Entry.decode(wrong)
        assert set(caught.value.fields) == {"label", "stream_seq"}


def test_a_receipt_that_is_none_is_refused_although_its_checksum_fits() -> None:
    with faulty(Fault.ARITY):
        Entry.decode(framed(MSG, b"\x80"))
    with faulty(Fault.TRAILING):
        Entry.decode(framed(MSG, receipt(stream_seq=258).encode() + b"\x00"))
    with refused(Detail.VERSION):
        Entry.decode(framed(MSG, raw.with_element(RECEIPT, 0, raw.uint(2))))


def test_a_message_that_is_none_is_refused_when_it_is_needed() -> None:
    """The authorize log keeps tokens in the place of messages, so scanning does not decode them."""
    token = cap_token().encode()
    item, _ = Entry.decode(framed(token, RECEIPT))
    assert item.msg_bytes == token
    with refused(Detail.CBOR_INVALID):
        Entry.decode_one(framed(token, RECEIPT))
    with refused(Detail.CBOR_INVALID):
        item.verify(verify_key("hub"))


# --- what an entry proves by itself -------------------------------------------------------------------------


def test_an_entry_is_verified_by_both_signatures_and_the_hashes_between_them() -> None:
    message = msg()
    good = receipt(of=message)
    assert Entry(message.encode(), good).verify(verify_key("hub")) == message
    with refused(Detail.SIG_INVALID):
        Entry(message.encode(), good).verify(verify_key("other"))
    with refused(Detail.SIG_INVALID):
        Entry(replace(message, prev_ack=1).encode(), good).verify(verify_key("hub"))
    with refused(Detail.CT_HASH):
        Entry(replace(message, ct_hash=digest("other")).encode(), good).verify(verify_key("hub"))
    with refused(Detail.LEAF_HASH, field="leaf_hash"):
        Entry(msg(context(client_seq=2)).encode(), good).verify(verify_key("hub"))
    elsewhere = receipt(of=message, label=Label(digest("other")))
    with refused(Detail.LEAF_HASH, field="label"):
        Entry(message.encode(), elsewhere).verify(verify_key("hub"))


# --- JSON ---------------------------------------------------------------------------------------------------


def form() -> dict[str, Any]:
    made: Any = GOOD.to_json()
    return dict(made)


def test_the_json_form_shows_the_header_and_both_objects() -> None:
    assert form() == {
        "entry_ver": 1,
        "flags": 0,
        "label": some_label().hex(),
        "stream_seq": 258,
        "msg_len": len(MSG),
        "receipt_len": len(RECEIPT),
        "entry_hash": GOOD.entry_hash.hex(),
        "msg": msg().to_json(),
        "receipt": GOOD.receipt.to_json(),
    }
    assert Entry.from_json(form()) == GOOD
    assert Entry.from_json(dict(reversed(form().items()))).encode() == DATA


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("entry_ver", 2),
        ("entry_ver", True),
        ("entry_ver", 1.0),
        ("flags", 1),
        ("flags", False),
        ("label", "00" * 32),
        ("stream_seq", 259),
        ("stream_seq", 258.0),
        ("msg_len", 1),
        ("receipt_len", 1),
        ("entry_hash", "00" * 32),
        ("entry_hash", GOOD.entry_hash.hex().upper()),
        ("extra", 1),
    ],
)
def test_a_json_header_that_is_not_the_one_of_its_objects_is_refused(name: str, value: Any) -> None:
    with refused(Detail.ENTRY_RECEIPT):
        Entry.from_json({**form(), name: value})


@pytest.mark.parametrize("name", ["entry_ver", "flags", "label", "stream_seq", "msg_len", "entry_hash"])
def test_a_missing_name_is_refused(name: str) -> None:
    wrong = form()
    del wrong[name]
    with refused(Detail.ENTRY_RECEIPT):
        Entry.from_json(wrong)
    with refused(Detail.ENTRY_RECEIPT):
        Entry.from_json({"msg": wrong["msg"], "receipt": wrong["receipt"]})


def test_a_deeply_nested_json_value_is_refused_and_not_walked() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    for name in ("extra", "entry_ver", "label"):
        with pytest.raises(ProtocolError):
            Entry.from_json({**form(), name: deep})


def test_json_without_the_objects_is_refused() -> None:
    wrong: Any
    for wrong in (None, [], "x", {}, {"msg": []}, {"receipt": []}):
        with faulty(Fault.TYPE):
            Entry.from_json(wrong)
    with faulty(Fault.TYPE):
        Entry.from_json({**form(), "msg": None})
    with faulty(Fault.ARITY):
        Entry.from_json({**form(), "receipt": []})


def test_the_largest_frame_around_a_message_has_270_bytes() -> None:
    largest = receipt(
        stream_seq=2**64 - 1,
        leaf_hash=LeafHash(digest("leaf")),
        mmr_root=NodeHash(digest("root")),
        hub_ts=2**64 - 1,
    )
    assert len(Entry(MSG, largest).encode()) - len(MSG) == 270


def test_an_entry_knows_how_long_it_is() -> None:
    assert GOOD.entry_len == len(DATA)
