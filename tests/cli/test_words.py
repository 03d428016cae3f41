"""Help and error texts: phrases that need a second reading, and summaries that fit.

Phrases are looked for in all help, and in the texts that are given to errors in the whole package.
"""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import veen
from tests.cli.command_runner import User
from tests.cli.command_tree import ALL, GROUPS

PACKAGE = Path(veen.__file__).parent
#: What is not written, and what is written instead.
PHRASES = {
    r"can not": "cannot",
    r"for good": "permanent, permanently",
    r"for ever": "permanently",
    r"in turns?": "one after the other",
    r"whoever|who may|nobody|somebody|anybody|everybody": "client, operator, reader, caller",
    r"he|she|his|him": "they, or the name of the role",
    r"(?<!there )(?:is no|are no|is none)(?! longer)": "is not a",
    r"has it not|have it not|has not (?:all|the|a)": "does not contain",
    r"anew|made again": "rebuild, create again",
    r"go by|goes by|gone by|go on|goes on": "use; continue, resume",
    r"tells?|told|says?|said": "report, print, show",
    r"refused?|refuses|refusal": "reject",
    r"tak(?:e|es|en) (?:in|it|them|this)|takes no": "ingest, accept",
    r"is to be|are to be|is meant|are meant": "must be, is used",
    r"so (?:many|much|often|long)": "the number, the time",
    r"has been|have been": "was, were",
    r"does well|good for|counts for": "valid",
    r"there is already|is there already": "already exists",
    r"(?:somewhere|anywhere) else": "another path",
}
PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
#: The first words of summaries.
VERBS = set(
    re.findall(
        r"\w+",
        """
    Accept Add Adjust Answer Approve Audit Bring Call Cancel Certify Change Check Close Compare Copy Correct
    Create Declare Define Deposit Explain Export Fetch Fold Follow Fork Freeze Grant Import Ingest Issue List
    Manage Measure Merge Open Pay Pin Print Publish Query Read Rebuild Record Register Remove Rename Renew
    Replace Replay Request Restore Retire Revoke Rotate Run Seal Search Send Serve Set Show Sign Split Start
    Stop Store Submit Test Transfer Trust Unfreeze Use Verify Withdraw
    """,
    )
)
#: A call of these names is given a text for people.
ERRORS = re.compile(
    r"[A-Za-z]*(?:Error|BadParameter)$|(?:Finding|warn|with_text|check|equal)$"
    r"|_?(?:not_found|bad_request|unavailable|refus(?:ed|al)|rejected|invalid|forbidden|failure|damaged)$",
    re.IGNORECASE,
)


def _help_of(command: Any) -> Iterator[str]:
    yield inspect.cleandoc(command.help or "")
    yield command.epilog or ""
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""


def _constants(node: ast.AST) -> Iterator[str]:
    """Yield the texts of an expression; not those that its own calls and subscripts are given."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [item.value if isinstance(item, ast.Constant) else "X" for item in node.values]
        yield "".join(map(str, parts))
    elif isinstance(node, ast.BinOp | ast.IfExp | ast.BoolOp):
        for child in ast.iter_child_nodes(node):
            yield from _constants(child)


def _error_texts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if ERRORS.match(name):
            for argument in node.args:
                yield from _constants(argument)


def test_phrases_are_found_where_they_are() -> None:
    source = """raise CommandError(f"{x} can not be read", say("told")) if a else PinError('who' ' may')"""
    assert [text for text in _error_texts(source) if PHRASE.search(text)] == [
        "X can not be read",
        "who may",
    ]
    assert any(map(PHRASE.search, _error_texts("raise storage.not_found('x', f'it was refused by {hub}')")))
    assert not PHRASE.search("the cache is not a directory; this was sent to them")


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_no_help_needs_a_second_reading(path: tuple[str, ...]) -> None:
    found = [text for text in _help_of(ALL[path]) if PHRASE.search(text)]
    assert not found


MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_no_error_needs_a_second_reading(module: str) -> None:
    found = [text for text in _error_texts((PACKAGE / module).read_text("utf-8")) if PHRASE.search(text)]
    assert not found


def test_one_text_per_option() -> None:
    """A text that several options share is a constant in ``veen.cli.options``."""
    texts = [
        node.value.value
        for path in (PACKAGE / "cli").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant)
    ]
    assert len(texts) > 100
    assert [text for text, count in Counter(texts).items() if count > 1] == []


@pytest.mark.parametrize("path", [path for path in ALL if path], ids=" ".join)
def test_a_summary_is_a_sentence(path: tuple[str, ...]) -> None:
    summary = inspect.cleandoc(ALL[path].help or "").partition("\n\n")[0]
    assert summary.endswith(".")
    assert re.split(r"\W", summary)[0] in VERBS


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_descriptions_of_options_are_sentences(path: tuple[str, ...]) -> None:
    for parameter in ALL[path].params:
        text = re.sub(r"  \[.*\]$", "", getattr(parameter, "help", None) or "")
        assert not text or text.endswith("."), (parameter.name, text)
        assert "[default" not in text, parameter.name


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_summaries_fit_into_80_columns(tmp_path: Path, path: tuple[str, ...]) -> None:
    shown = User(tmp_path, COLUMNS="80", TERMINAL_WIDTH="80").run(*path, "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown.partition("\n")[2]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_does_not_break_an_option_or_a_file_name(tmp_path: Path, path: tuple[str, ...]) -> None:
    shown = User(tmp_path, COLUMNS="80", TERMINAL_WIDTH="80").run(*path, "--help").stdout
    assert not re.findall(r"\S*[a-z]-$", shown, re.MULTILINE)
