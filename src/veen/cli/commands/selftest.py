"""``veen selftest``: test this installation, or a hub."""

import importlib
import os
import shlex
import sys
from typing import Annotated, Final

import typer

from veen.cli.errors import SELFTEST, UsageError
from veen.cli.output import command, print_result, progress
from veen.cli.settings import common
from veen.cli.spark import require_extra
from veen.client.hub_address import is_http_url
from veen.selftest import SUITES, Outcome, Report, Setup, run
from veen.stdx.grammar import counted

app = typer.Typer(help="Test this installation, or a hub.", no_args_is_help=True)

DEFAULT_SEED: Final = 1
# For our own tests: the command that starts the hubs of a run.
HUB_COMMAND: Final = "VEEN_SELFTEST_HUB"

HubUrl = Annotated[
    str, typer.Option("--hub", help="URL of a running hub. Default: hubs are started for the run.")
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of random values; runs with the same seed are identical.")
]
Only = Annotated[list[str] | None, typer.Option("--only", help="Run only this step; may be repeated.")]


@app.command()
@command
def core(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Test messages, tokens, attachments, files and anchors."""
    _run("core", hub, seed, only)


@app.command()
@command
def props(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Test properties of the log, of proofs and of encodings."""
    _run("props", hub, seed, only)


@app.command()
@command
def fuzz(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Test that malformed input is rejected cleanly."""
    _run("fuzz", hub, seed, only)


@app.command()
@command
def wallet(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Test wallets and the paid ledger."""
    _run("wallet", hub, seed, only)


@app.command()
@command
def recorder(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Test the recorder, including a tampered record."""
    _run("recorder", hub, seed, only)


@app.command()
@command
def query(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Test queries on Spark: digests, pages, evidence."""
    with require_extra():
        importlib.import_module("veen.pipeline.spark.session")
    _run("query", hub, seed, only)


@app.command("plus-plus")
@command
def plus_plus(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Test operations and wallets."""
    _run("plus-plus", hub, seed, only)


@app.command("all")
@command
def all_suites(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Run all suites except query, which needs Spark."""
    _run("all", hub, seed, only)


def _run(suite: str, hub: str, seed: int, only: list[str] | None) -> None:
    steps = SUITES[suite]
    known = [item.name for item in steps]
    unknown = sorted(set(only or ()) - set(known))
    if unknown:
        raise UsageError(
            f"suite {suite} does not have the step {', '.join(unknown)}; its steps are: {', '.join(known)}"
        )
    if hub and not is_http_url(hub):
        raise UsageError(f"--hub takes the URL of a running hub, not {hub}")
    chosen = [item for item in steps if not only or item.name in only]
    command = shlex.split(os.environ.get(HUB_COMMAND, ""))
    setup = Setup(seed, hub.rstrip("/"), **({"hub_command": command} if command else {}))
    width = max(len(item.name) for item in chosen)
    out = sys.stdout
    with progress(f"selftest {suite}", len(chosen)) as advance:

        def told(outcome: Outcome) -> None:
            advance(1)
            if not common.json and not common.quiet:
                # While there is a progress bar, sys.stdout prints above it: for a terminal, not for a file.
                print(line_of(outcome, width), file=sys.stdout if out.isatty() else out, flush=True)

        report = run(suite, chosen, setup, told)
    _conclude(report)


def line_of(outcome: Outcome, width: int) -> str:
    """Return the line that is printed for a step."""
    word = "skipped" if outcome.skipped else "ok" if outcome.ok else "FAILED"
    detail = " ".join(outcome.detail.split())
    return f"{word:<7}  {outcome.name:<{width}}  {outcome.seconds:6.2f} s  {detail}"


def _conclude(report: Report) -> None:
    """Print the summary, and end with the exit code of a failed run."""
    if common.json:
        print_result(report.to_json(), as_json=True)
    elif report.ok and not common.quiet:
        done = [item for item in report.steps if not item.skipped]
        skipped = len(report.steps) - len(done)
        rest = f", {skipped} skipped" if skipped else ""
        typer.echo(f"selftest {report.suite}: {counted(len(done), 'step')} ok{rest}, seed {report.seed}")
    if report.ok:
        return
    if not common.json:
        what = ", ".join(report.failed) if report.failed else "no step could be run"
        command_line = f"veen selftest {report.suite} --seed {report.seed}"
        typer.echo(
            f"veen: selftest {report.suite} failed: {what}; run it again with: {command_line}", err=True
        )
    raise typer.Exit(SELFTEST)
