"""Merkle Mountain Ranges: the published roots, the shape of a range, where its nodes stand."""

from hashlib import sha256

import pytest

from tests import naive
from tests.builders import digest, leaf, leaves, nodes, peaks
from tests.expect import refused
from veen.core.errors import Code, Detail
from veen.core.merkle.mmr import (
    Peaks,
    complete_nodes,
    fold_peaks,
    leaf_position,
    node_count,
    node_position,
    parent,
    peak_heights,
    peak_positions,
    read_peaks,
    trailing_zeros,
)
from veen.core.types import NodeHash

#: Roots over leaf i = H(u64be(i)), sizes 1 to 8.
PUBLISHED_ROOTS = [
    "cd2662154e6d76b2b2b92e70c0cac3ccf534f9b74eb5b89819ec509083d00a50",
    "319edc966d2ddc32a11ac8276f87b948ef00b3b09ef6dbac7339c9e4ad390215",
    "b5570d6d4247f148f0c9822e8b1a439d9d2d11924829b978b937e97198a64dfe",
    "9ca787e5721fe950a9304f32501c704394cbdc99520d693a11467ddfb34beddb",
    "9734f0e36a8c423ffe95ca5d07e6832e6f1fe4e41ea50ad07228d200632dae13",
    "653b6e501b8177acd3d9ec79a7d226584e3427d81bd4c6bfbd0acc273a55fc9a",
    "b07020529eb105e4385ce7e28362652ec26751a049b464a202330f968c6a98db",
    "04f951a08ccdce40664efb1c0fb583cd198389e8c1ad5fa7acf8bebb0fdcc769",
]


@pytest.mark.parametrize("size", range(1, 9))
def test_the_published_roots(size: int) -> None:
    assert peaks(size).root.hex() == PUBLISHED_ROOTS[size - 1]


def test_an_inner_node_is_the_hash_of_older_and_newer() -> None:
    older, newer = leaf(1), leaf(2)
    assert parent(older, newer) == sha256(b"veen/mmr-node\x00" + older + newer).digest()
    assert peaks(2).hashes == (parent(older, newer),)


def test_a_lone_peak_is_the_root_and_several_are_hashed() -> None:
    assert peaks(1).root == NodeHash(leaf(1))
    assert peaks(4).root == peaks(4).hashes[0]
    three = peaks(3)
    assert three.hashes == (NodeHash(leaf(3)), parent(leaf(1), leaf(2)))
    assert three.root == sha256(b"veen/mmr-root\x00" + b"".join(three.hashes)).digest()
    assert fold_peaks(three.hashes) == three.root


def test_peaks_are_one_per_set_bit_by_increasing_height() -> None:
    assert peak_heights(0) == []
    assert peak_heights(1) == [0]
    assert peak_heights(0b1011) == [0, 1, 3]
    assert peak_heights(2**63) == [63]
    assert [len(peaks(size).hashes) for size in range(9)] == [0, 1, 1, 2, 1, 2, 2, 3, 1]


def test_an_empty_range_has_no_root() -> None:
    with refused(Detail.PROOF_SEQ, code=Code.PROOF):
        Peaks.empty().root  # noqa: B018 - the property raises


def test_equal_leaves_in_another_order_give_another_root() -> None:
    swapped = Peaks.empty().append(leaf(2)).append(leaf(1))
    assert swapped.root != peaks(2).root


@pytest.mark.parametrize(
    ("size", "count"), [(0, 1), (1, 0), (3, 1), (4, 2), (7, 2), (8, 8), (2**64, 1), (-1, 0)]
)
def test_peaks_that_no_range_of_that_size_has_are_refused(size: int, count: int) -> None:
    with refused(Detail.PROOF_PEAKS):
        Peaks(size, tuple(NodeHash(digest(str(number))) for number in range(count)))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_hashes_have_32_bytes(length: int) -> None:
    with refused(Detail.FIELD_SIZE):
        Peaks(1, (NodeHash(bytes(length)),))
    for size in range(4):
        with refused(Detail.FIELD_SIZE):
            peaks(size).append(bytes(length))
        with refused(Detail.FIELD_SIZE):
            peaks(size).grow(bytes(length))
        with refused(Detail.FIELD_SIZE):
            complete_nodes([*leaves(size), bytes(length)])


def test_a_full_range_takes_no_more_leaves() -> None:
    full = Peaks(2**64 - 1, tuple(NodeHash(digest(str(number))) for number in range(64)))
    with refused(Detail.PROOF_PEAKS):
        full.append(leaf(1))


def test_appending_leaves_the_old_range_as_it_was() -> None:
    five = peaks(5)
    five.append(leaf(6))
    assert five == peaks(5)


# --- where nodes stand --------------------------------------------------------------------------------------


def test_nodes_are_numbered_as_appends_complete_them() -> None:
    order = [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1), (2, 0), (0, 4)]
    assert [node_position(height, index) for height, index in order] == list(range(8))
    assert [leaf_position(seq) for seq in range(1, 6)] == [0, 1, 3, 4, 7]
    assert [node_count(size) for size in range(9)] == [0, 1, 3, 4, 7, 8, 10, 11, 15]
    assert peak_positions(7) == [10, 9, 6]
    assert peak_positions(0) == []


def test_a_node_store_holds_every_node_at_its_position() -> None:
    stored = nodes(11)
    assert len(stored) == node_count(11)
    for position, (height, index) in enumerate(naive.completion_order(11)):
        covered = leaves(11)[index << height : (index + 1) << height]
        assert stored[position] == naive.tree_root(covered)


def test_the_peaks_of_every_prefix_can_be_read_from_the_nodes() -> None:
    stored = nodes(40)
    for size in range(41):
        reads: list[int] = []

        def read(position: int, reads: list[int] = reads) -> NodeHash:
            reads.append(position)
            return stored[position]

        assert read_peaks(read, size) == peaks(size)
        assert len(reads) == size.bit_count()


def test_trailing_zeros() -> None:
    assert [trailing_zeros(value) for value in (1, 2, 3, 4, 6, 8, 2**63)] == [0, 1, 0, 2, 1, 3, 63]
