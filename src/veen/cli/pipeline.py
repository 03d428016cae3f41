"""``veen pipeline``: logs on Spark."""

import typer

from veen.cli.pipeline_verify import verify_command

app = typer.Typer(
    help="Whole logs on Spark: verify, open into tables, fold, query.", no_args_is_help=True
)
app.command("verify")(verify_command)
