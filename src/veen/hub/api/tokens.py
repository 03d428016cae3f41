"""Capability tokens at the hub: authorize, which returns a receipt, and status (C-53)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from veen.core.api.tooling import AuthorizeRequest, AuthorizeResponse, CapStatusRequest, CapStatusResponse
from veen.core.errors import ProtocolError
from veen.core.objects.capability import CapToken, expires_at
from veen.core.objects.labels import authorize_label
from veen.core.objects.new_entry import NewEntry
from veen.hub.api.bodies import JSON_FACTOR, decode, encode, require_cbor
from veen.hub.hub import Hub
from veen.hub.read.thread_pool import Job
from veen.net.http_message import JSON, Request
from veen.storage import StoreFullError

if TYPE_CHECKING:
    from veen.core.objects.receipt import Receipt

_ENVELOPE_BYTES = 16

Later = Callable[[Request, Job], None]


class TokenHandlers:
    """Handlers of tokens."""

    def __init__(self, hub: Hub, later: Later) -> None:
        self._hub = hub
        self._later = later
        self._label = authorize_label(hub.home.identity.hub_id)

    def max_body(self, content_type: str) -> int:
        """Return the maximum size of a request."""
        max_bytes = self._hub.limits.max_cap_bytes + _ENVELOPE_BYTES
        return JSON_FACTOR * max_bytes if content_type == JSON else max_bytes

    def authorize(self, request: Request) -> None:
        """Authorize the token of {1: ver, 2: cap_token}."""
        self._take(request, decode(request, AuthorizeRequest, self._hub.limits).cap_token)

    def authorize_bare(self, request: Request) -> None:
        """Authorize a bare token, as older releases send it."""
        require_cbor(request)
        self._take(request, CapToken.decode(request.body, self._hub.limits))

    def _take(self, request: Request, token: CapToken) -> None:
        """Verify the token in a reader's thread, then record it in the sequencer's."""

        def checked(job: Job) -> None:
            if job.error is not None:
                self._later(request, job)
            elif not self._hub.has_turn:
                self._hub.metrics.overloaded += 1
                job.error = StoreFullError("too many tokens are being authorized; retry later")
                self._later(request, job)
            else:
                self._hub.turn(
                    lambda: encode(request, self._record(token)), lambda job: self._later(request, job)
                )

        self._hub.read(token.verify, checked)

    def _record(self, token: CapToken) -> AuthorizeResponse:
        """Append the token to the log, unless it is there already. For the sequencer's thread."""
        hub = self._hub
        hub.sequencer.authority.verify_issuer(token)
        known = hub.reader.auth(token.auth_ref)
        if known is not None and known.authorize_seq:
            receipt: Receipt = hub.reader.entry(self._label, known.authorize_seq).receipt
        else:
            receipt = hub.sequencer.append(NewEntry.of_token(self._label, token))
            known = hub.reader.auth(token.auth_ref)
        assert known is not None
        return AuthorizeResponse(
            auth_ref=token.auth_ref, expires_at=expires_at(token, known.issued_at), record=receipt
        )

    def status(self, request: CapStatusRequest) -> CapStatusResponse:
        """Return whether a message with this token would be accepted now."""
        hub = self._hub
        token = hub.reader.token(request.auth_ref)
        known = hub.reader.auth(request.auth_ref)
        if token is None or known is None:
            return CapStatusResponse(
                auth_ref=request.auth_ref,
                hub_known=False,
                hub_currently_valid=False,
                revoked=False,
                reason="the hub does not know the token; authorize it first",
            )
        now = hub.sequencer.hub_ts()
        last = expires_at(token, known.issued_at)
        revoked = hub.sequencer.authority.revocation_of(token, now)
        reason = self._refusal(token) or (f"expired at {last}" if now > last else None)
        if revoked is not None:
            reason = revoked.reason or "revoked"
        return CapStatusResponse(
            auth_ref=request.auth_ref,
            hub_known=True,
            hub_currently_valid=reason is None,
            revoked=revoked is not None,
            issued_at=known.issued_at,
            expires_at=last,
            revocation_kind=None if revoked is None else revoked.target_kind,
            revocation_ts=None if revoked is None else revoked.ts,
            reason=reason,
        )

    def _refusal(self, token: CapToken) -> str | None:
        try:
            self._hub.sequencer.authority.verify_issuer(token)
        except ProtocolError as error:
            return error.message
        return None
