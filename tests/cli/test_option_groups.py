"""Groups of options: a command takes each option by itself, and gets the group."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from veen.cli.errors import USAGE, UsageError
from veen.cli.option_groups import expand_groups
from veen.cli.output import command
from veen.cli.settings import common

Colour = Annotated[str, typer.Option("--colour", help="Which colour.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paint:
    colour: Colour = "red"
    thick: Annotated[bool, typer.Option("--thick")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wall:
    name: Annotated[str, typer.Option("--wall")]
    paint: _Paint
    height: Annotated[int, typer.Option(min=1)] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _North(_Wall):
    name: str = field(init=False, default="north")
    height: Annotated[int, typer.Option("--height", min=1)] = field()


def _app(command: Callable[..., None]) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return app


def _opts(command: Callable[..., None]) -> list[tuple[str, bool]]:
    made = typer.main.get_command(_app(command))
    return [(item.opts[0], item.required) for item in made.params]


def test_the_command_gets_what_was_given() -> None:
    got: list[object] = []

    @expand_groups
    def command(tool: Annotated[str, typer.Argument()], wall: _Wall, times: int = 1) -> None:
        """Paint a wall."""
        got.append((tool, wall, times))

    app = _app(command)
    done = CliRunner().invoke(app, ["brush", "--wall", "south", "--thick", "--height", "3", "--times", "4"])
    assert done.exit_code == 0, done.output
    assert got == [("brush", _Wall(name="south", paint=_Paint(thick=True), height=3), 4)]
    got.clear()
    assert CliRunner().invoke(app, ["brush", "--wall", "east"]).exit_code == 0
    assert got == [("brush", _Wall(name="east", paint=_Paint()), 1)], "defaults are those of the groups"
    assert CliRunner().invoke(app, ["brush"]).exit_code == 2, "what a group needs has to be given"
    assert CliRunner().invoke(app, ["brush", "--wall", "east", "--height", "0"]).exit_code == 2, "bounds hold"
    assert not got[1:]


def test_what_is_needed_comes_first_and_shared_options_last() -> None:
    @expand_groups
    def command(wall: _Wall, tool: Annotated[str, typer.Option()], times: int = 1) -> None:
        """Paint a wall."""

    assert _opts(command) == [
        ("--wall", True),
        ("--tool", True),
        ("--times", False),
        ("--height", False),
        ("--colour", False),
        ("--thick", False),
    ]
    help_text = CliRunner().invoke(_app(command), ["--help"]).output
    assert "Paint a wall." in help_text
    assert "Which colour." in help_text


def test_a_group_may_settle_or_require_what_another_leaves_open() -> None:
    got: list[_Wall] = []

    @expand_groups
    def command(wall: _North) -> None:
        got.append(wall)

    assert _opts(command) == [("--height", True), ("--colour", False), ("--thick", False)]
    assert CliRunner().invoke(_app(command), ["--height", "9"]).exit_code == 0
    assert (got[0].name, got[0].height) == ("north", 9)


def test_an_option_in_two_groups_is_a_mistake_of_whoever_writes_it() -> None:
    def twice(wall: _Wall, paint: _Paint) -> None:
        del wall, paint

    def own(colour: str, paint: _Paint) -> None:
        del colour, paint

    for function in (twice, own):
        with pytest.raises(AssertionError, match=f"{function.__name__} has an option in two"):
            expand_groups(function)


def test_a_command_takes_groups_too(capsys: pytest.CaptureFixture[str]) -> None:
    @command
    def brush(paint: _Paint) -> None:
        """Paint."""
        raise UsageError(f"there is no {paint.colour}")

    common.reset()
    assert (brush.__name__, brush.__doc__) == ("brush", "Paint.")
    done = CliRunner().invoke(_app(brush), ["--colour", "blue"])
    assert done.exit_code == USAGE
    assert "veen: there is no blue" in done.output
    with pytest.raises(typer.Exit):
        brush(colour="green", thick=False)
    assert capsys.readouterr().err == "veen: there is no green\n"
