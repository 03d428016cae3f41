"""``veen keygen`` and ``veen id``: the identity of a client."""

import getpass
import os
import sys
from pathlib import Path
from time import time
from typing import Annotated, Any

import typer

from veen.cli.client import ClientOption, HubOption, load_secrets, read_card
from veen.cli.errors import UsageError
from veen.cli.hub_connection import HubClient
from veen.cli.options import OUT_DIR_HELP
from veen.cli.output import command, plain, print_result, warn
from veen.cli.settings import common
from veen.client.contexts import DEFAULT_CLIENT, find_client
from veen.client.errors import KeystoreError
from veen.client.home.directory import CARD, ClientHome
from veen.client.home.state import LabelState
from veen.client.keys.keystore import Secrets, given_passphrase
from veen.client.session import DEFAULT_ROTATION

app = typer.Typer(help="Show and rotate the keys of a client.", no_args_is_help=True)


@command
def keygen(
    out: Annotated[Path, typer.Option(help=OUT_DIR_HELP, show_default=True)] = Path(DEFAULT_CLIENT),
    name: Annotated[str, typer.Option(help="Display name on the identity card.")] = "",
    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase",
            help="Prompt for a passphrase. Without it, keys are protected by file permissions only.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing identity; its keys are lost.")
    ] = False,
) -> None:
    """Create a client: its keys and its identity card."""
    directory = out.expanduser()
    words = given_passphrase(os.environ)
    if passphrase and words is None:
        words = _new_passphrase()
    now = int(time())
    secrets = Secrets.generate(os.urandom, now, name or None)
    try:
        ClientHome.create(directory, secrets, now=now, passphrase=words, replace=force)
    except KeystoreError as error:
        raise UsageError(str(error), "E.EXISTS") from None
    print_result(
        {
            "ok": True,
            "client": str(directory),
            "client_id": secrets.client.signing_key.public_key.hex(),
            "id_sign_public": secrets.identity.public_key.hex(),
            "card": str(directory / CARD),
            "protected_by": "passphrase" if words is not None else "file mode",
        },
        common.json,
    )


def _new_passphrase() -> bytes:
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to prompt on; set VEEN_KEYSTORE_PASSPHRASE")
    first = getpass.getpass("New passphrase: ")
    if not first or first != getpass.getpass("Again: "):
        raise UsageError("the passphrases are empty or differ; nothing was created")
    return first.encode(errors="surrogateescape")


@app.command("show")
@command
def show_identity(client: ClientOption = "") -> None:
    """Show the public keys of a client, and its position in each label."""
    home, secrets, _ = load_secrets(find_client(client))
    state = home.load()
    card = secrets.card(int(time()))
    fields: dict[str, Any] = {
        "client_id": card.client_id.hex(),
        "id_sign_public": card.id_sign.hex(),
        "id_dh_public": card.id_dh.hex(),
        "name": card.name,
        "profile_id": state.profile_id,
        "hubs": {pin.identity.hub_id.hex(): pin.name for pin in state.pins.values()},
        "prekeys": [{"key": item.key.hex(), "expires_at": item.expires_at} for item in card.prekeys],
        "labels": [_label(label.hex(), label_state) for label, label_state in sorted(state.labels.items())],
    }
    if common.json:
        print_result(fields, as_json=True)
        return
    print_result(
        {name: value for name, value in fields.items() if name not in ("labels", "prekeys", "hubs")},
        as_json=False,
    )
    for hub_id, name in fields["hubs"].items():
        typer.echo(plain(f"hub: {hub_id} {name}"))
    for item in fields["labels"]:
        print_result({f"label {item.pop('label')}": item}, as_json=False)


def _label(label: str, label_state: LabelState) -> dict[str, Any]:
    return {
        "label": label,
        "stream": label_state.stream,
        "epoch": label_state.epoch,
        "last_stream_seq": label_state.last_seq,
        "last_mmr_root": label_state.peaks.root.hex() if label_state.last_seq else None,
    }


@app.command()
@command
def rotate(client: ClientOption = "") -> None:
    """Rotate the client key and the prekey.

    New messages are signed with the new key; nothing on the wire links it to the old one. Capability tokens
    are bound to a client key: ask their issuers for new ones.
    """
    directory = find_client(client)
    home = ClientHome(directory)
    with home.hold():
        _, secrets, passphrase = load_secrets(directory)
        old = secrets.client.signing_key.public_key
        now = int(time())
        secrets = secrets.rotated(os.urandom, now)
        home.save_secrets(secrets, passphrase, now)
    new = secrets.client.signing_key.public_key
    bound = [token.auth_ref.hex() for token in home.tokens().values() if token.subject_pk == old]
    print_result(
        {"ok": True, "client_id": new.hex(), "earlier_client_id": old.hex(), "tokens_to_renew": bound},
        common.json,
    )
    if bound:
        warn("capability tokens are bound to the old key; give your new card to their issuers")


@app.command()
@command
def usage(client: ClientOption = "", hub: HubOption = "") -> None:
    """Show the age and use of client keys, and whether to rotate them."""
    home, secrets, _ = load_secrets(find_client(client))
    lifetime, messages = DEFAULT_ROTATION.max_age_sec, DEFAULT_ROTATION.max_msgs
    known = False
    if hub:
        hub_client = HubClient.of(hub, common.timeout_ms)
        policy = hub_client.get("/tooling/kex_policy")
        known = True
        with hub_client.reading():
            lifetime = int(policy.get("max_client_id_lifetime_sec") or lifetime)
            messages = int(policy.get("max_msgs_per_client_id_per_label") or messages)
    now = int(time())
    created = {key.signing_key.public_key: key.created_at for key in secrets.clients}
    rows = []
    for label, label_state in sorted(home.load().labels.items()):
        for client_id, writer in sorted(label_state.writers.items()):
            since = created.get(client_id, writer.first_sent_at)
            age = max(now - since, 0)
            current = client_id == secrets.client.signing_key.public_key
            rows.append(
                {
                    "label": label.hex(),
                    "stream": label_state.stream or "-",
                    "client_id": client_id.hex(),
                    "created_at": since,
                    "msgs_sent": writer.client_seq,
                    "approx_lifetime_sec": age,
                    "exceeds_msg_bound": writer.client_seq >= messages if known else None,
                    "exceeds_lifetime_bound": age >= lifetime if known else None,
                    "rotation_recommended": current and (writer.client_seq >= messages or age >= lifetime),
                }
            )
    if common.json:
        print_result({"usage": rows}, as_json=True)
        return
    for row in rows:
        print_result(row, as_json=False)
        typer.echo("")
    if not rows:
        warn("this client has sent nothing yet")


@app.command()
@command
def card(
    who: Annotated[
        str,
        typer.Argument(
            metavar="CARD",
            help="Identity card: a file or a client directory. Default: the configured client.",
        ),
    ] = "",
) -> None:
    """Verify and show an identity card."""
    identity_card = read_card(who or str(find_client()))
    print_result(
        {
            "ok": True,
            "name": identity_card.name,
            "id_sign": identity_card.id_sign.hex(),
            "id_dh": identity_card.id_dh.hex(),
            "client_id": identity_card.client_id.hex(),
            "created_at": identity_card.created_at,
            "prekeys": [
                {"key": item.key.hex(), "expires_at": item.expires_at} for item in identity_card.prekeys
            ],
        },
        common.json,
    )
