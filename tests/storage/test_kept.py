"""A bounded memory: what was used last is there, and nothing else."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from veen.storage.kept import Kept

steps = st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 99)), max_size=60)


@given(steps, st.integers(1, 5))
def test_what_was_used_last_is_kept(taken: list[tuple[bool, int, int]], most: int) -> None:
    kept: Kept[int, int] = Kept(most)
    model: OrderedDict[int, int] = OrderedDict()
    for is_put, key, value in taken:
        if is_put:
            kept.put(key, value)
            model[key] = value
            model.move_to_end(key)
            while len(model) > most:
                model.popitem(last=False)
        else:
            assert kept.get(key) == model.get(key)
            if key in model:
                model.move_to_end(key)
    for key in range(7):
        assert kept.get(key) == model.get(key)


def test_a_value_put_again_is_the_newer_one_and_makes_no_room() -> None:
    kept: Kept[str, int] = Kept(2)
    for key, value in (("a", 1), ("b", 2), ("a", 3)):
        kept.put(key, value)
    assert (kept.get("a"), kept.get("b")) == (3, 2)


def test_values_that_look_like_nothing_are_values() -> None:
    kept: Kept[str, int] = Kept(1)
    kept.put("a", 0)
    assert kept.get("a") == 0
