"""Every case, put to the adapter as another program would: one process, requests in, answers out."""

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.vectors import files


@cache
def _answers() -> dict[str, list[dict[str, Any]]]:
    """Ask one adapter process everything; return its answers by file."""
    lines = [
        json.dumps({"id": [name, number], **case["request"]})
        for name in files.names()
        for number, case in enumerate(files.cases(name))
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "veen.conformance"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    given = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(given) == len(lines)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in files.names()}
    for answer in given:
        name, number = answer.pop("id")
        assert number == len(found[name])
        found[name].append(answer)
    return found


@pytest.mark.parametrize("name", files.names())
def test_the_adapter_gives_exactly_the_expected_answers(name: str) -> None:
    wrong = []
    for case, answer in zip(files.cases(name), _answers()[name], strict=True):
        answer.pop("message", None)  # for people, and free to change
        for item in answer.get("rejected", ()):
            del item["detail"]  # likewise
        if answer != case["expect"]:
            wrong.append(f"{case['name']}: {answer} instead of {case['expect']}")
    assert not wrong, "\n".join(wrong)
