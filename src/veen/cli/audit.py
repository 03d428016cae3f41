"""``veen audit``: who has asked for what, what streams hold, and whether rules are kept."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from veen.cli.audit_rules import Rule, read_policy, violations_of
from veen.cli.errors import USAGE, CommandError
from veen.cli.folding import folded
from veen.cli.operating import known_streams, refuse
from veen.cli.printing import note, plain, reporting, show
from veen.cli.settings import common
from veen.cli.using import At, ClientOption, HubOption, StreamOption
from veen.client.bodies import DEFAULT_SCHEMA
from veen.client.client import Client
from veen.core import labels
from veen.core.hashing import U64_MAX
from veen.overlays import registry
from veen.overlays.auditlog import QueryAudit
from veen.overlays.operation_schemas import GRANT, QUERY, REVOKE

app = typer.Typer(
    help="Who has asked for what, what streams hold, and whether rules are kept.",
    invoke_without_command=True,
    no_args_is_help=True,
)

#: Classes of streams with data of people, by the descriptor of an environment (ENV-004).
_SENSITIVE: Final = frozenset({"user", "wallet"})
StreamsOption = Annotated[
    list[str] | None,
    typer.Option("--stream", help="Which stream; may be repeated.  [default: all that the client knows]"),
]


@app.callback()
@reporting
def audit(
    ctx: typer.Context,
    stream: Annotated[str, typer.Option("--stream", help="As veen audit stream --stream.")] = "",
    hub: HubOption = "",
    client: ClientOption = "",
) -> None:
    """Who has asked for what, what streams hold, and whether rules are kept."""
    if ctx.invoked_subcommand is not None:
        if stream or hub or client:
            raise typer.BadParameter(f"give options behind the name: veen audit {ctx.invoked_subcommand} ...")
        return
    if not stream:
        raise CommandError(
            "say which: queries, summary, enforce-check or stream; see: veen audit --help", USAGE
        )
    _show_root(stream, At(hub=hub, client=client).open())


@app.command("stream")
@reporting
def audit_stream(stream: StreamOption, at: At) -> None:
    """Show how far a stream has come: its last entry and the root there, checked."""
    _show_root(stream, at.open())


def _show_root(stream: str, opened: Client) -> None:
    with opened:
        found = opened.resync(stream)
    rows = [
        {
            "stream": stream,
            "epoch": item.epoch,
            "stream_seq": item.last_stream_seq,
            "mmr_root": None if item.last_mmr_root is None else item.last_mmr_root.hex(),
        }
        for item in found
    ]
    last = rows[-1] if rows else {"stream": stream, "epoch": 0, "stream_seq": 0, "mmr_root": None}
    show({"ok": True, **last, "labels": rows} if common.json else last, common.json)


@app.command()
@reporting
def queries(
    stream: StreamOption,
    at: At,
    resource_prefix: Annotated[str, typer.Option(help="Only resources that begin so.")] = "",
    since: Annotated[int, typer.Option(min=0, max=U64_MAX, help="Only from this time on.")] = 0,
    until: Annotated[int | None, typer.Option(min=0, max=U64_MAX, help="Only before this time.")] = None,
) -> None:
    """List who has asked for what, in the order of the log."""
    overlay = QueryAudit()
    with at.open() as opened:
        tables = folded(opened, overlay, stream).tables
    rows = list(overlay.queries(tables, resource_prefix=resource_prefix, since=since, until=until))
    if common.json:
        show({"queries": rows}, as_json=True)
        return
    for row in rows:
        parts = (row["time"], row["requester_identity"], row["resource_class"], row["resource_identifier"])
        typer.echo(plain("  ".join(map(str, (*parts, row.get("purpose_code") or "-")))))
    if not rows:
        note(f"no such query is on record in {stream}")


@app.command()
@reporting
def summary(
    at: At,
    stream: StreamsOption = None,
    sensitive: Annotated[
        list[str] | None, typer.Option(help="Stream whose queries have to be on record; may be repeated.")
    ] = None,
) -> None:
    """Show for each stream the schemas in it, and whether queries and permissions are on record.

    With --env, streams of tenants of class user or wallet are sensitive.
    """
    prefixes = _tenants(common.env) if common.env else {}
    with at.open() as opened:
        names = stream or known_streams(opened)
        rows = [_row(opened, name, prefixes, set(sensitive or ())) for name in names]
    if common.json:
        show({"streams": rows}, as_json=True)
        return
    for row in rows:
        show(row, as_json=False)
        typer.echo("")
    if not rows:
        note("this client has used no stream of the hub: give --stream")


def _tenants(path: str) -> dict[str, str]:
    """Return the class of streams by their prefix, of a descriptor (ENV-004)."""
    try:
        tenants = json.loads(Path(path).read_text(encoding="utf-8"))["tenants"]
        return {str(item["stream_prefix"]): str(item["label_class"]) for item in tenants.values()}
    except OSError as error:
        raise CommandError(f"{path} can not be read: {error.strerror}", USAGE) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandError(f"{path} is not the descriptor of an environment", USAGE) from None


def _row(opened: Client, name: str, prefixes: dict[str, str], sensitive: set[str]) -> dict[str, Any]:
    headers = (message.header for message in opened.stream(name))
    counts = Counter(None if header is None else bytes(header.schema) for header in headers)
    fitting = [prefix for prefix in prefixes if name.startswith(prefix)]
    label_class = prefixes[max(fitting, key=len)] if fitting else None
    marked = name in sensitive or label_class in _SENSITIVE
    audited = QUERY.schema_id in counts
    return {
        "stream": name,
        "entries": counts.total(),
        "sealed_for_others": counts.pop(None, 0),
        "schemas": {_schema_name(schema): counts[schema] for schema in sorted(filter(None, counts))},
        "label_class": label_class,
        "sensitive": marked,
        "query_audit": audited,
        "audit_missing": marked and not audited,
        "access_grant": GRANT.schema_id in counts,
        "access_revoke": REVOKE.schema_id in counts,
    }


def _schema_name(schema: bytes) -> str:
    known = registry.schemas_by_id().get(schema)
    if known is not None:
        return known.name
    return DEFAULT_SCHEMA if schema == labels.schema_id(DEFAULT_SCHEMA) else schema.hex()


@app.command("enforce-check")
@reporting
def enforce_check(policy_file: Annotated[Path, typer.Option(help="The rules, in JSON.")], at: At) -> None:
    """Check rules: that queries are on record, and that recoveries had enough approvals. Exits 4 if not."""
    rules = read_policy(policy_file)
    with at.open() as opened:
        found = [item for rule in rules for item in _check(opened, rule)]
    if not found:
        show({"ok": True, "rules": len(rules), "violations": []}, common.json)
        return
    if not common.json:
        for item in found:
            typer.echo(plain(f"violation: {item['detail']}"))
    refuse(
        {"rules": len(rules), "violations": found} if common.json else {},
        f"{len(found)} violations",
        "E.POLICY",
    )


def _check(opened: Client, rule: Rule) -> list[dict[str, Any]]:
    names = [rule.stream] if rule.stream else known_streams(opened)
    if not names:
        raise CommandError(f"{rule.kind} names no stream, and this client has used none: add a stream", USAGE)
    overlay = rule.overlay()
    return [item for name in names for item in violations_of(rule, folded(opened, overlay, name))]
