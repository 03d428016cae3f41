"""``veen pipeline``: logs on Spark."""

import typer

from veen.cli.commands.pipeline.fold import fold_command
from veen.cli.commands.pipeline.lake import (
    check_command,
    compact_command,
    ingest_command,
    replay_command,
    sql_command,
)
from veen.cli.commands.pipeline.verify import verify_command

app = typer.Typer(help="Verify, ingest, fold and query logs on Spark.", no_args_is_help=True)
app.command("verify")(verify_command)
app.command("ingest")(ingest_command)
app.command("check")(check_command)
app.command("fold")(fold_command)
app.command("replay")(replay_command)
app.command("compact")(compact_command)
app.command("sql")(sql_command)
