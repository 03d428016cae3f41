"""``veen anchor``: have the root of a label published, and find out later whether it was."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from veen.cli.commands.hub.anchor import describe_ref, publish, read_hex
from veen.cli.errors import FAILED, FailedError, MalformedError, UsageError
from veen.cli.hub_connection import directory_of
from veen.cli.options import JsonFlag
from veen.cli.output import command, print_result
from veen.core.data_dir import paths
from veen.core.errors import ProtocolError
from veen.core.objects.anchor import FILE, AnchorRef
from veen.core.objects.checkpoint import Checkpoint
from veen.storage.anchors import FileLedger, Verdict, find_record
from veen.storage.fs import RealFilesystem

anchor_app = typer.Typer(help="Publish the root of a label, and verify that it was.", no_args_is_help=True)
anchor_app.command()(publish)


@dataclass(frozen=True, slots=True)
class Places:
    """Where anchors and what they refer to are looked for."""

    #: The directory anchors/ of a hub, or a copy of it.
    anchors: Path | None = None
    ledger: Path | None = None
    tsa_cert: Path | None = None

    @property
    def ledger_path(self) -> Path:
        """The ledger that was given, or the one beside the anchors."""
        if self.ledger is not None:
            return self.ledger
        if self.anchors is None:
            raise UsageError("the anchor is in a ledger; say where it is with --ledger")
        return self.anchors / paths.LEDGER


@anchor_app.command()
@command
def verify(
    checkpoint_file: Annotated[Path, typer.Option("--checkpoint", help="The checkpoint, a file.")],
    anchor_ref: Annotated[str, typer.Option(help="Its anchor_ref in hex; by default looked up.")] = "",
    anchors: Annotated[
        Path | None, typer.Option(help="Where anchors are: the directory anchors/ of a hub, or a copy.")
    ] = None,
    data_dir: Annotated[
        str, typer.Option(envvar="VEEN_DATA_DIR", help="The same by the hub's data directory.")
    ] = "",
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger; by default the one beside the anchors.")
    ] = None,
    tsa_cert: Annotated[
        Path | None, typer.Option(help="Root certificates of the time stamp authority (PEM).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check that an anchor binds the root of a checkpoint; exits 4 if it does not. No hub is needed."""
    if anchors is None and data_dir:
        anchors = directory_of(data_dir).expanduser() / paths.ANCHORS_DIR
    places = Places(anchors, ledger, tsa_cert)
    checkpoint = read_checkpoint(checkpoint_file)
    ref = read_hex(anchor_ref, "--anchor-ref") if anchor_ref else find_anchor_ref(checkpoint, places)
    try:
        described = describe_ref(ref)
    except ProtocolError as error:
        raise MalformedError(f"this is not an anchor_ref: {error}") from None
    verdict = verify_anchor(checkpoint, ref, places)
    about = {"label": checkpoint.label_curr.hex(), "upto_seq": checkpoint.upto_seq}
    root = checkpoint.mmr_root.hex()
    print_result(
        {"ok": verdict.ok, "reason": verdict.reason, "mmr_root": root, **about, **described}, as_json
    )
    if not verdict:
        raise typer.Exit(FAILED)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint from a file."""
    try:
        return Checkpoint.decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} can not be read: {error.strerror}") from None
    except ProtocolError as error:
        raise MalformedError(f"{path} is not a checkpoint: {error}") from None


def find_anchor_ref(checkpoint: Checkpoint, places: Places) -> bytes:
    """Look up the anchor of a checkpoint's root, among those of a hub (CLI-086)."""
    if places.anchors is None:
        raise UsageError("say where the anchor is: --data-dir, --anchors or --anchor-ref")
    if not places.anchors.is_dir():
        raise UsageError(f"there is no directory {places.anchors}")
    files = RealFilesystem(places.anchors)
    try:
        record = find_record(files, "", checkpoint)
    except OSError as error:
        raise UsageError(f"{places.anchors} can not be read: {error.strerror}") from None
    finally:
        files.close()
    if record is None:
        raise FailedError(
            f"E.NOT_FOUND: {places.anchors} has no anchor of the root of this checkpoint",
            "E.NOT_FOUND",
        )
    return record.anchor_ref


def verify_anchor(checkpoint: Checkpoint, anchor_ref: bytes, places: Places) -> Verdict:
    """Tell whether an anchor binds the root of a checkpoint, as far as it can be told from files."""
    if AnchorRef.decode(anchor_ref).backend == FILE:
        path = places.ledger_path
        files = RealFilesystem(path.parent)
        try:
            return FileLedger(files, path.name).verify(checkpoint.mmr_root, anchor_ref)
        finally:
            files.close()
    # Its libraries take a while to load, and only this needs them.
    from veen.storage.anchors.rfc3161 import Rfc3161, load_roots

    cert = places.tsa_cert
    try:
        roots = None if cert is None else load_roots(cert.read_bytes())
    except OSError as error:
        raise UsageError(f"{cert} can not be read: {error.strerror}") from None
    return Rfc3161("", roots).verify(checkpoint.mmr_root, anchor_ref)
