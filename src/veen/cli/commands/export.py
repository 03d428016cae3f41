"""``veen export`` and ``veen import``: the portable set, for audits and for moving a client."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Annotated, Any

import typer

from veen.cli.client import HubIdOption, HubOption, hub_at, load_secrets
from veen.cli.errors import CommandError, FailedError, UsageError
from veen.cli.options import OUT_DIR_HELP, parse_hub_id
from veen.cli.output import command, print_result, progress, warn
from veen.cli.settings import common, find_hub
from veen.client.audit import LabelAudit, SetWriter, Source, audit_label, export_label, pin_for_audit
from veen.client.body import attachments_of, decode_body
from veen.client.contexts import find_client
from veen.client.effects import GetAttachment, Hub, run
from veen.client.errors import InvalidResponseError, RejectedError
from veen.client.home.directory import CARD, KEY_FILE, KEYSTORE, ClientHome
from veen.client.home.pins import STATUS, HubFacts, read_facts
from veen.client.home.state import LabelState, Pin, State
from veen.client.keys.keystore import Secrets
from veen.client.read import open_any
from veen.client.retry import Asker, Retry
from veen.client.transport import portable_set
from veen.client.transport.data_directory import DataDirectory
from veen.client.transport.portable_set import PortableSet
from veen.core.api.tooling import StreamEpochsRequest, StreamEpochsResponse
from veen.core.encoding.wire_object import decode_sequence, encode_sequence
from veen.core.errors import Code, ProtocolError
from veen.core.objects import attachment as att
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.msg import Msg
from veen.core.types import Coid
from veen.stdx.atomic_file import PRIVATE, write_file


@command
def export_command(
    out: Annotated[Path, typer.Option(help=OUT_DIR_HELP)],
    hub: HubOption = "",
    stream: Annotated[list[str] | None, typer.Option(help="Stream to export; may be repeated.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Export all labels of a data directory, whose hub must be stopped.")
    ] = False,
    client: Annotated[
        str, typer.Option(help="Client directory to include: its sealed keys, card and tokens.")
    ] = "",
    attachments: Annotated[
        str, typer.Option(help="Client directory; attachments of the messages that it can open are included.")
    ] = "",
    hub_id: HubIdOption = "",
) -> None:
    """Export streams to files that can be verified offline.

    All entries are verified during the export.
    """
    answering = hub_at(find_hub(hub))
    asker = Asker(os.urandom, Retry())
    try:
        facts = read_facts(answering.answer(STATUS))
        pin = pin_for_audit(facts, parse_hub_id(hub_id), answering.name)
        sources = _sources(asker, answering, facts, stream or [], everything=everything)
        writer = SetWriter(out)
        try:
            with progress("exporting") as advance:
                done = [
                    run(export_label(asker, facts, pin, source, writer, progress=advance), answering)
                    for source in sources
                ]
            _check_any(done)
            writer.finish(facts)
            attachment_count = (
                _take_attachments(find_client(attachments), answering, out) if attachments else 0
            )
        except BaseException:
            writer.close()
            shutil.rmtree(out, ignore_errors=True)
            raise
    finally:
        answering.close()
    if client:
        _take_client(find_client(client), out)
    print_result(
        {
            "ok": True,
            "set": str(out),
            "hub_id": facts.identity.hub_id.hex(),
            "labels": len([item for item in done if item]),
            "entries": sum(item.entries for item in done if item),
            "attachments": attachment_count,
            "client": bool(client),
        },
        common.json,
    )


def _take_attachments(client: Path, answering: Hub, out: Path) -> int:
    """Fetch the attachments that messages of the set declare, and verify their hashes."""
    _, secrets, _ = load_secrets(client)
    directory = out / portable_set.ATTACHMENTS_DIR
    directory.mkdir(mode=0o700)
    count = 0
    for msg in decode_sequence((out / portable_set.PAYLOADS).read_bytes(), Msg):
        for coid in _declared(msg, secrets):
            try:
                sealed = answering.answer(GetAttachment(coid))
            except RejectedError as error:
                if error.code != Code.NOT_FOUND.value:
                    raise
                warn(f"the hub does not have attachment {coid.hex()}")
                continue
            if att.coid(sealed) != coid:
                raise InvalidResponseError(
                    f"{answering.name} returned a different attachment for {coid.hex()}"
                )
            write_file(directory / coid.hex(), sealed)
            count += 1
    return count


def _declared(msg: Msg, secrets: Secrets) -> list[Coid]:
    """Return the attachments of a message; none if they are malformed."""
    try:
        opened = open_any(msg, secrets)
        if opened is None:
            return []
        coids = [item.coid for item in attachments_of(decode_body(opened.body))]
        att.verify_root(opened.header.att_root, coids)
    except ProtocolError:
        return []
    return coids


def _check_any(done: list[LabelAudit | None]) -> None:
    if not any(done):
        raise UsageError("there is nothing to export: none of these streams has entries")


def _sources(
    asker: Asker, answering: Hub, facts: HubFacts, streams: list[str], *, everything: bool
) -> list[Source]:
    if bool(streams) == everything:
        raise UsageError("give what to export: either --stream NAME, or --all")
    if everything:
        if not isinstance(answering, DataDirectory):
            raise UsageError("--all requires the data directory of a hub that is stopped, or a copy of it")
        who = facts.identity.hub_id
        reserved = {labels.authorize_label(who), labels.control_label(who)}
        reader = answering.reader
        sources = []
        for label in sorted(set(reader.labels()) - reserved):
            bound = reader.binding(label)
            sources.append(Source(label, bound.stream_id if bound else None, bound.epoch if bound else None))
        return sources
    sources = []
    for name in streams:
        stream_id = labels.stream_id(name)
        epochs: tuple[int, ...] = (0,)
        if facts.profiles[0].epoch_sec:
            request = StreamEpochsRequest(stream_id=stream_id)
            epochs = run(asker.ask(request, StreamEpochsResponse), answering).epochs
        routing = facts.identity.routing_key
        sources += [Source(labels.label(routing, stream_id, epoch), stream_id, epoch) for epoch in epochs]
    return sources


def _take_client(directory: Path, out: Path) -> None:
    for name in (KEYSTORE, KEY_FILE, CARD):
        if (directory / name).exists():
            shutil.copy2(directory / name, out / name)
    tokens = ClientHome(directory).tokens().values()
    (out / portable_set.TOKENS).write_bytes(encode_sequence(list(tokens)))


@command
def import_command(
    directory: Annotated[Path, typer.Argument(metavar="SET", help="Directory of an exported set.")],
    hub_id: HubIdOption = "",
    out: Annotated[
        Path | None, typer.Option(help="Client directory to restore from the set: keys, tokens and state.")
    ] = None,
) -> None:
    """Verify an exported set.

    Requires only the id of the hub. With --out, restores the client that was exported with the set.
    """
    portable = PortableSet(directory)
    facts = read_facts(portable.describe())
    pin = pin_for_audit(facts, parse_hub_id(hub_id), str(directory))
    asker = Asker(os.urandom, Retry(attempts=1))
    with progress("checking") as advance:
        audits = [
            run(
                audit_label(
                    asker,
                    facts,
                    pin,
                    label,
                    checkpoints=[item for item in portable.checkpoints if item.label_curr == label],
                    progress=advance,
                ),
                portable,
            )
            for label in portable.labels
        ]
    _compare(portable, audits)
    if out is not None:
        _make_client(directory, out.expanduser(), portable, pin, audits)
    print_result(
        {
            "ok": True,
            "hub_id": facts.identity.hub_id.hex(),
            "hub_id_given": bool(hub_id),
            "labels": [_describe(item) for item in audits],
            "client": None if out is None else str(out),
        },
        common.json,
    )


def _describe(audit: LabelAudit) -> dict[str, Any]:
    return {
        "label": audit.label.hex(),
        "entries": audit.entries,
        "clients": len(audit.clients),
        "checkpoints": audit.checkpoints,
        "last_mmr_root": None if audit.last_mmr_root is None else audit.last_mmr_root.hex(),
    }


def _compare(portable: PortableSet, audits: list[LabelAudit]) -> None:
    """Reject a set whose entries do not match the states and labels that it lists."""
    routing = portable.identity.routing_key
    stated = {item.label: (item.last_stream_seq, item.last_mmr_root) for item in portable.states}
    read = {item.label: (item.entries, item.last_mmr_root) for item in audits}
    if stated != read or any(item.label_curr not in read for item in portable.checkpoints):
        raise _inconsistent(portable, "its entries do not match its list of labels")
    for item in portable.states:
        if item.stream_id is None or item.epoch is None:
            continue
        if labels.label(routing, item.stream_id, item.epoch) != item.label:
            raise _inconsistent(portable, "a label does not belong to the stream listed for it")


def _inconsistent(portable: PortableSet, why: str) -> CommandError:
    return FailedError(f"{portable.name} is not consistent: {why}", "E.PROOF")


def _make_client(
    directory: Path, out: Path, portable: PortableSet, pin: Pin, audits: list[LabelAudit]
) -> None:
    if not (directory / KEYSTORE).exists():
        raise UsageError(f"{directory} does not contain a client; it was exported without --client")
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; choose another directory")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (KEYSTORE, KEY_FILE, CARD):
        if (directory / name).exists():
            write_file(out / name, (directory / name).read_bytes(), 0o644 if name == CARD else PRIVATE)
    home = ClientHome(out)
    for token in decode_sequence((directory / portable_set.TOKENS).read_bytes(), CapToken):
        home.keep_token(token)
    state = State()
    if pin.how == "given":  # a set is not evidence of its own origin
        state.pins[pin.identity.hub_id] = replace(pin, pinned_at=int(time()))
    by_label = {item.label: item for item in portable.states}
    for audit in audits:
        known = by_label[audit.label]
        if known.stream_id is None or known.epoch is None or audit.check is None:
            continue
        label_state = LabelState(pin.identity.hub_id, known.stream_id, known.epoch)
        if audit.check.receipt is not None:
            label_state.advance(audit.check.peaks, audit.check.receipt)
        for client_id, client_seq in audit.clients.items():
            label_state.writer(client_id).client_seq = client_seq
        state.labels[audit.label] = label_state
    home.save(state)
