"""``veen wallet``: open wallets, move money between them, and see what they hold."""

from pathlib import Path
from typing import Annotated, Any

import typer

from veen.cli.errors import REFUSED, USAGE, CommandError
from veen.cli.operating import CapOption, Place, json_or_none, made
from veen.cli.printing import reporting
from veen.cli.using import ClientOption, HubIdOption, HubOption, TrustFlag, hex32
from veen.cli.wallet_approving import approve, check_approvals
from veen.cli.wallet_reconciling import reconcile_streams
from veen.cli.wallet_showing import ledger, show_wallet
from veen.cli.walleting import (
    AmountOption,
    CurrencyOption,
    ForceFlag,
    RealmOption,
    RefOption,
    TsOption,
    WalletOption,
    WalletStream,
    Whose,
    id_of,
    now_or,
    wallet_named,
)
from veen.client.wallets import MAIN_STREAM, own_context
from veen.core import labels
from veen.core.hashing import U64_MAX, ZERO_32
from veen.overlays import wallet_schemas as wal
from veen.overlays.schema import Schema

app = typer.Typer(help="Wallets: open them, move money, and see what they hold.", no_args_is_help=True)

ReasonOption = Annotated[str, typer.Option(help="Why, for whoever reads it.")]


@app.command("open")
@reporting
def open_wallet(
    currency: Annotated[str, typer.Option(help="Currency of the wallet, as EUR.")],
    ctx_id: Annotated[
        str, typer.Option(help="Whose wallet: 64 hex digits.  [default: your identity]", show_default=False)
    ] = "",
    realm: RealmOption = labels.DEFAULT_REALM,
    stream: WalletStream = MAIN_STREAM,
    ts: TsOption = None,
    hub: HubOption = "",
    client: ClientOption = "",
    cap: CapOption = None,
    force: ForceFlag = False,
    trust_first_use: TrustFlag = False,
    hub_id: HubIdOption = "",
) -> None:
    """Open a wallet: its id is that of its owner, realm and currency, so that everybody can find it."""
    whose = Whose(Place(stream, hub, client, trust_first_use, hub_id, cap), "", currency, realm, force)
    with whose.place.open() as opened:
        ctx = hex32(ctx_id, "--ctx-id") if ctx_id else own_context(opened)
        body = made(
            wal.OPEN,
            wallet_id=id_of(realm, ctx, currency),
            realm_id=bytes(labels.realm_id(realm)),
            ctx_id=ctx,
            currency=currency,
            created_at=now_or(ts),
        )
        whose.deliver(opened, whose.state(opened), wal.OPEN, body)


@app.command()
@reporting
def deposit(
    amount: AmountOption,
    ref: RefOption = "",
    wallet: WalletOption = "",
    currency: CurrencyOption = "",
    realm: RealmOption = labels.DEFAULT_REALM,
    stream: WalletStream = MAIN_STREAM,
    ts: TsOption = None,
    hub: HubOption = "",
    client: ClientOption = "",
    cap: CapOption = None,
    force: ForceFlag = False,
    trust_first_use: TrustFlag = False,
    hub_id: HubIdOption = "",
) -> None:
    """Put money into a wallet from outside."""
    place = Place(stream, hub, client, trust_first_use, hub_id, cap)
    Whose(place, wallet, currency, realm, force).send(
        wal.DEPOSIT, amount=amount, ts=now_or(ts), ref=ref.encode() or None
    )


@app.command()
@reporting
def withdraw(
    amount: AmountOption,
    ref: RefOption = "",
    wallet: WalletOption = "",
    currency: CurrencyOption = "",
    realm: RealmOption = labels.DEFAULT_REALM,
    stream: WalletStream = MAIN_STREAM,
    ts: TsOption = None,
    hub: HubOption = "",
    client: ClientOption = "",
    cap: CapOption = None,
    force: ForceFlag = False,
    trust_first_use: TrustFlag = False,
    hub_id: HubIdOption = "",
) -> None:
    """Take money out of a wallet to outside."""
    place = Place(stream, hub, client, trust_first_use, hub_id, cap)
    Whose(place, wallet, currency, realm, force).send(
        wal.WITHDRAW, amount=amount, ts=now_or(ts), ref=ref.encode() or None
    )


@app.command()
@reporting
def adjust(
    delta: Annotated[int, typer.Option(min=-U64_MAX, max=U64_MAX, help="To be added; may be negative.")],
    reason: Annotated[str, typer.Option(help="Why, for whoever audits it.")],
    ref: RefOption = "",
    wallet: WalletOption = "",
    currency: CurrencyOption = "",
    realm: RealmOption = labels.DEFAULT_REALM,
    stream: WalletStream = MAIN_STREAM,
    ts: TsOption = None,
    hub: HubOption = "",
    client: ClientOption = "",
    cap: CapOption = None,
    force: ForceFlag = False,
    trust_first_use: TrustFlag = False,
    hub_id: HubIdOption = "",
) -> None:
    """Correct the balance of a wallet, with a reason."""
    place = Place(stream, hub, client, trust_first_use, hub_id, cap)
    Whose(place, wallet, currency, realm, force).send(
        wal.ADJUST, delta=delta, ts=now_or(ts), reason=reason, ref=ref.encode() or None
    )


@app.command()
@reporting
def limit(
    daily_limit: Annotated[
        int | None, typer.Option(min=0, max=U64_MAX, help="Most that may be spent on a day (UTC).")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="No limit any more.")] = False,
    wallet: WalletOption = "",
    currency: CurrencyOption = "",
    realm: RealmOption = labels.DEFAULT_REALM,
    stream: WalletStream = MAIN_STREAM,
    ts: TsOption = None,
    hub: HubOption = "",
    client: ClientOption = "",
    cap: CapOption = None,
    force: ForceFlag = False,
    trust_first_use: TrustFlag = False,
    hub_id: HubIdOption = "",
) -> None:
    """Set how much may be spent on a day, or take the limit away."""
    if none == (daily_limit is not None):
        raise CommandError("say --daily-limit N, or --none", USAGE)
    place = Place(stream, hub, client, trust_first_use, hub_id, cap)
    Whose(place, wallet, currency, realm, force).send(wal.LIMIT, daily_limit=daily_limit, ts=now_or(ts))


@app.command()
@reporting
def freeze(
    reason: ReasonOption = "",
    wallet: WalletOption = "",
    currency: CurrencyOption = "",
    realm: RealmOption = labels.DEFAULT_REALM,
    stream: WalletStream = MAIN_STREAM,
    ts: TsOption = None,
    hub: HubOption = "",
    client: ClientOption = "",
    cap: CapOption = None,
    force: ForceFlag = False,
    trust_first_use: TrustFlag = False,
    hub_id: HubIdOption = "",
) -> None:
    """Let nothing out of a wallet until it is unfrozen."""
    place = Place(stream, hub, client, trust_first_use, hub_id, cap)
    _stop(Whose(place, wallet, currency, realm, force), wal.FREEZE, reason, ts)


@app.command()
@reporting
def unfreeze(
    reason: ReasonOption = "",
    wallet: WalletOption = "",
    currency: CurrencyOption = "",
    realm: RealmOption = labels.DEFAULT_REALM,
    stream: WalletStream = MAIN_STREAM,
    ts: TsOption = None,
    hub: HubOption = "",
    client: ClientOption = "",
    cap: CapOption = None,
    force: ForceFlag = False,
    trust_first_use: TrustFlag = False,
    hub_id: HubIdOption = "",
) -> None:
    """Let money out of a wallet again."""
    place = Place(stream, hub, client, trust_first_use, hub_id, cap)
    _stop(Whose(place, wallet, currency, realm, force), wal.UNFREEZE, reason, ts)


def _stop(whose: Whose, schema: Schema, reason: str, ts: int | None) -> None:
    whose.send(schema, ts=now_or(ts), reason=reason or None)


@app.command()
@reporting
def close(
    wallet: WalletOption = "",
    currency: CurrencyOption = "",
    realm: RealmOption = labels.DEFAULT_REALM,
    stream: WalletStream = MAIN_STREAM,
    ts: TsOption = None,
    hub: HubOption = "",
    client: ClientOption = "",
    cap: CapOption = None,
    force: ForceFlag = False,
    trust_first_use: TrustFlag = False,
    hub_id: HubIdOption = "",
) -> None:
    """Close a wallet for good; an empty one, unless --force is given."""
    whose = Whose(Place(stream, hub, client, trust_first_use, hub_id, cap), wallet, currency, realm, force)
    with whose.place.open() as opened:
        state = whose.state(opened)
        found = whose.find(opened, state)
        balance = whose.overlay(opened).state(state.tables, found).balance
        if balance and not force:  # WAL-028
            raise CommandError(
                f"the wallet still holds {balance}, and nothing comes out of a closed one: empty it first, "
                "or say --force",
                REFUSED,
                "WAL.NOT_EMPTY",
            )
        whose.deliver(opened, state, wal.CLOSE, made(wal.CLOSE, wallet_id=found, ts=now_or(ts)))


@app.command()
@reporting
def transfer(
    to: Annotated[str, typer.Option("--to", help="Wallet that gets it: 64 hex digits.")],
    amount: AmountOption,
    from_wallet: Annotated[
        str, typer.Option("--from", help="Wallet that pays.  [default: your own]", show_default=False)
    ] = "",
    currency: CurrencyOption = "",
    realm: RealmOption = labels.DEFAULT_REALM,
    stream: WalletStream = MAIN_STREAM,
    ts: TsOption = None,
    transfer_id: Annotated[
        str, typer.Option(help="Its name, 64 hex digits.  [default: that of its place in the log]")
    ] = "",
    metadata_json: Annotated[str, typer.Option(help="A map of anything more, in JSON.")] = "",
    approval: Annotated[
        list[Path] | None, typer.Option(help="File of 'veen wallet approve'; may be repeated.")
    ] = None,
    approver: Annotated[
        list[str] | None,
        typer.Option(help="Who has to approve: identity card, or 64 hex digits; may be repeated."),
    ] = None,
    threshold: Annotated[
        int | None, typer.Option(min=1, help="How many of them.  [default: all]", show_default=False)
    ] = None,
    hub: HubOption = "",
    client: ClientOption = "",
    cap: CapOption = None,
    force: ForceFlag = False,
    trust_first_use: TrustFlag = False,
    hub_id: HubIdOption = "",
) -> None:
    """Move money from a wallet to another one; what would not count is not sent, unless --force is given."""
    place = Place(stream, hub, client, trust_first_use, hub_id, cap)
    target = wallet_named(to, "--to")
    whose = Whose(place, from_wallet, currency, realm, force, "--from", (target,))
    with place.open() as opened:
        state = whose.state(opened)
        body = made(
            wal.TRANSFER,
            wallet_id=whose.find(opened, state),
            to_wallet_id=target,
            amount=amount,
            ts=now_or(ts),
            transfer_id=hex32(transfer_id, "--transfer-id") if transfer_id else ZERO_32,
            metadata=_metadata(metadata_json),
        )
        if approver:
            check_approvals(approver, threshold, approval or [], body)
        elif approval or threshold:
            raise CommandError("--approval and --threshold go with --approver", USAGE)
        whose.deliver(opened, state, wal.TRANSFER, body)


def _metadata(text: str) -> Any:  # noqa: ANN401 - JSON
    found = json_or_none(text, "--metadata-json")
    if found is not None and not isinstance(found, dict):
        raise CommandError('--metadata-json is a map, as {"memo": "rent"}', USAGE)
    return found


app.command("approve")(approve)
app.command("show")(show_wallet)
app.command("ledger")(ledger)
app.command("reconcile")(reconcile_streams)
