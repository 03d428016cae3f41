"""Examples in help: every command has one, which its parser accepts and a narrow terminal shows whole."""

import shlex
from pathlib import Path

import pytest

from tests.cli.command_runner import User
from tests.cli.command_tree import ALL, LEAVES, Words
from veen.cli.examples import EXAMPLES, FIRST_STEPS


def _words(text: str) -> list[str]:
    return shlex.split(text.partition(" < ")[0].replace("\\\n", ""))


def _parse(text: str) -> Words:
    """Parse a command without running it; return the words that select it."""
    program, *words = _words(text)
    assert program == "veen"
    path: Words = ()
    while path not in LEAVES:
        path = (*path, words.pop(0))
        assert path in ALL, text
    with ALL[path].make_context(" ".join(path), words):
        return path


def test_every_command_has_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(map(" ".join, LEAVES))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_of_its_command(name: str) -> None:
    assert " ".join(_parse(EXAMPLES[name])) == name


@pytest.mark.parametrize("text", FIRST_STEPS)
def test_first_steps_are_commands(text: str) -> None:
    assert _parse(text)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_ends_with_the_example(tmp_path: Path, path: Words) -> None:
    shown = User(tmp_path, COLUMNS="80", TERMINAL_WIDTH="80").run(*path, "--help").stdout
    example = shown.partition("\n\n  Example:\n")[2]
    assert max(map(len, shown.splitlines())) <= 80
    assert _words(example) == _words(EXAMPLES[" ".join(path)])
