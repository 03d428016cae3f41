"""The vector files are what the generator makes, and what their README says they are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vectors import files
from vectors import generate
from veen.conformance.operations import OPERATIONS, TYPES
from veen.core.errors import ADMISSION_TABLE, VERIFICATION_TABLE, Code, Detail, Stage

GENERATOR = files.VECTORS / "generate.py"


def test_the_generator_makes_exactly_these_files() -> None:
    assert generate.differences(generate.made(), generate.stored()) == []


def test_check_says_that_all_is_well_and_nothing_is_written(tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in files.VECTORS.glob("*/*.json")}
    ran = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"{len(before)} files" in ran.stdout
    assert {path: path.stat().st_mtime_ns for path in files.VECTORS.glob("*/*.json")} == before


def test_writing_makes_the_files_and_removes_what_no_scenario_has(tmp_path: Path) -> None:
    (tmp_path / "msg").mkdir()
    (tmp_path / "msg" / "left_over.json").write_text("{}", encoding="utf-8")
    generate.write(generate.made(), tmp_path)
    assert generate.differences(generate.made(), generate.stored(tmp_path)) == []


def test_differences_are_named() -> None:
    wanted = generate.made()
    changed = dict(wanted)
    scenario = json.loads(changed["msg/sign.json"])
    scenario["cases"][0]["expect"]["leaf_hash"] = "00"
    changed["msg/sign.json"] = json.dumps(scenario)
    changed["hash/tagged.json"] = wanted["hash/tagged.json"].replace("SHA-256", "SHA-1", 1)
    changed["msg/other.json"] = changed.pop("msg/leaf.json")
    assert generate.differences(wanted, changed) == [
        "differs: hash/tagged.json: layout or description",
        "missing: msg/leaf.json",
        "no scenario: msg/other.json",
        "differs: msg/sign.json: cases 'without auth_ref'",
    ]


@pytest.mark.parametrize("name", files.names())
def test_a_file_has_its_form(name: str) -> None:
    scenario = files.scenarios()[name]
    assert list(scenario) == ["name", "about", "cases"]
    assert scenario["name"] == name
    assert scenario["about"].endswith(".")
    assert scenario["cases"]
    titles = [case["name"] for case in scenario["cases"]]
    assert len(set(titles)) == len(titles)
    for case in scenario["cases"]:
        assert set(case) - {"intermediate"} == {"name", "request", "expect"}
        assert "id" not in case["request"]
        if not case["expect"]["ok"]:
            assert set(case["expect"]) == {"ok", "code", "stage", "detail"}
            assert "intermediate" not in case


def _failures() -> set[tuple[str, str, str]]:
    expects = [case["expect"] for case in files.all_cases()]
    return {(e["code"], e["stage"], e["detail"]) for e in expects if not e["ok"]}


def test_every_failure_is_a_row_of_the_error_tables() -> None:
    rows = {(row.code, row.stage, row.detail) for row in ADMISSION_TABLE + VERIFICATION_TABLE}
    queries = {(Code.BAD_REQUEST, stage, detail) for _, stage, detail in rows}
    assert _failures() <= rows | queries


#: Details that need more than one object: a hub's state, its configuration, a log or a large input.
ELSEWHERE = {
    Detail.SIZE_PREFILTER,
    Detail.PREFILTER_REJECT,
    Detail.PROFILE,
    Detail.CAP_MISSING,
    Detail.AUTH_REF,
    Detail.NOT_PRIMARY,
    Detail.REVOKED,
    Detail.CLIENT_LIFETIME,
    Detail.CAP_TTL,
    Detail.CAP_RATE,
    Detail.PREV_ACK,
    Detail.DUPLICATE,
    Detail.CLIENT_SEQ,
    Detail.EPOCH,
    Detail.CHECKPOINT_LABEL,
    Detail.CHECKPOINT_ROOT,
    Detail.KEY_INACTIVE,
    Detail.ATT_AEAD,
}


def test_every_detail_that_an_operation_can_give_is_pinned() -> None:
    assert {detail for _, _, detail in _failures()} == {*Detail} - ELSEWHERE
    assert {stage for _, stage, _ in _failures()} == {*Stage} - {Stage.PREFILTER, Stage.COMMIT}


def test_every_operation_and_type_is_used() -> None:
    requests = [case["request"] for case in files.all_cases()]
    assert {request["op"] for request in requests} == set(OPERATIONS)
    assert set(files.accepted_objects()) == set(TYPES)


#: Operations that take any bytes and numbers of the right form, and so can not fail.
CAN_NOT_FAIL = {
    "h",
    "ht",
    "profile_id",
    "stream_id",
    "schema_id",
    "public_keys",
    "att_root",
    "mmr_root",
    "sign_msg",
    "overlay_ids",
    "fold",  # an event that is refused is part of the answer
}


def test_every_operation_that_can_fail_does_so() -> None:
    failing = {case["request"]["op"] for case in files.all_cases() if not case["expect"]["ok"]}
    assert failing == set(OPERATIONS) - CAN_NOT_FAIL


def test_every_type_is_refused_and_encoded_again() -> None:
    refused = {
        case["request"]["type"]
        for case in files.all_cases()
        if case["request"]["op"] == "decode" and not case["expect"]["ok"]
    }
    encoded = {case["request"]["type"] for case in files.all_cases() if case["request"]["op"] == "encode"}
    assert refused == set(TYPES) - {"receipt_response"}  # which is the map of submit_response
    assert encoded == set(TYPES)


def test_the_readme_names_every_folder() -> None:
    readme = (files.VECTORS / "README.md").read_text(encoding="utf-8")
    folders = {name.partition("/")[0] for name in files.names()}
    assert [folder for folder in sorted(folders) if f"`{folder}/`" not in readme] == []
