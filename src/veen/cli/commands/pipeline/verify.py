"""``veen pipeline verify``: verify a whole log on Spark, without secret keys."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from veen.cli.client import read_bytes
from veen.cli.errors import FAILED, MalformedError, UsageError
from veen.cli.options import HUB_ID_HELP, LEVEL_HELP, LOG_HELP, parse_hub_id
from veen.cli.output import command, plain, print_result, shown_time, warn
from veen.cli.settings import common
from veen.cli.spark import SparkOptions, require_extra
from veen.core.encoding.wire_object import decode_sequence
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.objects.receipt import Receipt
from veen.core.types import Label
from veen.stdx.grammar import counted

if TYPE_CHECKING:
    from veen.pipeline.log.log import Log
    from veen.pipeline.verify.report import Report

_LEVELS: Final = ("frames", "roots", "full")
_MOST_SHOWN: Final = 10

LogArgument = Annotated[
    str,
    typer.Argument(metavar="LOG", help=LOG_HELP, show_default=False),
]
HubIdOption = Annotated[str, typer.Option("--hub-id", help=HUB_ID_HELP)]
StreamsOption = Annotated[
    list[str] | None,
    typer.Option("--stream", help="Read only this stream; may be repeated. Required for a URL."),
]


def labels_of(log: "Log", streams: Sequence[str] | None) -> list[Label] | None:
    """Return the labels of some streams; None for all that there are."""
    if not streams:
        return None
    chosen: list[Label] = []
    for name in streams:
        mine = log.labels_of(labels.stream_id(name))
        if not mine:
            raise UsageError(f"{log.name} has no entries of stream {name}")
        chosen += mine.values()
    return sorted(set(chosen))


@command
def verify_command(
    log: LogArgument,
    engine: SparkOptions,
    level: Annotated[str, typer.Option(help=LEVEL_HELP)] = "full",
    hub_id: HubIdOption = "",
    stream: StreamsOption = None,
    receipts: Annotated[
        list[Path] | None,
        typer.Option(help="File of receipts that the log must contain (receipts.cborseq); may be repeated."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Minimum number of partitions. Default: four per core.")
    ] = None,
) -> None:
    """Verify every entry of a log.

    Checks frames, hashes, both signatures, the root of each receipt, and the sequence of each client. Prints
    separate verdicts: integrity, completeness of each client, agreement with your receipts, and freshness.
    Exits 4, and names the first bad entry, if a check fails.
    """
    if level not in _LEVELS:
        raise UsageError(f"unknown level {level!r}; use one of {', '.join(_LEVELS)}")
    expected, held = parse_hub_id(hub_id), _read_receipts(receipts or [])
    if held and level != "full":
        raise UsageError("--receipts requires --level full, which verifies the signatures of the hub")
    with require_extra():
        from veen.cli.spark import show_job_progress
        from veen.core.objects.finding import Level
        from veen.pipeline.log.open import open_log
        from veen.pipeline.verify.job import Verification
    opened = open_log(log, expected, stream or ())  # before Spark, which takes longer to start
    try:
        chosen = labels_of(opened, stream)
        with engine.running("pipeline verify") as spark, show_job_progress(spark, "verifying"):
            work = Verification(spark.sparkContext, opened, Level[level.upper()], partitions=partitions)
            report = work.run(chosen, held)
    finally:
        opened.close()
    _print(report)
    if not report.ok:
        raise typer.Exit(FAILED)


def _read_receipts(files: Sequence[Path]) -> list[Receipt]:
    receipts: list[Receipt] = []
    for file in files:
        try:
            receipts += decode_sequence(read_bytes(file), Receipt)
        except ProtocolError as error:
            raise MalformedError(f"{file} is not a file of receipts: {error}") from None
    return receipts


def _print(report: "Report") -> None:
    from veen.pipeline.finding_format import to_text

    described = report.to_json()
    if common.json:
        print_result(described, as_json=True)
        return
    fields: dict[str, Any] = {
        name: described[name] for name in ("integrity", "signatures", "completeness", "agreement")
    }
    pruned = sum(item.pruned_upto for item in report.labels)
    if pruned:
        fields["pruned"] = f"{counted(pruned, 'entry')}, as declared by the hub"
    newest = report.newest_ts
    fields["freshness"] = "no entries" if newest is None else f"newest entry of {shown_time(newest)}"
    fields["entries"] = f"{report.entries} in {counted(len(report.labels), 'label')}"
    print_result(fields, as_json=False)
    for fault in report.told[:_MOST_SHOWN]:
        warn(to_text(fault))
    if report.held.unchecked:
        warn(
            f"{report.held.unchecked} of your receipts could not be compared with the entries that were read"
        )
    count = described["faults_total"] + described["gaps_total"]
    if count > _MOST_SHOWN:
        warn(f"{count} faults in all; --json lists the first hundred")
    if report.first is not None and not common.quiet:
        typer.echo(plain(f"first bad: {to_text(report.first)}"))
