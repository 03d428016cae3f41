"""``veen interpret`` and ``veen state``: states of streams, and their certificates."""

from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Annotated

import typer

from veen.cli.client import ClientOptions, StreamOption, read_bytes, write_bytes
from veen.cli.errors import FailedError, MalformedError
from veen.cli.options import KEY_HELP, NOW_HELP, OUT_FILE_HELP, REPORTS_HELP, UPTO_HELP
from veen.cli.output import command, print_result
from veen.cli.overlay import (
    BridgeOption,
    ChosenOverlay,
    ModuleOption,
    ParamOption,
    choose,
    find,
    fold_stream,
    given_bridges,
    given_parameters,
)
from veen.cli.settings import common
from veen.cli.state_output import (
    certificate_of,
    certified,
    parse_key,
    print_state,
    shown_certificate,
    state_document,
)
from veen.client.client import Client
from veen.client.fold.interpret import FoldedState
from veen.core.crypto.hash import U64_MAX
from veen.core.errors import ProtocolError
from veen.overlays.certificate import StateCertificate
from veen.overlays.event import Outcome
from veen.stdx.grammar import counted

app = typer.Typer(help="Certify the state of a stream, and verify certificates.", no_args_is_help=True)

OverlayArgument = Annotated[
    str, typer.Argument(metavar="OVERLAY", help="Name of the overlay, for example crdt.lww.")
]
Upto = Annotated[int | None, typer.Option("--upto", min=0, max=U64_MAX, help=UPTO_HELP)]
Epoch = Annotated[
    int | None,
    typer.Option("--epoch", min=0, max=U64_MAX, help="Epoch of --upto. Default: the newest."),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Read the whole stream, and do not cache summaries.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldOptions:
    """Options that select a state: the overlay, the stream and the last entry."""

    overlay: OverlayArgument
    stream: StreamOption
    upto: Upto = None
    epoch: Epoch = None
    overlay_module: ModuleOption = ""
    param: ParamOption = None
    bridge: BridgeOption = None
    no_cache: NoCache = False

    def choose(self) -> ChosenOverlay:
        """Return the overlay."""
        return choose(self.overlay, self.overlay_module, given_parameters(self.param))

    def fold(self, opened: Client, chosen: ChosenOverlay) -> FoldedState:
        """Fold the stream."""
        return fold_stream(
            opened,
            chosen.overlay,
            self.stream,
            upto=self.upto,
            epoch=self.epoch,
            bridges=given_bridges(self.bridge),
            cached=not self.no_cache,
        )


@command
def interpret_command(
    selection: FoldOptions,
    at: ClientOptions,
    key: Annotated[str, typer.Option("--key", help=KEY_HELP)] = "",
    now: Annotated[int | None, typer.Option(min=0, max=U64_MAX, help=NOW_HELP)] = None,
    reports: Annotated[bool, typer.Option("--reports", help=REPORTS_HELP)] = False,
) -> None:
    """Fold a stream with an overlay, and print the state.

    Summaries are cached in the client directory, so that the next run reads only new entries.
    """
    chosen = selection.choose()
    one = parse_key(chosen, key) if key else None
    with at.open() as opened, chosen.blamed():
        state = selection.fold(opened, chosen)
        document = state_document(state, one, int(time()) if now is None else now, listed=reports)
    print_state(document)


@app.command()
@command
def certify(
    selection: FoldOptions, out: Annotated[Path, typer.Option(help=OUT_FILE_HELP)], at: ClientOptions
) -> None:
    """Sign the state of a stream with the identity of the client.

    Readers of the stream can verify the certificate.
    """
    chosen = selection.choose()
    bridges = given_bridges(selection.bridge)
    with at.open() as opened, chosen.blamed():
        state = selection.fold(opened, chosen)
        certificate = certificate_of(state, opened.session.secrets.identity, bridges)
    write_bytes(out, certificate.encode())
    print_result({"ok": True, **shown_certificate(certificate), "path": str(out)}, common.json)


@app.command()
@command
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of the certificate.")],
    at: ClientOptions,
    overlay_module: ModuleOption = "",
    cached: Annotated[bool, typer.Option("--cached", help="Use cached summaries.")] = False,
) -> None:
    """Verify the certificate of a state.

    Checks its signature, and folds the stream again. Exits 4 if something differs.
    """
    try:
        certificate = StateCertificate.decode(read_bytes(file))
    except ProtocolError as error:
        raise MalformedError(f"{file} is not a state certificate: {error}") from None
    certificate.verify()
    if not certificate.labels:
        raise FailedError(f"{file} does not certify any entries")
    overlay = find(certificate.overlay, overlay_module)
    # Compared first: another version may have other parameters.
    if (there := certificate.overlay_version) != (here := overlay.overlay.version):
        text = f"the certificate is for version {there} of the overlay, but this is version {here}"
        raise FailedError(text, "E.STATE")
    chosen = overlay.choose(certificate.parameter_values())
    last = certificate.labels[-1]
    with at.open() as opened, chosen.blamed():
        state = fold_stream(
            opened,
            chosen.overlay,
            certificate.stream_id.hex(),
            upto=last.upto_seq,
            epoch=last.epoch,
            bridges=frozenset(certificate.bridges),
            cached=cached,
        )
        differing = certificate.differences(chosen.overlay, certified(state), state.hash)
    sealed = state.counts.get(Outcome.UNREADABLE.value, 0)
    if differing and sealed:
        differing.append(f"{counted(sealed, 'entry')} could not be opened with the keys of this client")
    if differing:
        raise FailedError("; ".join(differing), "E.STATE")
    print_result({"ok": True, **shown_certificate(certificate)}, common.json)
