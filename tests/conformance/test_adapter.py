"""The conformance adapter as a stranger meets it: a process, lines in, lines out, whatever the lines are."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.vectors import files
from veen.conformance.adapter import answer
from veen.conformance.operations import OPERATIONS, TYPES

MODULE = [sys.executable, "-m", "veen.conformance"]
GOOD = b'{"id": "good", "op": "h", "data": ""}'
EMPTY_HASH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

Answer = dict[str, Any]


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


def strict(line: bytes) -> Answer:
    """Parse an answer as a strict parser would."""
    return dict(json.loads(line, parse_constant=_no_constant))


def run_lines(data: bytes) -> list[bytes]:
    """Send bytes to an adapter process; return the lines it wrote, and check that it ended in peace."""
    ran = subprocess.run(MODULE, input=data, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout == b"" or ran.stdout.endswith(b"\n")
    return ran.stdout.splitlines()


def run(data: bytes) -> list[Answer]:
    """Send bytes to an adapter process; return its answers."""
    return [strict(line) for line in run_lines(data)]


def ask(**request: Any) -> Answer:
    return dict(answer(json.dumps(request).encode()))


def assert_usage(given: Answer) -> None:
    assert set(given) == {"id", "ok", "code", "stage", "detail"}
    assert (given["ok"], given["code"], given["stage"]) == (False, "USAGE", "")
    assert isinstance(given["detail"], str)
    assert given["detail"]


# --- lines that are no requests -----------------------------------------------------------------------------

NOT_REQUESTS = {
    "not JSON": b"hello",
    "half an object": b'{"op": "h"',
    "two objects": b'{"op": "h", "data": ""} {"op": "h", "data": ""}',
    "trailing comma": b'{"op": "h", "data": "",}',
    "single quotes": b"{'op': 'h'}",
    "a comment": b'{"op": "h", "data": ""} // hash',
    "a number": b"1",
    "a string": b'"h"',
    "null": b"null",
    "true": b"true",
    "a list": b'[{"op": "h", "data": ""}]',
    "an empty list": b"[]",
    "NaN": b'{"id": NaN, "op": "h", "data": ""}',
    "Infinity": b'{"id": Infinity, "op": "h", "data": ""}',
    "minus Infinity": b'{"id": -Infinity, "op": "h", "data": ""}',
    "a number beyond all doubles": b'{"id": 1e400, "op": "h", "data": ""}',
    "an integer of five thousand digits": b'{"id": ' + b"9" * 5000 + b', "op": "h", "data": ""}',
    "a leading zero": b'{"id": 01, "op": "h", "data": ""}',
    "a name twice": b'{"op": "h", "data": "", "data": "00"}',
    "op twice": b'{"op": "h", "op": "h", "data": ""}',
    "id twice": b'{"id": 1, "id": 2, "op": "h", "data": ""}',
    "a name twice, inside": b'{"op": "encode", "type": "payload_hdr", "value": {"schema": "", "schema": ""}}',
    "not UTF-8": b'{"op": "h", "data": "\xff"}',
    "UTF-16": '{"op": "h", "data": ""}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "a NUL": b"\x00",
    "control characters in a string": b'{"op": "h\x01", "data": ""}',
    "all bytes": bytes(byte for byte in range(256) if byte not in b"\n\r"),
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep lists in a field": b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b', "op": "h", "data": ""}',
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}


@pytest.mark.parametrize("line", NOT_REQUESTS.values(), ids=NOT_REQUESTS)
def test_a_malformed_line_is_answered_with_usage(line: bytes) -> None:
    given = strict(json.dumps(answer(line)).encode())
    assert_usage(given)
    assert given["id"] is None


def test_nothing_but_the_end_of_input_ends_the_process() -> None:
    lines = [*NOT_REQUESTS.values(), GOOD]
    given = run(b"\n".join(lines) + b"\n")
    assert len(given) == len(lines)
    for bad in given[:-1]:
        assert_usage(bad)
    assert given[-1] == {"id": "good", "ok": True, "hash": EMPTY_HASH}


def test_nesting_at_the_edge_of_the_parser_ends_nothing() -> None:
    """Somewhere between these depths the parser gives up; an id that it took must still be written."""
    nested = [b"[" * depth + b"]" * depth for depth in (*range(800, 1200), 100_000)]
    echoed = run_lines(b"\n".join(b'{"id": ' + value + b', "op": "h", "data": ""}' for value in nested))
    refused = b'{"id": null, "ok": false, "code": "USAGE"'
    for value, line in zip(nested, echoed, strict=True):
        assert line.startswith((b'{"id": ' + value + b', "ok": true', refused))
    assert any(line.startswith(refused) for line in echoed)
    assert not all(line.startswith(refused) for line in echoed)
    for shell in (
        b'{"op": %s}',
        b'{"op": "h", "data": %s}',
        b'{"op": "decode", "type": %s, "data": ""}',
        b'{"op": "encode", "type": "profile", "value": %s}',
        b'{"op": "encode", "type": "profile", "value": {"aead": %s}}',
        b'{"op": "encode", "type": "error", "value": {"ver": 1, "code": "", "message": "", "detail": %s}}',
    ):
        given = run(b"\n".join(shell % value for value in nested))
        assert len(given) == len(nested)
        assert {one["code"] for one in given} <= {"USAGE", "E.FORMAT"}


def test_large_lines() -> None:
    size = 3_000_000
    data = "ab" * size
    given = run(b'{"op": "h", "data": "' + data.encode() + b'"}\n' + b" " * size + b"\n" + GOOD)
    assert [one["ok"] for one in given] == [True, True]


# --- lines and their answers --------------------------------------------------------------------------------


def test_blank_lines_are_not_requests() -> None:
    given = run(b"\n\n   \n\t\r\n" + GOOD + b"\n\n" + GOOD + b"\n \n")
    assert [one["id"] for one in given] == ["good", "good"]


def test_no_input_no_answers() -> None:
    assert run(b"") == []


def test_the_last_line_needs_no_end() -> None:
    assert [one["ok"] for one in run(GOOD)] == [True]


def test_lines_may_end_as_windows_ends_them() -> None:
    assert [one["ok"] for one in run(GOOD + b"\r\n" + GOOD + b"\r\n")] == [True, True]


def test_answers_come_in_order() -> None:
    lines = []
    for number in range(500):
        request: Answer = {"id": number, "op": "h", "data": f"{number:08x}"}
        if number % 7 == 3:
            request = {"id": number, "op": "no such thing"}
        if number % 7 == 5:
            request = {"id": number, "op": "decode", "type": "msg", "data": ""}
        lines.append(json.dumps(request))
    given = run("\n".join(lines).encode())
    assert [one["id"] for one in given] == list(range(500))


def test_an_answer_does_not_wait_for_the_next_request() -> None:
    with subprocess.Popen(MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(20):
            process.stdin.write(b'{"id": %d, "op": "h", "data": ""}\n' % number)
            process.stdin.flush()
            assert strict(process.stdout.readline()) == {"id": number, "ok": True, "hash": EMPTY_HASH}
        assert process.poll() is None
        process.stdin.close()
        assert process.wait() == 0


IDS: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e308, 5e-324, 2**70, -(2**70), "", "x", "\u00e9\U0001f512", "\ud800",
    [], [1, [2, [3]]], {}, {"a": {"b": None}}, "a\nb", "\x00",
]  # fmt: skip


@pytest.mark.parametrize("value", IDS, ids=repr)
def test_any_id_is_echoed(value: Any) -> None:
    for request in (
        {"op": "h", "data": ""},
        {"op": "no such thing"},
        {"op": "decode", "type": "msg", "data": ""},
        {"op": "h"},
    ):
        line = json.dumps({"id": value, **request}).encode()
        echoed = strict(json.dumps(answer(line)).encode())["id"]
        assert echoed == value
        assert type(echoed) is type(value)


def test_without_an_id_the_answer_has_null() -> None:
    assert ask(op="h", data="") == {"id": None, "ok": True, "hash": EMPTY_HASH}


def test_unknown_fields_are_passed_over() -> None:
    assert ask(op="h", data="", note="for people")["ok"]


def test_a_refusal_names_code_stage_and_detail() -> None:
    given = ask(id=7, op="decode", type="msg", data="80")
    message = given.pop("message")
    assert given == {
        "id": 7,
        "ok": False,
        "code": "E.FORMAT",
        "stage": "structural",
        "detail": "CBOR_INVALID",
    }
    assert isinstance(message, str)


def _program() -> list[str]:
    beside = Path(sys.executable).with_name("veen")
    found = str(beside) if beside.exists() else shutil.which("veen")
    assert found, "the package is installed with its program"
    return [found, "conformance"]


def test_the_program_and_the_module_are_one() -> None:
    lines = [
        json.dumps({"id": number, **case["request"]}) for number, case in enumerate(files.all_cases()[::11])
    ]
    data = "\n".join(lines).encode() + b"\n" + b"\n".join(NOT_REQUESTS.values())
    outputs = [
        subprocess.run(command, input=data, capture_output=True, check=True).stdout
        for command in (MODULE, _program())
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == len(lines) + len(NOT_REQUESTS)


# --- operations ---------------------------------------------------------------------------------------------

#: Every operation with the fields it needs, as the contract lists them (``ephemeral_sk`` may be left out).
SEAL_FIELDS = (
    "recipient_pk", "epoch_sec", "pad_block", "label", "client_id", "client_seq", "prev_ack", "hdr", "body",
)  # fmt: skip
CONTRACT: dict[str, tuple[str, ...]] = {
    "h": ("data",),
    "ht": ("tag", "data"),
    "profile_id": ("epoch_sec", "pad_block"),
    "hub_id": ("hub_pk",),
    "routing_key": ("hub_id",),
    "stream_id": ("name",),
    "label": ("routing_key", "stream_id", "epoch"),
    "schema_id": ("name",),
    "decode": ("type", "data"),
    "encode": ("type", "value"),
    "sign_msg": ("seed", "profile_id", "label", "client_seq", "prev_ack", "ciphertext"),
    "verify_msg": ("msg",),
    "sign_receipt": ("seed", "label", "stream_seq", "leaf_hash", "mmr_root", "hub_ts"),
    "verify_receipt": ("receipt", "hub_pk"),
    "sign_checkpoint": (
        "seed", "label_prev", "label_curr", "upto_seq", "mmr_root", "epoch", "witness_seeds",
    ),
    "verify_checkpoint": ("checkpoint", "hub_pk", "witness_pks"),
    "seal": SEAL_FIELDS,
    "open": ("recipient_sk", "msg", "pad_block"),
    "seal_attachments": (*SEAL_FIELDS, "attachments"),
    "att_root": ("coids",),
    "mmr_root": ("leaves",),
    "mmr_proof": ("leaves", "seq", "size"),
    "mmr_verify": ("proof", "root", "leaf", "seq", "size"),
    "mmr_consistency": ("leaves", "old", "new"),
    "mmr_verify_consistency": ("proof", "old_root", "old", "new_root", "new"),
    "cap_mint": ("issuer_seed", "subject_pk", "stream_ids", "ttl", "rate", "links"),
    "cap_verify": ("token",),
    "entry": ("msg", "receipt"),
    "public_keys": ("seed",),
    "overlay_ids": (),
    "fold": ("overlay", "events"),
    "canonical_json": ("value",),
}  # fmt: skip
CONTRACT_TYPES = (
    "msg receipt checkpoint payload_hdr mmr_proof cap_token profile error entry submit_request "
    "submit_response stream_request stream_response receipt_request proof_request checkpoint_request"
)


def _accepted(op: str) -> Answer:
    """Return a request of the vectors that must succeed."""
    return next(
        dict(case["request"])
        for case in files.all_cases()
        if case["request"]["op"] == op and case["expect"]["ok"]
    )


def test_every_operation_of_the_contract_exists() -> None:
    assert set(CONTRACT) == set(OPERATIONS)


def test_every_type_of_the_contract_exists() -> None:
    assert set(CONTRACT_TYPES.split()) <= set(TYPES)


@pytest.mark.parametrize("op", CONTRACT)
def test_a_request_with_all_its_fields_succeeds(op: str) -> None:
    request = _accepted(op)
    assert set(CONTRACT[op]) <= set(request)
    assert ask(**request)["ok"]


@pytest.mark.parametrize(
    ("op", "field"), [(op, field) for op, fields in CONTRACT.items() for field in fields]
)
def test_a_request_without_a_field_is_usage(op: str, field: str) -> None:
    request = _accepted(op)
    del request[field]
    given = ask(**request)
    assert_usage(given)
    assert field in given["detail"]


#: Fields that hold an object in JSON form: what is wrong in them is the object's fault, not the request's.
OBJECTS = {"value", "hdr"}
WRONG: list[Any] = [
    None,
    True,
    -1,
    1.5,
    2**64,
    "zz",
    "ABCD",
    "abc",
    " ab",
    "\ud800",
    [0],
    ["zz"],
    [None],
    {},
    {"a": 1},
]


def _suits(op: str, field: str, value: Any) -> bool:
    """Tell whether a value has the form that a field needs, by chance."""
    if op == "canonical_json":
        return bool(value != "\ud800")
    if field in ("tag", "name"):
        return isinstance(value, str) and value != "\ud800"
    return field == "rate" and value is None


@pytest.mark.parametrize(
    ("op", "field"), [(op, field) for op, fields in CONTRACT.items() for field in fields]
)
def test_a_field_of_the_wrong_form_is_usage(op: str, field: str) -> None:
    request = _accepted(op)
    for value in WRONG:
        if _suits(op, field, value):
            continue
        given = ask(**request | {field: value})
        assert not given["ok"], value
        if field in OBJECTS:
            assert given["code"] in ("E.FORMAT", "E.BAD_REQUEST"), given
        else:
            assert_usage(given)


@pytest.mark.parametrize("field", ["auth_ref", "ephemeral_sk"])
def test_a_field_that_may_be_null_is_hex_otherwise(field: str) -> None:
    request = _accepted("seal")
    assert ask(**request | {field: None})["ok"]
    wrong: list[Any] = [True, 0, "zz", [], {}]
    for value in wrong:
        assert_usage(ask(**request | {field: value}))


@pytest.mark.parametrize("op", ["", "H", "h ", "no such thing", None, 1, True, ["h"], {"h": 1}, "\ud800"])
def test_an_unknown_operation_is_usage(op: Any) -> None:
    assert_usage(ask(op=op, data=""))


def test_no_operation_is_usage() -> None:
    assert_usage(ask(data=""))


@pytest.mark.parametrize("kind", ["", "MSG", "message", "rate", "\ud800", 1, None, ["msg"]])
def test_an_unknown_type_is_usage(kind: Any) -> None:
    assert_usage(ask(op="decode", type=kind, data=""))
    assert_usage(ask(op="encode", type=kind, value={}))


@pytest.mark.parametrize(
    ("op", "field", "value"),
    [
        ("cap_mint", "rate", [1]),
        ("cap_mint", "rate", [1, 2, 3]),
        ("cap_mint", "rate", [1, -2]),
        ("cap_mint", "links", 0),
        ("sign_msg", "seed", "11" * 31),
        ("sign_receipt", "seed", "11" * 33),
        ("sign_checkpoint", "witness_seeds", ["11" * 31]),
        ("verify_receipt", "hub_pk", "11" * 31),
        ("verify_checkpoint", "witness_pks", ["11" * 33]),
        ("open", "recipient_sk", ""),
        ("mmr_root", "leaves", ["11"]),
        ("att_root", "coids", ["11" * 33]),
        ("mmr_proof", "size", 2**40),
        ("mmr_consistency", "new", 2**40),
        ("public_keys", "seed", "11"),
    ],
)
def test_a_value_that_no_request_can_mean_is_usage(op: str, field: str, value: Any) -> None:
    assert_usage(ask(**_accepted(op) | {field: value}))


def test_without_a_fixed_ephemeral_key_every_seal_is_new() -> None:
    request = _accepted("seal")
    del request["ephemeral_sk"]
    first, second = (ask(**request)["ciphertext"] for _ in range(2))
    assert first != second


# --- objects ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_encoding_what_was_decoded_gives_the_same_bytes(kind: str) -> None:
    for encoded in files.accepted_objects()[kind]:
        decoded = ask(op="decode", type=kind, data=encoded.hex())
        assert decoded["ok"], decoded
        assert decoded["encoded"] == encoded.hex()
        value = json.loads(json.dumps(decoded["value"]))
        assert ask(op="encode", type=kind, value=value) == {"id": None, "ok": True, "data": encoded.hex()}


#: Files that are a bare list or table may have nothing in them.
MAY_BE_EMPTY: dict[str, tuple[Any, ...]] = {
    "peaks": ([],),
    "checkpoint_binding": ([],),
    "checkpoint_index": ({},),
    "hub_key_map": ({},),
}


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_no_json_at_all_makes_an_adapter_fail(kind: str) -> None:
    """Whatever stands for an object, and for each of its fields, is answered."""
    good = ask(op="decode", type=kind, data=files.accepted_objects()[kind][0].hex())["value"]
    for wrong in (*WRONG, "", 0, [], [[]], [{}], {"ver": 1}):
        given = ask(op="encode", type=kind, value=wrong)
        if wrong not in MAY_BE_EMPTY.get(kind, ()):
            assert given["code"] in ("E.FORMAT", "E.BAD_REQUEST"), given
        for place in good if isinstance(good, dict) else range(len(good)):
            changed = dict(good) if isinstance(good, dict) else list(good)
            changed[place] = wrong
            given = ask(op="encode", type=kind, value=changed)
            assert given["ok"] or str(given["code"]).startswith("E."), given
