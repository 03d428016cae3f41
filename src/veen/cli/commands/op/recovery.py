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
from veen.cli.options import hex32, hex32_or_none
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.core.crypto.hash import U64_MAX
from veen.overlays.operations.schemas import RECOVERY_APPROVAL, RECOVERY_EXECUTION, RECOVERY_REQUEST

TargetOption = Annotated[
    str, typer.Option("--target-identity", help="Identity that was lost: 64 hex digits.")
]
RequestedOption = Annotated[
    str, typer.Option("--requested-new-identity", help="Identity to take its place: 64 hex digits.")
]
TimeOption = Annotated[
    int | None, typer.Option("--time", min=0, max=U64_MAX, help="When, in seconds since 1970.")
]


@command
def recovery_request(
    place: OperationOptions,
    target_identity: TargetOption,
    requested_new_identity: RequestedOption,
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    when: TimeOption = None,
    metadata_json: MetadataOption = "",
) -> None:
    """Ask that a new identity takes the place of a lost one."""
    body = make_body(
        RECOVERY_REQUEST,
        target_identity=hex32(target_identity, "--target-identity"),
        requested_new_identity=hex32(requested_new_identity, "--requested-new-identity"),
        reason=reason or None,
        request_time=when,
        metadata=json_or_none(metadata_json, "--metadata-json"),
    )
    place.send_and_show(RECOVERY_REQUEST, body)


@command
def recovery_approval(
    place: OperationOptions,
    target_identity: TargetOption,
    requested_new_identity: RequestedOption,
    approver_identity: Annotated[
        str, typer.Option(help="Which guardian: 64 hex digits.  [default: this client's identity]")
    ] = "",
    policy_group: Annotated[str, typer.Option(help="Group of guardians: 64 hex digits.")] = "",
    decision: Annotated[str, typer.Option(help="approve; anything else is a no.")] = "approve",
    when: TimeOption = None,
    parent_op: ParentOption = "",
    metadata_json: MetadataOption = "",
) -> None:
    """Say as a guardian whether a new identity may take the place of a lost one."""
    with place.open() as opened:
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
        sent = place.send(opened, RECOVERY_APPROVAL, body)
    print_result(described(RECOVERY_APPROVAL, sent), common.json)


@command
def recovery_execution(
    place: OperationOptions,
    target_identity: TargetOption,
    new_identity: Annotated[str, typer.Option(help="Identity that takes its place: 64 hex digits.")],
    approval_ref: Annotated[
        list[str], typer.Option(help="operation_id or msg_id of an approval; may be repeated.")
    ],
    when: TimeOption = None,
    metadata_json: MetadataOption = "",
) -> None:
    """Put a new identity in the place of a lost one, by the approvals of its guardians.

    Whether it counts is decided by whoever folds the stream: see veen recovery timeline.
    """
    body = make_body(
        RECOVERY_EXECUTION,
        target_identity=hex32(target_identity, "--target-identity"),
        new_identity=hex32(new_identity, "--new-identity"),
        applied_time=when,
        approval_references=tuple(hex32(text, "--approval-ref") for text in approval_ref),
        metadata=json_or_none(metadata_json, "--metadata-json"),
    )
    place.send_and_show(RECOVERY_EXECUTION, body)
