"""``veen pipeline fold``: the state of a stream, folded on Spark."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from veen.cli.client import StreamOption, prompt_passphrase, write_bytes
from veen.cli.commands.pipeline.lake import lake_errors_exit
from veen.cli.commands.pipeline.verify import HubIdOption
from veen.cli.commands.state import Epoch, OverlayArgument, Upto
from veen.cli.errors import UsageError
from veen.cli.options import KEY_HELP, LEVEL_HELP, LOG_HELP, NOW_HELP, REPORTS_HELP, parse_hub_id
from veen.cli.output import command, warn
from veen.cli.overlay import (
    PROVISIONAL,
    BridgeOption,
    ChosenOverlay,
    ModuleOption,
    ParamOption,
    choose,
    given_bridges,
    given_parameters,
)
from veen.cli.spark import SparkOptions
from veen.cli.state_output import certificate_of, parse_key, print_state, state_document
from veen.client.fold.interpret import FoldedState
from veen.client.keys.keystore import asker
from veen.core.crypto.hash import U64_MAX
from veen.core.objects import labels

if TYPE_CHECKING:
    from veen.pipeline.fold.inputs import FoldInput
    from veen.pipeline.open.keyring import Keyring
    from veen.pipeline.spark.session import SparkSession

_LEVELS: Final = ("frames", "roots", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFoldOptions:
    """Options that select a state: the overlay, the stream and its entries."""

    overlay: OverlayArgument
    stream: StreamOption
    upto: Upto = None
    epoch: Epoch = None
    since: Annotated[
        int | None,
        typer.Option(min=0, max=U64_MAX, help="Print only the changes made by this entry and later ones."),
    ] = None
    overlay_module: ModuleOption = ""
    param: ParamOption = None
    bridge: BridgeOption = None

    def choose(self) -> ChosenOverlay:
        """Return the overlay."""
        return choose(self.overlay, self.overlay_module, given_parameters(self.param))


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Options that select the source of entries: a log, with keys to open it, or a lake."""

    log: Annotated[
        str,
        typer.Argument(
            metavar="[LOG]",
            help=LOG_HELP,
            show_default=False,
        ),
    ] = ""
    lake: Annotated[
        Path | None, typer.Option(help="Directory of a lake, instead of LOG.", show_default=False)
    ] = None
    keyring: Annotated[
        Path | None,
        typer.Option(
            help="Keys that open messages and sign the certificate: a client directory, or its keystore.enc.",
            show_default=False,
        ),
    ] = None
    hub_id: HubIdOption = ""
    level: Annotated[str, typer.Option(help=LEVEL_HELP)] = "full"

    def check(self, *, signs: bool) -> None:
        """Reject options that contradict each other."""
        if bool(self.log) == (self.lake is not None):
            raise UsageError("give either LOG or --lake")
        if self.level not in _LEVELS:
            raise UsageError(f"unknown level {self.level!r}; use one of {', '.join(_LEVELS)}")
        if self.keyring is None and (signs or self.log):
            what = "a certificate is signed" if signs else "a log is opened"
            raise UsageError(f"{what} with the keys of a client; give them with --keyring")

    def load_keyring(self) -> "Keyring | None":
        """Unlock the keys."""
        from veen.pipeline.open.keyring import load_keyring

        if self.keyring is None:
            return None
        return load_keyring(self.keyring.expanduser(), asker(os.environ, prompt_passphrase))

    @contextmanager
    def open(
        self, spark: "SparkSession", selection: SparkFoldOptions, keyring: "Keyring | None", partitions: int
    ) -> Iterator["FoldInput"]:
        """Open the records of the stream."""
        from veen.core.objects.finding import Level
        from veen.pipeline.fold.inputs import from_log
        from veen.pipeline.lake_jobs.fold_input import from_lake
        from veen.pipeline.log.open import open_log
        from veen.pipeline.shared_keys import sharing

        stream_id = labels.stream_id(selection.stream)
        if self.lake is not None:
            with lake_errors_exit():
                opened = from_lake(
                    spark, self.lake.expanduser(), stream_id, upto=selection.upto, epoch=selection.epoch
                )
            yield opened
            return
        assert keyring is not None
        with ExitStack() as stack:
            log = open_log(self.log, parse_hub_id(self.hub_id), [selection.stream])
            stack.callback(log.close)
            opened = from_log(
                spark,
                log,
                stream_id,
                stack.enter_context(sharing(spark, keyring)),
                upto=selection.upto,
                epoch=selection.epoch,
                level=Level[self.level.upper()],
                parts=partitions,
            )
            stack.callback(opened.records.unpersist)
            yield opened


@command
def fold_command(
    selection: SparkFoldOptions,
    origin: Origin,
    engine: SparkOptions,
    key: Annotated[str, typer.Option("--key", help=KEY_HELP)] = "",
    now: Annotated[int | None, typer.Option(min=0, max=U64_MAX, help=NOW_HELP)] = None,
    reports: Annotated[bool, typer.Option("--reports", help=REPORTS_HELP)] = False,
    partitions: Annotated[
        int,
        typer.Option(min=0, help="Number of partitions; 0: one per core. Default: 0.", show_default=False),
    ] = 0,
    certificate: Annotated[
        Path | None,
        typer.Option(help="File to write a certificate of the state to, signed with --keyring."),
    ] = None,
) -> None:
    """Fold a stream with an overlay on Spark.

    Prints the same document as veen interpret. A log is verified first, and opened with the keys of a client.
    A lake was verified when it was ingested; its files are compared with the hashes of that time.
    """
    chosen = selection.choose()
    one = parse_key(chosen, key) if key else None
    origin.check(signs=certificate is not None)
    if certificate is not None and selection.since is not None:
        raise UsageError("--certificate and --since exclude each other: a certificate covers the whole state")
    when = int(time()) if now is None else now
    with engine.running("pipeline fold") as spark:
        keyring = origin.load_keyring()
        with origin.open(spark, selection, keyring, partitions) as opened:
            folded = _folded(spark, opened, selection, chosen, partitions)
    with chosen.blamed():
        document = state_document(folded, one, when, listed=reports)
        if certificate is not None:
            assert keyring is not None
            signed = certificate_of(folded, keyring.secrets.identity, given_bridges(selection.bridge))
            write_bytes(certificate, signed.encode())
    print_state(document)


def _folded(
    spark: "SparkSession",
    opened: "FoldInput",
    selection: SparkFoldOptions,
    chosen: ChosenOverlay,
    partitions: int,
) -> FoldedState:
    from veen.cli.spark import show_job_progress
    from veen.pipeline.fold.inputs import roots_of
    from veen.pipeline.fold.job import FoldSettings, fold_stream
    from veen.pipeline.fold.survey import upto_place
    from veen.pipeline.fold_sql import FORMS
    from veen.pipeline.spark.failures import python_error_of

    target = opened.target
    with chosen.blamed(python_error_of), show_job_progress(spark, "folding"):
        folded = fold_stream(
            spark,
            opened.records,
            chosen.overlay,
            labels.stream_id(selection.stream),
            bridges=given_bridges(selection.bridge),
            upto=target,
            since=None if selection.since is None else (target[0], max(selection.since, 1)),
            how=FoldSettings(partitions, forms=FORMS),
        )
        roots = roots_of(opened.records.where(upto_place(target)), partitions)
    reached = opened.reached(folded.runs, roots)
    provisional = opened.is_provisional(reached, int(time()))
    if provisional:
        warn(PROVISIONAL)
    return FoldedState(
        chosen.overlay,
        selection.stream,
        folded.memory(chosen.overlay),
        {outcome.value: count for outcome, count in folded.counts.items() if count},
        folded.reports,
        reached,
        provisional,
    )
