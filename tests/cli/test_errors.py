"""The errors that end a command: one tree, and one place that prints them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_runner import User
from veen.cli import errors
from veen.cli.errors import CommandError, FailedError, UsageError, as_command_error
from veen.client.errors import NetworkError
from veen.core.errors import VeenError
from veen.storage.errors import DamagedStoreError, StorageError

CLI = Path(errors.__file__).parent


def _classes(base: type[CommandError]) -> Iterator[type[CommandError]]:
    for found in base.__subclasses__():
        yield found
        yield from _classes(found)


def test_one_tree_with_an_exit_code_for_each_class() -> None:
    assert issubclass(CommandError, VeenError)
    codes = {found.__name__: found.exit_code for found in CommandError.__subclasses__()}
    assert codes == {
        "UsageError": 1,
        "UnreachableError": 2,
        "MalformedError": 3,
        "FailedError": 4,
        "TerminatedError": 143,
    }
    assert all(name in (errors.__doc__ or "") for name in codes)


def test_no_other_module_defines_an_exception() -> None:
    for path in CLI.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and path.name != "errors.py":
                assert {base.id for base in node.bases if isinstance(base, ast.Name)} <= set(vars(errors))


@pytest.mark.parametrize(
    ("error", "exit_code", "code"),
    [
        (UsageError("x"), 1, "E.USAGE"),
        (NetworkError("x"), 2, "E.NETWORK"),
        (DamagedStoreError("x", 0, "x"), 4, "E.DAMAGED"),
        (StorageError("x"), 1, "E.STORAGE"),
        (FileNotFoundError(2, "x"), 1, "E.FILE"),
    ],
)
def test_how_errors_of_the_layers_below_end_a_command(error: Exception, exit_code: int, code: str) -> None:
    found = as_command_error(error)
    assert found is not None
    assert (found.exit_code, found.code) == (exit_code, code)


def test_bugs_are_not_errors_of_a_command() -> None:
    assert as_command_error(ValueError("x")) is None
    assert as_command_error(AssertionError("x")) is None


def test_the_document_of_an_error() -> None:
    error = FailedError("bad", "E.PROOF").with_document({"entries": []})
    assert error.with_text("worse").to_json() == {
        "ok": False,
        "code": "E.PROOF",
        "detail": "worse",
        "entries": [],
    }


@pytest.mark.parametrize(
    "words", [("fsck",), ("repair",), ("replay",), ("hub", "explain", "1", "--data-dir")]
)
def test_commands_on_a_data_directory_fail_as_all_others(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = User(tmp_path).fails(1, *words, tmp_path / "nothing")
    assert found["code"] == "E.USAGE"
    assert found.get("error", found["detail"]) == found["detail"]


def test_orders_name_the_path_that_is_not_a_data_directory(tmp_path: Path) -> None:
    found = User(tmp_path).fails(1, "hub", "trust", "list", "--data-dir", tmp_path)
    assert (found["code"], str(tmp_path) in found["detail"]) == ("E.STORAGE", True)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("fsck", ".", "--label"), "--label"),
        (("fsck", ".", "--hub-key"), "--hub-key"),
        (("fsck", ".", "--hub-id"), "--hub-id"),
        (("pin", "remove"), "HUB_ID"),
        (("wallet", "approve", "--to", "ab" * 32, "--amount", "1", "--out", "x", "--from"), "--from"),
        (("pipeline", "verify", ".", "--hub-id"), "--hub-id"),
        (("query", "grant", "me", "--policy", "x", "--scope", "s", "--identity"), "--identity"),
        (("agreement", "status", "--stream", "s", "--agreement-id"), "--agreement-id"),
        (("recovery", "timeline", "--stream", "s", "--target-identity"), "--target-identity"),
        (("rpc", "call", "--stream", "s", "--method", "m", "--server-key"), "--server-key"),
    ],
)
def test_what_is_not_32_bytes_of_hex_is_one_clear_line(
    tmp_path: Path, words: tuple[str, ...], option: str
) -> None:
    user = User(tmp_path)
    user.ok("keygen")
    found = user.fails(1, *words, "nothex")
    assert found["code"] == "E.USAGE"
    assert found["detail"].startswith(option)
    assert "nothex" in found["detail"]
