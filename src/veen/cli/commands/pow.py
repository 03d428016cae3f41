"""``veen pow``: proof of work by hand. ``veen send`` does it automatically."""

from typing import Annotated

import typer

from veen.cli.client import HubOption
from veen.cli.errors import FailedError
from veen.cli.hub_connection import HubClient
from veen.cli.options import hex_bytes
from veen.cli.output import command, print_result, progress
from veen.cli.settings import common
from veen.core.objects.proof_of_work import MAX_DIFFICULTY, solve

app = typer.Typer(help="Request and solve proof-of-work challenges.", no_args_is_help=True)

_PORTION = 1 << 14


@app.command()
@command
def request(
    hub: HubOption = "",
    difficulty: Annotated[int | None, typer.Option(min=0, help="Minimum difficulty, in bits.")] = None,
) -> None:
    """Request a challenge from a hub."""
    client = HubClient.of(hub, common.timeout_ms)
    response = client.get("/tooling/pow_request")
    with client.reading():
        values = {
            "ok": True,
            "challenge": str(response["challenge"]),
            "difficulty": max(int(response["difficulty"]), difficulty or 0),
            "expires_at": int(response["expires_at"]),
        }
    print_result(values, common.json)


@app.command("solve")
@command
def solve_command(
    challenge: Annotated[str, typer.Option(help="Challenge, in hex.")],
    difficulty: Annotated[int, typer.Option(min=0, max=MAX_DIFFICULTY, help="Difficulty, in bits.")],
    max_iterations: Annotated[int, typer.Option(min=1, help="Number of nonces to try, from 0.")] = 1 << 32,
) -> None:
    """Search for a nonce that solves a challenge.

    Exits 4 if none of the nonces solves it.
    """
    words = hex_bytes(challenge, "--challenge")
    cookie = None
    with progress("searching") as advance:
        for start in range(0, max_iterations, _PORTION):
            end = min(start + _PORTION, max_iterations)
            cookie = solve(words, difficulty, range(start, end))
            advance(end - start)
            if cookie is not None:
                break
    if cookie is None:
        raise FailedError(
            f"none of the first {max_iterations} nonces solves difficulty {difficulty}; raise "
            "--max-iterations"
        )
    print_result(
        {
            "ok": True,
            "nonce": cookie.nonce,
            "nonce_hex": f"{cookie.nonce:016x}",
            "hash_prefix_ok": True,
            "cookie": cookie.encode().hex(),
        },
        common.json,
    )
