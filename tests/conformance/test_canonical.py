"""Canonical JSON through the adapter: numbers as they are written, and values that have no canonical form."""

import hashlib
import json
from typing import Any

import pytest

from veen.conformance.adapter import answer


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b"1.10", "1.1"),
        (b"0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        (b"12345678901234567890.25", "12345678901234567890.25"),
        (b"1E2", "100"),
        (b"-0.0", "0"),
        (b'{"b":1,"a":[1e-3]}', '{"a":[0.001],"b":1}'),
    ],
)
def test_numbers_are_taken_as_they_are_written(written: bytes, text: str) -> None:
    """Not as doubles: these have fewer digits."""
    given = answer(b'{"op": "canonical_json", "value": ' + written + b"}")
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert given == {"id": None, "ok": True, "text": text, "hash": digest}


def test_a_digest_as_it_was_published() -> None:
    value: dict[str, Any] = {
        "query_id": "q-1",
        "result_id": "r-1",
        "version": 1,
        "row_count": 2,
        "evidence_policy": {"mode": "none"},
        "rows_hash": "aa",
        "evidence_hash": "bb",
        "executed_at": "2025-11-19T03:20:00Z",
        "hub_id": "hub-1",
        "profile_id": "profile-1",
    }
    assert answer(json.dumps({"op": "canonical_json", "value": value}).encode())["text"] == (
        '{"evidence_hash":"bb","evidence_policy":{"mode":"none"},"executed_at":"2025-11-19T03:20:00Z",'
        '"hub_id":"hub-1","profile_id":"profile-1","query_id":"q-1","result_id":"r-1","row_count":2,'
        '"rows_hash":"aa","version":1}'
    )


@pytest.mark.parametrize("depth", [65, 300, 900])
def test_canonical_json_of_deep_values_is_refused(depth: int) -> None:
    given = answer(b'{"op": "canonical_json", "value": ' + b"[" * depth + b"]" * depth + b"}")
    assert (given["ok"], given["detail"]) == (False, "VALUE")
