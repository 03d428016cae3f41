"""What a hub reports: status, key, health, metrics, profile, admission, role, checkpoint, TLS."""

import contextlib
import json
import socket
import ssl
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit

import typer

from veen.cli.client import hub_at, write_bytes
from veen.cli.commands.hub.key_arguments import issuer_of
from veen.cli.errors import FAILED, CommandError, FailedError, MalformedError, UnreachableError, UsageError
from veen.cli.hub_connection import HubClient, directory_of
from veen.cli.options import (
    CHECKPOINT_OUT_HELP,
    HUB_HELP,
    LABEL_HELP,
    LABEL_STREAM_HELP,
    MAX_ITEMS_HELP,
    TIMEOUT_HELP,
    JsonFlag,
)
from veen.cli.output import command, print_result
from veen.cli.settings import DEFAULT_TIMEOUT_MS, find_hub
from veen.client.home.pins import STATUS, read_facts
from veen.client.hub_address import HubAddress
from veen.client.transport.data_directory import find_running
from veen.core.api.data_plane import CheckpointRequest, CheckpointResponse
from veen.core.crypto.hash import sha256
from veen.core.data_dir import hub_settings
from veen.core.errors import Code, ProtocolError
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import Label, RoutingKey

HubOption = Annotated[
    str,
    typer.Option("--hub", envvar="VEEN_HUB", help=HUB_HELP, show_default=False),
]
Timeout = Annotated[int, typer.Option("--timeout-ms", min=1, help=TIMEOUT_HELP)]
# The fields of a status that are printed, in this order; scripts get all.
_STATUS: Final = (
    "role",
    "profile_id",
    "peaks_count",
    "last_stream_seq",
    "last_mmr_root",
    "labels",
    "uptime_sec",
    "hub_id",
    "hub_pk",
    "epoch",
    "hub_ts",
    "require_cap",
    "pow_difficulty",
    "anchoring",
    "listen",
    "data_dir",
    "version",
)
_LATENCIES: Final = ("verify", "commit", "end_to_end")


@command
def status(
    hub: HubOption = "",
    label: Annotated[str, typer.Option(help=LABEL_HELP)] = "",
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Show the role, log head, uptime and settings of a hub."""
    client = HubClient.of(hub, timeout_ms)
    response = client.get(f"/tooling/status?label={quote(label)}" if label else "/tooling/status")
    address = HubAddress.parse(find_hub(hub))
    if address.path is not None:
        response["data_dir"] = address.name
    if as_json:
        print_result(response, as_json)
        return
    print_result({name: response[name] for name in _STATUS if name in response}, as_json)


@command
def key(hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False) -> None:
    """Show the public key and the profile of a hub."""
    client = HubClient.of(hub, timeout_ms)
    identity = client.get("/tooling/identity")
    with client.reading():
        both = bytes.fromhex(identity["hub_pk"]) + bytes.fromhex(identity["profile_id"])
        values = {
            "hub_pk": identity["hub_pk"],
            "profile_id": identity["profile_id"],
            "fingerprint": sha256(both).hex(),
            "hub_id": identity["hub_id"],
        }
    print_result(values, as_json)


@command
def hub_id(hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False) -> None:
    """Print the id of a hub.

    For a data directory or an exported set, the hub need not be running.
    """
    named = find_hub(hub)
    directory = directory_of(named).expanduser()
    if (directory / hub_settings.IDENTITY).is_file() and find_running(directory) is None:
        with contextlib.closing(hub_at(named)) as files:
            identifier = read_facts(files.answer(STATUS)).identity.hub_id.hex()
    else:
        client = HubClient.of(named, timeout_ms)
        response = client.get("/tooling/identity")
        with client.reading():
            identifier = bytes.fromhex(response["hub_id"]).hex()
    typer.echo(json.dumps({"hub_id": identifier}) if as_json else identifier)


@command
def health(hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False) -> None:
    """Show the health of a hub, as JSON.

    Exits 4 if the hub is not healthy.
    """
    del as_json  # the output is always JSON
    client = HubClient.of(hub, timeout_ms)
    response = client.get("/healthz")
    if not isinstance(response.get("ok"), bool):
        raise client.malformed()
    names = ("ok", "profile_id", "peaks_count", "last_stream_seq", "last_mmr_root")
    typer.echo(json.dumps({name: response.get(name) for name in names}))
    if not response["ok"]:
        raise typer.Exit(FAILED)


@command
def metrics(
    hub: HubOption = "",
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the metrics in the text format of Prometheus.")
    ] = False,
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Show message counts and latencies."""
    client = HubClient.of(hub, timeout_ms)
    text = client.text("/metrics")
    if raw and not as_json:
        typer.echo(text, nl=False)
        return
    with client.reading():
        values = _samples(text)
        accepted = int(values["veen_submit_ok_total"])
    figures: dict[str, Any] = {
        "submit_ok_total": accepted,
        "submit_err_total": {
            name.partition('code="')[2].rstrip('"}'): int(value)
            for name, value in values.items()
            if name.startswith("veen_submit_err_total{")
        },
    }
    for name in _LATENCIES:
        count = values.get(f"veen_{name}_latency_ms_count", 0)
        total = values.get(f"veen_{name}_latency_ms_sum", 0)
        figures[f"{name}_latency_ms"] = round(total / count, 3) if count else None
    print_result(figures, as_json)


def _samples(text: str) -> dict[str, float]:
    samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples


@command
def profile(hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False) -> None:
    """Show protocol version, profile and optional features."""
    try:
        response = HubClient.of(hub, timeout_ms).get("/tooling/profile")
    except CommandError as error:
        if error.code == Code.NOT_FOUND:
            raise FailedError("E.PROFILE: the hub does not describe its features", "E.PROFILE") from None
        raise
    print_result(response, as_json)


@command
def kex_policy(
    hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False
) -> None:
    """Show the limits on client keys, tokens and key rotation."""
    print_result(HubClient.of(hub, timeout_ms).get("/tooling/kex_policy"), as_json)


@command
def admission(
    hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False
) -> None:
    """Show admission stages, queues and rejection rates."""
    client = HubClient.of(hub, timeout_ms)
    response = client.get("/tooling/admission")
    with client.reading():
        lines = [
            f"{stage['name']}: {stage['responsibilities']} "
            f"(queue {stage['queue_depth']} of {stage['max_queue_depth']})"
            for stage in response["stages"]
        ]
        rates = response["recent_err_rates"]
    if as_json:
        print_result(response, as_json)
        return
    for line in lines:
        typer.echo(line)
    print_result({"rejected per minute": rates}, as_json)


@command
def admission_log(
    hub: HubOption = "",
    limit: Annotated[int, typer.Option(help=MAX_ITEMS_HELP)] = 100,
    codes: Annotated[str, typer.Option(help="List only these error codes, separated by commas.")] = "",
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Show recently rejected messages, and why."""
    client = HubClient.of(hub, timeout_ms)
    response = client.get(f"/tooling/admission_log?limit={limit}&codes={quote(codes)}")
    with client.reading():
        lines = ["  ".join(str(value) for value in item.values()) for item in response["failures"]]
    if as_json:
        print_result(response, as_json)
        return
    for line in lines:
        typer.echo(line)


@command
def role(
    hub: HubOption = "",
    realm: Annotated[str, typer.Option(help="Realm of the stream.")] = "",
    stream: Annotated[str, typer.Option(help="Stream whose primary hub to show.")] = "",
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Show the role of a hub in a federation."""
    client = HubClient.of(hub, timeout_ms)
    response = client.get("/tooling/status")
    if realm or stream:
        raise FailedError(
            "E.PROFILE: the hub has no records of authority over streams (AUTH1 is off)", "E.PROFILE"
        )
    with client.reading():
        values = {name: response[name] for name in ("hub_id", "role")}
    print_result(values, as_json)


@command
def checkpoint(
    hub: HubOption = "",
    stream: Annotated[str, typer.Option(help=LABEL_STREAM_HELP)] = "",
    label: Annotated[str, typer.Option(help=LABEL_HELP)] = "",
    out: Annotated[Path | None, typer.Option(help=CHECKPOINT_OUT_HELP)] = None,
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Create a checkpoint of a label.

    The checkpoint covers all entries of the label. Default: the label that was used last.
    """
    client = HubClient.of(hub, timeout_ms)
    status = client.get("/tooling/status")
    if stream:
        with client.reading():
            routing = RoutingKey(bytes.fromhex(status["routing_key"]))
            label = labels.label(routing, labels.stream_id(stream), status["epoch"]).hex()
    if label:
        status = client.get(f"/tooling/status?label={quote(label)}")
    with client.reading():
        last = int(status["last_stream_seq"])
        if not last:
            raise FailedError(
                "E.NOT_FOUND: the label has no entries to create a checkpoint of", "E.NOT_FOUND"
            )
        request = CheckpointRequest(label=Label(bytes.fromhex(status["label"])), upto_seq=last)
    signed = client.post("/v1/checkpoint", request, CheckpointResponse).checkpoint
    if out is not None:
        write_bytes(out, signed.encode())
    values = {
        "label_prev": signed.label_prev.hex(),
        "label_curr": signed.label_curr.hex(),
        "upto_seq": signed.upto_seq,
        "mmr_root": signed.mmr_root.hex(),
        "epoch": signed.epoch,
        "hub_sig": signed.hub_sig.hex(),
        "witness_sigs": [sig.hex() for sig in signed.witness_sigs or ()],
        "checkpoint": signed.encode().hex(),
    }
    print_result(values, as_json)


@command
def verify_rotation(
    checkpoint_file: Annotated[
        Path,
        typer.Option(
            "--checkpoint", help="File of a checkpoint that was created while both keys were valid."
        ),
    ],
    old_key: Annotated[str, typer.Option(help="Old hub key: 64 hex digits or a file.")],
    new_key: Annotated[str, typer.Option(help="New hub key: 64 hex digits or a file.")],
    as_json: JsonFlag = False,
) -> None:
    """Verify a key rotation with a checkpoint of both keys.

    Works offline. Exits 4 if one of the keys has not signed the checkpoint.
    """
    try:
        checkpoint = Checkpoint.decode(checkpoint_file.read_bytes())
    except OSError as error:
        raise UsageError(f"{checkpoint_file} cannot be read: {error.strerror}") from None
    except ProtocolError as error:
        raise MalformedError(f"{checkpoint_file} is not a checkpoint: {error}") from None
    keys = {"old_key": issuer_of(old_key), "new_key": issuer_of(new_key)}
    signed = checkpoint.verify_witnesses(keys.values())
    result = {name: value in signed for name, value in keys.items()}
    print_result({"ok": all(result.values()), **result}, as_json)
    if not all(result.values()):
        raise typer.Exit(FAILED)


@command
def tls_info(
    hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False
) -> None:
    """Show the TLS version and the cipher suite of a hub."""
    url = HubClient.of(hub, timeout_ms).url
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise UsageError(f"{url} does not use TLS")
    context = ssl.create_default_context()
    context.check_hostname = (
        False  # only the suite is inspected; clients verify the identity when they connect
    )
    context.verify_mode = ssl.CERT_NONE
    try:
        plain = socket.create_connection((parts.hostname, parts.port or 443), timeout=timeout_ms / 1000)
        with plain, context.wrap_socket(plain, server_hostname=parts.hostname) as secure:
            version, suite, compression = secure.version(), secure.cipher(), secure.compression()
    except OSError as error:
        raise UnreachableError(f"{url} cannot be reached: {error}") from None
    name = suite[0] if suite else ""
    aead = any(part in name for part in ("GCM", "CHACHA20", "CCM"))
    print_result(
        {
            "version": version,
            "cipher": name,
            "aead": aead,
            "compression": compression,
            "ok": aead and not compression,
        },
        as_json,
    )
