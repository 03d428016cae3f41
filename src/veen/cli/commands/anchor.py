"""``veen anchor``: publish the root of a label, and verify anchors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from veen.cli.commands.hub.anchor import describe_ref, publish
from veen.cli.errors import FAILED, FailedError, MalformedError, UsageError
from veen.cli.hub_connection import directory_of
from veen.cli.options import JsonFlag, hex_bytes
from veen.cli.output import command, print_result
from veen.core.data_dir import paths
from veen.core.errors import ProtocolError
from veen.core.objects.anchor import FILE, AnchorRef
from veen.core.objects.checkpoint import Checkpoint
from veen.storage.anchors import FileLedger, Verdict, find_record
from veen.storage.fs import RealFilesystem

anchor_app = typer.Typer(help="Publish roots of labels, and verify anchors.", no_args_is_help=True)
anchor_app.command()(publish)


@dataclass(frozen=True, slots=True)
class Places:
    """Paths of anchors and of what they refer to."""

    # The directory ``anchors/`` of a hub, or a copy of it.
    anchors: Path | None = None
    ledger: Path | None = None
    tsa_cert: Path | None = None

    @property
    def ledger_path(self) -> Path:
        """The ledger that was given, or the one beside the anchors."""
        if self.ledger is not None:
            return self.ledger
        if self.anchors is None:
            raise UsageError("the anchor is in a ledger; give its file with --ledger")
        return self.anchors / paths.LEDGER


@anchor_app.command()
@command
def verify(
    checkpoint_file: Annotated[Path, typer.Option("--checkpoint", help="File of the checkpoint.")],
    anchor_ref: Annotated[
        str, typer.Option(help="anchor_ref of the checkpoint, in hex. Default: looked up among the anchors.")
    ] = "",
    anchors: Annotated[
        Path | None, typer.Option(help="Directory of anchors: anchors/ of a hub, or a copy of it.")
    ] = None,
    data_dir: Annotated[
        str, typer.Option(envvar="VEEN_DATA_DIR", help="Data directory of the hub, instead of --anchors.")
    ] = "",
    ledger: Annotated[
        Path | None, typer.Option(help="File of the ledger. Default: the one in the directory of anchors.")
    ] = None,
    tsa_cert: Annotated[
        Path | None, typer.Option(help="Root certificates of the timestamp authority (PEM).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Verify that an anchor binds the root of a checkpoint.

    Works offline. Exits 4 if the anchor does not bind it.
    """
    if anchors is None and data_dir:
        anchors = directory_of(data_dir).expanduser() / paths.ANCHORS_DIR
    places = Places(anchors, ledger, tsa_cert)
    checkpoint = read_checkpoint(checkpoint_file)
    ref = hex_bytes(anchor_ref, "--anchor-ref") if anchor_ref else find_anchor_ref(checkpoint, places)
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
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ProtocolError as error:
        raise MalformedError(f"{path} is not a checkpoint: {error}") from None


def find_anchor_ref(checkpoint: Checkpoint, places: Places) -> bytes:
    """Look up the anchor of a checkpoint's root among the anchors of a hub (CLI-086)."""
    if places.anchors is None:
        raise UsageError("give --data-dir, --anchors or --anchor-ref, to locate the anchor")
    if not places.anchors.is_dir():
        raise UsageError(f"there is no directory {places.anchors}")
    files = RealFilesystem(places.anchors)
    try:
        record = find_record(files, "", checkpoint)
    except OSError as error:
        raise UsageError(f"{places.anchors} cannot be read: {error.strerror}") from None
    finally:
        files.close()
    if record is None:
        raise FailedError(
            f"E.NOT_FOUND: {places.anchors} does not contain an anchor of the root of this checkpoint",
            "E.NOT_FOUND",
        )
    return record.anchor_ref


def verify_anchor(checkpoint: Checkpoint, anchor_ref: bytes, places: Places) -> Verdict:
    """Verify from files that an anchor binds the root of a checkpoint."""
    if AnchorRef.decode(anchor_ref).backend == FILE:
        path = places.ledger_path
        files = RealFilesystem(path.parent)
        try:
            return FileLedger(files, path.name).verify(checkpoint.mmr_root, anchor_ref)
        finally:
            files.close()
    # Its libraries load slowly, and only this needs them.
    from veen.storage.anchors.rfc3161 import Rfc3161, load_roots

    cert = places.tsa_cert
    try:
        roots = None if cert is None else load_roots(cert.read_bytes())
    except OSError as error:
        raise UsageError(f"{cert} cannot be read: {error.strerror}") from None
    return Rfc3161("", roots).verify(checkpoint.mmr_root, anchor_ref)
