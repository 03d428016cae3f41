"""Printing and certifying states, wherever they were folded."""

import json
from typing import Any

import typer

from veen.cli.errors import UsageError
from veen.cli.output import plain, print_result, warn
from veen.cli.overlay import PROVISIONAL, ChosenOverlay
from veen.cli.settings import common
from veen.client.fold.interpret import FoldedState, Reached
from veen.core.crypto.ed25519 import SigningKey
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.types import JsonValue
from veen.overlays.certificate import CertifiedLabel, StateCertificate
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import Report
from veen.overlays.overlay import Key
from veen.stdx.grammar import by_count, counted


def parse_key(chosen: ChosenOverlay, text: str) -> Key:
    """Parse the value of --key."""
    try:
        return chosen.overlay.parse_key(text)
    except (ValueError, ProtocolError) as error:
        raise UsageError(f"--key {text!r} is not a key of {chosen.overlay.name}: {error}") from None


def state_document(found: FoldedState, key: Key | None, now: int, *, listed: bool) -> dict[str, Any]:
    """Return a state, of one key or all, with its counts and reports. ``listed``: with all reports."""
    overlay, tables = found.overlay, found.tables
    state = overlay.view(tables, now) if key is None else overlay.view_key(tables, key, now)
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
    if key is None:  # the hash covers the whole state
        described["state_hash"] = _hash_of(found)
    return described


def _hash_of(found: FoldedState) -> str | None:
    try:
        return found.hash.hex()
    except InvalidBodyError as error:
        warn(f"this state has no hash: {error}")
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


def print_state(found: dict[str, Any]) -> None:
    """Print the result of ``state_document``."""
    if common.json:
        print_result(found, as_json=True)
        return
    for line in json.dumps(found.pop("state"), indent=1, ensure_ascii=False).splitlines():
        if not common.quiet:
            typer.echo(plain(line))
    told = found.pop("reports")
    for item in told if isinstance(told, list) else []:
        place = f"epoch {item['epoch']} entry {item['stream_seq']}"
        warn(f"{place}: {item['code']}: {item['detail']}")
    count = len(told) if isinstance(told, list) else told
    if count and not isinstance(told, list):
        were = by_count(count, "was", "were")
        warn(f"{counted(count, 'event')} {were} reported as invalid; for details, add --reports")
    rest = {name: value for name, value in found.items() if name in ("state_hash", "counts") and value}
    print_result({**rest, "upto": found["reached"][-1]["upto_seq"] if found["reached"] else 0}, as_json=False)


def certificate_of(
    found: FoldedState, issuer: SigningKey, bridges: frozenset[bytes] = frozenset()
) -> StateCertificate:
    """Certify a state, unless it is provisional."""
    _check_certifiable(found)
    return StateCertificate.issue(
        issuer,
        found.overlay,
        stream_id=labels.stream_id(found.stream),
        labels=certified(found),
        state_hash=found.hash,
        bridges=bridges,
    )


def _check_certifiable(found: FoldedState) -> None:
    if not found.reached:
        raise UsageError("there are no entries to certify")
    if found.provisional:
        text = f"{PROVISIONAL}; certify an --epoch that has ended"
        raise UsageError(text)


def certified(found: FoldedState) -> list[CertifiedLabel]:
    """Return the labels that a state covers, as certificates list them."""
    return [
        CertifiedLabel(epoch=item.epoch, label=item.label, upto_seq=item.upto_seq, mmr_root=item.mmr_root)
        for item in found.reached
    ]


def shown_certificate(made: StateCertificate) -> dict[str, Any]:
    """Return the fields of a certificate that are printed."""
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
