"""The RPC server: answers the calls on a stream, each at most once, also across restarts (RPC0-005).

Begun and answered calls are recorded in a journal, synced before a method runs, so that it runs at most once
for a call. If the program ends while it runs, the caller gets an error, unless the method is repeatable.
Calls that never began are not recorded: a call that was rejected may be repeated.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, overload

from veen.client.body import encode_body
from veen.client.effects import Blocking, Sleep
from veen.client.errors import (
    BodyError,
    NetworkError,
    RejectedError,
    RpcError,
)
from veen.client.models import NO_OPTIONS, Draft, Message, SendOptions
from veen.client.read import FOLLOW_SEC, ReadOptions, StreamReader
from veen.client.rpc.call import signs_with_identity
from veen.client.rpc.journal import Journal
from veen.client.send import Sender
from veen.client.session import Driver, Session
from veen.core.encoding import cbor
from veen.core.encoding.cbor import Value
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.capability import CapToken
from veen.core.types import LeafHash, ReaderPublicKey
from veen.overlays.builtin.rpc import REPLY, REQUEST, call_key, failure, success
from veen.overlays.errors import InvalidBodyError
from veen.stdx.backoff import backoff_sec

_log = logging.getLogger(__name__)

# Errors quote untrusted input up to this length.
_MAX_DETAIL_CHARS: Final = 300
# Assumed clock skew between servers and hubs.
_SKEW_SEC: Final = 60
# Backoff while a hub cannot be reached.
_FIRST_PAUSE_SEC, _LAST_PAUSE_SEC = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call, as a method gets it.

    Attributes:
        method: Name of the method.
        args: Its arguments.
        client_id: The key that signed the request.
        msg_id: The id of the request.
        hub_ts: When the hub accepted the request, in seconds since 1970.
        key: The same for all repetitions of a call, as an idempotency key for effects elsewhere.
        again: Whether the method may have been executed for this call before.
    """

    method: str
    args: Value
    client_id: bytes
    msg_id: LeafHash
    hub_ts: int
    key: bytes
    again: bool = False


Method = Callable[[Call], Value]


@dataclass(frozen=True, slots=True)
class Handled:
    """A request that was answered.

    Attributes:
        msg_id: The id of the request.
        method: Name of the method; empty if the request is malformed.
        reply: The body of the reply.
        ran: Whether the method was executed for it.
        repeated: Whether the reply is that of an earlier request of the same call.
        error: What the method raised, unless it was an RpcError.
    """

    msg_id: LeafHash
    method: str
    reply: dict[str, Any]
    ran: bool
    repeated: bool = False
    error: BaseException | None = None


class _Answer:
    """The reply to a request, and how it came about."""

    def __init__(self, reply: bytes, *, ran: bool = False, repeated: bool = False) -> None:
        self.reply = reply
        self.ran = ran
        self.repeated = repeated
        self.error: BaseException | None = None


class ServerEvents(Protocol):
    """What a running server reports."""

    def handled(self, handled: Handled) -> None:
        """A call was answered."""

    def unreachable(self, error: NetworkError) -> None:
        """The hub cannot be reached; the server retries."""


class Responder:
    """Methods by name, and the operations that answer requests with them."""

    def __init__(self, session: Session, stream: str, options: SendOptions = NO_OPTIONS) -> None:
        """``options`` are those of replies; each reply is sealed to the key that its request names."""
        self._session = session
        self._stream = stream
        self._options = options
        self._methods: dict[str, tuple[Method, bool]] = {}
        self._reader = self._new_reader()
        self._journal: Journal | None = None
        # Entries that were read but not handled yet.
        self._waiting: deque[Message] = deque()

    def add(self, name: str, method: Method, *, repeatable: bool = False) -> None:
        """Register a method; ``repeatable``: execute interrupted calls again."""
        self._methods[name] = (method, repeatable)

    def close(self) -> None:
        """Close the journal. If the responder is used again, it rereads requests that it has not answered."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._reader = self._new_reader()
        self._waiting.clear()

    def _new_reader(self) -> StreamReader:
        return StreamReader(self._session, self._stream, ReadOptions(resume=True))

    @property
    def at_end(self) -> bool:
        """Whether all pending requests were handled."""
        return self._reader.at_end and not self._waiting

    async def step(self, wait_sec: int = 0) -> Handled | None:
        """Answer the next request; None if none arrives within ``wait_sec``."""
        if self._journal is None:
            self._journal = await self._open_journal()
        if not self._waiting:
            self._waiting.extend(await self._reader.fetch(wait_sec))
        while self._waiting:
            handled = await self._handle(self._waiting[0], self._journal)
            self._waiting.popleft()  # only now: after an interrupt, it is handled again
            if handled is not None:
                return handled
        return None

    async def _open_journal(self) -> Journal:
        journal = Journal(self._session, self._stream)
        try:
            await Blocking(journal.open)
        except BaseException:
            journal.close()  # the cancelled work may have opened it
            raise
        return journal

    async def serve(self, events: ServerEvents, *, follow: bool = True, limit: int | None = None) -> None:
        """Answer requests as they arrive, at most ``limit``; without ``follow``, only pending ones.

        While the hub cannot be reached, it retries with backoff; without ``follow``, it raises the error.
        """
        failures = count = 0
        while limit is None or count < limit:
            try:
                handled = await self.step(FOLLOW_SEC if follow else 0)
            except NetworkError as error:
                if not follow:
                    raise
                events.unreachable(error)
                failures += 1
                await Sleep(backoff_sec(failures, first_sec=_FIRST_PAUSE_SEC, cap_sec=_LAST_PAUSE_SEC))
                continue
            failures = 0
            if handled is not None:
                count += 1
                events.handled(handled)
            elif self.at_end and not follow:
                return

    async def _handle(self, message: Message, journal: Journal) -> Handled | None:
        header = message.header
        if header is None or header.schema != REQUEST.schema_id:
            return None
        if await Blocking(lambda: journal.is_answered(message.msg_id)):
            return None
        method, reply_to = "", None
        try:
            body = REQUEST.decode(message.raw_body())
        except InvalidBodyError as error:
            answer = _Answer(failure("RPC.MALFORMED", _short(str(error))))
        else:
            method, reply_to = body["method"], body.get("reply_to")
            answer = await self._result(message, body, journal)
        await self._send(message, reply_to, answer)
        await Blocking(lambda: journal.note_answered(message.msg_id))
        reply = REPLY.decode(answer.reply)
        return Handled(message.msg_id, method, reply, answer.ran, answer.repeated, answer.error)

    async def _result(self, message: Message, body: dict[str, Any], journal: Journal) -> _Answer:
        """Return the answer to a call: the recorded one, or that of the method."""
        key = cbor.encode(
            call_key(body["method"], message.sender, body.get("idem"), message.msg_id),
        )
        begun, reply = await Blocking(lambda: journal.reply(key))
        if reply is not None:
            return _Answer(reply, repeated=True)
        method, repeatable = self._methods.get(body["method"], (None, False))
        if begun and not repeatable:
            interrupted = _Answer(failure("RPC.INTERRUPTED", "the server ended in the middle of this call"))
            await Blocking(lambda: journal.finish(key, interrupted.reply))
            return interrupted
        if method is None:
            return _Answer(self._unknown(body["method"]))
        if self._has_expired(message, body):
            return _Answer(failure("RPC.EXPIRED", "the caller has given up; the method was not run"))
        await Blocking(lambda: journal.begin(key))
        sender, hub_ts = message.sender, message.receipt.hub_ts
        call = Call(body["method"], body["args"], sender, message.msg_id, hub_ts, key, again=begun)
        answer = await Blocking(lambda: self._run(method, call))
        await Blocking(lambda: journal.finish(key, answer.reply))
        return answer

    def _unknown(self, name: str) -> bytes:
        known = ", ".join(sorted(self._methods)) or "none"
        text = f"unknown method {_short(name, 60)!r}; known methods: {known}"
        return failure("RPC.UNKNOWN_METHOD", _short(text))

    def _has_expired(self, message: Message, body: dict[str, Any]) -> bool:
        """Return whether the caller no longer waits for the result."""
        timeout_ms = body.get("timeout_ms")
        waited_ms = (self._session.clock() - message.receipt.hub_ts) * 1000
        return timeout_ms is not None and waited_ms > timeout_ms + _SKEW_SEC * 1000

    def _run(self, method: Method, call: Call) -> _Answer:
        error: BaseException | None = None
        try:
            result = method(call)
            encode_body(result)
            reply = success(result)
        except RpcError as rejection:
            reply = failure(str(rejection.code), _short(str(rejection.detail)))
        except BodyError as raised:
            reply, error = failure("RPC.RESULT", _short(str(raised))), raised
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - a bug of the method; logged, and reported to the caller
            text = f"the method has failed: {type(raised).__name__}"
            reply, error = failure("RPC.INTERNAL", text), raised
        answer = _Answer(reply, ran=True)
        answer.error = error
        return answer

    # --- replies --------------------------------------------------------------------------------------------

    async def _send(self, message: Message, reply_to: bytes | None, answer: _Answer) -> None:
        """Send the reply; if it is too large for a message, send an error instead."""
        try:
            await self._send_bytes(message, reply_to, answer.reply)
        except (ProtocolError, RejectedError) as error:
            if not _is_too_large(error):
                raise
            answer.reply = failure(
                "RPC.RESULT", f"the result has {len(answer.reply)} bytes, too many to send"
            )
            await self._send_bytes(message, reply_to, answer.reply)

    async def _send_bytes(self, message: Message, reply_to: bytes | None, reply: bytes) -> None:
        to = self._options.to if reply_to is None else ReaderPublicKey(reply_to)
        named = await Blocking(lambda: signs_with_identity(self._session, self._stream))
        options = replace(self._options, to=to, as_identity=self._options.as_identity or named)
        draft = Draft(None, schema=REPLY.schema_id, parent_id=message.msg_id, encoded=reply)
        try:
            await Sender(self._session, self._stream, options).send([draft])
        except ProtocolError as error:
            if reply_to is None or error.detail is not Detail.DH_ZERO:
                raise
            # Nothing can be sealed to the key in the request, so the caller gets no reply.


def _short(text: str, max_chars: int = _MAX_DETAIL_CHARS) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}..."


def _is_too_large(error: ProtocolError | RejectedError) -> bool:
    return error.code == Code.SIZE


class RpcServer:
    """Answers the calls on a stream, with a blocking client.

    Example:
        server = RpcServer(client, "math")

        @server.method
        def add(call):
            return call.args["a"] + call.args["b"]

        server.run()

    Each call is executed at most once, also across restarts. A server needs a client directory of its own,
    because it resumes after the entries that the client has consumed. Replies are sealed to the key that the
    request names, and signed with the identity key, which callers know from the card; with a token, they are
    signed with the client key.
    """

    def __init__(self, client: Driver, stream: str, *, token: CapToken | None = None) -> None:
        self._client = client
        self._responder = Responder(client.session, stream, SendOptions(token=token))

    @overload
    def method(self, fn: Method, *, name: str | None = None, repeatable: bool = False) -> Method: ...
    @overload
    def method(self, *, name: str | None = None, repeatable: bool = False) -> Callable[[Method], Method]: ...
    def method(
        self, fn: Method | None = None, *, name: str | None = None, repeatable: bool = False
    ) -> Method | Callable[[Method], Method]:
        """Register the decorated function, which gets a ``Call`` and returns the result, as a method.

        To fail a call, the function raises ``RpcError(code, detail)``.

        Example:
            @server.method(name="sum", repeatable=True)
            def add(call):
                return sum(call.args)

        Args:
            fn: The function, if the decorator is used without arguments.
            name: Name of the method. Default: the name of the function.
            repeatable: Execute a call again if the server ended while it was executed.

        Raises:
            ValueError: The function has no name, and none was passed.
        """

        def added(function: Method) -> Method:
            self._responder.add(name or name_of(function), function, repeatable=repeatable)
            return function

        return added if fn is None else added(fn)

    def run(self) -> None:
        """Answer calls until interrupted. Network errors are logged and retried.

        Example:
            server.run()

        Raises:
            ClientStateError: Another process of this client answers calls on the stream.
            RejectedError: The hub rejected a reply.
        """
        try:
            self._client.run(self._responder.serve(LoggedEvents()))
        finally:
            self.close()

    def run_pending(self) -> list[Handled]:
        """Answer the pending calls, and return how each was handled.

        Example:
            for handled in server.run_pending():
                print(handled.method, handled.reply)

        Raises:
            ClientStateError: Another process of this client answers calls on the stream.
            NetworkError: The hub cannot be reached.
        """
        collected = CollectedEvents()
        try:
            self._client.run(self._responder.serve(collected, follow=False))
        finally:
            self.close()
        return collected.done

    def close(self) -> None:
        """Close the journal of calls, as ``run`` and ``run_pending`` do at their end.

        Example:
            server.close()
        """
        self._responder.close()


def name_of(function: Callable[..., object]) -> str:
    """Return the name of a function, as the default name of a method."""
    name = getattr(function, "__name__", "")
    if not name:
        raise ValueError(f"{function!r} has no name; use method(name=...)")
    return str(name)


class LoggedEvents:
    """Writes the events of a server to the log of the program."""

    def handled(self, handled: Handled) -> None:
        """Log what a method raised; its caller only gets the type of the error."""
        if handled.error is not None:
            _log.error("%s raised %r", handled.method, handled.error, exc_info=handled.error)

    def unreachable(self, error: NetworkError) -> None:
        """Log that the hub cannot be reached."""
        _log.warning("%s; retrying", error)


class CollectedEvents:
    """Collects handled requests in a list."""

    def __init__(self) -> None:
        self.done: list[Handled] = []

    def handled(self, handled: Handled) -> None:
        """Append a handled request."""
        self.done.append(handled)

    def unreachable(self, error: NetworkError) -> None:
        """Raise the error: without ``follow``, the server does not retry."""
        raise error
