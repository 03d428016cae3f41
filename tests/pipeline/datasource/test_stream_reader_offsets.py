"""Offsets in Spark's checkpoint, and how a limit is shared: pure functions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from veen.core.types import Label
from veen.pipeline.datasource.data_loss import SourcePosition
from veen.pipeline.datasource.stream_reader import decided_since, decode, encode, share
from veen.pipeline.errors import OffsetError

LABELS = [builders.some_label(str(number)) for number in range(12)]
positions = st.dictionaries(
    st.sampled_from(LABELS),
    st.builds(SourcePosition, st.integers(0, 2**63 - 1), st.none() | st.binary(min_size=32, max_size=32)),
)


@given(positions)
def test_offsets_come_back_as_they_were(given_: dict[Label, SourcePosition]) -> None:
    assert decode(json.loads(json.dumps(encode(given_)))) == given_


@given(positions)
def test_the_text_does_not_depend_on_the_order(given_: dict[Label, SourcePosition]) -> None:
    other = dict(reversed(given_.items()))
    assert json.dumps(encode(given_)) == json.dumps(encode(other))


def test_an_offset_is_the_last_entry_of_each_label() -> None:
    assert encode({LABELS[0]: SourcePosition(5), LABELS[1]: SourcePosition(0)}) == {
        key.hex(): seq for key, seq in sorted([(LABELS[0], 5), (LABELS[1], 0)])
    }
    assert decode({LABELS[0].hex(): 5}) == {LABELS[0]: SourcePosition(5)}


def test_an_offset_tells_the_second_from_which_on_its_batch_was_decided_on() -> None:
    assert decided_since({LABELS[0].hex(): 5}) is None
    assert decided_since({LABELS[0].hex(): 5, "since": 0}) == 0
    assert decode({LABELS[0].hex(): 5, "since": 7}) == {LABELS[0]: SourcePosition(5)}
    for wrong in ("7", -1, True, None):
        with pytest.raises(OffsetError):
            decided_since({"since": wrong})


@pytest.mark.parametrize(
    "offset", [{"x": 1}, {"ab": "1"}, {"ab": -1}, {"ab": True}, {"ab": 1, "roots": {"ab": 1}}]
)
def test_an_offset_of_another_source_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(OffsetError):
        decode(offset)


@given(
    st.dictionaries(st.sampled_from(LABELS), st.integers(-3, 50)), st.integers(1, 100), st.integers(0, 10**6)
)
def test_a_limit_is_shared_evenly(behind: dict[Label, int], most: int, turn: int) -> None:
    given_ = share(behind, most, turn)
    waiting = {label: count for label, count in behind.items() if count > 0}
    assert set(given_) == set(waiting)
    assert all(0 <= given_[label] <= waiting[label] for label in given_)
    assert sum(given_.values()) == min(most, sum(waiting.values()))
    unsated = [given_[label] for label in given_ if given_[label] < waiting[label]]
    if unsated:
        assert max(given_.values()) - min(unsated) <= 1


@given(st.integers(2, 12), st.integers(1, 12))
def test_nobody_waits_for_ever_even_if_the_limit_is_smaller_than_the_number_of_labels(
    count: int, most: int
) -> None:
    """All labels always have more to read, as with writers that never pause."""
    read = dict.fromkeys(LABELS[:count], 0)
    for _ in range(-(-count // most)):
        for label, taken in share(dict.fromkeys(read, 10**6), most, sum(read.values())).items():
            read[label] += taken
    assert min(read.values()) >= 1
