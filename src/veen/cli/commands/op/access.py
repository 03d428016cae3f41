"""``veen op access-grant`` and ``access-revoke``: write access, as operations in the log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from veen.cli.client import HubOption, StreamOption, open_client, write_bytes
from veen.cli.commands.op.operation import (
    ParentOption,
    described,
    known_streams,
    make_body,
    stream_ids,
)
from veen.cli.errors import UsageError
from veen.cli.options import ADMIN_HELP, REASON_HELP, hex32, hex32_or_none
from veen.cli.output import command, print_result
from veen.cli.overlay import fold_stream
from veen.cli.settings import common
from veen.client.client import Client
from veen.client.contexts import find_client
from veen.client.operations import grant_access, send_operation
from veen.core.crypto.hash import U64_MAX
from veen.overlays.operations.access import Access
from veen.overlays.operations.schemas import GRANT, REVOKE

SubjectOption = Annotated[
    str,
    typer.Option(
        "--subject-identity", help="Identity of the subject: 64 hex digits, as printed by veen id show."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByAdmin:
    """Options of the hub and its admin (see ``option_groups``)."""

    hub: HubOption = ""
    admin: Annotated[str, typer.Option(help=ADMIN_HELP)] = ""

    def open(self) -> Client:
        """Open the client of the administrator."""
        return open_client(str(find_client(self.admin, key="admin", variable="VEEN_ADMIN")), self.hub)


@command
def access_grant(
    subject_identity: SubjectOption,
    stream: StreamOption,
    expiry_time: Annotated[
        int, typer.Option(min=1, max=U64_MAX, help="Time at which the grant expires, in seconds since 1970.")
    ],
    by: ByAdmin,
    allowed_stream: Annotated[
        list[str] | None,
        typer.Option(help="Stream that the grant allows writing to; may be repeated. Default: --stream."),
    ] = None,
    max_rate_per_second: Annotated[
        int | None, typer.Option(min=0, max=U64_MAX, help="Maximum number of messages per second.")
    ] = None,
    max_burst: Annotated[
        int | None, typer.Option(min=0, max=U64_MAX, help="Maximum number of messages in a burst.")
    ] = None,
    max_amount: Annotated[
        int | None,
        typer.Option(min=0, max=U64_MAX, help="Maximum amount of a payment; applications enforce it."),
    ] = None,
    currency_code: Annotated[str, typer.Option(help="Currency of --max-amount.")] = "",
    subject_label: Annotated[str, typer.Option(help="Display name of the subject.")] = "",
    reason: Annotated[str, typer.Option(help=REASON_HELP)] = "",
    parent_op: ParentOption = "",
    out: Annotated[Path | None, typer.Option(help="File to write the token to, for the subject.")] = None,
) -> None:
    """Grant write access to streams.

    Issues a token, registers it with the hub, and records the grant in the log.
    """
    body = make_body(
        GRANT,
        subject_identity=hex32(subject_identity, "--subject-identity"),
        subject_label=subject_label or None,
        allowed_stream_ids=stream_ids(allowed_stream or [stream]),
        expiry_time=expiry_time,
        maximum_rate_per_second=max_rate_per_second,
        maximum_burst=max_burst,
        maximum_amount=max_amount,
        currency_code=currency_code or None,
        reason=reason or None,
        parent_operation_id=hex32_or_none(parent_op, "--parent-op"),
    )
    with by.open() as opened:
        granted = grant_access(opened, stream, body)
    token = granted.token
    if out is not None:
        write_bytes(out, token.encode())
    fields = {
        **described(GRANT, granted.sent),
        "auth_ref": token.auth_ref.hex(),
        "issued_at": granted.authorized.record.hub_ts,
    }
    print_result({**fields, "cap_token": token.encode().hex()} if common.json else fields, common.json)


@command
def access_revoke(
    subject_identity: SubjectOption,
    by: ByAdmin,
    target_cap_ref: Annotated[
        str,
        typer.Option(
            help="Revoke only this grant: its auth_ref or operation_id. Default: all grants of the subject."
        ),
    ] = "",
    reason: Annotated[str, typer.Option(help=REASON_HELP)] = "",
    parent_op: ParentOption = "",
    stream: Annotated[
        str, typer.Option(help="Stream of the grants. Default: all streams that the admin has used.")
    ] = "",
) -> None:
    """Revoke write access to streams.

    Sends an operation to each stream that has grants of the subject.
    """
    subject = hex32(subject_identity, "--subject-identity")
    target = hex32_or_none(target_cap_ref, "--target-cap-ref")
    body = make_body(
        REVOKE,
        subject_identity=subject,
        target_capability_reference=target,
        reason=reason or None,
        parent_operation_id=hex32_or_none(parent_op, "--parent-op"),
    )
    rows = []
    with by.open() as opened:
        names = [stream] if stream else _with_grants(opened, subject)
        if not names:
            raise UsageError("no stream that this client has used has a grant of the subject; give --stream")
        for name in names:
            sent = send_operation(opened, name, REVOKE, body)
            rows.append({**described(REVOKE, sent), "stream": name})
    if common.json:
        print_result({**rows[0], "operations": rows}, as_json=True)
        return
    for row in rows:
        print_result(row, as_json=False)


def _with_grants(opened: Client, subject: bytes) -> list[str]:
    access = Access()
    return [
        name
        for name in known_streams(opened)
        if access.grants(fold_stream(opened, access, name).tables, subject)
    ]
