"""``veen hub``: run a hub, ask it, and give it orders."""

import typer

from veen.cli.hub import changing, showing
from veen.cli.hub.anchoring import publish
from veen.cli.hub.explaining import explain
from veen.cli.hub.starting import start
from veen.cli.hub.stopping import stop

app = typer.Typer(help="Run a hub, ask it how it is, and give it orders.", no_args_is_help=True)

app.command()(start)
app.command()(stop)
app.command()(explain)
app.command()(showing.status)
app.command()(showing.key)
app.command()(showing.health)
app.command()(showing.metrics)
app.command()(showing.profile)
app.command("kex-policy")(showing.kex_policy)
app.command()(showing.admission)
app.command("admission-log")(showing.admission_log)
app.command()(showing.role)
app.command()(showing.checkpoint)
app.command("anchor")(publish)
app.command("verify-rotation")(showing.verify_rotation)
app.command("tls-info")(showing.tls_info)
app.command("rotate-key")(changing.rotate_key)
app.command()(changing.revoke)
app.add_typer(changing.trust_app, name="trust")
