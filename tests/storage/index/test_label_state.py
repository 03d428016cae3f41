"""Rows that appends depend on: read back as written, and refused if one bit is another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import digest, leaves, stream
from tests.storage.stores import A, B
from veen.core.data_dir.paths import Domain
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.merkle.mmr import Peaks, complete_nodes
from veen.core.objects.capability import Bucket
from veen.core.types import LeafHash
from veen.storage.errors import StaleIndexError
from veen.storage.index.label_state import Head, LabelRef, LabelState, checked, protect
from veen.storage.index.rows import decode_auth, decode_cursor, encode_auth, encode_cursor

u64 = st.integers(0, 2**64 - 1)
buckets = st.none() | st.builds(Bucket, u64, u64)


def peaks(size: int, name: str = "leaf") -> Peaks:
    made = Peaks.empty()
    for number in range(size):
        made = made.append(digest(f"{name} {number}"))
    return made


@st.composite
def states(draw: st.DrawFn) -> LabelState:
    seq = draw(st.integers(0, 40))
    start = draw(st.integers(1, seq + 1))
    bound = draw(st.booleans())
    return LabelState(
        number=draw(st.integers(0, 2**32 - 1)),
        domain=draw(st.sampled_from(Domain)),
        label=A,
        head=Head(seq=seq, hub_ts=draw(u64), leaf_hash=LeafHash(digest("last")), peaks=peaks(seq)),
        chunk_start=start,
        chunk_bytes=draw(u64),
        chunk_first_ts=draw(u64),
        chunk_hashes=peaks(seq + 1 - start, "hash"),
        last_checkpoint=draw(u64),
        pruned_upto=draw(u64),
        frozen=draw(st.booleans()),
        binding=StreamEpoch(stream(), draw(u64)) if bound else None,
    )


@given(states())
def test_a_label_is_read_back_as_it_was(state: LabelState) -> None:
    stored = state.encode()
    assert LabelState.decode(A, stored) == state
    assert LabelRef.decode(A, stored) == state.ref
    assert state.ref == (state.number, state.domain, A, state.head.seq, state.pruned_upto)


@given(states(), st.data())
def test_a_flipped_bit_of_a_label_is_noticed(state: LabelState, data: st.DataObject) -> None:
    stored = bytearray(state.encode())
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    stored[bit // 8] ^= 1 << bit % 8
    for decode in (LabelState.decode, LabelRef.decode):
        with pytest.raises(StaleIndexError, match="veen repair"):
            decode(A, bytes(stored))


def test_a_row_of_another_label_is_noticed() -> None:
    stored = LabelState.new(A, Domain.DATA, 1).encode()
    with pytest.raises(StaleIndexError):
        LabelState.decode(B, stored)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_checksum_covers_key_and_value(key: bytes, value: bytes) -> None:
    stored = protect(key, value)
    assert checked(key, stored) == value
    for wrong in (stored[:-1], b"", stored + b"\0"):
        with pytest.raises(StaleIndexError):
            checked(key, wrong)


@given(u64, u64)
def test_cursors_and_tokens_are_read_back(left: int, right: int) -> None:
    cursor, record = ClientCursor(left, right), AuthRecord(left, right)
    assert decode_cursor(b"key", encode_cursor(b"key", cursor)) == cursor
    assert decode_auth(b"key", encode_auth(b"key", record)) == record
    with pytest.raises(StaleIndexError):
        decode_cursor(b"other", encode_cursor(b"key", cursor))


def test_nobody_starts_beyond_zero() -> None:
    assert ClientCursor() == (0, 0)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 9), st.integers(0, 9))
def test_a_token_keeps_its_earliest_time_and_its_place(one: int, two: int, here: int, there: int) -> None:
    merged = AuthRecord(one, here).merged(AuthRecord(two, there))
    assert merged == AuthRecord(min(one, two), here or there)


@given(u64, u64, buckets)
def test_a_token_is_read_back_with_what_is_left_of_its_rate(one: int, two: int, left: Bucket | None) -> None:
    key = bytes(32)
    record = AuthRecord(one, two, left)
    stored = encode_auth(key, record)
    assert len(stored) == (20 if left is None else 36)
    assert decode_auth(key, stored) == record
    with pytest.raises(StaleIndexError):
        decode_auth(key, stored[:-1] + bytes([stored[-1] ^ 1]))


@given(buckets, buckets)
def test_the_later_message_says_what_is_left(earlier: Bucket | None, later: Bucket | None) -> None:
    merged = AuthRecord(1, 2, earlier).merged(AuthRecord(3, 4, later))
    assert merged == AuthRecord(1, 2, earlier if later is None else later)


def test_a_new_label_is_empty() -> None:
    state = LabelState.new(A, Domain.CONTROL, 3, frozen=True)
    assert (state.head.seq, state.chunk_start, state.chunk_entries, state.node_bytes) == (0, 1, 0, 0)
    assert state.frozen


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
def test_the_node_store_is_as_long_as_its_nodes(size: int) -> None:
    head = Head(seq=size, hub_ts=0, leaf_hash=leaves(size)[-1], peaks=peaks(size))
    state = LabelState(
        number=0, domain=Domain.DATA, label=A, head=head, chunk_start=size + 1, chunk_hashes=Peaks.empty()
    )
    assert state.node_bytes == 32 * len(complete_nodes(leaves(size)))
    assert state.head.root == head.peaks.root


def test_a_label_keeps_the_stream_it_was_bound_to() -> None:
    binding = StreamEpoch(stream(), 9)
    bound = LabelState.new(A, Domain.DATA, 1).bound_to(binding)
    assert LabelState.decode(A, bound.encode()).binding == binding
