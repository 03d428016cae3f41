"""``veen interpret`` and ``veen state``: what a stream amounts to, and certificates of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Annotated, Any

import typer

from veen.cli.errors import MALFORMED, REFUSED, USAGE, CommandError
from veen.cli.folding import folded
from veen.cli.overlaying import (
    BridgeOption,
    Chosen,
    ModuleOption,
    ParamOption,
    choose,
    given_bridges,
    given_parameters,
)
from veen.cli.printing import note, plain, reporting, show
from veen.cli.settings import common
from veen.cli.using import At, StreamOption, read_bytes, write_bytes
from veen.client.client import Client
from veen.client.interpreting import Interpretation, Reached
from veen.core import labels
from veen.core.errors import ProtocolError
from veen.core.hashing import U64_MAX
from veen.core.types import JsonValue
from veen.overlays.certificate import CertifiedLabel, StateCertificate
from veen.overlays.events import Outcome, Report
from veen.overlays.overlay import Key
from veen.overlays.schema import RejectedError

app = typer.Typer(help="Certificates of what a stream amounts to.", no_args_is_help=True)

OverlayArgument = Annotated[str, typer.Argument(help="Name of the overlay, for example crdt.lww.")]
Upto = Annotated[
    int | None, typer.Option("--upto", min=0, max=U64_MAX, help="The state after this entry, not the last.")
]
Epoch = Annotated[
    int | None,
    typer.Option("--epoch", min=0, max=U64_MAX, help="Epoch that --upto counts in; default: the last one."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Read everything again, and keep nothing.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which state is wanted: by which overlay, of which stream, after which entry."""

    overlay: OverlayArgument
    stream: StreamOption
    upto: Upto = None
    epoch: Epoch = None
    overlay_module: ModuleOption = ""
    param: ParamOption = None
    bridge: BridgeOption = None
    no_cache: NoCache = False

    def choose(self) -> Chosen:
        """Return the overlay."""
        return choose(self.overlay, self.overlay_module, given_parameters(self.param))

    def fold(self, opened: Client, chosen: Chosen) -> Interpretation:
        """Fold the stream."""
        return folded(
            opened,
            chosen.overlay,
            self.stream,
            code=chosen.code,
            upto=self.upto,
            epoch=self.epoch,
            bridges=given_bridges(self.bridge),
            cached=not self.no_cache,
        )


@reporting
def interpret_command(
    wanted: Wanted,
    at: At,
    key: Annotated[str, typer.Option("--key", help="Only the state of this key.")] = "",
    now: Annotated[
        int | None, typer.Option(min=0, max=U64_MAX, help="Time that decides what has expired; default: now.")
    ] = None,
    reports: Annotated[bool, typer.Option("--reports", help="List what is wrong with events.")] = False,
) -> None:
    """Fold a stream with an overlay, and print the state at its end or at any entry of it.

    Summaries are kept in the client's directory: the next time only new entries are read.
    """
    chosen = wanted.choose()
    one = _parse_key(chosen, key) if key else None
    with at.open() as opened, chosen.blamed():
        found = wanted.fold(opened, chosen)
        described = _described(found, one, int(time()) if now is None else now, listed=reports)
    _print(described)


def _parse_key(chosen: Chosen, text: str) -> Key:
    try:
        return chosen.overlay.parse_key(text)
    except (ValueError, ProtocolError) as error:
        raise CommandError(f"--key {text!r} is no key of {chosen.overlay.name}: {error}", USAGE) from None


def _described(found: Interpretation, key: Key | None, now: int, *, listed: bool) -> dict[str, Any]:
    state = found.view(now) if key is None else found.view_key(key, now)
    described: dict[str, Any] = {
        "ok": True,
        "overlay": found.overlay.name,
        "stream": found.stream,
        "state": state,
        "counts": found.counts,
        "reports": [_report(item) for item in found.reports] if listed else len(found.reports),
        "reached": [_reached(item) for item in found.reached],
        "provisional": found.provisional,
    }
    if key is None:  # the hash is of the whole state: one key is to be had without the rest
        described["state_hash"] = _hash_of(found)
    return described


def _hash_of(found: Interpretation) -> str | None:
    try:
        return found.state_hash().hex()
    except RejectedError as error:
        note(f"this state has no hash: {error}")
        return None


def _report(item: Report) -> dict[str, JsonValue]:
    return {
        "epoch": item.epoch,
        "stream_seq": item.stream_seq,
        "canonical_id": item.canonical_id.hex(),
        "code": item.code,
        "detail": item.detail,
    }


def _reached(item: Reached) -> dict[str, JsonValue]:
    return {
        "epoch": item.epoch,
        "label": item.label.hex(),
        "upto_seq": item.upto_seq,
        "mmr_root": item.mmr_root.hex(),
    }


def _print(found: dict[str, Any]) -> None:
    if common.json:
        show(found, as_json=True)
        return
    for line in json.dumps(found.pop("state"), indent=1, ensure_ascii=False).splitlines():
        if not common.quiet:
            typer.echo(plain(line))
    told = found.pop("reports")
    for item in told if isinstance(told, list) else []:
        place = f"epoch {item['epoch']} entry {item['stream_seq']}"
        note(f"{place}: {item['code']}: {item['detail']}")
    count = len(told) if isinstance(told, list) else told
    if count and not isinstance(told, list):
        note(f"{count} events have something wrong with them: see --reports")
    rest = {name: value for name, value in found.items() if name in ("state_hash", "counts") and value}
    show({**rest, "upto": found["reached"][-1]["upto_seq"] if found["reached"] else 0}, as_json=False)


@app.command()
@reporting
def certify(wanted: Wanted, out: Annotated[Path, typer.Option(help="File to write.")], at: At) -> None:
    """Sign what a stream amounts to, with the identity of the client, for whoever can read it to check."""
    chosen = wanted.choose()
    bridges = given_bridges(wanted.bridge)
    with at.open() as opened, chosen.blamed():
        found = wanted.fold(opened, chosen)
        _check_certifiable(found)
        made = StateCertificate.issue(
            opened.session.secrets.identity,
            chosen.overlay,
            stream_id=labels.stream_id(wanted.stream),
            labels=_certified(found),
            state_hash=found.state_hash(),
            bridges=bridges,
        )
    write_bytes(out, made.encode())
    show({"ok": True, **_shown(made), "path": str(out)}, common.json)


def _check_certifiable(found: Interpretation) -> None:
    if not found.reached:
        raise CommandError("there are no entries to certify", USAGE)
    if found.provisional:
        text = "entries may still come before some of these; certify an --epoch that is over"
        raise CommandError(text, USAGE)


def _certified(found: Interpretation) -> list[CertifiedLabel]:
    return [
        CertifiedLabel(epoch=item.epoch, label=item.label, upto_seq=item.upto_seq, mmr_root=item.mmr_root)
        for item in found.reached
    ]


def _shown(made: StateCertificate) -> dict[str, Any]:
    last, parameters = made.labels[-1], made.parameter_values()
    return {
        "overlay": made.overlay,
        **({"parameters": parameters} if parameters or common.json else {}),
        "stream_id": made.stream_id.hex(),
        "epoch": last.epoch,
        "upto_seq": last.upto_seq,
        "mmr_root": last.mmr_root.hex(),
        "state_class": made.state_class,
        "state_hash": made.state_hash.hex(),
        "issuer": made.issuer_pk.hex(),
    }


@app.command()
@reporting
def verify(
    file: Annotated[Path, typer.Argument(help="File of the certificate.")],
    at: At,
    overlay_module: ModuleOption = "",
    cached: Annotated[bool, typer.Option("--cached", help="Believe summaries that are kept.")] = False,
) -> None:
    """Check a certificate: its signature, and by folding the stream again; exits 4 if something differs."""
    try:
        made = StateCertificate.decode(read_bytes(file))
    except ProtocolError as error:
        raise CommandError(f"{file} is not a state certificate: {error}", MALFORMED) from None
    made.verify()
    if not made.labels:
        raise CommandError(f"{file} certifies no entries", REFUSED)
    chosen = choose(made.overlay, overlay_module, made.parameter_values())
    last = made.labels[-1]
    with at.open() as opened, chosen.blamed():
        found = folded(
            opened,
            chosen.overlay,
            made.stream_id.hex(),
            code=chosen.code,
            upto=last.upto_seq,
            epoch=last.epoch,
            bridges=frozenset(made.bridges),
            cached=cached,
        )
        differing = made.differences(chosen.overlay, _certified(found), found.state_hash())
    sealed = found.counts.get(Outcome.UNREADABLE.value, 0)
    if differing and sealed:
        differing.append(f"{sealed} entries could not be opened with the keys here")
    if differing:
        raise CommandError("; ".join(differing), REFUSED, "E.STATE")
    show({"ok": True, **_shown(made)}, common.json)
