"""How parts are put together for tasks: pure, on parts that nobody reads."""

from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from veen.pipeline.datasource.plan import MOST_BYTES, Piece, group_ranges
from veen.pipeline.log.partition import AtHub, Part

LABEL = builders.some_label()


def pieces_of(sizes: list[int]) -> list[Piece]:
    return [
        Piece(Part(LABEL, nth + 1, nth + 1, size, AtHub("x")), None, None) for nth, size in enumerate(sizes)
    ]


@given(st.lists(st.integers(1, 8 << 20), max_size=60), st.integers(1, 64), st.sampled_from([1, 256 << 10]))
def test_every_part_is_in_one_group_and_no_group_is_too_large(
    sizes: list[int], target: int, least: int
) -> None:
    pieces = pieces_of(sizes)
    groups = list(group_ranges(pieces, target, least))
    assert [piece for group in groups for piece in group] == pieces
    assert all(groups)
    limit = min(MOST_BYTES, max(-(-sum(sizes) // target), least))
    assert all(len(group) == 1 or sum(piece.part.nbytes for piece in group) <= limit for group in groups)


def test_small_parts_share_a_task() -> None:
    assert len(list(group_ranges(pieces_of([1000] * 50), 2, 256 << 10))) == 1
    assert len(list(group_ranges(pieces_of([1000] * 50), 2, 1))) == 2


def test_large_logs_get_more_tasks_than_asked_for() -> None:
    assert len(list(group_ranges(pieces_of([8 << 20] * 32), 2, 1))) == 4
