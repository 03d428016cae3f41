"""Calling a method over a stream: send a request, and wait for its reply (RPC0)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from veen.client.body import check_value
from veen.client.effects import Blocking
from veen.client.errors import RpcError, RpcTimeoutError
from veen.client.keys.identity_card import IdentityCard
from veen.client.models import Draft, Message, SendOptions, Sent
from veen.client.read import ReadOptions, StreamReader
from veen.client.send import Sender
from veen.client.session import Session
from veen.core.crypto import hpke
from veen.core.encoding.cbor import Value
from veen.core.objects import labels
from veen.core.types import LeafHash, ReaderSecretKey, VerifyKey
from veen.overlays.builtin.rpc import REPLY, REQUEST
from veen.overlays.errors import InvalidBodyError

# Duration of one long poll, and so the most by which a timeout may be exceeded.
_WAIT_SEC: Final = 5


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How a method is called.

    Attributes:
        timeout_ms: How long to wait for the reply.
        idem: Idempotency number: calls with the same method, caller and number have one effect and result.
        repeats: How often the request is resent, with growing pauses; needs ``idem``.
        servers: Only replies signed with one of these keys are accepted. Default: the keys of the card that
            the request is sealed to, else those of any writer of the stream.
        sending: How the request is sent, with its recipient and token.
    """

    timeout_ms: int = 10_000
    idem: int | None = None
    repeats: int = 0
    servers: frozenset[VerifyKey] = frozenset()
    sending: SendOptions = field(default_factory=SendOptions)

    @property
    def accepted(self) -> frozenset[VerifyKey]:
        """The keys whose replies are accepted; empty: every key."""
        card = self.sending.to
        if self.servers or not isinstance(card, IdentityCard):
            return self.servers
        return frozenset((card.id_sign, card.client_id))


async def call(
    session: Session, stream: str, method: str, args: Value, options: CallOptions | None = None
) -> Value:
    """Call a method and return its result.

    Raises:
        BodyError: CBOR cannot represent the arguments.
        RpcError: The method failed.
        RpcTimeoutError: No reply came in time.
        ValueError: ``repeats`` is set without ``idem``.
    """
    settings = options or CallOptions()
    if settings.repeats and settings.idem is None:
        raise ValueError("repeats needs idem: without it each repetition would be another call")
    check_value(args, "args")
    body = REQUEST.make(
        method=method,
        args=args,
        timeout_ms=settings.timeout_ms,
        reply_to=hpke.public_key(ReaderSecretKey(session.secrets.id_dh)),
        idem=settings.idem,
    )
    draft = Draft(None, schema=REQUEST.schema_id, encoded=REQUEST.encode(body))
    return await _request_and_wait(session, stream, draft, settings)


async def _request_and_wait(session: Session, stream: str, draft: Draft, options: CallOptions) -> Value:
    sending = options.sending
    if options.idem is not None:
        # The caller's key is part of the identity of a call (C-111), so it must not change.
        named = await Blocking(lambda: signs_with_identity(session, stream))
        sending = replace(sending, keep_key=True, as_identity=sending.as_identity or named)
    seconds = options.timeout_ms / 1000
    end = monotonic() + seconds
    waiting: PendingCall | None = None
    request_ids: set[LeafHash] = set()
    for attempt in range(options.repeats + 1):
        sent = (await Sender(session, stream, sending).send([draft]))[0]
        request_ids.add(sent.msg_id)
        waiting = waiting or PendingCall(session, stream, sent, options.accepted)
        # Each wait is twice the one before it, and the last one lasts to the end (RPC0-006).
        repeats_left = options.repeats - attempt
        until = (
            end if not repeats_left else monotonic() + seconds * 2**attempt / (2 ** (options.repeats + 1) - 1)
        )
        reply = await waiting.reply(request_ids, min(until, end))
        if reply is not None:
            return _result(reply)
    raise RpcTimeoutError(
        f"no reply in {options.timeout_ms} ms; it is unknown whether the method was executed"
        + ("" if options.idem is None else f": repeat the call with idem {options.idem}")
    )


def signs_with_identity(session: Session, stream: str) -> bool:
    """Return whether to sign with the identity key, which never changes.

    A token is bound to the client key: then that key must sign, and is not rotated (C-50).
    """
    client_id = session.secrets.client.signing_key.public_key
    return session.home.token_for(labels.stream_id(stream), client_id) is None


def _result(body: dict[str, Value]) -> Value:
    error = body.get("error")
    if not isinstance(error, dict):
        return body["result"]
    raise RpcError(str(error["code"]), str(error.get("detail") or ""))


class PendingCall:
    """Searches for the reply after a request, in its epoch and later ones."""

    def __init__(self, session: Session, stream: str, sent: Sent, servers: frozenset[VerifyKey]) -> None:
        self._session = session
        self._stream = stream
        self._servers = servers
        self._epoch = sent.epoch
        self._readers = [self._reader(sent.epoch, sent.position + 1)]

    def _reader(self, epoch: int, start: int) -> StreamReader:
        return StreamReader(self._session, self._stream, ReadOptions(start=start, epoch=epoch, peek=True))

    async def reply(self, request_ids: set[LeafHash], until: float) -> dict[str, Value] | None:
        """Return the reply to one of these requests; None if there is none until the deadline."""
        while True:
            self._follow_epochs()
            remaining = until - monotonic()
            for reader in self._readers:
                newest = reader is self._readers[-1]
                wait = max(0, min(_WAIT_SEC, round(remaining))) if newest else 0
                reply = self._find(await reader.fetch(wait), request_ids)
                if reply is not None:
                    return reply
            if remaining <= 0:
                return None

    def _follow_epochs(self) -> None:
        epoch_sec = self._session.profiles[0].epoch_sec
        now = labels.epoch_at(self._session.clock(), epoch_sec)
        while self._epoch < now:
            self._epoch += 1
            self._readers.append(self._reader(self._epoch, 1))

    def _find(self, messages: Iterable[Message], request_ids: set[LeafHash]) -> dict[str, Value] | None:
        for message in messages:
            header = message.header
            if header is None or header.schema != REPLY.schema_id or header.parent_id not in request_ids:
                continue
            if self._servers and message.sender not in self._servers:
                continue
            try:
                return REPLY.decode(message.raw_body())
            except InvalidBodyError:
                continue  # not a valid reply; one may still arrive
        return None
