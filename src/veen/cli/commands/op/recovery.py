"""``veen op recovery-request``, ``recovery-approval`` and ``recovery-execution``."""

from typing import Annotated

import typer

from veen.cli.commands.op.operation import (
    MetadataOption,
    OperationOptions,
    ParentOption,
    described,
    json_or_none,
    make_body,
    own_identity,
)
from veen.cli.options import NEW_IDENTITY_HELP, REASON_HELP, hex32, hex32_or_none
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.core.crypto.hash import U64_MAX
from veen.overlays.operations.schemas import RECOVERY_APPROVAL, RECOVERY_EXECUTION, RECOVERY_REQUEST

TargetOption = Annotated[str, typer.Option("--target-identity", help="Lost identity: 64 hex digits.")]
RequestedOption = Annotated[str, typer.Option("--requested-new-identity", help=NEW_IDENTITY_HELP)]
TimeOption = Annotated[
    int | None, typer.Option("--time", min=0, max=U64_MAX, help="Time of the event, in seconds since 1970.")
]


@command
def recovery_request(
    at: OperationOptions,
    target_identity: TargetOption,
    requested_new_identity: RequestedOption,
    reason: Annotated[str, typer.Option(help=REASON_HELP)] = "",
    when: TimeOption = None,
    metadata_json: MetadataOption = "",
) -> None:
    """Request the replacement of a lost identity."""
    body = make_body(
        RECOVERY_REQUEST,
        target_identity=hex32(target_identity, "--target-identity"),
        requested_new_identity=hex32(requested_new_identity, "--requested-new-identity"),
        reason=reason or None,
        request_time=when,
        metadata=json_or_none(metadata_json, "--metadata-json"),
    )
    at.send_and_show(RECOVERY_REQUEST, body)


@command
def recovery_approval(
    at: OperationOptions,
    target_identity: TargetOption,
    requested_new_identity: RequestedOption,
    approver_identity: Annotated[
        str, typer.Option(help="Identity of the guardian: 64 hex digits. Default: this client's identity.")
    ] = "",
    policy_group: Annotated[str, typer.Option(help="Id of a group of guardians: 64 hex digits.")] = "",
    decision: Annotated[
        str, typer.Option(help="Decision: approve. Any other value is a rejection.")
    ] = "approve",
    when: TimeOption = None,
    parent_op: ParentOption = "",
    metadata_json: MetadataOption = "",
) -> None:
    """Approve or reject a recovery, as a guardian."""
    with at.open() as opened:
        body = make_body(
            RECOVERY_APPROVAL,
            target_identity=hex32(target_identity, "--target-identity"),
            requested_new_identity=hex32(requested_new_identity, "--requested-new-identity"),
            approver_identity=hex32_or_none(approver_identity, "--approver-identity") or own_identity(opened),
            policy_group_id=hex32_or_none(policy_group, "--policy-group"),
            decision=decision,
            decision_time=when,
            parent_operation_id=hex32_or_none(parent_op, "--parent-op"),
            metadata=json_or_none(metadata_json, "--metadata-json"),
        )
        sent = at.send(opened, RECOVERY_APPROVAL, body)
    print_result(described(RECOVERY_APPROVAL, sent), common.json)


@command
def recovery_execution(
    at: OperationOptions,
    target_identity: TargetOption,
    new_identity: Annotated[str, typer.Option(help=NEW_IDENTITY_HELP)],
    approval_ref: Annotated[
        list[str], typer.Option(help="operation_id or msg_id of an approval; may be repeated.")
    ],
    when: TimeOption = None,
    metadata_json: MetadataOption = "",
) -> None:
    """Replace a lost identity, with approvals of guardians.

    Readers of the stream decide whether the approvals suffice: see veen recovery timeline.
    """
    body = make_body(
        RECOVERY_EXECUTION,
        target_identity=hex32(target_identity, "--target-identity"),
        new_identity=hex32(new_identity, "--new-identity"),
        applied_time=when,
        approval_references=tuple(hex32(text, "--approval-ref") for text in approval_ref),
        metadata=json_or_none(metadata_json, "--metadata-json"),
    )
    at.send_and_show(RECOVERY_EXECUTION, body)
