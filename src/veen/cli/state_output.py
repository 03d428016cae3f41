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


def state_document(state: FoldedState, key: Key | None, now: int, *, listed: bool) -> dict[str, Any]:
    """Return a state, of one key or all, with its counts and reports. ``listed``: with all reports."""
    overlay, tables = state.overlay, state.tables
    view = overlay.view(tables, now) if key is None else overlay.view_key(tables, key, now)
    described: dict[str, Any] = {
        "ok": True,
        "overlay": state.overlay.name,
        "stream": state.stream,
        "state": view,
        "counts": state.counts,
        "reports": [_report(item) for item in state.reports] if listed else len(state.reports),
        "reached": [_reached(item) for item in state.reached],
        "provisional": state.provisional,
    }
    if key is None:  # the hash covers the whole state
        described["state_hash"] = _hash_of(state)
    return described


def _hash_of(state: FoldedState) -> str | None:
    try:
        return state.hash.hex()
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


def print_state(document: dict[str, Any]) -> None:
    """Print the result of ``state_document``."""
    if common.json:
        print_result(document, as_json=True)
        return
    for line in json.dumps(document.pop("state"), indent=1, ensure_ascii=False).splitlines():
        if not common.quiet:
            typer.echo(plain(line))
    reports = document.pop("reports")
    for item in reports if isinstance(reports, list) else []:
        position = f"epoch {item['epoch']} entry {item['stream_seq']}"
        warn(f"{position}: {item['code']}: {item['detail']}")
    count = len(reports) if isinstance(reports, list) else reports
    if count and not isinstance(reports, list):
        were = by_count(count, "was", "were")
        warn(f"{counted(count, 'event')} {were} reported as invalid; for details, add --reports")
    rest = {name: value for name, value in document.items() if name in ("state_hash", "counts") and value}
    print_result(
        {**rest, "upto": document["reached"][-1]["upto_seq"] if document["reached"] else 0}, as_json=False
    )


def certificate_of(
    state: FoldedState, issuer: SigningKey, bridges: frozenset[bytes] = frozenset()
) -> StateCertificate:
    """Certify a state, unless it is provisional."""
    _check_certifiable(state)
    return StateCertificate.issue(
        issuer,
        state.overlay,
        stream_id=labels.stream_id(state.stream),
        labels=certified(state),
        state_hash=state.hash,
        bridges=bridges,
    )


def _check_certifiable(state: FoldedState) -> None:
    if not state.reached:
        raise UsageError("there are no entries to certify")
    if state.provisional:
        text = f"{PROVISIONAL}; certify an --epoch that has ended"
        raise UsageError(text)


def certified(state: FoldedState) -> list[CertifiedLabel]:
    """Return the labels that a state covers, as certificates list them."""
    return [
        CertifiedLabel(epoch=item.epoch, label=item.label, upto_seq=item.upto_seq, mmr_root=item.mmr_root)
        for item in state.reached
    ]


def shown_certificate(certificate: StateCertificate) -> dict[str, Any]:
    """Return the fields of a certificate that are printed."""
    last, parameters = certificate.labels[-1], certificate.parameter_values()
    return {
        "overlay": certificate.overlay,
        **({"parameters": parameters} if parameters or common.json else {}),
        "stream_id": certificate.stream_id.hex(),
        "epoch": last.epoch,
        "upto_seq": last.upto_seq,
        "mmr_root": last.mmr_root.hex(),
        "state_class": certificate.state_class,
        "state_hash": certificate.state_hash.hex(),
        "issuer": certificate.issuer_pk.hex(),
    }
