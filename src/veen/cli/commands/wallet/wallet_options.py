"""Options of the wallet commands, and sending an event if it is valid."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Annotated, Any, ClassVar, Final

import typer

from veen.cli.client import ClientOptions
from veen.cli.commands.op.operation import CapOption, described, fail_check, make_body, under
from veen.cli.errors import FailedError, UsageError
from veen.cli.options import AMOUNT_HELP, EVENT_TIME_HELP, hex32
from veen.cli.output import print_result
from veen.cli.overlay import fold_stream
from veen.cli.settings import common
from veen.client.client import Client
from veen.client.contexts import load_config
from veen.client.fold.interpret import FoldedState, typed
from veen.client.models import Draft
from veen.client.send import send_draft
from veen.client.wallets import (
    MAIN_STREAM,
    Verdict,
    foresee,
    judged,
    named_by_place,
    own_wallets,
    transfer_of,
)
from veen.core.crypto.hash import U64_MAX, ZERO_32, sha256
from veen.core.encoding.hexadecimal import is_hex32
from veen.core.encoding.shape import Fields
from veen.core.objects import labels
from veen.core.types import RealmId
from veen.overlays.errors import InvalidBodyError
from veen.overlays.schema import Schema
from veen.overlays.wallet.overlay import Wallets
from veen.overlays.wallet.schemas import TRANSFER, wallet_id

WalletStream = Annotated[
    str, typer.Option("--stream", help="Stream of the wallet: a name, or an id (64 hex digits).")
]
WalletOption = Annotated[
    str,
    typer.Option("--wallet", help="Wallet: 64 hex digits. Default: your own.", show_default=False),
]
CurrencyOption = Annotated[
    str, typer.Option(help="Currency of your own wallet, if you have several, for example EUR.")
]
RealmOption = Annotated[
    str, typer.Option(help="Realm of your own wallets: a name, or an id (64 hex digits).")
]
TsOption = Annotated[
    int | None,
    typer.Option("--ts", min=0, max=U64_MAX, help=EVENT_TIME_HELP),
]
ForceFlag = Annotated[bool, typer.Option("--force", help="Send the event even if it would not be valid.")]
AmountOption = Annotated[int, typer.Option(min=0, max=U64_MAX, help=AMOUNT_HELP)]
RefOption = Annotated[str, typer.Option(help="Reference of your own, stored in the event.")]

_NAMED: Final = "name:"


def wallet_named(text: str, option: str) -> bytes:
    """Parse a wallet: its id, or name:X for the hash of X (CLI-117)."""
    if text.startswith(_NAMED):
        return sha256(text[len(_NAMED) :].encode())
    if not is_hex32(text):
        raise UsageError(
            f"{option} takes the id of a wallet (64 hex digits) or {_NAMED}X, not {text!r}",
        )
    return hex32(text, option)


def id_of(realm: str, ctx: bytes, currency: str) -> bytes:
    """Return the id of a wallet."""
    try:
        return wallet_id(labels.realm_id(realm), ctx, currency)
    except InvalidBodyError as error:
        raise UsageError(str(error), error.code) from None


def reset_rule() -> str:
    """Return the configured rule for the reset of daily limits (WAL-041)."""
    rule = load_config().get("wallet_needs_reset", "neq")
    if rule not in ("neq", "gt"):
        raise UsageError(
            "the setting wallet_needs_reset must be neq or gt; set it with: veen config set "
            "wallet_needs_reset VALUE"
        )
    return rule


def now_or(ts: int | None) -> int:
    """Return the given time, or the current time."""
    return int(time()) if ts is None else ts


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletSelection:
    """Options that select a wallet (see ``option_groups``)."""

    wallet: WalletOption = ""
    currency: CurrencyOption = ""
    realm: RealmOption = labels.DEFAULT_REALM
    stream: WalletStream = MAIN_STREAM
    at: ClientOptions
    # The option that names the wallet, for error texts.
    option: ClassVar[str] = "--wallet"

    def open(self) -> Client:
        """Open the client."""
        return self.at.open()

    def state(self, opened: Client, upto: int | None = None) -> FoldedState:
        """Fold the stream."""
        return fold_stream(opened, Wallets(reset_rule()), self.stream, upto)

    @property
    def realm_id(self) -> RealmId:
        """The realm of the client's own wallets."""
        return labels.realm_id(self.realm)

    def find(self, opened: Client, state: FoldedState) -> bytes:
        """Return the selected wallet: the given one, or the client's own in this stream."""
        if self.wallet:
            return wallet_named(self.wallet, self.option)
        if self.currency:
            return id_of(self.realm, bytes(opened.session.secrets.identity.public_key), self.currency)
        mine = own_wallets(opened, state.tables, self.realm_id)
        if len(mine) == 1:
            return next(iter(mine))
        if mine:
            currencies = ", ".join(sorted(mine.values()))
            raise UsageError(
                f"you have several wallets in this stream; choose one with --currency: {currencies}"
            )
        raise FailedError(
            f"you have no wallet of realm {self.realm} in {self.stream}; open one with: "
            f"veen wallet open --currency EUR, or select one with {self.option} or --realm",
            "WAL.NOT_FOUND",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletEventOptions(WalletSelection):
    """Options of an event of a wallet (see ``option_groups``)."""

    ts: TsOption = None
    cap: CapOption = None
    force: ForceFlag = False

    @property
    def now(self) -> int:
        """The time of the event."""
        return now_or(self.ts)

    def send(self, schema: Schema, **values: Any) -> None:  # noqa: ANN401 - of its fields
        """Send an event of the wallet if it would be valid, and print the outcome."""
        with self.open() as opened:
            state = self.state(opened)
            body = make_body(schema, wallet_id=self.find(opened, state), ts=self.now, **values)
            self.deliver(opened, state, schema, body)

    def deliver(self, opened: Client, state: FoldedState, schema: Schema, body: Fields) -> None:
        """Send an event if it would be valid, and print the outcome."""
        wrong = [verdict for verdict in foresee(state, schema, body) if not verdict.counts]
        if wrong and not self.force:
            raise FailedError(
                f"{wrong[0].detail}; it was not sent; use --force to send it anyway", wrong[0].code
            )
        sent = send_draft(opened, self.stream, _draft(schema, body), under(self.cap))
        verdicts = judged(opened, _wallets(state), self.stream, sent)
        result: dict[str, Any] = {**described(schema, sent), "wallet_id": body["wallet_id"].hex()}
        if schema is TRANSFER:
            own = body["transfer_id"]
            result["transfer_id"] = (transfer_of(sent) if own == ZERO_32 else own).hex()
            result["to_wallet_id"] = body["to_wallet_id"].hex()
        result |= {"applied": all(verdict.counts for verdict in verdicts), "verdict": _words(verdicts)}
        if not result["applied"] and not self.force:  # another event was faster
            fail_check({**result, "ok": False}, verdicts[0].detail, verdicts[0].code)
        print_result(result, common.json)


def _draft(schema: Schema, body: Fields) -> Draft:
    unnamed = schema is TRANSFER and body["transfer_id"] == ZERO_32
    return named_by_place(body) if unnamed else typed(schema, body)


def _wallets(state: FoldedState) -> Wallets:
    assert isinstance(state.overlay, Wallets)
    return state.overlay


def _words(verdicts: Sequence[Verdict]) -> str:
    return ", ".join(dict.fromkeys(verdict.code for verdict in verdicts)) or "applied"
