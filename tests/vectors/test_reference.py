"""A second implementation, which shares no code with the first, agrees on every case."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.reference import operations
from tests.reference.basics import Refused
from tests.vectors import files
from veen.conformance.adapter import answer


def _verdict(request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    try:
        return operations.answer(request)
    except Refused:
        return None


@pytest.mark.parametrize("name", files.names())
def test_the_reference_agrees(name: str) -> None:
    wrong = []
    for case in files.cases(name):
        verdict = _verdict(case["request"])
        if (verdict is not None) is not case["expect"]["ok"]:
            wrong.append(f"{case['name']}: {'accepted' if verdict else 'refused'} by the reference")
        elif verdict is not None:
            given, between = verdict
            if {"ok": True, **given} != case["expect"]:
                wrong.append(f"{case['name']}: the reference answers {given}")
            for step, value in case.get("intermediate", {}).items():
                if between.get(step) != value:
                    wrong.append(f"{case['name']}: {step} is {between.get(step)} in the reference")
    assert not wrong, "\n".join(wrong)


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_reference_is_independent() -> None:
    modules = sorted((ROOT / "tests" / "reference").glob("*.py"))
    assert len(modules) > 3
    for module in modules:
        for name in _imports(module):
            top, _, rest = name.partition(".")
            assert top not in ("veen", "vectors"), f"{module.name} imports {name}"
            assert top != "tests" or rest.startswith("reference"), f"{module.name} imports {name}"


def test_the_reference_knows_every_operation_that_is_used() -> None:
    assert set(operations.OPERATIONS) == {case["request"]["op"] for case in files.all_cases()}


@pytest.mark.parametrize("size", [0, 1, 100, 1000])
def test_the_reference_opens_what_is_sealed_with_chance(size: int) -> None:
    """Vectors fix the ephemeral key; a real message does not, and opens all the same."""
    request = dict(files.cases("ciphertext/contexts")[0]["request"])
    signing = dict(files.cases("ciphertext/contexts")[1]["request"])
    request |= {"body": bytes(size).hex(), "ephemeral_sk": None}
    sealed = answer(json.dumps(request).encode())
    signed = answer(json.dumps(signing | {"ciphertext": sealed["ciphertext"]}).encode())
    opening = {"op": "open", "recipient_sk": "51" * 32, "msg": signed["msg"], "pad_block": 0}
    opened = answer(json.dumps(opening).encode())
    assert operations.answer(opening)[0] == {name: opened[name] for name in ("hdr", "body")}
    assert opened["body"] == request["body"]
