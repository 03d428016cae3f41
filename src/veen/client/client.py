"""``Client``: one client of one hub, for blocking programs; ``AsyncClient`` is its counterpart for asyncio.

with Client.open("alice", "http://127.0.0.1:37411") as client:
    client.send("orders", {"item": "tea"})
    for message in client.read("orders"):
        print(message.position, message.body)
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from veen.client.effects import GetAttachment, Hub, Operation, run
from veen.client.errors import ClientStateError, DivergenceError
from veen.client.home.pins import Trust
from veen.client.home.state import Pin
from veen.client.keys.identity_card import IdentityCard
from veen.client.models import NO_OPTIONS, Draft, Message, Recipient, SendOptions, Sent
from veen.client.read import ReadOptions, read_stream
from veen.client.resync import Consistency, Progress, Resynced, resync, verify_state
from veen.client.retry import Retry
from veen.client.rpc.call import CallOptions, call
from veen.client.send import Sender, rotate, send_drafts
from veen.client.session import DEFAULT_ROTATION, Rotation, Session
from veen.client.session_setup import DEFAULT_RETRY, Passphrase, StrPath, named_hub, open_session
from veen.client.tokens import Authorized, authorize, cap_status
from veen.client.transport.resolve import DEFAULT_TIMEOUT_SEC, open_hub
from veen.core.api.tooling import CapStatusResponse
from veen.core.encoding.cbor import Value
from veen.core.objects.capability import CapToken
from veen.core.types import HubId, LeafHash, SchemaId, VerifyKey
from veen.overlays.schema import Schema
from veen.stdx.grammar import counted

if TYPE_CHECKING:
    from veen.client.fold.interpret import FoldedState
    from veen.overlays.overlay import Overlay

T = TypeVar("T")

CALL_TIMEOUT_SEC = 30.0


class Client:
    """One client of one hub; blocking, for one thread at a time.

    Example:
        with Client.open("alice", "http://127.0.0.1:37411") as client:
            client.send("orders", {"item": "tea"})

    Every method that needs the hub raises NetworkError if it cannot be reached, RejectedError if it rejects
    the request, PinError if it is not the pinned hub, and ProtocolError or DivergenceError if its response
    breaks a rule. All of them are a VeenError.
    """

    def __init__(self, session: Session, hub: Hub) -> None:
        self.session = session
        self.hub = hub

    @classmethod
    def open(
        cls,
        home: StrPath | None = None,
        hub: StrPath | None = None,
        *,
        hub_id: HubId | str | None = None,
        trust: Trust | None = None,
        passphrase: Passphrase | None = None,
        timeout: float = DEFAULT_TIMEOUT_SEC,
        retry: Retry = DEFAULT_RETRY,
        rotation: Rotation | None = DEFAULT_ROTATION,
    ) -> Self:
        """Open a client directory for use with a hub.

        Example:
            with Client.open("alice", "http://127.0.0.1:37411") as client:
                ...

        Omitted arguments are resolved as by the command line: from ``VEEN_CLIENT``, ``VEEN_HUB`` and
        ``VEEN_KEYSTORE_PASSPHRASE``, then the configuration file, then the default directories.

        Args:
            home: The client directory, as ``veen keygen`` creates it.
            hub: URL of the hub, or path of its data directory or of an exported set.
            hub_id: Accept only the hub with this id (bytes, or 64 hex digits).
            trust: Whether to pin a hub that this client has never seen.
            passphrase: Passphrase of the keystore, or a function that returns it.
            timeout: Seconds to wait for one response.
            retry: Retry policy: number of attempts, and pauses between them.
            rotation: When the client key is replaced automatically; None: never.

        Raises:
            ContextError: No client or no hub is named, and there is no default; or the URL is not valid.
            KeystoreError: The keystore is missing or damaged, or the passphrase is wrong.
        """
        address = named_hub(hub)
        session = open_session(
            home,
            address.name,
            hub_id=hub_id,
            trust=trust,
            passphrase=passphrase,
            retry=retry,
            rotation=rotation,
        )
        return cls(session, open_hub(address, timeout))

    def __enter__(self) -> Self:
        """Return the client; it is closed at the end of the ``with`` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close the connection to the hub, as the end of a ``with`` block does.

        Example:
            client.close()
        """
        self.hub.close()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation; evidence against the hub is written to the client directory."""
        try:
            return run(operation, self.hub)
        except DivergenceError as error:
            error.path = self.session.home.keep_fraud(error.fraud)
            raise

    # --- identity -------------------------------------------------------------------------------------------

    @property
    def identity(self) -> IdentityCard:
        """The identity card of this client, for others to seal messages to and issue tokens for."""
        return self.session.identity

    @property
    def client_id(self) -> VerifyKey:
        """The key that currently signs messages; it changes when the client rotates its key."""
        return self.session.client_id

    @property
    def hub_id(self) -> HubId:
        """The id of the hub; the client connects first if it has not yet."""
        return self.connect().identity.hub_id

    @property
    def home(self) -> Path:
        """The client directory."""
        return self.session.home.root

    # --- writing --------------------------------------------------------------------------------------------

    def send(
        self,
        stream: str,
        body: Value = None,
        *,
        schema: str | Schema | SchemaId | None = None,
        parent_id: "LeafHash | Message | Sent | None" = None,
        expires_at: int | datetime | None = None,
        attachments: Sequence[StrPath | bytes] = (),
        to: Recipient | None = None,
        token: CapToken | None = None,
    ) -> Sent:
        """Send a message; returns when the hub has it on disk and its receipt is verified.

        Example:
            sent = client.send("orders", {"item": "tea"}, schema="order.v1")

        Args:
            stream: Name of the stream, or its id of 64 hex digits.
            body: What deterministic CBOR can represent; integers from 0 to 2^64 - 1, no fractions.
            schema: Name or id of the body's schema, or the Schema that checks and encodes it.
            parent_id: The message that this one answers, or its id.
            expires_at: When readers should ignore it: seconds since 1970, or a datetime with a time zone.
            attachments: Paths of files, or their content.
            to: Identity card or key to seal to. Default: the members of the stream, or this client.
            token: Capability token to use. Default: the one that this client stores for the stream.

        Raises:
            BodyError: CBOR cannot represent the body.
            InvalidBodyError: The Schema rejects the body.
            UnsentError: The hub rejected an earlier message, which was set aside; send this one again.
            NetworkError: The hub cannot be reached. The next ``send`` to the stream delivers the message.
            OSError: An attachment cannot be read.
        """
        draft = Draft(
            body,
            schema=schema,
            parent_id=parent_id,
            expires_at=expires_at,
            attachments=tuple(attachments),
        )
        return self.run(Sender(self.session, stream, SendOptions(to=to, token=token)).send([draft]))[0]

    def send_many(
        self,
        stream: str,
        drafts: Iterable[Draft | Value],
        *,
        to: Recipient | None = None,
        token: CapToken | None = None,
    ) -> list[Sent]:
        """Send messages in order, many in one request; returns when the hub has all of them.

        Example:
            client.send_many("orders", [{"item": "tea"}, Draft({"item": "cup"}, schema="order.v1")])

        If one is rejected, those before it have been sent and the error is raised.

        Raises:
            BodyError: CBOR cannot represent a body.
            RejectedError: The hub rejected a message.
        """
        return list(self.iter_send_many(stream, drafts, to=to, token=token))

    def iter_send_many(
        self,
        stream: str,
        drafts: Iterable[Draft | Value],
        *,
        to: Recipient | None = None,
        token: CapToken | None = None,
    ) -> Iterator[Sent]:
        """Send messages like ``send_many``, lazily: drafts are consumed as the caller iterates.

        Example:
            for sent in client.iter_send_many("orders", read_orders()):
                print(sent.position)

        Raises:
            BodyError: CBOR cannot represent a body.
            RejectedError: The hub rejected a message.
        """
        return send_drafts(self, stream, drafts, SendOptions(to=to, token=token))

    def call(
        self,
        stream: str,
        method: str,
        args: Value = None,
        *,
        timeout: float = CALL_TIMEOUT_SEC,
        to: Recipient | None = None,
        token: CapToken | None = None,
        idem: int | None = None,
        repeats: int = 0,
        servers: Collection[VerifyKey] = (),
    ) -> Value:
        """Call a method of the server that answers on a stream, and return its result.

        Example:
            total = client.call("math", "add", {"a": 1, "b": 2}, to=card)

        Args:
            stream: The stream that the server reads.
            method: Name of the method.
            args: Its arguments.
            timeout: Seconds to wait for the reply.
            to: Identity card or key of the server. Only replies signed by the owner of a card are accepted.
            token: Capability token to use.
            idem: Idempotency number: a call with the same number is not executed again.
            repeats: How often to resend the request while there is no reply; needs ``idem``.
            servers: Keys whose replies are accepted. Default: those of the card, else of any writer.

        Raises:
            BodyError: CBOR cannot represent the arguments.
            RpcError: The method failed; ``code`` and ``detail`` are the server's.
            RpcTimeoutError: No reply came in time; it is unknown whether the method was executed.
        """
        options = CallOptions(
            timeout_ms=round(timeout * 1000),
            idem=idem,
            repeats=repeats,
            servers=frozenset(servers),
            sending=SendOptions(to=to, token=token),
        )
        return self.run(call(self.session, stream, method, args, options))

    def authorize(self, token: CapToken) -> Authorized:
        """Register a capability token at the hub; if it is for this client, store and use it.

        Example:
            client.authorize(CapToken.decode(Path("orders.cap").read_bytes()))

        Raises:
            ProtocolError: The token is not valid.
            RejectedError: The hub rejected the token.
        """
        return self.run(authorize(self.session, token))

    def flush(self, stream: str) -> int:
        """Resend messages that the hub has not answered, as the next ``send`` would; returns their number.

        Example:
            count = client.flush("orders")

        Raises:
            UnsentError: The hub rejected one of them, which was set aside.
            NetworkError: The hub cannot be reached; the messages stay stored.
        """
        return self.run(Sender(self.session, stream, NO_OPTIONS).flush())

    def cap_status(self, token: CapToken) -> CapStatusResponse:
        """Return what the hub knows about a capability token.

        Example:
            print(client.cap_status(token).expires_at)

        Raises:
            RejectedError: The hub rejected the request.
        """
        return self.run(cap_status(self.session, token))

    def rotate(self) -> None:
        """Replace the client key; nothing in the log links the new key to the old one.

        Example:
            client.rotate()

        Raises:
            KeystoreError: The keystore cannot be read.
            OSError: The keystore cannot be written.
        """
        with self.session.home.hold():
            rotate(self.session)

    # --- reading --------------------------------------------------------------------------------------------

    def read(
        self,
        stream: str,
        *,
        start: int = 1,
        stop: int | None = None,
        epoch: int | None = None,
        limit: int | None = None,
        prove: bool = False,
        resume: bool = False,
    ) -> Iterator[Message]:
        """Yield the entries of a stream up to its end; each is verified before it is yielded.

        Example:
            for message in client.read("orders", start=100):
                print(message.position, message.body)

        Args:
            stream: Name of the stream, or its id of 64 hex digits.
            start: Position of the first entry, in the first epoch that is read.
            stop: Position of the last entry.
            epoch: Read only this epoch.
            limit: Yield at most this many entries.
            prove: Request and verify an inclusion proof of each page as well.
            resume: Continue after the last page that this client finished reading with ``resume``. Entries
                are delivered at least once: after a crash, those of the last page are yielded again.

        Raises:
            ProtocolError: An entry fails a check; the entries before it have been yielded.
            DivergenceError: The hub signed two contradicting statements; the evidence is in ``path``.
        """
        options = ReadOptions(start=start, stop=stop, epoch=epoch, limit=limit, prove=prove, resume=resume)
        return read_stream(self, stream, options)

    def follow(
        self,
        stream: str,
        *,
        start: int = 1,
        stop: int | None = None,
        epoch: int | None = None,
        limit: int | None = None,
        prove: bool = False,
        resume: bool = False,
    ) -> Iterator[Message]:
        """Yield the entries of a stream like ``read``, then wait for more; ends only at ``limit``.

        Example:
            for message in client.follow("orders", resume=True):
                charge(message.body)

        Raises:
            ProtocolError: An entry fails a check; the entries before it have been yielded.
            DivergenceError: The hub signed two contradicting statements; the evidence is in ``path``.
        """
        options = ReadOptions(start=start, stop=stop, epoch=epoch, limit=limit, prove=prove, resume=resume)
        return read_stream(self, stream, options, follow=True)

    def attachment(self, message: Message, index: int = 0) -> bytes:
        """Fetch, verify and decrypt an attachment of a message.

        Example:
            data = client.attachment(message, 0)

        Raises:
            ClientStateError: The message has no attachment with this index.
            ProtocolError: What the hub returned does not belong to the message.
        """
        check_attachment(message, index)
        return message.open_attachment(index, self.run(fetch_attachment(message, index)))

    def fold(
        self, overlay: "Overlay", stream: str, *, upto: int | None = None, now: int | None = None
    ) -> "FoldedState":
        """Fold a stream with an overlay and return the state.

        Example:
            state = client.fold(Votes(), "poll")
            print(state["tea"], state.position, state.hash.hex())

        Summaries are cached in the client directory, so that the next fold reads only new entries.

        Args:
            overlay: How entries become state.
            stream: Name of the stream, or its id of 64 hex digits.
            upto: Position of the last entry to fold. Default: the end of the stream.
            now: The time at which the state is viewed, for overlays whose state depends on it.

        Raises:
            ProtocolError: An entry fails a check.
            TypeError: The overlay is not an instance of ``Overlay``.
        """
        from veen.client.fold.interpret import interpret  # noqa: PLC0415 - only needed by those who fold

        return interpret(self, overlay, stream, upto=upto, now=now)

    def resync(self, stream: str, progress: Progress | None = None) -> list[Resynced]:
        """Rebuild what this client stores about a stream from the hub.

        Example:
            for label in client.resync("orders"):
                print(label.epoch, label.last_stream_seq)

        Raises:
            ProtocolError: An entry fails a check.
        """
        return self.run(resync(self.session, stream, progress))

    def verify_state(self, stream: str) -> list[Consistency]:
        """Compare what this client stores about a stream with what the hub serves.

        Example:
            assert all(label.consistent for label in client.verify_state("orders"))

        Raises:
            NetworkError: The hub cannot be reached.
        """
        return self.run(verify_state(self.session, stream))

    def connect(self) -> Pin:
        """Ask the hub for its identity, and pin it if ``trust`` allows it.

        Example:
            print(client.connect().identity.hub_id.hex())

        Raises:
            PinError: The hub is unknown and not trusted, or is not the pinned one.
        """
        return self.run(self.session.connect())


def check_attachment(message: Message, index: int) -> None:
    """Reject an index for which the message has no attachment."""
    if not 0 <= index < len(message.attachments):
        raise ClientStateError(
            f"the message has {counted(len(message.attachments), 'attachment')}, counted from 0"
        )


async def fetch_attachment(message: Message, index: int) -> bytes:
    """Fetch a sealed attachment."""
    sealed: bytes = await GetAttachment(message.attachments[index].coid)
    return sealed
