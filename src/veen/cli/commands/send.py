"""``veen send``: send a message."""

from pathlib import Path
from time import time
from typing import Annotated, Any

import typer

from veen.cli.client import (
    ClientOption,
    ClientOptions,
    HubOption,
    StreamOption,
    open_client,
    parse_json,
    read_bytes,
    read_card,
    write_bytes,
)
from veen.cli.errors import UsageError
from veen.cli.options import ATTACH_HELP, BODY_HELP, CAP_HELP, EXPIRES_HELP, PARENT_HELP, hex32, hex_bytes
from veen.cli.output import command, print_result, warn
from veen.cli.settings import common
from veen.client.body import encode_body
from veen.client.client import Client
from veen.client.errors import BodyError
from veen.client.models import Draft, SendOptions, Sent
from veen.client.send import MAX_POW_BITS, send_draft
from veen.core.crypto.hash import U64_MAX
from veen.core.encoding.hexadecimal import is_hex32, parse_hex32
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.proof_of_work import MAX_DIFFICULTY, PowCookie, solve
from veen.core.types import LeafHash, ProfileId, SchemaId
from veen.overlays.errors import InvalidBodyError
from veen.overlays.registry import schemas_by_id

_POW_SEC = 60


@command
def send(
    stream: StreamOption,
    body: Annotated[str, typer.Option(help=BODY_HELP)],
    at: ClientOptions,
    schema: Annotated[str, typer.Option(help="Schema: a name, or an id (64 hex digits).")] = "",
    to: Annotated[
        str,
        typer.Option(
            help="Identity card of the recipient. Default: all clients with the reader "
            "key of the stream; without such a key, this client only."
        ),
    ] = "",
    attach: Annotated[list[Path] | None, typer.Option(help=ATTACH_HELP)] = None,
    cap: Annotated[list[Path] | None, typer.Option(help=CAP_HELP)] = None,
    parent_id: Annotated[str, typer.Option(help=PARENT_HELP)] = "",
    expires_at: Annotated[int | None, typer.Option(min=0, max=U64_MAX, help=EXPIRES_HELP)] = None,
    profile_id: Annotated[str, typer.Option(help="Id of the profile to use: 64 hex digits.")] = "",
    no_store_body: Annotated[
        bool, typer.Option("--no-store-body", help="Do not store a copy in the client directory.")
    ] = False,
    dump_raw: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="MSG_FILE RECEIPT_FILE", help="Files to write the message and its receipt to (CBOR)."
        ),
    ] = None,
    pow_challenge: Annotated[str, typer.Option(help="Challenge of a proof of work, in hex.")] = "",
    pow_nonce: Annotated[
        int | None, typer.Option(min=0, max=U64_MAX, help="Nonce that solves --pow-challenge.")
    ] = None,
    pow_difficulty: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_DIFFICULTY, help="Difficulty of the proof of work, in bits."),
    ] = None,
    pow_max_time: Annotated[
        int, typer.Option(min=0, help="Maximum time to search for a nonce, in seconds.")
    ] = _POW_SEC,
) -> None:
    """Send a message.

    Seals, signs and submits it, and returns when it is on the hub's disk and its receipt is verified.
    """
    value, schema_id = _body(body), _schema(schema)
    draft = Draft(
        body=value,
        schema=schema_id,
        encoded=None if attach else _encoded(schema_id, value),
        parent_id=LeafHash(hex32(parent_id, "--parent-id")) if parent_id else None,
        expires_at=expires_at,
        attachments=tuple(_existing(path) for path in attach or ()),
    )
    with at.open() as opened:
        options = SendOptions(
            to=read_card(to).seal_key(int(time())) if to else None,
            token=_token(cap or []),
            profile_id=ProfileId(hex32(profile_id, "--profile-id")) if profile_id else None,
            store_body=not no_store_body,
            pow_cookie=_cookie(opened, pow_challenge, pow_nonce, pow_difficulty, pow_max_time),
        )
        sent = send_draft(opened, stream, draft, options)
    if dump_raw is not None:
        write_bytes(dump_raw[0], sent.msg.encode())
        write_bytes(dump_raw[1], sent.receipt.encode())
    print_result(describe(sent, stream), common.json)


def describe(sent: Sent, stream: str) -> dict[str, Any]:
    """Return the fields of a sent message that are printed."""
    fields: dict[str, Any] = {
        "ok": True,
        "stream": stream,
        "stream_seq": sent.position,
        "msg_id": sent.msg_id.hex(),
        "label": sent.receipt.label.hex(),
        "client_seq": sent.msg.client_seq,
        "mmr_root": sent.receipt.mmr_root.hex(),
        "hub_ts": sent.receipt.hub_ts,
    }
    if sent.attachments:
        fields["attachments"] = [
            {"coid": item.coid.hex(), "size": item.size, "name": item.name} for item in sent.attachments
        ]
    return fields


def _body(text: str) -> Any:  # noqa: ANN401 - JSON
    value = parse_json(text, "--body")
    try:
        encode_body(value)
    except BodyError as error:
        raise UsageError(str(error)) from None
    return value


def _schema(text: str) -> SchemaId | None:
    if not text:
        return None
    return SchemaId(parse_hex32(text)) if is_hex32(text) else labels.schema_id(text)


def _encoded(schema_id: SchemaId | None, value: Any) -> bytes | None:  # noqa: ANN401 - JSON
    """Return a body as its schema encodes it, with its order of keys; None if no known schema fits."""
    known = None if schema_id is None else schemas_by_id().get(schema_id)
    if known is None:
        return None
    try:
        return known.encode(known.from_json(value))
    except InvalidBodyError as error:
        warn(f"the body does not match schema {known.name}, so readers will reject it: {error}")
        return None


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(f"{path} cannot be attached: it is not a file")
    return path


def _token(paths: list[Path]) -> CapToken | None:
    tokens = {read_token(path).auth_ref: read_token(path) for path in paths}
    if len(tokens) > 1:
        raise UsageError("a message uses one capability token, but --cap names different ones")
    return next(iter(tokens.values()), None)


def read_token(path: Path) -> CapToken:
    """Read the file of a capability token."""
    try:
        return CapToken.decode(read_bytes(path))
    except ProtocolError as error:
        raise UsageError(f"{path} is not a capability token: {error}") from None


def _cookie(
    opened: Client, challenge: str, nonce: int | None, difficulty: int | None, max_time: int
) -> PowCookie | None:
    """Return the given proof of work, or search for it; None leaves it to the client."""
    if not challenge and nonce is None and difficulty is None:
        return None
    if not challenge:
        if difficulty is not None and difficulty > MAX_POW_BITS:
            raise UsageError(f"--pow-difficulty is at most {MAX_POW_BITS} without --pow-challenge")
        opened.connect()
        opened.session.pow_difficulty = difficulty or 0  # bound to the message itself, when it is created
        return None
    if difficulty is None:
        raise UsageError("--pow-challenge requires --pow-difficulty")
    words = hex_bytes(challenge, "--pow-challenge")
    if nonce is not None:
        return PowCookie(challenge=words, nonce=nonce, difficulty=difficulty)
    if common.verbose:
        warn(f"proof of work: challenge {challenge}, difficulty {difficulty}")
    end = time() + max_time
    for start in range(0, 1 << 40, 1 << 14):
        cookie = solve(words, difficulty, range(start, start + (1 << 14)))
        if cookie is not None:
            return cookie
        if time() > end:
            break
    raise UsageError(f"no proof of work was found in {max_time} s; raise --pow-max-time")


@command
def send_with_attachment(
    stream: StreamOption,
    file: Annotated[list[Path], typer.Option(help=ATTACH_HELP)],
    body: Annotated[str, typer.Option(help=BODY_HELP)] = "null",
    hub: HubOption = "",
    client: ClientOption = "",
) -> None:
    """Send files, like 'veen send --attach'."""
    draft = Draft(body=_body(body), attachments=tuple(_existing(path) for path in file))
    with open_client(client, hub) as opened:
        sent = send_draft(opened, stream, draft)
    print_result(describe(sent, stream), common.json)
