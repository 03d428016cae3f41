"""``veen cap``: capability tokens, from their issuer to the hub; and revocations."""

import re
from pathlib import Path
from time import time
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from veen.cli.client import ClientOption, HubOption, load_secrets, open_client, read_card, write_bytes
from veen.cli.commands.hub.key_arguments import target_of
from veen.cli.commands.send import read_token
from veen.cli.errors import FailedError, UsageError
from veen.cli.hub_connection import HubClient
from veen.cli.options import (
    ADMIN_HELP,
    ISSUER_HELP,
    KIND_HELP,
    LIFETIME_HELP,
    MAX_ITEMS_HELP,
    OUT_FILE_HELP,
    RATE_HELP,
    REASON_HELP,
    REVOKE_TTL_HELP,
    TARGET_HELP,
)
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common
from veen.client.contexts import find_client
from veen.client.home.directory import ClientHome
from veen.client.models import Draft, SendOptions
from veen.client.send import send_draft
from veen.core.crypto.hash import sha256
from veen.core.encoding.hexadecimal import is_hex32, parse_hex32
from veen.core.objects import capability, labels
from veen.core.objects.capability import CapToken, Rate
from veen.core.objects.control_record import REVOCATION_SCHEMA, REVOCATION_STREAM, RevocationBody
from veen.core.types import VerifyKey

app = typer.Typer(help="Issue, register and revoke capability tokens.", no_args_is_help=True)

_RATE: Final = re.compile(r"([0-9]{1,15})(?:/s)?,([0-9]{1,15})")
CapFile = Annotated[Path, typer.Option("--cap", help="File of the capability token.")]


def subject_of(text: str) -> VerifyKey:
    """Return the key that a token is for: in hex, or of an identity card (NAM-014)."""
    return VerifyKey(parse_hex32(text)) if is_hex32(text) else read_card(text).client_id


def rate_of(text: str) -> Rate | None:
    """Parse PER_SEC,BURST, if the option has a value."""
    if not text:
        return None
    match = _RATE.fullmatch(text)
    if match is None:
        raise UsageError(f"--rate takes PER_SEC,BURST, for example 5,10, not {text!r}")
    return Rate(per_sec=int(match[1]), burst=int(match[2]))


@app.command()
@command
def issue(
    subject: Annotated[
        str, typer.Option(help="Subject of the token: an identity card, a client directory or 64 hex digits.")
    ],
    stream: Annotated[
        list[str], typer.Option(help="Stream that the token allows writing to; may be repeated.")
    ],
    ttl: Annotated[int, typer.Option(min=1, help=LIFETIME_HELP)],
    out: Annotated[Path, typer.Option(help=OUT_FILE_HELP)],
    issuer: Annotated[str, typer.Option(help=ISSUER_HELP)] = "",
    rate: Annotated[str, typer.Option(help=RATE_HELP)] = "",
) -> None:
    """Issue a capability token.

    The hub must trust the issuer: see veen hub trust add.
    """
    _, secrets, _ = load_secrets(find_client(issuer))
    token = CapToken.mint(
        secrets.identity,
        subject_of(subject),
        stream_ids=[labels.stream_id(name) for name in stream],
        ttl=ttl,
        rate=rate_of(rate),
    )
    write_bytes(out, token.encode())
    print_result({"ok": True, "file": str(out), **describe_token(token)}, common.json)


def describe_token(token: CapToken) -> dict[str, Any]:
    """Return the fields of a token that are printed."""
    rate = token.allow.rate
    return {
        "auth_ref": token.auth_ref.hex(),
        "cap_token_hash": sha256(token.encode()).hex(),
        "issuer_pk": token.issuer_pk.hex(),
        "subject_pk": token.subject_pk.hex(),
        "stream_ids": [item.hex() for item in token.allow.stream_ids],
        "ttl": token.allow.ttl,
        "rate": None if rate is None else f"{rate.per_sec},{rate.burst}",
    }


@app.command()
@command
def authorize(cap: CapFile, hub: HubOption = "", client: ClientOption = "") -> None:
    """Register a token with the hub.

    If the token is for this client, it is also stored, and used from then on.
    """
    token = read_token(cap)
    with open_client(client, hub) as opened:
        authorization = opened.authorize(token)
        is_own = token.subject_pk in opened.session.secrets.client_ids()
    print_result(
        {
            "ok": True,
            "auth_ref": authorization.auth_ref.hex(),
            "expires_at": authorization.expires_at,
            "kept": is_own,
        },
        common.json,
    )


@app.command()
@command
def add(cap: CapFile, client: ClientOption = "") -> None:
    """Store a token in the client directory.

    The client uses it for the streams of the token from then on.
    """
    token = read_token(cap)
    token.verify()
    home, secrets, _ = load_secrets(find_client(client))
    if token.subject_pk not in secrets.client_ids():
        raise UsageError(f"the token is for {token.subject_pk.hex()}, which is not a key of this client")
    print_result({"ok": True, "file": str(home.keep_token(token)), **describe_token(token)}, common.json)


@app.command()
@command
def renew(
    cap: CapFile,
    out: Annotated[Path, typer.Option(help=OUT_FILE_HELP)],
    issuer: Annotated[str, typer.Option(help=ISSUER_HELP)] = "",
) -> None:
    """Renew a token before it expires.

    The renewed token has a new auth_ref, and its full lifetime again. A token can be
    renewed up to seven times.
    """
    _, secrets, _ = load_secrets(find_client(issuer))
    token = read_token(cap).renew(secrets.identity)
    write_bytes(out, token.encode())
    print_result({"ok": True, "file": str(out), **describe_token(token)}, common.json)


@app.command("list")
@command
def list_tokens(client: ClientOption = "") -> None:
    """List the tokens that this client stores."""
    rows = [describe_token(token) for token in ClientHome(find_client(client)).tokens().values()]
    if common.json:
        print_result({"tokens": rows}, as_json=True)
        return
    for row in rows:
        typer.echo(
            f"{row['auth_ref']}  ttl {row['ttl']}  rate {row['rate'] or '-'}  {', '.join(row['stream_ids'])}"
        )


@app.command()
@command
def status(cap: CapFile, hub: HubOption = "", client: ClientOption = "") -> None:
    """Show the status of a token at the hub."""
    token = read_token(cap)
    with open_client(client, hub) as opened:
        token_status = opened.cap_status(token)
    within: bool | str = "unknown"
    if token_status.issued_at is not None:
        within = int(time()) <= capability.expires_at(token, token_status.issued_at)
    print_result(
        {
            **({"ok": True} if common.json else {}),
            "auth_ref": token.auth_ref.hex(),
            "cap_token_hash": sha256(token.encode()).hex(),
            "locally_within_ttl": within,
            "hub_known": token_status.hub_known,
            "hub_currently_valid": token_status.hub_currently_valid,
            "revoked": token_status.revoked,
            "revocation_kind": token_status.revocation_kind,
            **({"revocation_ts": token_status.revocation_ts} if common.json else {}),
            "expires_at": token_status.expires_at,
            "reason": token_status.reason,
        },
        common.json,
    )


# --- revocations --------------------------------------------------------------------------------------------

AdminOption = Annotated[
    str,
    typer.Option("--admin", help=ADMIN_HELP),
]
KindOption = Annotated[str, typer.Option("--kind", help=KIND_HELP)]
TargetOption = Annotated[str, typer.Option("--target", help=TARGET_HELP)]
ReasonOption = Annotated[str, typer.Option("--reason", help=REASON_HELP)]
TtlOption = Annotated[int | None, typer.Option("--ttl", min=1, help=REVOKE_TTL_HELP)]
# How long to wait until the hub has applied it.
_EFFECT_SEC: Final = 10
_LOOKS: Final = 3


@app.command()
@command
def revoke(
    kind: KindOption,
    target: TargetOption,
    hub: HubOption = "",
    admin: AdminOption = "",
    reason: ReasonOption = "",
    ttl: TtlOption = None,
) -> None:
    """Revoke a client or a token.

    Sends a message of an admin, and returns when the hub has applied it.
    """
    _revoke(hub, admin, kind, target, reason, ttl)


@command
def revoke_alias(
    kind: KindOption,
    target: TargetOption,
    word: Annotated[str, typer.Argument(metavar="[publish]", help="Optional; has no effect.")] = "",
    hub: HubOption = "",
    admin: AdminOption = "",
    reason: ReasonOption = "",
    ttl: TtlOption = None,
) -> None:
    """Revoke a client or a token, like 'veen cap revoke'."""
    if word not in ("", "publish"):
        raise UsageError(f"there is no command 'revoke {word}'; see: veen cap revoke --help")
    _revoke(hub, admin, kind, target, reason, ttl)


def _revoke(hub: str, admin: str, kind: str, target: str, reason: str, ttl: int | None) -> None:
    target = target_of(kind, target)
    record = RevocationBody(
        kind=kind, target=bytes.fromhex(target), ts=int(time()), reason=reason or None, ttl=ttl
    )
    directory = find_client(admin, key="admin", variable="VEEN_ADMIN")
    with open_client(str(directory), hub) as opened:
        control = opened.connect().identity.control_pk
        if control is None:
            raise FailedError("E.PROFILE: the hub does not accept administrative messages", "E.PROFILE")
        draft = Draft(None, schema=REVOCATION_SCHEMA, encoded=record.encode())
        sent = send_draft(opened, REVOCATION_STREAM.hex(), draft, SendOptions(to=control, as_identity=True))
    query = f"origin={sent.msg_id.hex()}&wait={_EFFECT_SEC}"
    client = HubClient.of(hub, common.timeout_ms + 1000 * _EFFECT_SEC)
    listed: list[Any] = []
    for _ in range(_LOOKS):  # it responds early when it has applied orders of others
        response = client.get(f"/tooling/revocations?{query}")
        with client.reading():
            listed = listed or list(response["revocations"])
    if not listed:
        warn(
            "the hub received the message but has not applied it; check that this client is one of its admins"
        )
    with client.reading():
        active = any(bool(item["active_now"]) for item in listed)
    print_result(
        {
            "ok": True,
            "kind": kind,
            "target": target,
            "ts": record.ts,
            "ttl": ttl,
            "active_now": active,
            "stream_seq": sent.position,
            "msg_id": sent.msg_id.hex(),
        },
        common.json,
    )


@app.command()
@command
def revocations(
    hub: HubOption = "",
    kind: Annotated[
        str, typer.Option(help="List only revocations of this kind: client-id, auth-ref or cap-token.")
    ] = "",
    since: Annotated[
        int, typer.Option(min=0, help="List only revocations from this time on, in seconds since 1970.")
    ] = 0,
    active_only: Annotated[
        bool, typer.Option("--active-only", help="List only revocations that are in force now.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help=MAX_ITEMS_HELP)] = 100,
) -> None:
    """List the revocations of a hub."""
    query = (
        f"since={since}&limit={limit}" + (f"&kind={quote(kind)}" if kind else "") + "&active=1" * active_only
    )
    client = HubClient.of(hub, common.timeout_ms)
    response = client.get(f"/tooling/revocations?{query}")
    if common.json:
        print_result(response, as_json=True)
        return
    with client.reading():
        rows = [dict(item) for item in response["revocations"]]
    for row in rows:
        print_result(row, as_json=False)
        typer.echo("")
