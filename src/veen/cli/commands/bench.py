"""``veen bench``: how fast messages are sent."""

from time import perf_counter
from typing import Annotated

import typer

from veen.cli.client import ClientOption, HubOption, StreamOption, open_client
from veen.cli.output import command, print_result, progress
from veen.cli.settings import common
from veen.client.models import Draft

app = typer.Typer(help="Measure how fast messages are sent.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Measure how fast messages are sent."""


@app.command()
@command
def send(
    stream: StreamOption,
    count: Annotated[int, typer.Option(min=1, help="Number of messages.")],
    size: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Size of the text in each message, in bytes.")
    ] = 64,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="Send each message in a request of its own.")
    ] = False,
    hub: HubOption = "",
    client: ClientOption = "",
) -> None:
    """Send messages to a stream, and print the rate.

    Each message is acknowledged, and its receipt is verified.
    """
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
