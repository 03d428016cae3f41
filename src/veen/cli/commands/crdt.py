"""``veen crdt``: registers, sets and counters with concurrent writers."""

import os
from time import time
from typing import Annotated, Any

import typer

from veen.cli.client import ClientOptions, StreamOption
from veen.cli.errors import UsageError
from veen.cli.options import UPTO_HELP
from veen.cli.output import command, print_result
from veen.cli.overlay import fold_stream
from veen.cli.settings import common
from veen.client.client import Client
from veen.client.fold.interpret import typed
from veen.client.models import Sent
from veen.client.send import send_draft
from veen.core.crypto.hash import U64_MAX
from veen.core.encoding.shape import Fields
from veen.core.errors import ProtocolError
from veen.overlays.builtin.crdt import COUNTER, LWW, ORSET, GCounter, LwwMap, OrSet, parse_value
from veen.overlays.schema import Schema

crdt_app = typer.Typer(help="Use replicated registers, sets and counters (CRDTs).", no_args_is_help=True)
lww_app = typer.Typer(help="Set and read registers; the last write wins.", no_args_is_help=True)
orset_app = typer.Typer(help="Add, remove and list the elements of a set.", no_args_is_help=True)
counter_app = typer.Typer(help="Add to and read a counter that only grows.", no_args_is_help=True)
crdt_app.add_typer(lww_app, name="lww")
crdt_app.add_typer(orset_app, name="orset")
crdt_app.add_typer(counter_app, name="counter")

Upto = Annotated[int | None, typer.Option("--upto", min=1, max=U64_MAX, help=UPTO_HELP)]
_BYTES = "Text, or hex digits after 0x."


def _bytes(text: str, option: str) -> bytes:
    try:
        return parse_value(text)
    except ProtocolError:
        raise UsageError(f"{option} takes hex digits after 0x, not {text!r}") from None


def _send(opened: Client, stream: str, schema: Schema, body: Fields) -> Sent:
    return send_draft(opened, stream, typed(schema, body))


def _sent(sent: Sent, **more: Any) -> None:  # noqa: ANN401 - what is shown
    print_result({"ok": True, "stream_seq": sent.position, "msg_id": sent.msg_id.hex(), **more}, common.json)


@lww_app.command("set")
@command
def lww_set(
    stream: StreamOption,
    key: Annotated[str, typer.Option(help=f"Key of the register. {_BYTES}")],
    value: Annotated[str, typer.Option(help=f"Value to set. {_BYTES}")],
    at: ClientOptions,
    ts: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=U64_MAX,
            help="Time of the write, in milliseconds since 1970; the latest write wins. Default: now.",
        ),
    ] = None,
) -> None:
    """Set a register."""
    body = LWW.make(
        key=_bytes(key, "--key"),
        ts=int(time() * 1000) if ts is None else ts,
        value=_bytes(value, "--value"),
    )
    with at.open() as opened:
        sent = _send(opened, stream, LWW, body)
    _sent(sent, key=key, value=value, ts=body["ts"])


@lww_app.command("get")
@command
def lww_get(
    stream: StreamOption,
    key: Annotated[str, typer.Option(help=f"Key of the register. {_BYTES}")],
    at: ClientOptions,
    upto: Upto = None,
) -> None:
    """Show the value of a register."""
    register = _bytes(key, "--key")
    with at.open() as opened:
        state = fold_stream(opened, LwwMap(), stream, upto)[register]
    if common.json:
        print_result(
            {"key": key, "set": state is not None, **(state if isinstance(state, dict) else {})}, as_json=True
        )
    else:
        print_result({key: state["value"] if isinstance(state, dict) else "unset"}, as_json=False)


@orset_app.command("add")
@command
def orset_add(
    stream: StreamOption,
    elem: Annotated[str, typer.Option(help=f"Element to add. {_BYTES}")],
    at: ClientOptions,
) -> None:
    """Add an element to the set."""
    body = ORSET.make(id=os.urandom(32), elem=_bytes(elem, "--elem"))
    with at.open() as opened:
        sent = _send(opened, stream, ORSET, body)
    _sent(sent, elem=elem, id=body["id"].hex())


@orset_app.command("remove")
@command
def orset_remove(
    stream: StreamOption,
    elem: Annotated[str, typer.Option(help=f"Element to remove. {_BYTES}")],
    at: ClientOptions,
) -> None:
    """Remove an element from the set.

    Removes the additions that are in the log now; a concurrent addition remains.
    """
    element = _bytes(elem, "--elem")
    with at.open() as opened:
        ids = OrSet().ids(fold_stream(opened, OrSet(), stream).tables, element)
        if not ids:
            print_result({"ok": True, "elem": elem, "removed": 0}, common.json)
            return
        sent = _send(opened, stream, ORSET, ORSET.make(tomb=ids))
    _sent(sent, elem=elem, removed=len(ids))


@orset_app.command("list")
@command
def orset_list(stream: StreamOption, at: ClientOptions, upto: Upto = None) -> None:
    """List the elements of the set, sorted."""
    with at.open() as opened:
        elements = fold_stream(opened, OrSet(), stream, upto).view()
    print_result({"elements": elements}, common.json)


@counter_app.command("add")
@command
def counter_add(
    stream: StreamOption,
    at: ClientOptions,
    delta: Annotated[int, typer.Option(min=0, max=U64_MAX, help="Number to add.")] = 1,
) -> None:
    """Add to the counter."""
    with at.open() as opened:
        shard = opened.session.secrets.client.signing_key.public_key
        sent = _send(opened, stream, COUNTER, COUNTER.make(shard=bytes(shard), delta=delta))
    _sent(sent, delta=delta, shard=shard.hex())


@counter_app.command("get")
@command
def counter_get(stream: StreamOption, at: ClientOptions, upto: Upto = None) -> None:
    """Show the total of the counter."""
    with at.open() as opened:
        state = fold_stream(opened, GCounter(), stream, upto).view()
    assert isinstance(state, dict)
    print_result(state if common.json else {"total": state["total"]}, common.json)
