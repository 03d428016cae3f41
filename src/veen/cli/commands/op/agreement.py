"""``veen op agreement-define`` and ``agreement-confirm``."""

from pathlib import Path
from typing import Annotated

import typer

from veen.cli.client import read_bytes
from veen.cli.commands.op.operation import (
    MetadataOption,
    OperationOptions,
    ParentOption,
    described,
    json_or_none,
    make_body,
    own_identity,
)
from veen.cli.errors import UsageError
from veen.cli.options import hex32, hex32_or_none
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.core.crypto.hash import U64_MAX, sha256
from veen.overlays.operations.schemas import CONFIRMATION, DEFINITION

AgreementOption = Annotated[str, typer.Option("--agreement-id", help="Id of the agreement: 64 hex digits.")]
VersionOption = Annotated[
    int, typer.Option("--version", min=0, max=U64_MAX, help="Version of the agreement.")
]


@command
def agreement_define(
    at: OperationOptions,
    agreement_id: AgreementOption,
    version: VersionOption,
    party: Annotated[list[str], typer.Option(help="Identity of a party: 64 hex digits; may be repeated.")],
    terms_file: Annotated[
        Path | None, typer.Option(help="File of the terms; the agreement contains its hash.")
    ] = None,
    terms_hash: Annotated[
        str, typer.Option(help="Hash of the terms: 64 hex digits, instead of --terms-file.")
    ] = "",
    terms_attachment_root: Annotated[str, typer.Option(help="Root of attached terms: 64 hex digits.")] = "",
    effective_time: Annotated[
        int | None,
        typer.Option(
            min=0, max=U64_MAX, help="Time from which the version is effective, in seconds since 1970."
        ),
    ] = None,
    expiry_time: Annotated[
        int | None,
        typer.Option(min=0, max=U64_MAX, help="Time at which the version expires, in seconds since 1970."),
    ] = None,
    metadata_json: MetadataOption = "",
) -> None:
    """Define the terms and parties of an agreement."""
    if bool(terms_hash) == (terms_file is not None):
        raise UsageError("give either --terms-file or --terms-hash")
    hashed = hex32(terms_hash, "--terms-hash") if terms_file is None else sha256(read_bytes(terms_file))
    body = make_body(
        DEFINITION,
        agreement_id=hex32(agreement_id, "--agreement-id"),
        version=version,
        terms_hash=hashed,
        terms_attachment_root=hex32_or_none(terms_attachment_root, "--terms-attachment-root"),
        parties=tuple(hex32(text, "--party") for text in party),
        effective_time=effective_time,
        expiry_time=expiry_time,
        metadata=json_or_none(metadata_json, "--metadata-json"),
    )
    at.send_and_show(DEFINITION, body, terms_hash=hashed.hex())


@command
def agreement_confirm(
    at: OperationOptions,
    agreement_id: AgreementOption,
    version: VersionOption,
    party_identity: Annotated[
        str, typer.Option(help="Identity of the party: 64 hex digits. Default: this client's identity.")
    ] = "",
    decision: Annotated[str, typer.Option(help="Decision: accept, reject or withdraw.")] = "accept",
    decision_time: Annotated[
        int | None, typer.Option(min=0, max=U64_MAX, help="Time of the decision, in seconds since 1970.")
    ] = None,
    parent_op: ParentOption = "",
    metadata_json: MetadataOption = "",
) -> None:
    """Accept, reject or withdraw from an agreement."""
    if decision not in ("accept", "reject", "withdraw"):
        raise UsageError(f"--decision takes accept, reject or withdraw, not {decision!r}")
    with at.open() as opened:
        body = make_body(
            CONFIRMATION,
            agreement_id=hex32(agreement_id, "--agreement-id"),
            version=version,
            party_identity=hex32_or_none(party_identity, "--party-identity") or own_identity(opened),
            decision=decision,
            decision_time=decision_time,
            parent_operation_id=hex32_or_none(parent_op, "--parent-op"),
            metadata=json_or_none(metadata_json, "--metadata-json"),
        )
        sent = at.send(opened, CONFIRMATION, body)
    print_result(described(CONFIRMATION, sent), common.json)
