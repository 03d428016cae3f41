"""``veen pin``: the hubs that a client trusts."""

from typing import Annotated

import typer

from veen.cli.client import ClientOption, HubIdOption, HubOption, TrustFlag, open_client
from veen.cli.errors import UsageError
from veen.cli.options import hex32
from veen.cli.output import command, plain, print_result
from veen.cli.settings import common
from veen.client.contexts import find_client
from veen.client.home.directory import ClientHome
from veen.client.home.state import State
from veen.core.types import HubId

app = typer.Typer(help="Manage the hubs that this client trusts.", no_args_is_help=True)


@app.command()
@command
def add(
    hub: HubOption = "",
    hub_id: HubIdOption = "",
    client: ClientOption = "",
    trust_first_use: TrustFlag = False,
) -> None:
    """Pin a hub by its id, or on first use."""
    with open_client(client, hub, hub_id=hub_id, trust_first_use=trust_first_use) as opened:
        pin = opened.connect()
    print_result(
        {"ok": True, "hub_id": pin.identity.hub_id.hex(), "hub": pin.name, "how": pin.how}, common.json
    )


@app.command("list")
@command
def list_pins(client: ClientOption = "") -> None:
    """List the pinned hubs."""
    state = ClientHome(find_client(client)).load()
    rows = [
        {
            "hub_id": hub_id.hex(),
            "hub": pin.name,
            "how": pin.how,
            "pinned_at": pin.pinned_at,
            "keys": [key.hub_pk.hex() for key in pin.identity.hub_keys],
        }
        for hub_id, pin in sorted(state.pins.items())
    ]
    if common.json:
        print_result({"pins": rows}, as_json=True)
        return
    for row in rows:
        typer.echo(plain(f"{row['hub_id']}  {row['how']}  {row['hub']}"))


@app.command()
@command
def remove(
    hub_id: Annotated[str, typer.Argument(metavar="HUB_ID", help="Id of the hub: 64 hex digits.")],
    client: ClientOption = "",
) -> None:
    """Remove the pin of a hub.

    The next use of the hub is a first use again.
    """
    target = HubId(hex32(hub_id, "HUB_ID"))
    was_pinned = False

    def change(state: State) -> None:
        nonlocal was_pinned
        was_pinned = state.pins.pop(target, None) is not None

    home = ClientHome(find_client(client))
    if not home.root.is_dir():
        raise UsageError(f"there is no client in {home.root}; create one with: veen keygen")
    home.update(change)
    print_result(
        {"ok": True, "hub_id": hub_id, "note": "removed" if was_pinned else "was not pinned"}, common.json
    )
