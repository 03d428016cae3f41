"""Capability tokens at the hub: registration and status."""

from dataclasses import dataclass

from veen.client.effects import Blocking
from veen.client.home.state import Pin
from veen.client.session import Session
from veen.core.api.tooling import AuthorizeRequest, AuthorizeResponse, CapStatusRequest, CapStatusResponse
from veen.core.errors import Detail, ProtocolError
from veen.core.objects.capability import CapToken
from veen.core.objects.receipt import Receipt
from veen.core.types import AuthRef


@dataclass(frozen=True, slots=True)
class Authorized:
    """A capability token that the hub accepts.

    Attributes:
        auth_ref: The id of the token.
        expires_at: When it expires, in seconds since 1970.
        record: The receipt of its entry in the hub's log of tokens.
    """

    auth_ref: AuthRef
    expires_at: int
    record: Receipt


async def authorize(session: Session, token: CapToken) -> Authorized:
    """Register a token at the hub; if it is for this client, it is stored and used from then on."""
    await session.connect()
    token.verify()
    answer = await session.ask(AuthorizeRequest(cap_token=token), AuthorizeResponse)
    if answer.auth_ref != token.auth_ref:
        raise ProtocolError(Detail.AUTH_REF, "the response is about another token", field="auth_ref")
    await session.check_signed(lambda pin: _verify_record(pin, answer.record))
    if token.subject_pk in session.secrets.client_ids():
        await Blocking(lambda: session.home.keep_token(token))
    return Authorized(answer.auth_ref, answer.expires_at, answer.record)


def _verify_record(pin: Pin, record: Receipt) -> None:
    pin.identity.verify_receipt(record)


async def cap_status(session: Session, token: CapToken) -> CapStatusResponse:
    """Request the status of a token from the hub."""
    return await session.ask(CapStatusRequest(auth_ref=token.auth_ref), CapStatusResponse)
