"""Operations: typed messages of the operation profiles, signed by the identity that they state."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Final

from veen.client.client import Client
from veen.client.errors import ClientStateError
from veen.client.fold.interpret import typed
from veen.client.models import NO_OPTIONS, SendOptions, Sent
from veen.client.send import send_draft
from veen.client.tokens import Authorized
from veen.core.encoding.shape import Fields
from veen.core.objects.capability import CapToken
from veen.core.types import LeafHash, StreamId, VerifyKey
from veen.overlays.operations.access import bounds_of
from veen.overlays.operations.publication import Part
from veen.overlays.operations.schemas import GRANT, RECOVERY_EXECUTION, REVOKE
from veen.overlays.schema import Schema


def parts_of(paths: Iterable[Path]) -> list[Part]:
    """Return files as parts, with their names, and the files in directories, with their relative paths."""
    parts: list[Part] = []
    for path in paths:
        if path.is_dir():
            files = sorted(item for item in path.rglob("*") if item.is_file())
            parts += [_part(item, item.relative_to(path).as_posix()) for item in files]
        else:
            parts.append(_part(path, path.name))
    return parts


def _part(path: Path, name: str) -> Part:
    try:
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").digest()
            return Part(name, file.tell(), digest)
    except OSError as error:
        raise ClientStateError(f"{path} cannot be read: {error.strerror}") from None


# Fields that state the acting identity: a fold accepts them if its key signed the message (AGR-011, REC-011).
_SPEAKERS: Final = (
    "party_identity",
    "approver_identity",
    "publisher_identity",
    "agent_identity",
    "requester_identity",
)
# Schemas that are always signed by an identity.
_BY_IDENTITY: Final = frozenset({GRANT.name, REVOKE.name, RECOVERY_EXECUTION.name})


@dataclass(frozen=True, slots=True)
class Granted:
    """A grant that is in the log.

    Attributes:
        token: The capability token that it was minted as.
        authorized: The hub's response to the token.
        sent: The message with the grant.
    """

    token: CapToken
    authorized: Authorized
    sent: Sent


def speaks_as_identity(client: Client, schema: Schema, body: Fields) -> bool:
    """Return whether the identity key must sign: client keys rotate, and do not stand for the identity."""
    identity = bytes(client.session.secrets.identity.public_key)
    return schema.name in _BY_IDENTITY or any(body.get(name) == identity for name in _SPEAKERS)


def send_operation(
    client: Client,
    stream: str,
    schema: Schema,
    body: Fields,
    *,
    parent_id: LeafHash | None = None,
    expires_at: int | None = None,
    options: SendOptions = NO_OPTIONS,
) -> Sent:
    """Send an operation; ``body`` comes from ``schema.make``."""
    draft = typed(schema, body, parent_id=parent_id, expires_at=expires_at)
    options = replace(options, as_identity=speaks_as_identity(client, schema, body))
    return send_draft(client, stream, draft, options)


def grant_access(client: Client, stream: str, body: Fields) -> Granted:
    """Grant access: mint the token, register it at the hub, and send the grant (ACC-005)."""
    now = client.session.clock()
    ttl = body["expiry_time"] - now
    if ttl < 1:
        raise ClientStateError(
            f"the grant would expire at {body['expiry_time']}, which is in the past: it is {now}"
        )
    subject, streams, rate = bounds_of(body)
    token = CapToken.mint(
        client.session.secrets.identity,
        VerifyKey(subject),
        stream_ids=[StreamId(stream_id) for stream_id in streams],
        ttl=ttl,
        rate=rate,
    )
    authorized = client.authorize(token)
    return Granted(token, authorized, send_operation(client, stream, GRANT, body))
