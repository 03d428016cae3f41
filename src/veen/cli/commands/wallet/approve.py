"""``veen wallet approve``: approvals of a transfer before it is sent (WAL-064, WAL-065).

Approvals are not in the log: the sender of the transfer checks the policy, and sends one event.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from veen.cli.client import ClientOption, load_secrets, read_bytes, read_card, write_bytes
from veen.cli.commands.wallet.wallet_options import AmountOption, TsOption, now_or, wallet_named
from veen.cli.errors import FailedError, UsageError
from veen.cli.options import PAYEE_HELP, PAYER_HELP, hex32
from veen.cli.output import command, print_result
from veen.cli.settings import common
from veen.client.contexts import find_client
from veen.core.crypto.hash import HASH_BYTES, ZERO_32
from veen.core.encoding.hexadecimal import is_hex32
from veen.core.encoding.shape import Fields
from veen.core.types import Signature, VerifyKey
from veen.overlays.wallet.schemas import ApprovalPolicy, approval_hash
from veen.stdx.grammar import counted


@command
def approve(
    from_wallet: Annotated[str, typer.Option("--from", help=PAYER_HELP)],
    to: Annotated[str, typer.Option("--to", help=PAYEE_HELP)],
    amount: AmountOption,
    out: Annotated[Path, typer.Option(help="File to write the approval to.")],
    ts: TsOption = None,
    transfer_id: Annotated[
        str, typer.Option(help="Id of the transfer: 64 hex digits. Default: a new one.")
    ] = "",
    client: ClientOption = "",
) -> None:
    """Approve a transfer with your identity.

    Writes a file, and sends nothing. All approvals must be for the same transfer: pass --ts and
    --transfer-id, as printed by the first approval, to the others.
    """
    _, secrets, _ = load_secrets(Path(find_client(client)))
    when = now_or(ts)
    name = hex32(transfer_id, "--transfer-id") if transfer_id else os.urandom(HASH_BYTES)
    digest = approval_hash(wallet_named(from_wallet, "--from"), wallet_named(to, "--to"), amount, when, name)
    fields: dict[str, Any] = {
        "approver": secrets.identity.public_key.hex(),
        "approval_hash": digest.hex(),
        "sig": secrets.identity.sign(digest).hex(),
    }
    write_bytes(out, json.dumps(fields).encode() + b"\n")
    print_result({"ok": True, "transfer_id": name.hex(), "ts": when, **fields, "out": str(out)}, common.json)


def check_approvals(approvers: list[str], threshold: int | None, approvals: list[Path], body: Fields) -> None:
    """Reject a transfer without enough approvals."""
    if body["transfer_id"] == ZERO_32:
        raise UsageError("an approved transfer requires the --transfer-id and --ts of its approvals")
    policy = _policy(approvers, threshold)
    digest = approval_hash(
        body["wallet_id"], body["to_wallet_id"], body["amount"], body["ts"], body["transfer_id"]
    )
    good = policy.approvers(digest, map(_approval, approvals))
    if len(good) < policy.threshold:
        raise FailedError(
            f"the transfer has {counted(len(good), 'valid approval')}, but requires {policy.threshold}",
            "WAL.UNAUTHORIZED_OPERATION",
        )


def _policy(approvers: list[str], threshold: int | None) -> ApprovalPolicy:
    keys = frozenset(_approver(text) for text in approvers)
    try:
        return ApprovalPolicy(len(keys) if threshold is None else threshold, keys)
    except ValueError as error:
        raise UsageError(f"--threshold: {error}") from None


def _approver(text: str) -> VerifyKey:
    return VerifyKey(hex32(text, "--approver")) if is_hex32(text) else read_card(text).id_sign


def _approval(path: Path) -> tuple[VerifyKey, Signature]:
    try:
        document = json.loads(read_bytes(path))
        return VerifyKey(bytes.fromhex(document["approver"])), Signature(bytes.fromhex(document["sig"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        raise UsageError(f"{path} is not an approval; create one with: veen wallet approve") from None
