"""``veen wallet``: open wallets, transfer money, and show balances."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from veen.cli.commands.op.operation import json_or_none, make_body
from veen.cli.commands.wallet import approve
from veen.cli.commands.wallet.show import ledger, reconcile_streams, show_wallet
from veen.cli.commands.wallet.wallet_options import (
    AmountOption,
    RefOption,
    WalletEventOptions,
    id_of,
    wallet_named,
)
from veen.cli.errors import FailedError, UsageError
from veen.cli.options import METADATA_OBJECT_HELP, PAYEE_HELP, PAYER_HELP, REASON_HELP, hex32
from veen.cli.output import command
from veen.client.wallets import own_context
from veen.core.crypto.hash import U64_MAX, ZERO_32
from veen.overlays.wallet import schemas as wal
from veen.overlays.wallet.overlay import Wallets

app = typer.Typer(help="Open wallets, transfer money and show balances.", no_args_is_help=True)

ReasonOption = Annotated[str, typer.Option(help=REASON_HELP)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWalletOptions(WalletEventOptions):
    """Options of a new wallet, which is selected by its currency."""

    wallet: str = field(default="", init=False)
    currency: Annotated[str, typer.Option(help="Currency of the wallet, for example EUR.")] = field()


@app.command("open")
@command
def open_wallet(
    whose: NewWalletOptions,
    ctx_id: Annotated[
        str,
        typer.Option(help="Owner of the wallet: 64 hex digits. Default: your identity.", show_default=False),
    ] = "",
) -> None:
    """Open a wallet.

    Its id is derived from its owner, realm and currency.
    """
    with whose.open() as opened:
        ctx = hex32(ctx_id, "--ctx-id") if ctx_id else own_context(opened)
        body = make_body(
            wal.OPEN,
            wallet_id=id_of(whose.realm, ctx, whose.currency),
            realm_id=bytes(whose.realm_id),
            ctx_id=ctx,
            currency=whose.currency,
            created_at=whose.now,
        )
        whose.deliver(opened, whose.state(opened), wal.OPEN, body)


@app.command()
@command
def deposit(amount: AmountOption, whose: WalletEventOptions, ref: RefOption = "") -> None:
    """Deposit money into a wallet."""
    whose.send(wal.DEPOSIT, amount=amount, ref=ref.encode() or None)


@app.command()
@command
def withdraw(
    amount: AmountOption,
    whose: WalletEventOptions,
    ref: Annotated[
        str,
        typer.Option(help="Reference of your own: a second withdrawal with the same reference is not valid."),
    ] = "",
) -> None:
    """Withdraw money from a wallet."""
    whose.send(wal.WITHDRAW, amount=amount, ref=ref.encode() or None)


@app.command()
@command
def adjust(
    delta: Annotated[
        int,
        typer.Option(
            min=-U64_MAX,
            max=U64_MAX,
            help="Amount to add, in the smallest unit of the currency; may be negative.",
        ),
    ],
    reason: Annotated[str, typer.Option(help=REASON_HELP)],
    whose: WalletEventOptions,
    ref: RefOption = "",
) -> None:
    """Correct the balance of a wallet."""
    whose.send(wal.ADJUST, delta=delta, reason=reason, ref=ref.encode() or None)


@app.command()
@command
def limit(
    whose: WalletEventOptions,
    daily_limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=U64_MAX,
            help="Maximum amount to spend per day (UTC), in the smallest unit of the currency.",
        ),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove the limit.")] = False,
) -> None:
    """Set or remove the daily limit of a wallet."""
    if none == (daily_limit is not None):
        raise UsageError("give either --daily-limit N or --none")
    whose.send(wal.LIMIT, daily_limit=daily_limit)


@app.command()
@command
def freeze(whose: WalletEventOptions, reason: ReasonOption = "") -> None:
    """Freeze a wallet.

    No money can leave it until it is unfrozen.
    """
    whose.send(wal.FREEZE, reason=reason or None)


@app.command()
@command
def unfreeze(whose: WalletEventOptions, reason: ReasonOption = "") -> None:
    """Unfreeze a wallet."""
    whose.send(wal.UNFREEZE, reason=reason or None)


@app.command()
@command
def close(whose: WalletEventOptions) -> None:
    """Close a wallet permanently.

    The wallet must be empty, unless --force is given.
    """
    with whose.open() as opened:
        state = whose.state(opened)
        wallet = whose.find(opened, state)
        balance = Wallets().state(state.tables, wallet).balance
        if balance and not whose.force:  # WAL-028
            raise FailedError(
                f"the wallet still holds {balance}, which cannot leave a closed wallet; empty it first, "
                "or use --force",
                "WAL.NOT_EMPTY",
            )
        whose.deliver(opened, state, wal.CLOSE, make_body(wal.CLOSE, wallet_id=wallet, ts=whose.now))


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentOptions(WalletEventOptions):
    """Options of a payment: the wallet that pays, and the recipient."""

    to: Annotated[str, typer.Option(help=PAYEE_HELP)]
    wallet: Annotated[
        str, typer.Option("--from", help=f"{PAYER_HELP} Default: your own.", show_default=False)
    ] = ""
    option: ClassVar[str] = "--from"

    @property
    def target(self) -> bytes:
        """The wallet of the recipient."""
        return wallet_named(self.to, "--to")


@app.command()
@command
def transfer(
    whose: PaymentOptions,
    amount: AmountOption,
    transfer_id: Annotated[
        str,
        typer.Option(
            help="Id of the transfer: 64 hex digits. Default: derived from its position in the log."
        ),
    ] = "",
    metadata_json: Annotated[str, typer.Option(help=METADATA_OBJECT_HELP)] = "",
    approval: Annotated[
        list[Path] | None, typer.Option(help="File written by veen wallet approve; may be repeated.")
    ] = None,
    approver: Annotated[
        list[str] | None,
        typer.Option(help="Identity that must approve: an identity card or 64 hex digits; may be repeated."),
    ] = None,
    threshold: Annotated[
        int | None,
        typer.Option(min=1, help="Number of approvals required. Default: all.", show_default=False),
    ] = None,
) -> None:
    """Transfer money to another wallet.

    A transfer that would not be valid is not sent, unless --force is given.
    """
    target = whose.target
    with whose.open() as opened:
        state = whose.state(opened)
        body = make_body(
            wal.TRANSFER,
            wallet_id=whose.find(opened, state),
            to_wallet_id=target,
            amount=amount,
            ts=whose.now,
            transfer_id=hex32(transfer_id, "--transfer-id") if transfer_id else ZERO_32,
            metadata=_metadata(metadata_json),
        )
        if approver:
            approve.check_approvals(approver, threshold, approval or [], body)
        elif approval or threshold:
            raise UsageError("--approval and --threshold require --approver")
        whose.deliver(opened, state, wal.TRANSFER, body)


def _metadata(text: str) -> Any:  # noqa: ANN401 - JSON
    metadata = json_or_none(text, "--metadata-json")
    if metadata is not None and not isinstance(metadata, dict):
        raise UsageError('--metadata-json takes a JSON object, for example {"memo": "rent"}')
    return metadata


app.command("approve")(approve.approve)
app.command("show")(show_wallet)
app.command("ledger")(ledger)
app.command("reconcile")(reconcile_streams)
