"""``veen query``: queries over recorded events, with verifiable digests."""

import typer

from veen.cli.commands.query.ask import (
    cancel_command,
    descriptor_command,
    result_command,
    status_command,
    submit_command,
)
from veen.cli.commands.query.run import run_command
from veen.cli.commands.query.serve import grant_command, serve_command
from veen.cli.commands.query.verify import verify_command

app = typer.Typer(help="Query recorded events, with verifiable digests.", no_args_is_help=True)
app.command("serve")(serve_command)
app.command("grant")(grant_command)
app.command("submit")(submit_command)
app.command("status")(status_command)
app.command("result")(result_command)
app.command("descriptor")(descriptor_command)
app.command("cancel")(cancel_command)
app.command("run")(run_command)
app.command("verify")(verify_command)
