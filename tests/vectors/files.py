"""The published vector files, as tests read them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.paths import ROOT

VECTORS = ROOT / "vectors"
DATA = Path(__file__).resolve().parent / "data"

Case = dict[str, Any]


@cache
def scenarios() -> dict[str, dict[str, Any]]:
    """Every file by its name."""
    return {
        path.relative_to(VECTORS).with_suffix("").as_posix(): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(VECTORS.glob("*/*.json"))
    }


def names() -> list[str]:
    return list(scenarios())


def cases(name: str) -> list[Case]:
    found: list[Case] = scenarios()[name]["cases"]
    return found


def all_cases() -> list[Case]:
    return [case for name in names() for case in cases(name)]


def data(name: str) -> Any:
    """Return one of the test vectors that others have published."""
    return json.loads((DATA / name).read_text(encoding="utf-8"))


#: Where requests hold an object besides ``decode``: (operation, field) -> type.
_CARRIED = {
    ("verify_msg", "msg"): "msg",
    ("open", "msg"): "msg",
    ("entry", "msg"): "msg",
    ("entry", "receipt"): "receipt",
    ("verify_receipt", "receipt"): "receipt",
    ("verify_checkpoint", "checkpoint"): "checkpoint",
    ("cap_verify", "token"): "cap_token",
    ("mmr_verify", "proof"): "mmr_proof",
    ("mmr_verify_consistency", "proof"): "consistency_proof",
}


@cache
def accepted_objects() -> dict[str, list[bytes]]:
    """Every encoded object that must be accepted, by its type, each once."""
    found: dict[str, dict[str, None]] = {}
    for case in all_cases():
        request = case["request"]
        if not case["expect"]["ok"]:
            continue
        if request["op"] == "decode":
            found.setdefault(request["type"], {})[request["data"]] = None
        for (op, field), kind in _CARRIED.items():
            if request["op"] == op:
                found.setdefault(kind, {})[request[field]] = None
    return {kind: [bytes.fromhex(encoded) for encoded in objects] for kind, objects in found.items()}
