"""``veen hub``: run, inspect and administer a hub."""

import typer

from veen.cli.commands.hub import admin, anchor, explain, show, start, stop

app = typer.Typer(help="Run, inspect and administer a hub.", no_args_is_help=True)

app.command()(start.start)
app.command()(stop.stop)
app.command()(explain.explain)
app.command()(show.status)
app.command()(show.key)
app.command()(show.health)
app.command()(show.metrics)
app.command()(show.profile)
app.command("kex-policy")(show.kex_policy)
app.command()(show.admission)
app.command("admission-log")(show.admission_log)
app.command()(show.role)
app.command()(show.checkpoint)
app.command("anchor")(anchor.publish)
app.command("verify-rotation")(show.verify_rotation)
app.command("tls-info")(show.tls_info)
app.command("rotate-key")(admin.rotate_key)
app.command()(admin.revoke)
app.add_typer(admin.trust_app, name="trust")
