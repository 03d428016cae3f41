"""``veen verify-receipt`` and ``veen verify-fraud``: verification of files that others hand over."""

import os
from pathlib import Path
from typing import Annotated

import typer

from veen.cli.client import HubIdOption, HubOption, StreamOption, hub_at, read_bytes
from veen.cli.commands.hub.key_arguments import issuer_of
from veen.cli.errors import CommandError, FailedError, UsageError
from veen.cli.options import parse_hub_id
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common, find_hub
from veen.client.audit import pin_for_audit
from veen.client.contexts import find_client
from veen.client.effects import run
from veen.client.errors import ContextError, PinError
from veen.client.fraud import Fraud
from veen.client.home.directory import ClientHome
from veen.client.home.pins import STATUS, HubFacts, read_facts
from veen.client.retry import Asker, Retry
from veen.client.verify.offline import verify_fraud as verify_evidence
from veen.client.verify.receipt import ReceiptCheck, check_receipt, check_receipt_by_state
from veen.core.encoding.wire_object import W
from veen.core.errors import ProtocolError
from veen.core.objects.msg import Msg
from veen.core.objects.receipt import Receipt


@command
def verify_receipt(
    receipt: Annotated[
        Path, typer.Option(help="File of the receipt (CBOR), as written by veen send --dump-raw.")
    ],
    stream: StreamOption,
    msg: Annotated[Path | None, typer.Option(help="File of its message (CBOR).")] = None,
    hub: HubOption = "",
    client: Annotated[str, typer.Option(help="Client directory whose pinned hubs are trusted.")] = "",
    hub_id: HubIdOption = "",
) -> None:
    """Verify a receipt.

    Checks the hub's signature, the message, and that the log of the stream contains it. Asks the hub or reads
    its files; if no hub is named or configured, uses the state of the client.
    """
    parsed = _decode(receipt, Receipt, "a receipt")
    its = None if msg is None else _decode(msg, Msg, "a message")
    try:
        named = find_hub(hub)
    except (CommandError, ContextError):
        if hub_id:
            raise
        state = ClientHome(find_client(client)).load()
        done = check_receipt_by_state(state, parsed, stream=stream, msg=its)
    else:
        done = _at_hub(named, parsed, stream, its, client=client, hub_id=hub_id)
    print_result(
        {
            "ok": True,
            "hub_id": done.hub_id.hex(),
            "stream_seq": parsed.stream_seq,
            "epoch": done.epoch,
            "hub_sig": True,
            "message": done.msg_matches,
            "mmr_root": done.in_log,
        },
        common.json,
    )


def _at_hub(
    named: str, receipt: Receipt, stream: str, msg: Msg | None, *, client: str, hub_id: str
) -> ReceiptCheck:
    answering = hub_at(named)
    try:
        facts = read_facts(answering.answer(STATUS))
        pin_for_audit(facts, parse_hub_id(hub_id), answering.name)
        _check_pinned(facts, client, known=bool(hub_id))
        asker = Asker(os.urandom, Retry(attempts=2))
        return run(check_receipt(asker, facts, receipt, stream=stream, msg=msg), answering)
    finally:
        answering.close()


def _check_pinned(facts: HubFacts, client: str, *, known: bool) -> None:
    """Warn if the hub is neither pinned nor named by --hub-id."""
    if known:
        return
    try:
        pins = ClientHome(find_client(client)).load().pins
    except (CommandError, ContextError):
        if client:
            raise
        pins = {}
    if facts.identity.hub_id not in pins:
        if client:
            raise PinError(f"the client has not pinned hub {facts.identity.hub_id.hex()}")
        warn(
            f"verified with the key of hub {facts.identity.hub_id.hex()}, which is not pinned; check "
            "its id with --hub-id"
        )


def _decode(path: Path, cls: type[W], what: str) -> W:
    try:
        return cls.decode(read_bytes(path))
    except ProtocolError as error:
        raise FailedError(f"{path} is not {what}: {error}", error.code.value) from None


@command
def verify_fraud(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File of evidence that a client has written: *.veen-fraud.")
    ],
    hub_key: Annotated[
        str, typer.Option(help="First public key of the hub, if known: 64 hex digits or a file.")
    ] = "",
) -> None:
    """Verify evidence of fraud by a hub.

    Exits 0 if the evidence proves that the hub signed two contradicting statements.
    """
    try:
        fraud = Fraud.decode(read_bytes(file))
    except ProtocolError as error:
        raise UsageError(f"{file} is not a file of evidence: {error}") from None
    statement = verify_evidence(fraud, hub=issuer_of(hub_key) if hub_key else None).statement
    print_result(
        {
            "ok": True,
            "proved": statement,
            "hub_id": fraud.identity.hub_id.hex(),
            "hub_pk": fraud.identity.hub_keys[0].hub_pk.hex(),
            "label": fraud.second.label.hex(),
            "stream_seq": fraud.second.stream_seq,
            "first": fraud.first.to_json(),
            "second": fraud.second.to_json(),
        },
        common.json,
    )
