"""Codes are stable: each that is in the code has a meaning, and each meaning has a code."""

import re
from pathlib import Path

import pytest

import veen
from veen.overlays.report_codes import CODES

_CODE = re.compile(r'"((?:BODY|CLS|COPY|CRDT|OP|RPC|SDR|STATE|WAL)\.[A-Z_]+)"')


def _written() -> set[str]:
    root = Path(veen.__file__).parent
    paths = [path for path in root.rglob("*.py") if path.name != "report_codes.py"]
    return {code for path in paths for code in _CODE.findall(path.read_text(encoding="utf-8"))}


def test_every_code_has_a_meaning_and_every_meaning_a_code() -> None:
    made = {code for code in CODES if code.startswith("BODY.")}  # from the names of faults
    assert _written() | made == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_meaning_is_one_line(code: str) -> None:
    assert CODES[code]
    assert "\n" not in CODES[code]
    assert not CODES[code].endswith(".")
