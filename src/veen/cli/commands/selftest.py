"""``veen selftest``: find out whether this installation, or a hub, does what it promises."""

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

app = typer.Typer(help="Check that this installation, or a hub, does what it promises.", no_args_is_help=True)

DEFAULT_SEED: Final = 1
#: For our own tests: a command that starts the program for the hubs of a run.
HUB_COMMAND: Final = "VEEN_SELFTEST_HUB"

HubUrl = Annotated[
    str, typer.Option("--hub", help="URL of a hub that is there; without it, hubs are started for the run.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="A run with the same seed does the same.")]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Only the step of this name; may be repeated.")
]


@app.command()
@command
def core(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Messages, tokens, attachments, files, anchors, and what the hub says of itself."""
    _run("core", hub, seed, only)


@app.command()
@command
def props(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Laws of the log and its proofs, of encoding and of duplicates, on chosen and random values."""
    _run("props", hub, seed, only)


@app.command()
@command
def fuzz(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Garbage for a hub and for our own checks: refused in an orderly way, every time."""
    _run("fuzz", hub, seed, only)


@app.command()
@command
def wallet(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Wallets and the paid ledger: names, rules, summaries, copies, and money that moves over a hub."""
    _run("wallet", hub, seed, only)


@app.command()
@command
def recorder(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """The recorder: events, checkpoints, replay with proofs, and a record that was changed."""
    _run("recorder", hub, seed, only)


@app.command()
@command
def query(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Queries, on Spark: digests, pages, evidence, damage, and the same answer in another zone."""
    with require_extra():
        importlib.import_module("veen.pipeline.spark.session")
    _run("query", hub, seed, only)


@app.command("plus-plus")
@command
def plus_plus(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Operations: permissions, agreements, snapshots, recoveries, audit; and all about wallets."""
    _run("plus-plus", hub, seed, only)


@app.command("all")
@command
def all_suites(hub: HubUrl = "", seed: Seed = DEFAULT_SEED, only: Only = None) -> None:
    """Run all of them but query, which needs Spark."""
    _run("all", hub, seed, only)


def _run(suite: str, hub: str, seed: int, only: list[str] | None) -> None:
    steps = SUITES[suite]
    known = [item.name for item in steps]
    unknown = sorted(set(only or ()) - set(known))
    if unknown:
        raise UsageError(f"{suite} has no step {', '.join(unknown)}; it has: {', '.join(known)}")
    if hub and not is_http_url(hub):
        raise UsageError(f"--hub takes the URL of a hub that runs, not {hub}")
    chosen = [item for item in steps if not only or item.name in only]
    command = shlex.split(os.environ.get(HUB_COMMAND, ""))
    setup = Setup(seed, hub.rstrip("/"), **({"hub_command": command} if command else {}))
    width = max(len(item.name) for item in chosen)
    out = sys.stdout
    with progress(f"selftest {suite}", len(chosen)) as advance:

        def told(outcome: Outcome) -> None:
            advance(1)
            if not common.json and not common.quiet:
                # While there is a bar, sys.stdout is what is shown above it: for a terminal, not for a file.
                print(line_of(outcome, width), file=sys.stdout if out.isatty() else out, flush=True)

        report = run(suite, chosen, setup, told)
    _conclude(report)


def line_of(outcome: Outcome, width: int) -> str:
    """Return what a person is told of a step."""
    word = "skipped" if outcome.skipped else "ok" if outcome.ok else "FAILED"
    detail = " ".join(outcome.detail.split())
    return f"{word:<7}  {outcome.name:<{width}}  {outcome.seconds:6.2f} s  {detail}"


def _conclude(report: Report) -> None:
    """Print the sum, and end with the code of a failure if there was one."""
    if common.json:
        print_result(report.to_json(), as_json=True)
    elif report.ok and not common.quiet:
        done = [item for item in report.steps if not item.skipped]
        skipped = len(report.steps) - len(done)
        rest = f", {skipped} skipped" if skipped else ""
        typer.echo(f"selftest {report.suite}: {len(done)} steps ok{rest}, seed {report.seed}")
    if report.ok:
        return
    if not common.json:
        what = ", ".join(report.failed) if report.failed else "no step could be run"
        again = f"veen selftest {report.suite} --seed {report.seed}"
        typer.echo(f"veen: selftest {report.suite} failed: {what}; once more: {again}", err=True)
    raise typer.Exit(SELFTEST)
