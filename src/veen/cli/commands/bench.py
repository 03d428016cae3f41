"""``veen bench``: how fast this client and this hub are together."""

from time import perf_counter
from typing import Annotated

import typer

from veen.cli.client import ClientOption, HubOption, StreamOption, open_client
from veen.cli.output import command, print_result, progress
from veen.cli.settings import common
from veen.client.models import Draft

app = typer.Typer(help="Send many messages, and see how long it takes.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Send many messages, and see how long it takes."""


@app.command()
@command
def send(
    stream: StreamOption,
    count: Annotated[int, typer.Option(min=1, help="How many messages.")],
    size: Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes of text in each.")] = 64,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="A request each, instead of many in one.")
    ] = False,
    hub: HubOption = "",
    client: ClientOption = "",
) -> None:
    """Send messages to a stream; each is acknowledged and its receipt checked."""
    text = "x" * size
    with open_client(client, hub) as opened, progress("sending", count) as advance:
        opened.connect()
        started = perf_counter()
        if one_by_one:
            for number in range(count):
                opened.send(stream, {"n": number, "text": text})
                advance(1)
        else:
            for _ in opened.send_many(
                stream, (Draft({"n": number, "text": text}) for number in range(count))
            ):
                advance(1)
        took = perf_counter() - started
    print_result(
        {"ok": True, "sent": count, "seconds": f"{took:.3f}", "per_second": round(count / took)}, common.json
    )
