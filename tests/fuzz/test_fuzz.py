"""Every parser survives garbage; and the fuzzer would notice if one did not."""

import json
import random
import subprocess
import sys

import pytest

from fuzz.__main__ import main
from fuzz.requests import REQUESTS
from fuzz.runner import Campaign, Finding, Target, outcome, run, shrink
from fuzz.targets import all_targets
from tests.builders import receipt
from tests.examples import every_wire_object
from tests.paths import ROOT
from veen.conformance.adapter import answer
from veen.conformance.operations import OPERATIONS, TYPES
from veen.core.objects.receipt import Receipt

TARGETS = all_targets()
#: Over all targets together.
SECONDS = 20.0


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_parser_gives_a_value_or_our_error(target: Target) -> None:
    seed = random.getrandbits(32)
    findings, cases = run([target], seconds=SECONDS / len(TARGETS), seed=seed)
    assert not findings, f"seed {seed}\n{findings[0]}"
    assert cases > 0


def test_there_is_a_target_for_every_type_in_bytes_and_in_json() -> None:
    names = {target.name for target in TARGETS}
    assert len(names) == len(TARGETS)
    for item in every_wire_object():
        assert {f"decode:{item.SHAPE.name}", f"json:{item.SHAPE.name}"} <= names
    assert {"cbor", "entry", "entry:header", "peaks", "sequence"} <= names
    for name in ("entry:one", "peak_snapshot", "checkpoint_index", "hub_key_map", "checkpoint_binding"):
        assert {name, f"json:{name}"} <= names
    assert {"envelope", "open", "open:ciphertext", "open:attachment", "structure", "adapter"} <= names


def test_every_operation_of_the_adapter_is_among_the_requests_and_succeeds() -> None:
    requests = [json.loads(line) for line in REQUESTS]
    assert {request["op"] for request in requests} == set(OPERATIONS)
    decoded = {request["type"] for request in requests if request["op"] in ("decode", "encode")}
    assert decoded | {"receipt_response"} == set(TYPES)
    for line in REQUESTS:
        assert answer(line)["ok"] is True, line


# --- the fuzzer itself --------------------------------------------------------------------------------------


def planted(data: bytes) -> None:
    """A parser with a bug: it trusts a length that it read."""
    item = Receipt.decode(data)
    if item.stream_seq > 2**32:
        raise ValueError("index out of range")


PLANTED = Target("planted", planted, (receipt().encode(),))


def find_planted(seed: int = 1) -> Finding:
    findings, _ = run([PLANTED], seconds=30, seed=seed)
    assert findings, "the fuzzer did not find the planted bug"
    return findings[0]


def test_a_planted_bug_is_found_and_its_input_fails_again() -> None:
    found = find_planted()
    error = outcome(PLANTED, found.data)
    assert isinstance(error, ValueError)
    assert found.data.hex() in str(found)
    assert f"seed {found.seed}" in str(found)
    assert "index out of range" in found.trace


def test_a_broken_promise_about_the_encoding_is_found_too() -> None:
    def run_lossy(data: bytes) -> None:
        item = Receipt.decode(data)
        assert item.hub_ts != 24, "encodes to something else"

    target = Target("lossy", run_lossy, (receipt(hub_ts=23).encode(), receipt(hub_ts=25).encode()))
    findings, _ = run([target], seconds=30, seed=1)
    assert "encodes to something else" in findings[0].trace


def test_a_seed_that_its_own_target_refuses_is_a_finding() -> None:
    findings, cases = run([Target("stale", PLANTED.run, (b"\x80",))], seconds=0.01, seed=1)
    assert [finding.target for finding in findings] == ["stale"]
    assert cases == 0


def test_a_seed_names_the_same_inputs_in_every_run() -> None:
    for target in TARGETS:
        first, second, other = Campaign(target, 7), Campaign(target, 7), Campaign(target, 8)
        inputs = [first.next_input() for _ in range(30)]
        assert inputs == [second.next_input() for _ in range(30)]
        assert inputs != [other.next_input() for _ in range(30)]


def test_most_inputs_differ_from_the_seeds() -> None:
    for target in TARGETS:
        campaign = Campaign(target, 1)
        inputs = {campaign.next_input() for _ in range(200)}
        assert len(inputs - set(target.seeds)) > 100


def test_an_input_is_made_smaller_as_long_as_it_fails() -> None:
    def run_marked(data: bytes) -> None:
        if b"\xfe" in data:
            raise KeyError

    target = Target("marked", run_marked, (b"",))
    assert shrink(target, bytes(50) + b"\xfe" + bytes(50), KeyError()) == b"\xfe"


def test_one_finding_per_target_and_the_others_go_on() -> None:
    fine = Target("fine", lambda _: None, (b"x",))
    findings, cases = run([PLANTED, fine], seconds=3, seed=1)
    assert [finding.target for finding in findings] == ["planted"]
    assert cases > 100


# --- the command --------------------------------------------------------------------------------------------


def test_the_command_reports_how_much_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "0.2", "--target", "cbor", "--seed", "5"]) == 0
    shown = capsys.readouterr().out
    assert "seed 5" in shown
    assert "0 findings" in shown


def test_one_input_can_be_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "decode:MSG", "--replay", "8a01"]) == 0
    assert capsys.readouterr().out.startswith("decode:MSG: ")


@pytest.mark.parametrize(
    "arguments", [["--target", "nothing"], ["--replay", "00"], ["--replay", "00", "--target", "decode"]]
)
def test_a_wrong_request_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "--list" in capsys.readouterr().err


def test_the_targets_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == [target.name for target in TARGETS]


def test_a_finding_is_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "30", "--seed", "1"], [PLANTED]) == 1
    shown = capsys.readouterr().out
    replay = shown.split("--replay ")[1].split()[0]
    with pytest.raises(ValueError, match="index out of range"):
        main(["--target", "planted", "--replay", replay], [PLANTED])


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "fuzz", "--seconds", "0.2", "--target", "hub_key_map", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "1 target, 0.2 s, seed 3" in done.stdout
