"""``veen audit``: recorded queries, contents of streams, and audit policies (CLI-126)."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from veen.cli.client import ClientOption, ClientOptions, HubOption, StreamOption, parse_json
from veen.cli.commands.op.operation import fail_check, known_streams
from veen.cli.errors import UsageError
from veen.cli.output import command, plain, print_result, warn
from veen.cli.overlay import fold_stream
from veen.cli.settings import common
from veen.client.body import DEFAULT_SCHEMA
from veen.client.client import Client
from veen.client.fold.interpret import FoldedState
from veen.core.crypto.hash import U64_MAX
from veen.core.objects import labels
from veen.overlays import registry
from veen.overlays.event import Outcome
from veen.overlays.operations.query_audit import QueryAudit
from veen.overlays.operations.recovery import Recoveries
from veen.overlays.operations.schemas import GRANT, QUERY, REVOKE
from veen.overlays.overlay import Overlay
from veen.stdx.grammar import counted

_AUDIT: Final = "require_audit"
_RECOVERY: Final = "require_recovery_threshold"
# The required and the optional fields of each type of rule.
_FIELDS: Final = {
    _AUDIT: ({"stream", "resource_class"}, set[str]()),
    _RECOVERY: ({"target_identity_prefix", "min_approvals"}, {"stream"}),
}
_PREFIX: Final = re.compile(r"[0-9a-f]{0,64}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of an audit policy."""

    kind: str
    # The stream that it applies to; empty: all.
    stream: str
    resource_class: str = ""
    target_identity_prefix: str = ""
    min_approvals: int = 0

    def overlay(self) -> Overlay:
        """Return the overlay that shows whether the rule is met."""
        return QueryAudit() if self.kind == _AUDIT else Recoveries()


def read_policy(path: Path) -> list[Rule]:
    """Read a policy; unknown fields are rejected, so that no rule is silently skipped."""
    policy = parse_json(f"@{path}", "--policy-file")
    if not isinstance(policy, dict) or set(policy) != {"version", "rules"}:
        raise UsageError(f"{path} is not a policy: it must have the fields version and rules")
    if policy["version"] != 1 or isinstance(policy["version"], bool):
        raise UsageError(f"{path} has version {policy['version']}; only version 1 is supported")
    if not isinstance(policy["rules"], list):
        raise UsageError(f"{path} is not a policy: rules must be a list")
    return [_rule(number, item) for number, item in enumerate(policy["rules"], start=1)]


def _rule(number: int, item: Any) -> Rule:  # noqa: ANN401 - JSON
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise UsageError(f"rule {number} has the unknown type {kind!r}; use one of {', '.join(_FIELDS)}")
    needed, more = _FIELDS[kind]
    names = set(item) - {"type"}
    if not needed <= names <= needed | more:
        raise UsageError(
            f"rule {number} has the fields {', '.join(sorted(names))}; "
            f"it requires {', '.join(sorted(needed))}"
        )
    min_approvals = item.get("min_approvals", 0)
    texts = [item[name] for name in names if name != "min_approvals"]
    if (
        not isinstance(min_approvals, int)
        or min_approvals < 0
        or not all(isinstance(text, str) for text in texts)
    ):
        raise UsageError(f"rule {number} has a value of the wrong type")
    if not _PREFIX.fullmatch(item.get("target_identity_prefix", "")):
        raise UsageError(f"rule {number}: target_identity_prefix must be lowercase hex")
    return Rule(kind, item.get("stream", ""), **{name: item[name] for name in names if name != "stream"})


def violations_of(rule: Rule, state: FoldedState) -> list[dict[str, Any]]:
    """Return the violations of a rule in a stream."""
    stream, tables = state.stream, state.tables
    common_fields = {"rule": rule.kind, "stream": stream}
    if rule.kind == _AUDIT:
        if tables.get("classes", rule.resource_class) is not None:
            return []
        text = f"{stream} has no query.audit.v1 record of class {rule.resource_class}"
        sealed = state.counts.get(Outcome.UNREADABLE.value, 0)
        text += f"; {counted(sealed, 'entry')} sealed to other readers" if sealed else ""
        return [{**common_fields, "resource_class": rule.resource_class, "detail": text}]
    overlay = Recoveries()
    broken = []
    for target in overlay.targets(tables):
        if not target.hex().startswith(rule.target_identity_prefix):
            continue
        for row, count in overlay.executions(tables, target):
            if count < rule.min_approvals:
                text = (
                    f"execution {row['msg_id']} in {stream} had {counted(count, 'approval')}, "
                    f"but requires {rule.min_approvals}"
                )
                broken.append(
                    {
                        **common_fields,
                        "target_identity": target.hex(),
                        "msg_id": row["msg_id"],
                        "stream_seq": row["stream_seq"],
                        "approvals": count,
                        "detail": text,
                    }
                )
    return broken


app = typer.Typer(
    help="Audit queries, streams and policies.",
    invoke_without_command=True,
    no_args_is_help=True,
)

# Classes of streams with personal data, in environment descriptors (ENV-004).
_SENSITIVE: Final = frozenset({"user", "wallet"})
StreamsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--stream", help="Stream to include; may be repeated. Default: all streams that the client has used."
    ),
]


@app.callback()
@command
def audit(
    ctx: typer.Context,
    stream: Annotated[str, typer.Option("--stream", help="Stream to show, like 'veen audit stream'.")] = "",
    hub: HubOption = "",
    client: ClientOption = "",
) -> None:
    """Audit queries, streams and policies."""
    if ctx.invoked_subcommand is not None:
        if stream or hub or client:
            raise typer.BadParameter(
                f"give options after the subcommand: veen audit {ctx.invoked_subcommand} ..."
            )
        return
    if not stream:
        raise UsageError("a subcommand is missing; see: veen audit --help")
    _show_root(stream, ClientOptions(hub=hub, client=client).open())


@app.command("stream")
@command
def audit_stream(stream: StreamOption, at: ClientOptions) -> None:
    """Show the last entry of a stream, and its verified root."""
    _show_root(stream, at.open())


def _show_root(stream: str, opened: Client) -> None:
    with opened:
        heads = opened.resync(stream)
    rows = [
        {
            "stream": stream,
            "epoch": item.epoch,
            "stream_seq": item.last_stream_seq,
            "mmr_root": None if item.last_mmr_root is None else item.last_mmr_root.hex(),
        }
        for item in heads
    ]
    last = rows[-1] if rows else {"stream": stream, "epoch": 0, "stream_seq": 0, "mmr_root": None}
    print_result({"ok": True, **last, "labels": rows} if common.json else last, common.json)


@app.command()
@command
def queries(
    stream: StreamOption,
    at: ClientOptions,
    resource_prefix: Annotated[str, typer.Option(help="List only resources with this prefix.")] = "",
    since: Annotated[
        int,
        typer.Option(min=0, max=U64_MAX, help="List only queries from this time on, in seconds since 1970."),
    ] = 0,
    until: Annotated[
        int | None,
        typer.Option(min=0, max=U64_MAX, help="List only queries before this time, in seconds since 1970."),
    ] = None,
) -> None:
    """List recorded queries, in log order."""
    overlay = QueryAudit()
    with at.open() as opened:
        tables = fold_stream(opened, overlay, stream).tables
    rows = list(overlay.queries(tables, resource_prefix=resource_prefix, since=since, until=until))
    if common.json:
        print_result({"queries": rows}, as_json=True)
        return
    for row in rows:
        parts = (row["time"], row["requester_identity"], row["resource_class"], row["resource_identifier"])
        typer.echo(plain("  ".join(map(str, (*parts, row.get("purpose_code") or "-")))))
    if not rows:
        warn(f"no matching query is recorded in {stream}")


@app.command()
@command
def summary(
    at: ClientOptions,
    stream: StreamsOption = None,
    sensitive: Annotated[
        list[str] | None, typer.Option(help="Stream whose queries must be recorded; may be repeated.")
    ] = None,
) -> None:
    """Show schemas, recorded queries and grants of streams.

    With --env, streams of tenants of class user or wallet count as sensitive.
    """
    prefixes = _tenants(common.env) if common.env else {}
    with at.open() as opened:
        names = stream or known_streams(opened)
        rows = [_row(opened, name, prefixes, set(sensitive or ())) for name in names]
    if common.json:
        print_result({"streams": rows}, as_json=True)
        return
    for row in rows:
        print_result(row, as_json=False)
        typer.echo("")
    if not rows:
        warn("this client has not used any stream of the hub; give --stream")


def _tenants(path: str) -> dict[str, str]:
    """Read the class of each stream prefix from an environment descriptor (ENV-004)."""
    try:
        tenants = json.loads(Path(path).read_text(encoding="utf-8"))["tenants"]
        return {str(item["stream_prefix"]): str(item["label_class"]) for item in tenants.values()}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{path} is not an environment descriptor") from None


def _row(opened: Client, name: str, prefixes: dict[str, str], sensitive: set[str]) -> dict[str, Any]:
    headers = (message.header for message in opened.read(name))
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
@command
def enforce_check(
    policy_file: Annotated[Path, typer.Option(help="File of the policy (JSON).")], at: ClientOptions
) -> None:
    """Check streams against an audit policy.

    Its rules require that queries are recorded, and that recoveries had enough approvals. Exits 4 if a rule
    is violated.
    """
    rules = read_policy(policy_file)
    with at.open() as opened:
        violations = [item for rule in rules for item in _check(opened, rule)]
    if not violations:
        print_result({"ok": True, "rules": len(rules), "violations": []}, common.json)
        return
    if not common.json:
        for item in violations:
            typer.echo(plain(f"violation: {item['detail']}"))
    fail_check(
        {"rules": len(rules), "violations": violations} if common.json else {},
        counted(len(violations), "violation"),
        "E.POLICY",
    )


def _check(opened: Client, rule: Rule) -> list[dict[str, Any]]:
    names = [rule.stream] if rule.stream else known_streams(opened)
    if not names:
        raise UsageError(
            f"rule {rule.kind} does not name a stream, and this client has not used any; add a "
            "stream to the rule"
        )
    overlay = rule.overlay()
    return [item for name in names for item in violations_of(rule, fold_stream(opened, overlay, name))]
