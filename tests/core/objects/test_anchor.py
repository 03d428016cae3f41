"""What is published, and the objects around it: bytes by hand, properties by chance."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders, rawcbor
from tests.expect import refused
from veen.core.api.tooling import AnchorRequest, AnchorResponse
from veen.core.data_dir import paths
from veen.core.encoding.wire_object import Wire
from veen.core.errors import Detail, ProtocolError
from veen.core.objects.anchor import (
    FILE,
    MAX_ENTRY_BYTES,
    MAX_TOKEN_BYTES,
    RFC3161,
    AnchorRecord,
    AnchorRef,
    LedgerEntry,
    LedgerHead,
    anchor_digest,
)
from veen.core.types import Label, NodeHash

ROOT = NodeHash(bytes(range(32)))
NONCE = b"sixteen bytes ok"
U64 = st.integers(0, 2**64 - 1)
roots = st.binary(min_size=32, max_size=32).map(NodeHash)
nonces = st.binary(min_size=16, max_size=32)


def ref(**changed: object) -> AnchorRef:
    made: dict[str, object] = {"backend": FILE, "epoch": 1, "ts": 2, "nonce": NONCE}
    made |= {"index": 3, "entry_hash": bytes(32)} | changed
    return AnchorRef(**made)  # type: ignore[arg-type] # wrong types are tried too


def record(root: NodeHash = ROOT) -> AnchorRecord:
    return AnchorRecord(label=builders.some_label(), upto_seq=7, mmr_root=root, anchor_ref=ref().encode())


# --- the digest ---------------------------------------------------------------------------------------------


def test_the_digest_is_a_tagged_hash_over_root_epoch_time_and_nonce() -> None:
    by_hand = (
        b"veen/anchor\x00"
        + bytes(range(32))
        + bytes.fromhex("0000000000000005")
        + bytes.fromhex("000000006553f100")
        + b"sixteen bytes ok"
    )
    assert anchor_digest(ROOT, 5, 1_700_000_000, NONCE) == sha256(by_hand).digest()
    assert (
        anchor_digest(ROOT, 5, 1_700_000_000, NONCE).hex()
        == sha256(by_hand).hexdigest()
        == "3f0d92bdc838e8676346cabc0bf04bd1f16b5bab720fcd3e5d8580022d43ba28"
    )


Published = tuple[NodeHash, int, int, bytes]


@given(one=st.tuples(roots, U64, U64, nonces), other=st.tuples(roots, U64, U64, nonces))
def test_no_two_have_the_same_digest(one: Published, other: Published) -> None:
    assert (anchor_digest(*one) == anchor_digest(*other)) == (one == other)


@given(nonce=nonces, more=st.binary(min_size=1, max_size=16))
def test_a_longer_nonce_is_another_one(nonce: bytes, more: bytes) -> None:
    longer = (nonce + more)[:32]
    same = longer == nonce
    assert (anchor_digest(ROOT, 0, 0, nonce) == anchor_digest(ROOT, 0, 0, longer)) == same


@pytest.mark.parametrize("size", [0, 1, 15, 33, 64])
def test_a_nonce_has_16_to_32_bytes(size: int) -> None:
    for make in (
        lambda: anchor_digest(ROOT, 0, 0, bytes(size)),
        lambda: ref(nonce=bytes(size)),
        lambda: entry(nonce=bytes(size)),
        lambda: AnchorRequest(label=builders.some_label(), nonce=bytes(size)),
    ):
        with refused(Detail.VALUE):
            make()


@pytest.mark.parametrize("size", [16, 32])
def test_a_nonce_of_either_bound_is_taken(size: int) -> None:
    assert len(anchor_digest(ROOT, 2**64 - 1, 2**64 - 1, bytes(size))) == 32
    assert ref(nonce=bytes(size)).nonce == bytes(size)


def test_a_root_has_32_bytes() -> None:
    with pytest.raises(ProtocolError):
        anchor_digest(NodeHash(bytes(31)), 0, 0, NONCE)


# --- entries of the ledger ----------------------------------------------------------------------------------


def entry(**changed: object) -> LedgerEntry:
    made: dict[str, object] = {"index": 0, "prev_hash": bytes(32), "mmr_root": ROOT}
    made |= {"epoch": 5, "ts": 1_700_000_000, "nonce": NONCE} | changed
    return LedgerEntry(**made)  # type: ignore[arg-type] # wrong types are tried too


def test_an_entry_is_an_array_and_is_named_by_its_hash() -> None:
    by_hand = (
        b"\x87\x01\x00\x58\x20" + bytes(32) + b"\x58\x20" + ROOT + b"\x05\x1a\x65\x53\xf1\x00\x50" + NONCE
    )
    assert entry().encode() == by_hand
    assert entry().entry_hash == sha256(b"veen/anchor-entry\x00" + by_hand).digest()


def test_the_largest_entry_is_as_large_as_is_said() -> None:
    top = 2**64 - 1
    made = entry(index=top, epoch=top, ts=top, nonce=bytes(32))
    assert len(made.encode()) == MAX_ENTRY_BYTES


def test_the_first_entry_has_none_before_it() -> None:
    with refused(Detail.VALUE):
        entry(prev_hash=bytes([1]) * 32)
    assert entry(index=1, prev_hash=bytes([1]) * 32).index == 1


def test_the_head_of_an_empty_ledger_names_nothing() -> None:
    assert LedgerHead(count=0, size=0, last_hash=bytes(32)).encode().hex() == (
        "a401010200030004 5820".replace(" ", "") + "00" * 32
    )
    for size, last in ((1, bytes(32)), (0, bytes([1]) * 32)):
        with refused(Detail.VALUE):
            LedgerHead(count=0, size=size, last_hash=last)


# --- references and records ---------------------------------------------------------------------------------


def test_a_reference_has_the_fields_of_its_backend_and_no_others() -> None:
    stamp = {"backend": RFC3161, "index": None, "entry_hash": None, "token": b"der"}
    assert ref(**stamp).token == b"der"
    for wrong in (
        {"backend": "other"},
        {"backend": RFC3161},
        {"index": None},
        {"entry_hash": None},
        {"token": b"der"},
        stamp | {"token": None},
        stamp | {"index": 1},
        stamp | {"token": b""},
        stamp | {"token": bytes(MAX_TOKEN_BYTES + 1)},
    ):
        with refused(Detail.VALUE):
            ref(**wrong)
    assert len(ref(**stamp | {"token": bytes(MAX_TOKEN_BYTES)}).encode()) > MAX_TOKEN_BYTES


def test_a_reference_is_a_map() -> None:
    values = (
        rawcbor.uint(1),
        rawcbor.tstr("file"),
        rawcbor.uint(1),
        rawcbor.uint(2),
        rawcbor.bstr(NONCE),
        rawcbor.uint(3),
        rawcbor.bstr(bytes(32)),
    )
    by_hand = rawcbor.mapping((rawcbor.uint(key), value) for key, value in enumerate(values, start=1))
    assert ref().encode() == by_hand
    assert ref().digest(ROOT) == anchor_digest(ROOT, 1, 2, NONCE)


def test_a_record_holds_a_reference_that_can_be_read() -> None:
    assert record().ref == ref()
    for wrong in (b"", b"\xa0", ref().encode()[:-1], ref().encode() + b"\x00"):
        with pytest.raises(ProtocolError) as caught:
            AnchorRecord(label=builders.some_label(), upto_seq=7, mmr_root=ROOT, anchor_ref=wrong)
        assert str(caught.value.fields["field"]).startswith("anchor_ref")
    with refused(Detail.VALUE):
        AnchorRecord(label=builders.some_label(), upto_seq=0, mmr_root=ROOT, anchor_ref=ref().encode())


def test_an_answer_has_the_checkpoint_of_its_anchor() -> None:
    checkpoint = builders.checkpoint()
    made = AnchorRecord(
        label=checkpoint.label_curr,
        upto_seq=checkpoint.upto_seq,
        mmr_root=checkpoint.mmr_root,
        anchor_ref=ref().encode(),
    )
    answer = AnchorResponse(record=made, checkpoint=checkpoint)
    assert AnchorResponse.decode(answer.encode()) == answer
    with refused(Detail.VALUE):
        AnchorResponse(record=record(), checkpoint=checkpoint)


@pytest.mark.parametrize(
    "made",
    [
        entry(),
        ref(),
        ref(backend=RFC3161, index=None, entry_hash=None, token=b"der"),
        record(),
        LedgerHead(count=1, size=100, last_hash=bytes(32)),
        AnchorRequest(label=builders.some_label()),
        AnchorRequest(label=builders.some_label(), upto_seq=1, epoch=2, ts=3, nonce=NONCE),
    ],
    ids=lambda made: f"{made.SHAPE.name}-{len(made.encode())}",
)
def test_every_object_is_one_byte_string_and_one_json_value(made: Wire) -> None:
    data = made.encode()
    assert type(made).decode(data) == made
    assert type(made).decode(data).encode() == data
    assert type(made).from_json(made.to_json()) == made
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            type(made).decode(data[:end])


KINDS = (AnchorRef, AnchorRecord, LedgerEntry, LedgerHead, AnchorRequest, AnchorResponse)
VALID = [ref().encode(), record().encode(), entry().encode()]


@given(
    kind=st.sampled_from(KINDS),
    data=st.one_of(
        st.binary(max_size=200),
        st.builds(
            lambda data, at, bit: bytes(
                byte ^ (1 << bit) * (place == at % len(data)) for place, byte in enumerate(data)
            ),
            st.sampled_from(VALID),
            st.integers(0, 500),
            st.integers(0, 7),
        ),
    ),
)
def test_any_bytes_are_an_object_or_refused(kind: type[Wire], data: bytes) -> None:
    try:
        made = kind.decode(data)
    except ProtocolError:
        return
    assert made.encode() == data


# --- names --------------------------------------------------------------------------------------------------


@given(label=st.binary(min_size=32, max_size=32).map(Label), upto=U64)
def test_a_name_says_which_checkpoint_is_anchored(label: Label, upto: int) -> None:
    name = paths.anchor_name(label, upto)
    assert paths.anchor(label, upto) == f"anchors/{name}"
    assert paths.parse_anchor(name) == (label, upto)


@pytest.mark.parametrize("name", ["ledger.cborseq", "ledger.ack", "", f"anchor-{'0' * 64}-{'9' * 20}.cbor"])
def test_other_names_say_nothing(name: str) -> None:
    assert paths.parse_anchor(name) is None
