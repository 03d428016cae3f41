"""JSON objects with a repeated name are rejected, quickly."""

import json
import time

import pytest

from veen.stdx.json_object import unique_names

UNIQUE = unique_names(lambda name: ValueError(f"twice: {name}"))


def test_unique_names_are_read() -> None:
    text = '{"b": 1, "a": {"b": [], "a": null}}'
    assert json.loads(text, object_pairs_hook=UNIQUE) == json.loads(text)


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 1}', '[{"x": {"a": 1, "\\u0061": 2}}]'])
def test_the_first_repeated_name_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match=r"^twice: a$"):
        json.loads(text, object_pairs_hook=UNIQUE)


def test_a_large_object_costs_no_square() -> None:
    pairs = [(str(number), number) for number in range(200_000)]
    began = time.process_time()
    with pytest.raises(ValueError, match=r"^twice: 199999$"):
        UNIQUE([*pairs, pairs[-1]])
    assert time.process_time() - began < 5
