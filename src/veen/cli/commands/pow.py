"""``veen pow``: proof of work, asked for and done by hand. ``veen send`` does it by itself."""

from typing import Annotated

import typer

from veen.cli.client import HubOption
from veen.cli.errors import FailedError, UsageError
from veen.cli.hub_connection import HubClient
from veen.cli.output import command, print_result, progress
from veen.cli.settings import common
from veen.core.objects.proof_of_work import MAX_DIFFICULTY, solve

app = typer.Typer(help="Proof of work: what a hub may ask of senders.", no_args_is_help=True)

_PORTION = 1 << 14


@app.command()
@command
def request(
    hub: HubOption = "",
    difficulty: Annotated[int | None, typer.Option(min=0, help="Ask for at least so many bits.")] = None,
) -> None:
    """Ask a hub for a challenge."""
    client = HubClient.of(hub, common.timeout_ms)
    found = client.get("/tooling/pow_request")
    with client.reading():
        values = {
            "ok": True,
            "challenge": str(found["challenge"]),
            "difficulty": max(int(found["difficulty"]), difficulty or 0),
            "expires_at": int(found["expires_at"]),
        }
    print_result(values, common.json)


@app.command("solve")
@command
def solve_command(
    challenge: Annotated[str, typer.Option(help="The challenge, in hex.")],
    difficulty: Annotated[int, typer.Option(min=0, max=MAX_DIFFICULTY, help="Bits that have to be zero.")],
    max_iterations: Annotated[int, typer.Option(min=1, help="Nonces to try.")] = 1 << 32,
) -> None:
    """Find a nonce, from 0 on; exits 4 if there is none among those that were tried."""
    try:
        words = bytes.fromhex(challenge)
    except ValueError:
        raise UsageError("--challenge is hex") from None
    found = None
    with progress("searching") as advance:
        for start in range(0, max_iterations, _PORTION):
            end = min(start + _PORTION, max_iterations)
            found = solve(words, difficulty, range(start, end))
            advance(end - start)
            if found is not None:
                break
    if found is None:
        raise FailedError(f"none of the first {max_iterations} nonces has {difficulty} zero bits")
    print_result(
        {
            "ok": True,
            "nonce": found.nonce,
            "nonce_hex": f"{found.nonce:016x}",
            "hash_prefix_ok": True,
            "cookie": found.encode().hex(),
        },
        common.json,
    )
