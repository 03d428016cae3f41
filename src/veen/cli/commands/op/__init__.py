"""``veen op``: typed operations, validated before they are sent."""

import json
from time import time
from typing import Annotated

import typer

from veen.cli.client import parse_json
from veen.cli.commands.op import access, agreement, data, recovery
from veen.cli.commands.op.operation import (
    OperationOptions,
    ParentOption,
    described,
    from_json,
    json_or_none,
    make_body,
)
from veen.cli.errors import UsageError
from veen.cli.options import AMOUNT_HELP, EXPIRES_HELP, PARENT_HELP, hex32, hex32_or_none
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.core.crypto.hash import U64_MAX
from veen.core.encoding.shape import Fields
from veen.core.types import LeafHash
from veen.overlays import registry
from veen.overlays.operations.paid_ledger import PAID
from veen.overlays.operations.schemas import DELEGATED, SCHEMAS
from veen.overlays.schema import Schema

app = typer.Typer(help="Send operations: payments, grants, agreements and more.", no_args_is_help=True)

_PROFILES = {PAID.name: PAID, **SCHEMAS}


def operation_schema(name: str) -> Schema:
    """Return the schema of an operation profile."""
    if name not in _PROFILES:
        raise UsageError(f"unknown operation {name}; use one of {', '.join(_PROFILES)}")
    return _PROFILES[name]


@app.command()
@command
def send(
    at: OperationOptions,
    schema_name: Annotated[str, typer.Option("--schema-name", help="Name of the schema.")],
    body_json: Annotated[
        str,
        typer.Option(
            "--body-json",
            help="Body, in JSON, with byte strings in hex; @FILE reads a file, @- standard input.",
        ),
    ],
    expires_at: Annotated[int | None, typer.Option(min=0, max=U64_MAX, help=EXPIRES_HELP)] = None,
    parent_id: Annotated[str, typer.Option(help=PARENT_HELP)] = "",
) -> None:
    """Send an operation with a JSON body.

    Unknown, missing or malformed fields are rejected before anything is sent.
    """
    schema = operation_schema(schema_name)
    body = from_json(schema, body_json, "--body-json")
    if schema is DELEGATED:
        _encode_inner(body, parse_json(body_json, "--body-json")["operation_body"])
    parent = LeafHash(hex32(parent_id, "--parent-id")) if parent_id else None
    with at.open() as opened:
        sent = at.send(opened, schema, body, parent_id=parent, expires_at=expires_at)
    print_result(described(schema, sent), common.json)


def _encode_inner(body: Fields, value: object) -> None:
    """Encode the operation inside by its own schema, if that is known here."""
    inner = registry.schemas_by_id().get(body["operation_schema"])
    if inner is not None:
        body["operation_body"] = inner.encode(_inner_from(inner, value))


def _inner_from(inner: Schema, value: object) -> Fields:
    return from_json(inner, json.dumps(value), "the operation body")


@app.command()
@command
def paid(
    at: OperationOptions,
    op_type: Annotated[str, typer.Option("--op-type", help="Type of the operation that is paid for.")],
    payer: Annotated[str, typer.Option(help="Account that pays: 64 hex digits.")],
    payee: Annotated[str, typer.Option(help="Account that is paid: 64 hex digits.")],
    amount: Annotated[int, typer.Option(min=0, max=U64_MAX, help=AMOUNT_HELP)],
    currency_code: Annotated[str, typer.Option(help="Currency, for example EUR.")],
    op_args_json: Annotated[str, typer.Option(help="Arguments of the operation, in JSON.")] = "",
    ttl_seconds: Annotated[
        int | None, typer.Option(min=0, max=U64_MAX, help="Lifetime of the operation in seconds.")
    ] = None,
    op_ref: Annotated[str, typer.Option(help="Reference of your own: 64 hex digits.")] = "",
    parent_op: ParentOption = "",
) -> None:
    """Pay an amount from one account to another."""
    body = make_body(
        PAID,
        operation_type=op_type,
        operation_args=json_or_none(op_args_json, "--op-args-json"),
        payer_account=hex32(payer, "--payer"),
        payee_account=hex32(payee, "--payee"),
        amount=amount,
        currency_code=currency_code,
        operation_reference=hex32_or_none(op_ref, "--op-ref"),
        parent_operation_id=hex32_or_none(parent_op, "--parent-op"),
        ttl_seconds=ttl_seconds,
    )
    # The log has the time of acceptance, not the age of the operation: the header has its end (PAID-012).
    expires_at = None if ttl_seconds is None else min(int(time()) + ttl_seconds, U64_MAX)
    with at.open() as opened:
        sent = at.send(opened, PAID, body, expires_at=expires_at)
    print_result({**described(PAID, sent), "receipt": sent.receipt.to_json()}, common.json)


@app.command()
@command
def delegated(
    at: OperationOptions,
    principal: Annotated[str, typer.Option(help="Identity that the agent acts for: 64 hex digits.")],
    agent: Annotated[str, typer.Option(help="Identity that acts: 64 hex digits.")],
    delegation_cap: Annotated[
        list[str],
        typer.Option(
            help="auth_refs of the delegation chain, the principal's first; comma-separated, or repeated."
        ),
    ],
    operation_schema_id: Annotated[
        str, typer.Option(help="Schema of the operation: a name, or an id (64 hex digits).")
    ],
    operation_body_json: Annotated[str, typer.Option(help="Body of the operation, in JSON.")],
    parent_op: ParentOption = "",
) -> None:
    """Send an operation on behalf of another identity.

    It is authorized by a chain of capability tokens.
    """
    chain = [part for text in delegation_cap for part in text.split(",") if part]
    named = registry.schemas().get(operation_schema_id)
    schema_id = hex32(operation_schema_id, "--operation-schema-id") if named is None else named.schema_id
    inner = named or registry.schemas_by_id().get(schema_id)
    if inner is None:
        raise UsageError("--operation-schema-id does not name a known schema")
    body = make_body(
        DELEGATED,
        principal_identity=hex32(principal, "--principal"),
        agent_identity=hex32(agent, "--agent"),
        delegation_chain=tuple(hex32(text, "--delegation-cap") for text in chain),
        operation_schema=bytes(schema_id),
        operation_body=inner.encode(from_json(inner, operation_body_json, "--operation-body-json")),
        parent_operation_id=hex32_or_none(parent_op, "--parent-op"),
    )
    at.send_and_show(DELEGATED, body)


app.command("access-grant")(access.access_grant)
app.command("access-revoke")(access.access_revoke)
app.command("agreement-define")(agreement.agreement_define)
app.command("agreement-confirm")(agreement.agreement_confirm)
app.command("publish")(data.publish)
app.command("snapshot")(data.snapshot)
app.command("query-audit")(data.query_audit)
app.command("recovery-request")(recovery.recovery_request)
app.command("recovery-approval")(recovery.recovery_approval)
app.command("recovery-execution")(recovery.recovery_execution)
