"""``veen hub anchor``, also ``veen anchor publish``: publish the root of a label."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from veen.cli.commands.hub.show import HubOption, Timeout
from veen.cli.errors import FailedError, UsageError
from veen.cli.hub_connection import HubClient
from veen.cli.options import (
    CHECKPOINT_OUT_HELP,
    LABEL_HELP,
    LABEL_STREAM_HELP,
    UPTO_HELP,
    JsonFlag,
    hex32,
    hex_bytes,
)
from veen.cli.output import command, print_result
from veen.cli.settings import DEFAULT_TIMEOUT_MS
from veen.core.api.tooling import AnchorRequest, AnchorResponse
from veen.core.data_dir import paths
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.objects.anchor import AnchorRef, check_nonce
from veen.core.types import Label, RoutingKey


@command
def publish(
    hub: HubOption = "",
    stream: Annotated[str, typer.Option(help=LABEL_STREAM_HELP)] = "",
    label: Annotated[str, typer.Option(help=LABEL_HELP)] = "",
    upto_seq: Annotated[int | None, typer.Option(min=1, help=UPTO_HELP)] = None,
    epoch: Annotated[
        int | None, typer.Option(min=0, help="Epoch of the anchor. Default: the epoch of the checkpoint.")
    ] = None,
    ts: Annotated[
        int | None, typer.Option(min=0, help="Time of the anchor, in seconds since 1970. Default: now.")
    ] = None,
    nonce: Annotated[str, typer.Option(help="Nonce of 16 to 32 bytes, in hex. Default: random.")] = "",
    out: Annotated[Path | None, typer.Option(help=CHECKPOINT_OUT_HELP)] = None,
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Publish the root of a label, and print the anchor_ref.

    An existing anchor is reused. Only the operator (--hub DATA_DIR) can choose --epoch, --ts and --nonce, and
    is not rate limited.
    """
    if bool(stream) == bool(label):
        raise UsageError("give either --stream or --label")
    client = HubClient.of(hub, timeout_ms)
    try:
        request = AnchorRequest(
            label=_label_of(client, stream) if stream else Label(hex32(label, "--label")),
            upto_seq=upto_seq,
            epoch=epoch,
            ts=ts,
            nonce=_nonce(nonce) if nonce else None,
        )
    except ProtocolError as error:
        raise UsageError(str(error)) from None
    response = client.post("/tooling/anchor", request, AnchorResponse)
    if out is not None:
        try:
            out.write_bytes(response.checkpoint.encode())
        except OSError as error:
            raise UsageError(f"{out} cannot be written: {error.strerror}") from None
    record = paths.anchor(response.record.label, response.record.upto_seq)
    if client.admin is not None:
        record = str(client.admin.parent.parent.absolute() / record)
    print_result(
        {
            **describe_ref(response.record.anchor_ref),
            "label": response.record.label.hex(),
            "upto_seq": response.record.upto_seq,
            "mmr_root": response.record.mmr_root.hex(),
            "record": record,
            "checkpoint": response.checkpoint.encode().hex() if out is None else str(out),
        },
        as_json,
    )


def _nonce(text: str) -> bytes:
    nonce = hex_bytes(text, "--nonce")
    try:
        check_nonce(nonce)
    except ProtocolError as error:
        raise UsageError(f"--nonce: {error}") from None
    return nonce


def _label_of(client: HubClient, stream: str) -> Label:
    status = client.get("/tooling/status")
    with client.reading():
        routing = RoutingKey(bytes.fromhex(status["routing_key"]))
        label = labels.label(routing, labels.stream_id(stream), status["epoch"])
    known = client.get(f"/tooling/status?label={quote(label.hex())}")
    with client.reading():
        if not int(known["last_stream_seq"]):
            raise FailedError(f"E.NOT_FOUND: stream {stream} has no entry in this epoch", "E.NOT_FOUND")
    return label


def describe_ref(anchor_ref: bytes) -> dict[str, Any]:
    """Return the fields of an anchor_ref that are printed."""
    ref = AnchorRef.decode(anchor_ref)
    return {
        "anchor_ref": anchor_ref.hex(),
        "backend": ref.backend,
        "epoch": ref.epoch,
        "ts": ref.ts,
        "nonce": ref.nonce.hex(),
    }
