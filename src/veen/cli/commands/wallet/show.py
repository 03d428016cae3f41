"""``veen wallet show``, ``ledger`` and ``reconcile``: balances, and whether transfers match."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from veen.cli.client import ClientOptions, StreamOption
from veen.cli.commands.op.operation import Guardians, fail_check
from veen.cli.commands.wallet.wallet_options import WalletSelection, reset_rule
from veen.cli.errors import FailedError, UsageError
from veen.cli.options import UPTO_HELP, hex32, hex32_or_none
from veen.cli.output import command, print_result
from veen.cli.overlay import fold_stream
from veen.cli.settings import common
from veen.client.fold.interpret import FoldedState
from veen.client.wallets import MAIN_STREAM
from veen.core.crypto.hash import U64_MAX
from veen.overlays.operations.paid_ledger import PaidLedger
from veen.overlays.operations.recovery import remap
from veen.overlays.wallet.overlay import Wallets
from veen.overlays.wallet.reconcile import Problem, Side, UnderWay, reconcile
from veen.stdx.grammar import by_count, counted


@command
def reconcile_streams(
    at: ClientOptions,
    stream: Annotated[
        list[str] | None,
        typer.Option(help=f"Stream of wallets; may be repeated. Default: {MAIN_STREAM}.", show_default=False),
    ] = None,
) -> None:
    """Compare the debits and credits of wallet streams.

    Reports debits without a credit, credits without a debit, and pairs that differ; exits 4 if there are any.
    A transfer is pending, which is not an error, if its debit is in one of the streams and its credit waits
    in the stream of the recipient.
    """
    names = list(dict.fromkeys(stream or [MAIN_STREAM]))
    with at.open() as opened:
        overlay = Wallets(reset_rule())
        reconciliation = reconcile([fold_stream(opened, overlay, name).tables for name in names])
    result: dict[str, Any] = {
        "ok": not reconciliation.problems,
        "streams": names,
        "problems": [{"code": item.code, **_transfer(item)} for item in reconciliation.problems],
        "pending": [_transfer(item) for item in reconciliation.pending],
        "currencies": {
            currency: {**asdict(money), "holds": money.holds}
            for currency, money in sorted(reconciliation.currencies.items())
        },
    }
    if reconciliation.problems:
        count = len(reconciliation.problems)
        detail = (
            f"{counted(count, 'transfer')} {by_count(count, 'does', 'do')} not match; "
            f"the first is {reconciliation.problems[0].transfer_id.hex()}"
        )
        fail_check(result, detail, reconciliation.problems[0].code)
    print_result(result, common.json)


def _transfer(item: Problem | UnderWay) -> dict[str, Any]:
    return {
        "transfer_id": item.transfer_id.hex(),
        "debit": _side(item.debit),
        "credit": _side(item.credit),
    }


def _side(side: Side | None) -> dict[str, Any] | None:
    if side is None:
        return None
    epoch, seq, msg_id = side.place
    position = {"epoch": epoch, "stream_seq": seq, "msg_id": msg_id.hex()}
    return {"wallet_id": side.wallet.hex(), "other": side.other.hex(), "amount": side.amount, **position}


@command
def show_wallet(
    which: WalletSelection,
    everything: Annotated[bool, typer.Option("--all", help="Show all wallets of the stream.")] = False,
    violations: Annotated[
        bool, typer.Option("--violations", help="Also list invalid events, with the reasons.")
    ] = False,
    upto: Annotated[
        int | None,
        typer.Option("--upto-stream-seq", min=1, max=U64_MAX, help=UPTO_HELP),
    ] = None,
) -> None:
    """Show the balance and the state of a wallet."""
    with which.open() as opened:
        state = which.state(opened, upto)
        fields: dict[str, Any] = {"ok": True, "stream": which.stream, "upto": _upto(state)}
        if everything:
            fields["wallets"] = state.view()
        else:
            key = which.find(opened, state)
            view = state[key]
            if not isinstance(view, dict):
                raise FailedError(f"{which.stream} does not contain wallet {key.hex()}", "WAL.NOT_FOUND")
            fields |= {"wallet_id": key.hex(), **view}
        if violations:
            fields["violations"] = _reports(state)
    print_result(fields, common.json)


def _upto(state: FoldedState) -> int:
    return state.reached[-1].upto_seq if state.reached else 0


def _reports(state: FoldedState, prefix: str = "WAL.") -> list[dict[str, Any]]:
    return [
        {
            "stream_seq": report.stream_seq,
            "epoch": report.epoch,
            "msg_id": report.canonical_id.hex(),
            "code": report.code,
            "detail": report.detail,
        }
        for report in state.reports
        if report.code.startswith(prefix)
    ]


@command
def ledger(
    stream: StreamOption,
    guardians: Guardians,
    at: ClientOptions,
    since: Annotated[
        int, typer.Option("--since-stream-seq", min=1, max=U64_MAX, help="First entry to include.")
    ] = 1,
    upto: Annotated[int | None, typer.Option("--upto-stream-seq", min=1, max=U64_MAX, help=UPTO_HELP)] = None,
    account: Annotated[str, typer.Option(help="Show only this account: 64 hex digits.")] = "",
    currency_code: Annotated[str, typer.Option(help="Show only this currency, for example EUR.")] = "",
    default_currency: Annotated[
        str, typer.Option(help="Currency of operations without one. Default: such operations are ignored.")
    ] = "",
    forbid_negative: Annotated[
        bool, typer.Option("--forbid-negative", help="Reject and list operations that overdraw the payer.")
    ] = False,
    issuer: Annotated[
        list[str] | None,
        typer.Option(
            help="Account that may be overdrawn, because it issues money: 64 hex digits; may be repeated."
        ),
    ] = None,
    identity_remap: Annotated[
        str,
        typer.Option(help="Stream of recoveries: each new identity takes over the accounts of the lost one."),
    ] = "",
) -> None:
    """Show account balances from paid operations.

    Balances may be negative, unless --forbid-negative is given.
    """
    if upto is not None and upto < since:
        raise UsageError("--upto-stream-seq must not be less than --since-stream-seq")
    only = hex32_or_none(account, "--account")
    with at.open() as opened:
        become = {}
        if identity_remap:
            become = remap(fold_stream(opened, guardians.recoveries(), identity_remap).tables)
        elif guardians.given:
            raise UsageError("--guardian and --threshold require --identity-remap")
        issuers = frozenset(hex32(text, "--issuer") for text in issuer or ())
        overlay = PaidLedger(default_currency or None, forbid_negative, issuers, become)
        state = fold_stream(opened, overlay, stream, upto, since=since if since > 1 else None)
        balances = overlay.balances(state.tables)
    if only is not None:
        only = overlay.account(only)
        balances = {code: {only: accounts[only]} for code, accounts in balances.items() if only in accounts}
    by_currency = {
        code: {key.hex(): value for key, value in sorted(accounts.items())}
        for code, accounts in balances.items()
    }
    fields: dict[str, Any] = {
        "ok": True,
        "stream": stream,
        "from": since,
        "upto": _upto(state),
        "balances": _chosen(by_currency, currency_code),
    }
    if len(by_currency) > 1:
        fields["balances_by_currency"] = by_currency
    if forbid_negative:
        fields["rejected"] = _reports(state, "OP.NEGATIVE_BALANCE")
    print_result(fields, common.json)


def _chosen(balances: dict[str, dict[str, int]], currency_code: str) -> dict[str, int]:
    """Return the balances of the only currency, or of the given one (CLI-115)."""
    if currency_code:
        return balances.get(currency_code, {})
    if len(balances) > 1:
        raise UsageError(
            f"the ledger has several currencies; choose one with --currency-code: {', '.join(balances)}"
        )
    return next(iter(balances.values()), {})
