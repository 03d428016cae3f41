"""What a hub says about itself: status, key, health, metrics, profile, admission, role, checkpoint, TLS."""

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
from veen.cli.options import JsonFlag
from veen.cli.output import command, print_result
from veen.cli.settings import DEFAULT_TIMEOUT_MS, find_hub
from veen.client.home.pins import STATUS, read_facts
from veen.client.hub_address import HubAddress
from veen.client.transport.data_directory import find_running
from veen.core.api.data_plane import CheckpointRequest, CheckpointResponse
from veen.core.crypto.hash import sha256
from veen.core.data_dir import hub_settings
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.objects.checkpoint import Checkpoint
from veen.core.types import Label, RoutingKey

HubOption = Annotated[
    str,
    typer.Option("--hub", envvar="VEEN_HUB", help="URL or data directory of the hub.", show_default=False),
]
Timeout = Annotated[int, typer.Option("--timeout-ms", min=1, help="Time for one answer of the hub.")]
#: What people are shown of a status, in this order; scripts get all.
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
    label: Annotated[str, typer.Option(help="Of one label: 64 hex digits.")] = "",
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Show role, profile, head of the log, uptime and settings."""
    client = HubClient.of(hub, timeout_ms)
    found = client.get(f"/tooling/status?label={quote(label)}" if label else "/tooling/status")
    address = HubAddress.parse(find_hub(hub))
    if address.path is not None:
        found["data_dir"] = address.name
    if as_json:
        print_result(found, as_json)
        return
    print_result({name: found[name] for name in _STATUS if name in found}, as_json)


@command
def key(hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False) -> None:
    """Show the hub's public key and profile: what clients pin."""
    client = HubClient.of(hub, timeout_ms)
    found = client.get("/tooling/identity")
    with client.reading():
        both = bytes.fromhex(found["hub_pk"]) + bytes.fromhex(found["profile_id"])
        values = {
            "hub_pk": found["hub_pk"],
            "profile_id": found["profile_id"],
            "fingerprint": sha256(both).hex(),
            "hub_id": found["hub_id"],
        }
    print_result(values, as_json)


@command
def hub_id(hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False) -> None:
    """Print the hub's id, 64 hex digits; of a directory or an exported set, no hub need run."""
    named = find_hub(hub)
    place = directory_of(named).expanduser()
    if (place / hub_settings.IDENTITY).is_file() and find_running(place) is None:
        with contextlib.closing(hub_at(named)) as files:
            made = read_facts(files.answer(STATUS)).identity.hub_id.hex()
    else:
        client = HubClient.of(named, timeout_ms)
        found = client.get("/tooling/identity")
        with client.reading():
            made = bytes.fromhex(found["hub_id"]).hex()
    typer.echo(json.dumps({"hub_id": made}) if as_json else made)


@command
def health(hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False) -> None:
    """Show whether the hub is well, as JSON; exits 4 if it is not."""
    del as_json  # it always is
    client = HubClient.of(hub, timeout_ms)
    found = client.get("/healthz")
    if not isinstance(found.get("ok"), bool):
        raise client.malformed()
    names = ("ok", "profile_id", "peaks_count", "last_stream_seq", "last_mmr_root")
    typer.echo(json.dumps({name: found.get(name) for name in names}))
    if not found["ok"]:
        raise typer.Exit(FAILED)


@command
def metrics(
    hub: HubOption = "",
    raw: Annotated[bool, typer.Option("--raw", help="The text as Prometheus reads it.")] = False,
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Show counts of messages and how long they took."""
    client = HubClient.of(hub, timeout_ms)
    text = client.text("/metrics")
    if raw and not as_json:
        typer.echo(text, nl=False)
        return
    with client.reading():
        values = _samples(text)
        accepted = int(values["veen_submit_ok_total"])
    found: dict[str, Any] = {
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
        found[f"{name}_latency_ms"] = round(total / count, 3) if count else None
    print_result(found, as_json)


def _samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


@command
def profile(hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False) -> None:
    """Show the protocol version, profile and optional features."""
    try:
        found = HubClient.of(hub, timeout_ms).get("/tooling/profile")
    except CommandError as error:
        if error.code == "E.NOT_FOUND":
            raise FailedError("E.PROFILE: the hub does not describe its features", "E.PROFILE") from None
        raise
    print_result(found, as_json)


@command
def kex_policy(
    hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False
) -> None:
    """Show the bounds on client keys, tokens and the rotation of the hub's key."""
    print_result(HubClient.of(hub, timeout_ms).get("/tooling/kex_policy"), as_json)


@command
def admission(
    hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False
) -> None:
    """Show the stages of admission, their queues, and how much is refused a minute."""
    client = HubClient.of(hub, timeout_ms)
    found = client.get("/tooling/admission")
    with client.reading():
        lines = [
            f"{stage['name']}: {stage['responsibilities']} "
            f"(queue {stage['queue_depth']} of {stage['max_queue_depth']})"
            for stage in found["stages"]
        ]
        rates = found["recent_err_rates"]
    if as_json:
        print_result(found, as_json)
        return
    for line in lines:
        typer.echo(line)
    print_result({"refused a minute": rates}, as_json)


@command
def admission_log(
    hub: HubOption = "",
    limit: Annotated[int, typer.Option(help="How many of the newest.")] = 100,
    codes: Annotated[str, typer.Option(help="Only these codes, separated by commas.")] = "",
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Show the newest messages that were refused, and why."""
    client = HubClient.of(hub, timeout_ms)
    found = client.get(f"/tooling/admission_log?limit={limit}&codes={quote(codes)}")
    with client.reading():
        lines = ["  ".join(str(value) for value in item.values()) for item in found["failures"]]
    if as_json:
        print_result(found, as_json)
        return
    for line in lines:
        typer.echo(line)


@command
def role(
    hub: HubOption = "",
    realm: Annotated[str, typer.Option(help="Realm of the stream.")] = "",
    stream: Annotated[str, typer.Option(help="Show who is the primary of a stream.")] = "",
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Show the hub's part in a federation."""
    client = HubClient.of(hub, timeout_ms)
    found = client.get("/tooling/status")
    if realm or stream:
        raise FailedError(
            "E.PROFILE: the hub has no records of authority over streams (AUTH1 is off)", "E.PROFILE"
        )
    with client.reading():
        values = {name: found[name] for name in ("hub_id", "role")}
    print_result(values, as_json)


@command
def checkpoint(
    hub: HubOption = "",
    stream: Annotated[
        str, typer.Option(help="Name or id of a stream: of its label in the current epoch.")
    ] = "",
    label: Annotated[str, typer.Option(help="A label: 64 hex digits.")] = "",
    out: Annotated[Path | None, typer.Option(help="File to write it to, in CBOR.")] = None,
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    as_json: JsonFlag = False,
) -> None:
    """Make a checkpoint of a label up to its newest entry; by default of the label used last."""
    client = HubClient.of(hub, timeout_ms)
    found = client.get("/tooling/status")
    if stream:
        with client.reading():
            routing = RoutingKey(bytes.fromhex(found["routing_key"]))
            label = labels.label(routing, labels.stream_id(stream), found["epoch"]).hex()
    if label:
        found = client.get(f"/tooling/status?label={quote(label)}")
    with client.reading():
        last = int(found["last_stream_seq"])
        if not last:
            raise FailedError("E.NOT_FOUND: there is no entry to make a checkpoint of", "E.NOT_FOUND")
        asked = CheckpointRequest(label=Label(bytes.fromhex(found["label"])), upto_seq=last)
    made = client.post("/v1/checkpoint", asked, CheckpointResponse).checkpoint
    if out is not None:
        write_bytes(out, made.encode())
    values = {
        "label_prev": made.label_prev.hex(),
        "label_curr": made.label_curr.hex(),
        "upto_seq": made.upto_seq,
        "mmr_root": made.mmr_root.hex(),
        "epoch": made.epoch,
        "hub_sig": made.hub_sig.hex(),
        "witness_sigs": [sig.hex() for sig in made.witness_sigs or ()],
        "checkpoint": made.encode().hex(),
    }
    print_result(values, as_json)


@command
def verify_rotation(
    checkpoint_file: Annotated[Path, typer.Option("--checkpoint", help="A checkpoint of the overlap.")],
    old_key: Annotated[str, typer.Option(help="The old hub key: 64 hex digits or a file.")],
    new_key: Annotated[str, typer.Option(help="The new hub key: 64 hex digits or a file.")],
    as_json: JsonFlag = False,
) -> None:
    """Check that both the old and the new key of a hub have witnessed a checkpoint; no hub is needed."""
    try:
        found = Checkpoint.decode(checkpoint_file.read_bytes())
    except OSError as error:
        raise UsageError(f"{checkpoint_file} can not be read: {error.strerror}") from None
    except ProtocolError as error:
        raise MalformedError(f"{checkpoint_file} is not a checkpoint: {error}") from None
    wanted = {"old_key": issuer_of(old_key), "new_key": issuer_of(new_key)}
    signed = found.verify_witnesses(wanted.values())
    result = {name: value in signed for name, value in wanted.items()}
    print_result({"ok": all(result.values()), **result}, as_json)
    if not all(result.values()):
        raise typer.Exit(FAILED)


@command
def tls_info(
    hub: HubOption = "", timeout_ms: Timeout = DEFAULT_TIMEOUT_MS, as_json: JsonFlag = False
) -> None:
    """Show TLS version and cipher suite of a hub, and whether they are as they should be."""
    url = HubClient.of(hub, timeout_ms).url
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise UsageError(f"{url} does not use TLS")
    context = ssl.create_default_context()
    context.check_hostname = False  # the suite is asked for, not the identity; that is for those who send
    context.verify_mode = ssl.CERT_NONE
    try:
        plain = socket.create_connection((parts.hostname, parts.port or 443), timeout=timeout_ms / 1000)
        with plain, context.wrap_socket(plain, server_hostname=parts.hostname) as secure:
            version, suite, compression = secure.version(), secure.cipher(), secure.compression()
    except OSError as error:
        raise UnreachableError(f"{url} can not be reached: {error}") from None
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
