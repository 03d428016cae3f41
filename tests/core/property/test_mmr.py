"""Merkle Mountain Ranges against a naive construction, for every size to 300 and positions to 2^40."""

from hypothesis import given
from hypothesis import strategies as st

from tests import naive
from tests.builders import leaves, nodes
from tests.core.property import strategies as some
from veen.core.merkle.mmr import (
    Peaks,
    complete_nodes,
    leaf_position,
    node_count,
    node_position,
    peak_heights,
    peak_positions,
    read_peaks,
    trailing_zeros,
)

MOST = 300
LEAVES = leaves(MOST)
NODES = nodes(MOST)

sizes = st.integers(1, 2**40)


def test_peaks_and_roots_are_the_naive_ones_for_every_size() -> None:
    peaks = Peaks.empty()
    for size in range(1, MOST + 1):
        peaks = peaks.append(LEAVES[size - 1])
        assert peaks.size == size
        assert list(peaks.hashes) == naive.peaks(LEAVES[:size])
        assert peaks.root == naive.root(LEAVES[:size])


def test_nodes_stand_in_the_order_of_their_completion_for_every_size() -> None:
    order = list(naive.completion_order(MOST))
    assert len(order) == len(NODES) == node_count(MOST)
    for position, (height, index) in enumerate(order):
        assert node_position(height, index) == position
        assert naive.height_at(position) == height
        assert NODES[position] == naive.tree_root(LEAVES[index << height : (index + 1) << height])


def test_a_prefix_of_the_nodes_is_the_store_of_a_shorter_log() -> None:
    for size in range(MOST + 1):
        assert NODES[: node_count(size)] == complete_nodes(LEAVES[:size])
        assert [NODES[position] for position in peak_positions(size)] == naive.peaks(LEAVES[:size])


def test_appending_to_stored_peaks_is_rebuilding() -> None:
    rebuilt = [read_peaks(NODES.__getitem__, size) for size in range(MOST + 1)]
    for size in range(MOST):
        before = rebuilt[size]
        after, completed = before.grow(LEAVES[size])
        assert after == before.append(LEAVES[size]) == rebuilt[size + 1]
        assert completed == NODES[node_count(size) : node_count(size + 1)]
        assert len(completed) == 1 + trailing_zeros(size + 1)


@given(sizes)
def test_an_append_completes_consecutive_positions_at_any_size(number: int) -> None:
    """Leaf ``number`` completes one node per height up to its trailing zeros, and nothing is left between."""
    start = node_count(number - 1)
    completed = [
        node_position(height, (number >> height) - 1) for height in range(trailing_zeros(number) + 1)
    ]
    assert completed == list(range(start, node_count(number)))
    assert leaf_position(number) == start


@given(st.integers(0, 40), st.integers(0, 2**40))
def test_a_node_is_found_again_by_its_position(height: int, index: int) -> None:
    position = node_position(height, index)
    assert naive.height_at(position) == height
    last_leaf = (index + 1) << height
    assert node_count(last_leaf - 1) <= position < node_count(last_leaf)


@given(
    st.tuples(st.integers(0, 20), st.integers(0, 2**40)), st.tuples(st.integers(0, 20), st.integers(0, 2**40))
)
def test_no_two_nodes_share_a_position(first: tuple[int, int], second: tuple[int, int]) -> None:
    assert (node_position(*first) == node_position(*second)) == (first == second)


@given(sizes)
def test_peaks_are_the_last_completed_node_of_each_tree(size: int) -> None:
    heights = peak_heights(size)
    positions = peak_positions(size)
    assert sum(1 << height for height in heights) == size
    assert heights == sorted(heights)
    assert positions == sorted(positions, reverse=True)
    assert [naive.height_at(position) for position in positions] == heights
    assert positions[0] == node_count(size) - 1
    assert positions[-1] == 2 * (1 << heights[-1]) - 2


@given(sizes)
def test_the_number_of_nodes_is_that_of_the_trees(size: int) -> None:
    assert node_count(size) == sum(2 * (1 << height) - 1 for height in peak_heights(size))


@given(st.lists(some.b32, min_size=1, max_size=70))
def test_any_leaves_give_the_naive_root(items: list[bytes]) -> None:
    peaks = Peaks.empty()
    for item in items:
        peaks = peaks.append(item)
    assert peaks.root == naive.root(items)


@given(st.lists(some.b32, min_size=2, max_size=40, unique=True), st.data())
def test_another_leaf_or_order_gives_another_root(items: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(items) - 1))
    changed = bytes((items[index][0] ^ 1,)) + items[index][1:]
    assert complete_root([*items[:index], changed, *items[index + 1 :]]) != complete_root(items)
    assert complete_root([*items[1:], items[0]]) != complete_root(items)
    assert complete_root(items[:-1]) != complete_root(items)


def complete_root(items: list[bytes]) -> bytes:
    return read_peaks(complete_nodes(items).__getitem__, len(items)).root
