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
from veen.client.wallets import MAIN_STREAM
from veen.overlays.reconciling import Problem, Side, UnderWay, reconcile
from veen.overlays.wallet import Wallets


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

    It ends with code 4 if there are any. A credit that waits in a wallet's own stream, and whose debit is
    among what is compared, is pending, and no problem.
    """
    names = list(dict.fromkeys(stream or [MAIN_STREAM]))
    with at.open() as opened:
        overlay = Wallets(reset_rule())
        found = reconcile([folded(opened, overlay, name).tables for name in names])
    result: dict[str, Any] = {
        "ok": not found.problems,
        "streams": names,
        "problems": [{"code": item.code, **_transfer(item)} for item in found.problems],
        "pending": [_transfer(item) for item in found.pending],
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
    place = {"epoch": epoch, "stream_seq": seq, "msg_id": msg_id.hex()}
    return {"wallet_id": side.wallet.hex(), "other": side.other.hex(), "amount": side.amount, **place}
