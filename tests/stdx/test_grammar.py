"""Counts in texts: singular and plural."""

import pytest

from veen.stdx.grammar import by_count, counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "label", "0 labels"),
        (1, "label", "1 label"),
        (2, "label", "2 labels"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "key", "2 keys"),
        (2, "hash", "2 hashes"),
        (2, "batch", "2 batches"),
        (1, "valid approval", "1 valid approval"),
        (0, "valid approval", "0 valid approvals"),
        (10**6, "more line", "1000000 more lines"),
    ],
)
def test_nouns_agree_with_their_number(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


@pytest.mark.parametrize(("count", "text"), [(0, "are"), (1, "is"), (2, "are")])
def test_verbs_agree_with_their_number(count: int, text: str) -> None:
    assert by_count(count, "is", "are") == text
