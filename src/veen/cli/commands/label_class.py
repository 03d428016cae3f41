"""``veen label-class``: the sensitivity and the retention of labels."""

from typing import Annotated, Any

import typer

from veen.cli.client import ClientOptions
from veen.cli.commands.send import describe
from veen.cli.errors import UsageError
from veen.cli.options import LABEL_HELP, LABEL_STREAM_HELP, RETENTION_HELP, hex32
from veen.cli.output import command, plain, print_result, warn
from veen.cli.settings import common
from veen.client.client import Client
from veen.core.crypto.hash import U64_MAX
from veen.core.objects.labels import DEFAULT_REALM
from veen.overlays.errors import InvalidBodyError
from veen.recorder.configuration import LabelClass, class_stream, label_now, read_classes, set_class

app = typer.Typer(help="Set and show the classes of labels.", no_args_is_help=True)

LabelOption = Annotated[str, typer.Option("--label", help=LABEL_HELP)]
StreamOption = Annotated[str, typer.Option("--stream", help=LABEL_STREAM_HELP)]
RealmOption = Annotated[str, typer.Option("--realm", help="Realm: a name, or an id (64 hex digits).")]


def _label_of(opened: Client, label: str, stream: str) -> bytes:
    if bool(label) == bool(stream):
        raise UsageError("give either --label or --stream")
    return hex32(label, "--label") if label else label_now(opened, stream)


@app.command("set")
@command
def set_command(
    class_name: Annotated[str, typer.Option("--class", help="Name of the class.")],
    at: ClientOptions,
    label: LabelOption = "",
    stream: StreamOption = "",
    sensitivity: Annotated[str, typer.Option(help="Sensitivity: low, medium or high.")] = "",
    retention_hint: Annotated[int | None, typer.Option(min=0, max=U64_MAX, help=RETENTION_HELP)] = None,
    realm: RealmOption = DEFAULT_REALM,
) -> None:
    """Set the class of a label.

    The newest record of a label applies. Use the client of an admin: readers may ignore records of others.
    """
    with at.open() as opened:
        try:
            sent = set_class(
                opened,
                _label_of(opened, label, stream),
                class_name,
                sensitivity=sensitivity or None,
                retention_hint=retention_hint,
                realm=realm,
            )
        except InvalidBodyError as error:
            raise UsageError(f"--sensitivity: {error}") from None
    print_result(describe(sent, class_stream(realm)), common.json)


@app.command("show")
@command
def show_command(
    at: ClientOptions, label: LabelOption = "", stream: StreamOption = "", realm: RealmOption = DEFAULT_REALM
) -> None:
    """Show the class of a label."""
    with at.open() as opened:
        target = _label_of(opened, label, stream)
        label_class = read_classes(opened, realm).get(target)
    print_result(_row(target, label_class), common.json)


def _row(label: bytes, label_class: LabelClass | None) -> dict[str, Any]:
    if label_class is None:
        return {"label": label.hex(), "class": "unset", "sensitivity": "none", "retention_hint": 0}
    return {
        "label": label.hex(),
        "class": label_class.name,
        "sensitivity": label_class.sensitivity or "none",
        "retention_hint": label_class.retention_hint or 0,
    }


@app.command("list")
@command
def list_command(
    at: ClientOptions,
    class_name: Annotated[str, typer.Option("--class", help="List only labels of this class.")] = "",
    realm: RealmOption = DEFAULT_REALM,
) -> None:
    """List the labels that have a class."""
    with at.open() as opened:
        classes = read_classes(opened, realm)
    rows = [
        _row(label, label_class)
        for label, label_class in classes.items()
        if class_name in ("", label_class.name)
    ]
    if common.json:
        print_result({"labels": rows}, as_json=True)
        return
    for row in rows:
        typer.echo(plain("  ".join(str(value) for value in row.values())))
    if not rows:
        warn("no label has this class, or its records are sealed to other readers")
