"""Answering calls over a stream, each once, also across restarts (RPC0-005).

What was begun and what was answered is kept in a journal, synced before anything is done: a method is run at
most once for a call. If the program ends while it runs, the caller is told so, unless it may be run again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import lmdb

from veen.client.bodies import BodyError, encode_body
from veen.client.calling import RpcError
from veen.client.client import FOLLOW_SEC, Client
from veen.client.errors import StateError
from veen.client.files import Hold
from veen.client.reading import Message, StreamReader
from veen.client.sending import Draft, Options, Sending
from veen.client.session import Session
from veen.client.steps import Steps, do
from veen.client.vault import Vault
from veen.core import cbor, labels
from veen.core.cbor import Value
from veen.core.errors import ProtocolError
from veen.core.types import LeafHash, ReaderPublicKey
from veen.overlays.rpc import REPLY, REQUEST, call_key, failure, success
from veen.overlays.schema import RejectedError

RPC_DIR: Final = "rpc"
#: Room that is reserved in the address space, not on the disk.
_MAP_BYTES: Final = 1 << 34


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a method is to answer."""

    method: str
    args: Value
    #: Who calls: the key that the request is signed with.
    client_id: bytes
    msg_id: LeafHash
    hub_ts: int
    #: The same for a call that is repeated: by this an effect elsewhere can be made once.
    key: bytes
    #: Whether the method may have been run for this call before.
    again: bool = False


Method = Callable[[Call], Value]


@dataclass(frozen=True, slots=True)
class Handled:
    """A request that was dealt with."""

    msg_id: LeafHash
    method: str
    #: What was answered.
    reply: dict[str, Any]
    #: Whether the method was run for it now, and not before.
    ran: bool
    #: What a method has raised that was no RpcError.
    error: Exception | None = None


class Journal:
    """Which calls were begun and which were answered, in a file of the client's directory."""

    def __init__(self, session: Session, stream: str) -> None:
        stream_id = labels.stream_id(stream)
        place = session.home.root / RPC_DIR
        place.mkdir(mode=0o700, exist_ok=True)
        self._lock = Hold(place / f"{stream_id.hex()}.lock")
        if not self._lock.take():
            raise StateError(f"another process of this client answers calls on {stream} already")
        self._vault = Vault(session.secrets, b"rpc" + stream_id, session.random)
        self._rows = lmdb.open(
            str(place / f"{stream_id.hex()}.lmdb"), subdir=False, map_size=_MAP_BYTES, mode=0o600
        )

    def reply(self, key: bytes) -> tuple[bool, bytes | None]:
        """Return whether a call was begun, and how it was answered."""
        kept = self._get(b"call" + key)
        return kept is not None, kept or None

    def begin(self, key: bytes) -> None:
        """Note that a method is about to be run."""
        self._put(b"call" + key, b"")

    def finish(self, key: bytes, reply: bytes) -> None:
        """Note how a call is answered."""
        self._put(b"call" + key, reply)

    def is_answered(self, msg_id: LeafHash) -> bool:
        """Tell whether a reply to this request was sent."""
        return self._get(b"sent" + msg_id) is not None

    def note_answered(self, msg_id: LeafHash) -> None:
        """Note that a reply to this request was sent."""
        self._put(b"sent" + msg_id, b"")

    def _get(self, name: bytes) -> bytes | None:
        row = self._vault.name(name)
        with self._rows.begin() as found:
            sealed = found.get(row)
        return None if sealed is None else self._vault.open(row, sealed)

    def _put(self, name: bytes, value: bytes) -> None:
        row = self._vault.name(name)
        with self._rows.begin(write=True) as changed:  # synced when it ends
            changed.put(row, self._vault.seal(row, value))

    def close(self) -> None:
        """Let go of the file."""
        self._rows.close()
        self._lock.close()


class RpcServer:
    """Methods by name, and the stream whose requests they answer.

    A server has a client directory of its own: it goes on where it has stopped reading.
    """

    def __init__(self, session: Session, stream: str, options: Options | None = None) -> None:
        """``options`` are those of replies; each is sealed to the key that its request names."""
        self._session = session
        self._stream = stream
        self._options = options or Options()
        self._methods: dict[str, tuple[Method, bool]] = {}
        self._reader = StreamReader(session, stream, resume=True)
        self._journal: Journal | None = None

    def add(self, name: str, method: Method, *, repeatable: bool = False) -> None:
        """Answer calls of a name; ``repeatable``: run it again if it was interrupted."""
        self._methods[name] = (method, repeatable)

    def method(self, name: str, *, repeatable: bool = False) -> Callable[[Method], Method]:
        """Answer calls of a name with the function below."""

        def added(function: Method) -> Method:
            self.add(name, function, repeatable=repeatable)
            return function

        return added

    def close(self) -> None:
        """Let go of the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    @property
    def at_end(self) -> bool:
        """Whether all requests that are there were dealt with."""
        return self._reader.at_end

    def step(self, wait_sec: int = 0) -> Steps[list[Handled]]:
        """Answer the next requests; none at the end, or if none has come in that time."""
        if self._journal is None:
            self._journal = yield from do(lambda: Journal(self._session, self._stream))
        handled = []
        for message in (yield from self._reader.fetch(wait_sec)):
            done = yield from self._handle(message, self._journal)
            handled += [done] if done is not None else []
        return handled

    def _handle(self, message: Message, journal: Journal) -> Steps[Handled | None]:
        header = message.header
        if header is None or header.schema != REQUEST.schema_id:
            return None
        if (yield from do(lambda: journal.is_answered(message.msg_id))):
            return None
        error: Exception | None
        try:
            body = REQUEST.decode(message.raw_body())
        except RejectedError as refused:
            body = {"method": ""}
            reply, ran, error = failure("RPC.MALFORMED", str(refused)), False, None
        else:
            reply, ran, error = yield from self._result(message, body, journal)
        yield from self._answer(message, body.get("reply_to"), reply)
        yield from do(lambda: journal.note_answered(message.msg_id))
        return Handled(message.msg_id, body["method"], REPLY.decode(reply), ran, error)

    def _result(
        self, message: Message, body: dict[str, Any], journal: Journal
    ) -> Steps[tuple[bytes, bool, Exception | None]]:
        """Return the reply to a call: that of before, or what the method says now."""
        parts = call_key(body["method"], message.client_id, body.get("idem"), message.msg_id)
        key = cbor.encode(parts)
        begun, reply = yield from do(lambda: journal.reply(key))
        if reply is not None:
            return reply, False, None
        method, repeatable = self._methods.get(body["method"], (None, False))
        refusal = self._refusal(message, body, method, interrupted=begun and not repeatable)
        if refusal is not None or method is None:
            made = refusal or failure("RPC.UNKNOWN_METHOD")
            yield from do(lambda: journal.finish(key, made))
            return made, False, None
        yield from do(lambda: journal.begin(key))
        called = Call(
            body["method"],
            body["args"],
            message.client_id,
            message.msg_id,
            message.receipt.hub_ts,
            key,
            again=begun,
        )
        answered, error = yield from do(lambda: _run(method, called))
        yield from do(lambda: journal.finish(key, answered))
        return answered, True, error

    def _refusal(
        self, message: Message, body: dict[str, Any], method: Method | None, *, interrupted: bool
    ) -> bytes | None:
        """Return why a method is not run."""
        if interrupted:
            return failure("RPC.INTERRUPTED", "the server ended in the middle of this call")
        if method is None:
            known = ", ".join(sorted(self._methods)) or "none"
            return failure("RPC.UNKNOWN_METHOD", f"there is no method {body['method']!r}; there are: {known}")
        timeout_ms = body.get("timeout_ms")
        waited_ms = (self._session.clock() - message.receipt.hub_ts) * 1000
        if timeout_ms is not None and waited_ms > timeout_ms + 1000:  # hubs tell time in whole seconds
            return failure("RPC.EXPIRED", f"the caller has waited for {timeout_ms} ms only")
        return None

    def _answer(self, message: Message, reply_to: bytes | None, reply: bytes) -> Steps[None]:
        to = self._options.to if reply_to is None else ReaderPublicKey(reply_to)
        options = Options(to=to, token=self._options.token, as_identity=self._options.as_identity)
        draft = Draft(None, schema=REPLY.schema_id, parent_id=message.msg_id, encoded=reply)
        try:
            yield from Sending(self._session, self._stream, options).send([draft])
        except ProtocolError:
            if reply_to is None:
                raise
            # Nothing can be sealed to the key that the caller gave: he has asked for no reply.


def _run(method: Method, call: Call) -> tuple[bytes, Exception | None]:
    try:
        result = method(call)
        encode_body(result)
        return success(result), None
    except RpcError as error:
        return failure(error.code, error.detail), None
    except BodyError as error:
        return failure("RPC.RESULT", f"the method returns what CBOR can not hold: {error}"), error
    except Exception as error:  # noqa: BLE001 - of whoever wrote the method; the caller is told, and the server
        return failure("RPC.INTERNAL", f"the method has failed: {type(error).__name__}"), error


def serve(client: Client, server: RpcServer, *, follow: bool = True) -> Iterator[Handled]:
    """Answer calls as they come, for ever; without ``follow``, those that are there."""
    try:
        while True:
            yield from client.run(server.step(FOLLOW_SEC if follow else 0))
            if server.at_end and not follow:
                return
    finally:
        server.close()
