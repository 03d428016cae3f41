"""``veen wallet reconcile``: whether transfers agree, and money adds up, over several streams."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from veen.cli.folding import folded
from veen.cli.operating import refuse
from veen.cli.printing import reporting, show
from veen.cli.settings import common
from veen.cli.using import At
from veen.cli.walleting import reset_rule
from veen.client.client import Client
from veen.client.wallets import MAIN_STREAM, wallets_of
from veen.overlays.overlay import Tables
from veen.overlays.reconciling import Problem, Side, reconcile


@reporting
def reconcile_streams(
    at: At,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Stream of wallets; may be repeated.  [default: {MAIN_STREAM}]", show_default=False
        ),
    ] = None,
) -> None:
    """Compare the streams of wallets: credits that never came, that nobody paid, or that say something else.

    It ends with code 4 if there are any.
    """
    names = list(dict.fromkeys(stream or [MAIN_STREAM]))
    with at.open() as opened:
        found = reconcile([_tables(opened, name) for name in names])
    result: dict[str, Any] = {
        "ok": not found.problems,
        "streams": names,
        "problems": [_problem(item) for item in found.problems],
        "currencies": {
            currency: {**asdict(money), "holds": money.holds}
            for currency, money in sorted(found.currencies.items())
        },
    }
    if found.problems:
        count = len(found.problems)
        detail = f"{count} transfers do not agree, the first is {found.problems[0].transfer_id.hex()}"
        refuse(result, detail, found.problems[0].code)
    show(result, common.json)


def _tables(opened: Client, stream: str) -> Tables:
    """Fold a stream; one that a wallet has to itself, as such."""
    rule = reset_rule()
    state = folded(opened, wallets_of(stream, needs_reset=rule), stream)
    inside = [key for key, _ in state.tables.items("opened") if isinstance(key, bytes)]
    alone = wallets_of(stream, inside, rule)
    return folded(opened, alone, stream).tables if alone.wallets else state.tables


def _problem(item: Problem) -> dict[str, Any]:
    return {
        "code": item.code,
        "transfer_id": item.transfer_id.hex(),
        "debit": _side(item.debit),
        "credit": _side(item.credit),
    }


def _side(side: Side | None) -> dict[str, Any] | None:
    if side is None:
        return None
    epoch, seq, msg_id = side.place
    place = {"epoch": epoch, "stream_seq": seq, "msg_id": msg_id.hex()}
    return {"wallet_id": side.wallet.hex(), "other": side.other.hex(), "amount": side.amount, **place}
