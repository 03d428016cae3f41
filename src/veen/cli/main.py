"""Entry point of ``veen``."""

import contextlib
import os
import sys
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from veen.cli.errors import USAGE, UsageError, interrupted
from veen.cli.examples import FIRST_STEPS, epilog
from veen.cli.options import ENV_HELP, HUB_NAME_HELP, JSON_HELP, QUIET_HELP, TIMEOUT_HELP, VERBOSE_HELP
from veen.cli.output import print_error
from veen.cli.registry import LazyGroup, note_common
from veen.cli.settings import DEFAULT_TIMEOUT_MS, common
from veen.version import __version__

# The exit code of typer for an interrupt.
_INTERRUPTED: Final = 130

app = typer.Typer(
    name="veen",
    cls=LazyGroup,
    epilog=epilog("First steps:", *FIRST_STEPS),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"veen {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help=QUIET_HELP)] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help=VERBOSE_HELP)] = False,
    timeout_ms: Annotated[
        int | None, typer.Option(help=f"{TIMEOUT_HELP}  [default: {DEFAULT_TIMEOUT_MS}]")
    ] = None,
    env: Annotated[str, typer.Option(help=ENV_HELP)] = "",
    hub_name: Annotated[str, typer.Option(help=HUB_NAME_HELP)] = "",
) -> None:
    """VEEN: an ephemeral, verifiable, end-to-end encrypted event fabric.

    Commands use the hub and the client directory that veen config set has stored, or the defaults below
    ~/.local/share/veen, unless --hub and --client name others.
    """
    del version  # handled by its callback
    common.reset()
    note_common(
        {
            "_json": as_json,
            "_quiet": quiet,
            "_verbose": verbose,
            "_timeout_ms": timeout_ms,
            "_env": env,
            "_hub_name": hub_name,
        }
    )


def main() -> None:
    """Run the program."""
    _run(sys.argv[1:])


def _run(arguments: list[str]) -> None:
    """Run a command. Wrong arguments exit 1, since 2 is for a hub that cannot be reached (CLI-010)."""
    usage: Any = typer.BadParameter.__base__  # of click, or of the copy that typer ships
    try:
        code = get_command(app).main(arguments, prog_name="veen", standalone_mode=False)
    except usage as error:
        _complain(error, arguments)
        code = USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe; there is nowhere to print an error.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = USAGE
    if code == _INTERRUPTED:
        if "--json" in arguments and "--follow" not in arguments:  # --follow always ends this way
            print_error(interrupted(), as_json=True)
        code = USAGE
    sys.exit(code if isinstance(code, int) else 0)


def _complain(error: Any, arguments: list[str]) -> None:  # noqa: ANN401 - of click
    """Print what is wrong with the arguments, and which help to read."""
    text = error.format_message().rstrip(".")
    if text.startswith("Usage: "):  # a group without a command: print its help
        if "--json" not in arguments:
            typer.echo(error.ctx.get_help())
            return
        text = "a command is missing"
    path = error.ctx.command_path if error.ctx is not None else "veen"
    print_error(UsageError(f"{text}; see: {path} --help"), "--json" in arguments)


def hub_main() -> None:
    """Run ``veen-hub``, an older name: ``veen-hub``, ``veen-hub run`` and ``veen-hub start`` start a hub."""
    words = sys.argv[1:]
    if not words or words[0].startswith("-"):
        words = ["start", *words]
    if words[0] == "run":
        words[0] = "start"
    _run(["hub", *words])


def selftest_main() -> None:
    """Run ``veen-selftest``, an older name of ``veen selftest``."""
    _run(["selftest", *sys.argv[1:]])


if __name__ == "__main__":
    main()
