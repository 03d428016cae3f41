"""Shared by the operation commands: parsing bodies, sending them, and printing the result."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from veen.cli.client import ClientOptions, StreamOption, parse_json
from veen.cli.commands.send import read_token
from veen.cli.errors import FailedError, UsageError
from veen.cli.options import CAP_HELP, METADATA_HELP, hex32
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
from veen.stdx.grammar import by_count

CapOption = Annotated[Path | None, typer.Option("--cap", help=CAP_HELP)]
ParentOption = Annotated[str, typer.Option("--parent-op", help="Id of the parent operation: 64 hex digits.")]
MetadataOption = Annotated[str, typer.Option("--metadata-json", help=METADATA_HELP)]


def make_body(schema: Schema, **values: Any) -> Fields:  # noqa: ANN401 - of its fields
    """Build a body; values that the schema rejects are usage errors."""
    try:
        return schema.make(**values)
    except (InvalidBodyError, ProtocolError) as error:
        raise UsageError(f"{schema.name}: {error}") from None


def from_json(schema: Schema, text: str, option: str) -> Fields:
    """Parse a body in JSON; unknown and missing fields are reported first (CLI-106)."""
    value = parse_json(text, option)
    if isinstance(value, dict):
        known = [field.name for field in schema.fields]
        unknown = [name for name in value if name not in known]
        missing = [field.name for field in schema.fields if not field.optional and field.name not in value]
        if unknown:
            fields = by_count(len(unknown), "field", "fields")
            text = (
                f"{schema.name} does not have the {fields} {', '.join(unknown)}; its fields are: "
                f"{', '.join(known)}"
            )
            raise UsageError(f"{option}: {text}")
        if missing:
            fields = by_count(len(missing), "field", "fields")
            raise UsageError(f"{option}: {schema.name} requires the {fields} {', '.join(missing)}")
    try:
        return schema.from_json(value)
    except (InvalidBodyError, ProtocolError) as error:
        raise UsageError(f"{option} is not a valid {schema.name}: {error}") from None


def json_or_none(text: str, option: str) -> Any:  # noqa: ANN401 - JSON
    """Parse application-defined JSON, if the option has a value."""
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
    """Return the identity of the client."""
    return bytes(client.session.secrets.identity.public_key)


def under(cap: Path | None) -> SendOptions:
    """Return the options to send with a capability token, if one is given."""
    return SendOptions(token=None if cap is None else read_token(cap))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOptions:
    """Options to send an operation (see ``option_groups``)."""

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
        """Send an operation, and print its position."""
        with self.open() as opened:
            sent = self.send(opened, schema, body)
        print_result({**described(schema, sent), **more}, common.json)


def described(schema: Schema, sent: Sent) -> dict[str, Any]:
    """Return the fields of a sent operation that are printed (CLI-105)."""
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
    label_states = opened.session.home.load().labels.values()
    return sorted(
        {
            label_state.stream or label_state.stream_id.hex()
            for label_state in label_states
            if label_state.hub_id == hub_id
        }
    )


def present(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields to print: people see only those that are set."""
    return fields if common.json else {name: value for name, value in fields.items() if value is not None}


def fail_check(fields: dict[str, Any], detail: str, code: str) -> None:
    """Print the result, and raise the error of a failed check."""
    if not common.json:
        print_result(present(fields), as_json=False)
    raise FailedError(detail, code, fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardians:
    """Options that define the guardians of identities (see ``option_groups``)."""

    guardian: Annotated[
        list[str] | None, typer.Option(help="Identity of a guardian: 64 hex digits; may be repeated.")
    ] = None
    threshold: Annotated[
        int | None, typer.Option(min=1, help="Number of approvals required. Default: all guardians.")
    ] = None

    @property
    def given(self) -> bool:
        """Whether any of the options is given."""
        return bool(self.guardian or self.threshold)

    def recoveries(self) -> Recoveries:
        """Return the overlay of recoveries under one policy; without guardians, none is valid."""
        ids = frozenset(hex32(text, "--guardian") for text in self.guardian or ())
        if not ids:
            if self.threshold is not None:
                raise UsageError("--threshold requires --guardian")
            return Recoveries()
        try:
            return Recoveries(
                default_policy=RecoveryPolicy(ids, len(ids) if self.threshold is None else self.threshold)
            )
        except ValueError as error:
            raise UsageError(f"--threshold: {error}") from None
