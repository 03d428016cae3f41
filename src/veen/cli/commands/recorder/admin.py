"""``veen recorder init``, ``change``, ``share`` and ``grant``: administration of the recorder."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import time
from typing import Annotated, Any, Final

import typer

from veen.cli.client import ClientOption, ClientOptions, load_secrets, read_card, write_bytes
from veen.cli.commands.cap import describe_token, rate_of, subject_of
from veen.cli.commands.reader import add_key, new_key
from veen.cli.commands.send import describe
from veen.cli.errors import UsageError
from veen.cli.options import (
    CARD_HELP,
    ISSUER_HELP,
    LIFETIME_HELP,
    OUT_FILE_HELP,
    RATE_HELP,
    REASON_HELP,
    RECORD_STREAM_HELP,
    RETENTION_HELP,
)
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common
from veen.client.client import Client
from veen.client.contexts import find_client
from veen.client.keys.stream_keys import share as seal_key
from veen.client.models import Sent
from veen.core.crypto.hash import U64_MAX
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.overlays.errors import InvalidBodyError
from veen.overlays.recorder.schemas import CHANGES_STREAM, CHECKPOINTS_STREAM, LONG_TERM_SEC, STREAMS
from veen.recorder import configuration
from veen.recorder.configuration import (
    Declared,
    class_stream,
    keep_labels,
    label_now,
    read_configuration,
    send_change,
    stream_labels,
)

change_app = typer.Typer(help="Rename, split or retire streams of the recorder.", no_args_is_help=True)

# The streams that the recorder writes itself.
_OWN_STREAMS: Final = (CHANGES_STREAM, CHECKPOINTS_STREAM, class_stream())
# Shorter epochs make checkpoints large, and need many classes.
_SHORT_EPOCH_SEC: Final = 3600
_DECLARED: Final = re.compile(r"([^=]+)(?:=(.+))?")
Streams = Annotated[
    list[str],
    typer.Option(
        "--stream",
        help="Stream and its event types, as record/NAME or record/NAME=TYPE,TYPE; may be repeated.",
    ),
]
Retention = Annotated[int, typer.Option("--retention-hint", min=0, max=U64_MAX, help=RETENTION_HELP)]
Reason = Annotated[str, typer.Option("--reason", help=REASON_HELP)]
StreamOption = Annotated[str, typer.Option("--stream", help=RECORD_STREAM_HELP)]
Into = Annotated[str, typer.Option("--into", help="New name of the stream.")]


def record_stream(name: str) -> str:
    """Return the name of a stream of the recorder; other names are rejected."""
    try:
        return configuration.record_stream(name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _declaration(text: str) -> tuple[str, tuple[str, ...]]:
    match = _DECLARED.fullmatch(text)
    if match is None:
        raise UsageError(f"--stream takes record/NAME=TYPE,TYPE, not {text!r}")
    types = (match[2] or "").split(",")
    return record_stream(match[1]), tuple(sorted({one.strip() for one in types if one.strip()}))


@command
def init(
    stream: Streams, at: ClientOptions, retention_hint: Retention = LONG_TERM_SEC, reason: Reason = ""
) -> None:
    """Declare streams, their event types and their retention.

    Creates reader keys for streams that have none; share them with veen recorder share. Existing
    declarations are not repeated: run the command again to add streams, or when a new epoch has new labels.
    """
    declarations = [_declaration(text) for text in stream]
    _make_keys(at.client, [name for name, _ in declarations])
    with at.open() as opened:
        known = read_configuration(opened)
        _check_types(declarations, known.streams)
        declared = []
        for name, types in declarations:
            declaration = Declared("declared", (), types, retention_hint)
            if known.streams.get(name) != declaration:
                _declare(opened, name, types, retention_hint, reason)
                declared.append(name)
        names = [*(name for name, _ in declarations), CHANGES_STREAM, CHECKPOINTS_STREAM]
        kept_labels = _keep(opened, names, retention_hint)
        configuration = read_configuration(opened)
        _warn_of_short_epochs(opened.session.profiles[0].epoch_sec)
    print_result(
        {
            "ok": True,
            "declared": declared,
            "labels_kept": kept_labels,
            "streams": sorted(configuration.streams),
            "profile_id": configuration.profile_id.hex(),
        },
        common.json,
    )


def _warn_of_short_epochs(epoch_sec: int) -> None:
    """Warn if labels change too often for a recorder."""
    if 0 < epoch_sec < _SHORT_EPOCH_SEC:
        warn(
            f"labels of this hub change every {epoch_sec} s; use longer epochs, or none, for a recorder: "
            "each label needs a class, and enlarges checkpoints"
        )


def _make_keys(client: str, streams: list[str]) -> list[str]:
    """Create missing reader keys, since an admin reads all streams (SDR-010); return their streams."""
    directory = find_client(client)
    _, secrets, _ = load_secrets(directory)
    missing = [
        name for name in (*streams, *_OWN_STREAMS) if secrets.stream_key(labels.stream_id(name)) is None
    ]
    for name in missing:
        add_key(directory, new_key(name))
    return missing


def _check_types(declarations: list[tuple[str, tuple[str, ...]]], known: Any) -> None:  # noqa: ANN401 - declared
    """Reject an event type that two streams would have."""
    owner = {
        one: name
        for name, declared in known.items()
        for one in declared.event_types
        if name not in dict(declarations)
    }
    for name, types in declarations:
        for one in types:
            if owner.setdefault(one, name) != name:
                raise UsageError(f"events of type {one!r} belong to {owner[one]}; a type has one stream")


def _declare(opened: Client, stream: str, types: tuple[str, ...], retention_sec: int, reason: str) -> None:
    send_change(
        opened,
        "declare",
        stream,
        event_types=types or None,
        retention_hint=retention_sec,
        reason=reason or None,
    )


def _keep(opened: Client, names: list[str], retention_hint: int) -> int:
    """Set the class of each label with a shorter retention; return their number."""
    there = {label for name in names for _, label in stream_labels(opened, name)}
    there |= {label_now(opened, name) for name in names}
    return keep_labels(opened, dict.fromkeys(there, retention_hint))


# --- changes ------------------------------------------------------------------------------------------------


@change_app.command()
@command
def rename(stream: StreamOption, into: Into, at: ClientOptions, reason: Reason = "") -> None:
    """Rename a stream.

    Its event types and retention move to the new name, which has a reader key of its own: share it
    with producers and readers, with veen recorder share.
    """
    new = _make_keys(at.client, [record_stream(into)])
    with at.open() as opened:
        declared = _declared(opened, stream)
        _require_free(read_configuration(opened).streams, [into])
        sent = _change(
            opened,
            "rename",
            stream,
            into=(into,),
            event_types=declared.event_types or None,
            retention_hint=declared.retention_hint,
            reason=reason or None,
        )
        _keep(opened, [into], declared.retention_hint or LONG_TERM_SEC)
    _show("rename", stream, sent, new)


@change_app.command()
@command
def split(
    stream: StreamOption,
    into: Annotated[
        list[str],
        typer.Option(
            "--into", help="New stream and its event types, as record/NAME=TYPE,TYPE; given at least twice."
        ),
    ],
    at: ClientOptions,
    reason: Reason = "",
) -> None:
    """Split a stream into several.

    The new streams have event types and reader keys of their own: share the keys with producers and
    readers, with veen recorder share.
    """
    parts = [_declaration(text) for text in into]
    new = _make_keys(at.client, [name for name, _ in parts])
    with at.open() as opened:
        declared = _declared(opened, stream)
        others = {name: one for name, one in read_configuration(opened).streams.items() if name != stream}
        into_names = tuple(name for name, _ in parts)
        _require_free(others, into_names)
        _check_types(parts, others)
        retention_sec = declared.retention_hint or LONG_TERM_SEC
        sent = _change(opened, "split", stream, into=into_names, reason=reason or None)
        for name, types in parts:
            _declare(opened, name, types, retention_sec, reason)
        _keep(opened, list(into_names), retention_sec)
    _show("split", stream, sent, new)


@change_app.command()
@command
def retire(stream: StreamOption, at: ClientOptions, reason: Reason = "") -> None:
    """Retire a stream.

    Its entries remain, and checkpoints still cover them. Other streams can use its event types.
    """
    with at.open() as opened:
        _declared(opened, stream)
        sent = _change(opened, "retire", stream, reason=reason or None)
    _show("retire", stream, sent)


def _require_free(known: Mapping[str, Declared], names: Iterable[str]) -> None:
    """Reject streams that are declared already."""
    for name in names:
        if name in known and known[name].state == "declared":
            raise UsageError(f"{name} is already declared")


def _declared(opened: Client, stream: str) -> Declared:
    declared = read_configuration(opened).streams.get(record_stream(stream))
    if declared is None or declared.state != "declared":
        state = "not declared" if declared is None else declared.state
        raise UsageError(f"{stream} is {state}; see: veen recorder status")
    return declared


def _change(opened: Client, change: str, stream: str, **more: Any) -> Sent:  # noqa: ANN401 - by the schema
    try:
        return send_change(opened, change, stream, **more)
    except InvalidBodyError as error:
        raise UsageError(str(error)) from None


def _show(change: str, stream: str, sent: Sent, new_keys: Sequence[str] = ()) -> None:
    more = {"new_keys": list(new_keys)} if new_keys else {}
    print_result({**describe(sent, CHANGES_STREAM), "change": change, "changed": stream, **more}, common.json)
    if new_keys:
        warn(
            f"only this client has the reader keys of {', '.join(new_keys)}; producers need them "
            "before they can "
            "record events: veen recorder share"
        )


# --- producers and readers ----------------------------------------------------------------------------------


@command
def share(
    to: Annotated[str, typer.Option(help=CARD_HELP)],
    out: Annotated[Path, typer.Option(help="Directory to create, with a file for each stream.")],
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream", help="Share only this stream and the recorder's own streams; may be repeated."
        ),
    ] = None,
    client: ClientOption = "",
) -> None:
    """Seal the reader keys of streams for a new reader.

    The reader accepts them with veen reader accept FILE.
    """
    _, secrets, _ = load_secrets(find_client(client))
    card = read_card(to)
    stream_ids = {labels.stream_id(name) for name in (*(stream or ()), *_OWN_STREAMS)}
    keys = [
        key
        for key in secrets.streams
        if ((key.name or "").startswith(STREAMS) and not stream) or key.stream_id in stream_ids
    ]
    missing = stream_ids - {key.stream_id for key in keys}
    if missing:
        raise UsageError("this client has no reader key of some of these streams; see: veen recorder init")
    try:
        out.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise UsageError(f"{out} already exists; choose another directory", "E.EXISTS") from None
    files = []
    for key in keys:
        path = out / f"{(key.name or key.stream_id.hex()).replace('/', '-')}.key"
        write_bytes(path, seal_key(secrets, key, card, int(time()), os.urandom).encode())
        files.append(str(path))
    print_result({"ok": True, "to": card.id_sign.hex(), "files": files}, common.json)


@command
def grant(
    producer: Annotated[
        str, typer.Option(help="Producer: an identity card, a client directory or 64 hex digits.")
    ],
    stream: Annotated[
        list[str],
        typer.Option(help="Stream of the recorder that the token allows writing to; may be repeated."),
    ],
    ttl: Annotated[int, typer.Option(min=1, help=LIFETIME_HELP)],
    out: Annotated[Path, typer.Option(help=OUT_FILE_HELP)],
    issuer: Annotated[str, typer.Option(help=ISSUER_HELP)] = "",
    rate: Annotated[str, typer.Option(help=RATE_HELP)] = "",
    own_streams: Annotated[
        bool,
        typer.Option("--own-streams", help="Also allow the recorder's own streams: changes and checkpoints."),
    ] = False,
) -> None:
    """Issue a token that lets a producer append to streams.

    The token allows nothing else. A client that creates checkpoints or declares streams is not a producer;
    a token for that requires --own-streams.
    """
    names = [record_stream(name) for name in stream]
    own = sorted({*names} & {CHANGES_STREAM, CHECKPOINTS_STREAM})
    if own and not own_streams:
        raise UsageError(f"producers cannot write to {', '.join(own)}; see --own-streams", "E.ROLE")
    _, secrets, _ = load_secrets(find_client(issuer))
    subject = subject_of(producer)
    if subject in (*secrets.client_ids(), secrets.identity.public_key):
        raise UsageError("an admin cannot produce events; give the card of another client", "E.ROLE")
    token = CapToken.mint(
        secrets.identity,
        subject,
        stream_ids=[labels.stream_id(name) for name in names],
        ttl=ttl,
        rate=rate_of(rate),
    )
    write_bytes(out, token.encode())
    print_result({"ok": True, "file": str(out), "streams": names, **describe_token(token)}, common.json)
