"""What the commands of operations share: reading what a person has written, sending it, and what to print."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from veen.cli.client import ClientOptions, StreamOption, parse_json
from veen.cli.commands.send import read_token
from veen.cli.errors import FailedError, UsageError
from veen.cli.options import hex32
from veen.cli.output import print_result
from veen.cli.settings import common
from veen.client.client import Client
from veen.client.models import SendOptions, Sent
from veen.client.operations import send_operation
from veen.core.encoding.shape import Fields
from veen.core.errors import ProtocolError
from veen.core.objects import labels
from veen.core.types import LeafHash
from veen.overlays.errors import InvalidBodyError
from veen.overlays.event import operation_id
from veen.overlays.operations.recovery import Recoveries, RecoveryPolicy
from veen.overlays.schema import ANY, Schema

CapOption = Annotated[Path | None, typer.Option("--cap", help="Capability token to use.")]
ParentOption = Annotated[
    str, typer.Option("--parent-op", help="Operation that this one belongs to: 64 hex digits.")
]
MetadataOption = Annotated[str, typer.Option("--metadata-json", help="Anything more, in JSON.")]


def make_body(schema: Schema, **values: Any) -> Fields:  # noqa: ANN401 - of its fields
    """Make a body; what the schema refuses is a mistake of whoever has written it."""
    try:
        return schema.make(**values)
    except (InvalidBodyError, ProtocolError) as error:
        raise UsageError(f"{schema.name}: {error}") from None


def from_json(schema: Schema, text: str, option: str) -> Fields:
    """Read a body in JSON; names that are unknown or missing are told first (CLI-106)."""
    value = parse_json(text, option)
    if isinstance(value, dict):
        known = [field.name for field in schema.fields]
        unknown = [name for name in value if name not in known]
        missing = [field.name for field in schema.fields if not field.optional and field.name not in value]
        if unknown:
            text = f"{schema.name} has no {', '.join(unknown)}; it has: {', '.join(known)}"
            raise UsageError(f"{option}: {text}")
        if missing:
            raise UsageError(f"{option}: {schema.name} needs {', '.join(missing)}")
    try:
        return schema.from_json(value)
    except (InvalidBodyError, ProtocolError) as error:
        raise UsageError(f"{option} is no {schema.name}: {error}") from None


def json_or_none(text: str, option: str) -> Any:  # noqa: ANN401 - JSON
    """Read JSON that only the application knows, if it is given."""
    if not text:
        return None
    try:
        return ANY.from_json(parse_json(text, option))
    except ProtocolError as error:
        raise UsageError(f"{option}: {error}") from None


def stream_ids(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return the ids of streams, sorted, each once."""
    return tuple(sorted({bytes(labels.stream_id(text)) for text in texts}))


def own_identity(client: Client) -> bytes:
    """Return the identity of the client that is used."""
    return bytes(client.session.secrets.identity.public_key)


def under(cap: Path | None) -> SendOptions:
    """Return how to send under a capability, if one is given."""
    return SendOptions(token=None if cap is None else read_token(cap))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOptions:
    """Where an operation is sent, and by whom: options, as ``option_groups`` expands them."""

    stream: StreamOption
    cap: CapOption = None
    at: ClientOptions

    def open(self) -> Client:
        """Open the client."""
        return self.at.open()

    def send(
        self,
        opened: Client,
        schema: Schema,
        body: Fields,
        *,
        parent_id: LeafHash | None = None,
        expires_at: int | None = None,
    ) -> Sent:
        """Send an operation."""
        return send_operation(
            opened,
            self.stream,
            schema,
            body,
            parent_id=parent_id,
            expires_at=expires_at,
            options=under(self.cap),
        )

    def send_and_show(self, schema: Schema, body: Fields, **more: str) -> None:
        """Send an operation, and print where it stands."""
        with self.open() as opened:
            sent = self.send(opened, schema, body)
        print_result({**described(schema, sent), **more}, common.json)


def described(schema: Schema, sent: Sent) -> dict[str, Any]:
    """Return what scripts want to know of an operation that was sent (CLI-105)."""
    return {
        "ok": True,
        "schema_name": schema.name,
        "stream_seq": sent.position,
        "msg_id": sent.msg_id.hex(),
        "operation_id": operation_id(sent.msg_id).hex(),
        "mmr_root": sent.receipt.mmr_root.hex(),
        "hub_ts": sent.receipt.hub_ts,
    }


def known_streams(opened: Client) -> list[str]:
    """Return the streams that a client has used at a hub, by name or id."""
    hub_id = opened.connect().identity.hub_id
    found = opened.session.home.load().labels.values()
    return sorted({kept.stream or kept.stream_id.hex() for kept in found if kept.hub_id == hub_id})


def present(found: dict[str, Any]) -> dict[str, Any]:
    """Return what there is to tell a person: scripts get the rest too."""
    return found if common.json else {name: value for name, value in found.items() if value is not None}


def refuse(found: dict[str, Any], detail: str, code: str) -> None:
    """Print what was found, and end with the code of a failed check."""
    if not common.json:
        print_result(present(found), as_json=False)
    raise FailedError(detail, code, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardians:
    """Who may approve a recovery: options, as ``option_groups`` expands them."""

    guardian: Annotated[
        list[str] | None, typer.Option(help="Identity that may approve: 64 hex digits; may be repeated.")
    ] = None
    threshold: Annotated[
        int | None, typer.Option(min=1, help="How many have to.  [default: all guardians]")
    ] = None

    @property
    def given(self) -> bool:
        """Whether anything is said about them."""
        return bool(self.guardian or self.threshold)

    def recoveries(self) -> Recoveries:
        """Return the fold of recoveries under one policy for all; without guardians, none counts."""
        ids = frozenset(hex32(text, "--guardian") for text in self.guardian or ())
        if not ids:
            if self.threshold is not None:
                raise UsageError("--threshold goes with --guardian")
            return Recoveries()
        try:
            return Recoveries(
                default_policy=RecoveryPolicy(ids, len(ids) if self.threshold is None else self.threshold)
            )
        except ValueError as error:
            raise UsageError(f"that can not be a policy: {error}") from None
