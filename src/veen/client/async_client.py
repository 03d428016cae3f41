"""``AsyncClient``: the client for asyncio, with the operations of ``Client``."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Generator, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from veen.client.client import CALL_TIMEOUT_SEC, check_attachment, fetch_attachment
from veen.client.effects import Operation
from veen.client.errors import ClientStateError, DivergenceError
from veen.client.home.pins import Trust
from veen.client.home.state import Pin
from veen.client.hub_address import HubAddress
from veen.client.keys.identity_card import IdentityCard
from veen.client.loop_driver import LoopDriver, finish_in_thread, run_on_loop
from veen.client.models import NO_OPTIONS, Draft, Message, Recipient, SendOptions, Sent
from veen.client.read import FOLLOW_SEC, READ_ALL, ReadOptions, StreamReader
from veen.client.resync import Consistency, Progress, Resynced, resync, verify_state
from veen.client.retry import Retry
from veen.client.rpc.call import CallOptions, call
from veen.client.send import Sender, batches_of, rotate
from veen.client.session import DEFAULT_ROTATION, Rotation, Session
from veen.client.session_setup import DEFAULT_RETRY, Passphrase, StrPath, named_hub, open_session
from veen.client.tokens import Authorized, authorize, cap_status
from veen.client.transport.async_http import AsyncHttpHub, ThreadedHub, open_async_hub
from veen.client.transport.resolve import DEFAULT_TIMEOUT_SEC
from veen.core.api.tooling import CapStatusResponse
from veen.core.encoding.cbor import Value
from veen.core.objects.capability import CapToken
from veen.core.types import HubId, LeafHash, SchemaId, VerifyKey
from veen.overlays.schema import Schema

if TYPE_CHECKING:
    from veen.client.fold.interpret import FoldedState
    from veen.overlays.overlay import Overlay

T = TypeVar("T")
C = TypeVar("C", bound="AsyncClient")


class AsyncOpening(Generic[C]):
    """A client that ``async with`` or ``await`` opens, in a thread: reading its keys would block the loop."""

    def __init__(self, cls: type[C], hub: HubAddress, timeout: float, session: Callable[[], Session]) -> None:
        self._cls = cls
        self._hub = hub
        self._timeout = timeout
        self._session = session
        self._client: C | None = None

    def __await__(self) -> Generator[Any, None, C]:
        """Open the client; the caller closes it."""
        return self._open().__await__()

    async def __aenter__(self) -> C:
        """Open the client; it is closed at the end of the ``async with`` block."""
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        assert self._client is not None
        await self._client.close()

    async def _open(self) -> C:
        session = await asyncio.to_thread(self._session)
        return self._cls(session, await open_async_hub(self._hub, self._timeout))


class AsyncClient:
    """One client of one hub, for asyncio. Tasks may share it; their messages are sent one after another.

    Example:
        async with AsyncClient.open("alice", "http://127.0.0.1:37411") as client:
            await client.send("orders", {"item": "tea"})

    The methods have the parameters of those of ``Client``, and raise the same errors.
    """

    def __init__(self, session: Session, hub: AsyncHttpHub | ThreadedHub) -> None:
        self.session = session
        self.hub = hub
        self._writing = asyncio.Lock()

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
    ) -> AsyncOpening[Self]:
        """Open a client directory for use with a hub; see ``Client.open``.

        Example:
            async with AsyncClient.open() as client:
                ...

        To close the client elsewhere: ``client = await AsyncClient.open()``.

        Raises:
            ContextError: No client or no hub is named, and there is no default; or the URL is not valid.
            KeystoreError: The keystore is missing or damaged, or the passphrase is wrong.
        """
        address = named_hub(hub)
        session = partial(
            open_session,
            home,
            address.name,
            hub_id=hub_id,
            trust=trust,
            passphrase=passphrase,
            retry=retry,
            rotation=rotation,
        )
        return AsyncOpening(cls, address, timeout, session)

    async def __aenter__(self) -> Self:
        """Return the client; it is closed at the end of the ``async with`` block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Close the connections to the hub, as the end of an ``async with`` block does.

        Example:
            await client.close()
        """
        await self.hub.close()

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation; evidence against the hub is written to the client directory."""
        try:
            return await run_on_loop(operation, self.hub)
        except DivergenceError as error:
            error.path = await asyncio.to_thread(self.session.home.keep_fraud, error.fraud)
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
        """The id of the hub, once this client has connected to it.

        Raises:
            ClientStateError: The client has not connected yet; ``await client.connect()`` first.
        """
        if self.session.pin is None:
            raise ClientStateError("the hub is not known yet; call: await client.connect()")
        return self.session.pin.identity.hub_id

    @property
    def home(self) -> Path:
        """The client directory."""
        return self.session.home.root

    # --- writing --------------------------------------------------------------------------------------------

    async def send(
        self,
        stream: str,
        body: Value = None,
        *,
        schema: str | Schema | SchemaId | None = None,
        parent_id: LeafHash | Message | Sent | None = None,
        expires_at: int | datetime | None = None,
        attachments: Sequence[StrPath | bytes] = (),
        to: Recipient | None = None,
        token: CapToken | None = None,
    ) -> Sent:
        """Send a message; returns when the hub has it on disk and its receipt is verified.

        Example:
            sent = await client.send("orders", {"item": "tea"}, schema="order.v1")

        Raises:
            BodyError: CBOR cannot represent the body.
            InvalidBodyError: The Schema rejects the body.
            UnsentError: The hub rejected an earlier message, which was set aside; send this one again.
            NetworkError: The hub cannot be reached. The next ``send`` to the stream delivers the message.
        """
        draft = Draft(
            body,
            schema=schema,
            parent_id=parent_id,
            expires_at=expires_at,
            attachments=tuple(attachments),
        )
        return (await self._send_batch(stream, [draft], SendOptions(to=to, token=token)))[0]

    async def send_many(
        self,
        stream: str,
        drafts: Iterable[Draft | Value] | AsyncIterable[Draft | Value],
        *,
        to: Recipient | None = None,
        token: CapToken | None = None,
    ) -> list[Sent]:
        """Send messages in order, many in one request; returns when the hub has all of them.

        Example:
            await client.send_many("orders", [{"item": "tea"}, Draft({"item": "cup"}, schema="order.v1")])

        If one is rejected, those before it have been sent and the error is raised.

        Raises:
            BodyError: CBOR cannot represent a body.
            RejectedError: The hub rejected a message.
        """
        return [sent async for sent in self.iter_send_many(stream, drafts, to=to, token=token)]

    def iter_send_many(
        self,
        stream: str,
        drafts: Iterable[Draft | Value] | AsyncIterable[Draft | Value],
        *,
        to: Recipient | None = None,
        token: CapToken | None = None,
    ) -> AsyncIterator[Sent]:
        """Send messages like ``send_many``, lazily: drafts are consumed as the caller iterates.

        Example:
            async for sent in client.iter_send_many("orders", read_orders()):
                print(sent.position)

        Raises:
            BodyError: CBOR cannot represent a body.
            RejectedError: The hub rejected a message.
        """
        return self._send_drafts(stream, drafts, SendOptions(to=to, token=token))

    async def _send_drafts(
        self,
        stream: str,
        drafts: Iterable[Draft | Value] | AsyncIterable[Draft | Value],
        options: SendOptions,
    ) -> AsyncIterator[Sent]:
        async for batch in batches_of(drafts):
            while batch:
                batch_sent = await self._send_batch(stream, batch, options)
                for sent in batch_sent:
                    yield sent
                del batch[: len(batch_sent)]

    async def _send_batch(self, stream: str, drafts: list[Draft], options: SendOptions) -> list[Sent]:
        async with self._writing:
            return await self.run(Sender(self.session, stream, options).send(drafts))

    async def call(
        self,
        stream: str,
        method: str,
        args: Value = None,
        *,
        timeout: float = CALL_TIMEOUT_SEC,  # noqa: ASYNC109 - the server is told of it
        to: Recipient | None = None,
        token: CapToken | None = None,
        idem: int | None = None,
        repeats: int = 0,
        servers: Collection[VerifyKey] = (),
    ) -> Value:
        """Call a method of the server that answers on a stream, and return its result.

        Example:
            total = await client.call("math", "add", {"a": 1, "b": 2}, to=card)

        Raises:
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
        return await self.run(call(self.session, stream, method, args, options))

    async def authorize(self, token: CapToken) -> Authorized:
        """Register a capability token at the hub; if it is for this client, store and use it.

        Example:
            await client.authorize(token)

        Raises:
            ProtocolError: The token is not valid.
            RejectedError: The hub rejected the token.
        """
        return await self.run(authorize(self.session, token))

    async def flush(self, stream: str) -> int:
        """Resend messages that the hub has not answered, as the next ``send`` would; returns their number.

        Example:
            count = await client.flush("orders")

        Raises:
            UnsentError: The hub rejected one of them, which was set aside.
        """
        async with self._writing:
            return await self.run(Sender(self.session, stream, NO_OPTIONS).flush())

    async def cap_status(self, token: CapToken) -> CapStatusResponse:
        """Return what the hub knows about a capability token.

        Example:
            print((await client.cap_status(token)).expires_at)

        Raises:
            RejectedError: The hub rejected the request.
        """
        return await self.run(cap_status(self.session, token))

    async def rotate(self) -> None:
        """Replace the client key; nothing in the log links the new key to the old one.

        Example:
            await client.rotate()

        Raises:
            KeystoreError: The keystore cannot be read.
            OSError: The keystore cannot be written.
        """

        def work() -> None:
            with self.session.home.hold():
                rotate(self.session)

        async with self._writing:
            await finish_in_thread(work)

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
    ) -> AsyncIterator[Message]:
        """Yield the entries of a stream up to its end; each is verified before it is yielded.

        Example:
            async for message in client.read("orders", start=100):
                print(message.position, message.body)

        Raises:
            ProtocolError: An entry fails a check; the entries before it have been yielded.
            DivergenceError: The hub signed two contradicting statements; the evidence is in ``path``.
        """
        options = ReadOptions(start=start, stop=stop, epoch=epoch, limit=limit, prove=prove, resume=resume)
        return self._read(stream, options)

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
    ) -> AsyncIterator[Message]:
        """Yield the entries of a stream like ``read``, then wait for more; ends only at ``limit``.

        Example:
            async for message in client.follow("orders", resume=True):
                await charge(message.body)

        Raises:
            ProtocolError: An entry fails a check; the entries before it have been yielded.
            DivergenceError: The hub signed two contradicting statements; the evidence is in ``path``.
        """
        options = ReadOptions(start=start, stop=stop, epoch=epoch, limit=limit, prove=prove, resume=resume)
        return self._read(stream, options, follow=True)

    async def _read(
        self, stream: str, options: ReadOptions = READ_ALL, *, follow: bool = False
    ) -> AsyncIterator[Message]:
        reader = StreamReader(self.session, stream, options)
        while not reader.at_end or (follow and not reader.is_full):
            for message in await self.run(reader.fetch(FOLLOW_SEC if follow else 0)):
                yield message

    async def attachment(self, message: Message, index: int = 0) -> bytes:
        """Fetch, verify and decrypt an attachment of a message.

        Example:
            data = await client.attachment(message, 0)

        Raises:
            ClientStateError: The message has no attachment with this index.
            ProtocolError: What the hub returned does not belong to the message.
        """
        check_attachment(message, index)
        return message.open_attachment(index, await self.run(fetch_attachment(message, index)))

    async def fold(
        self, overlay: "Overlay", stream: str, *, upto: int | None = None, now: int | None = None
    ) -> "FoldedState":
        """Fold a stream with an overlay and return the state; it is computed in a thread.

        Example:
            state = await client.fold(Votes(), "poll")
            print(state["tea"], state.position, state.hash.hex())

        Raises:
            ProtocolError: An entry fails a check.
        """
        from veen.client.fold.interpret import interpret  # noqa: PLC0415 - only needed by those who fold

        driver = LoopDriver(self, asyncio.get_running_loop())
        return await finish_in_thread(
            partial(interpret, driver, overlay, stream, upto=upto, now=now), driver.stop
        )

    async def resync(self, stream: str, progress: Progress | None = None) -> list[Resynced]:
        """Rebuild what this client stores about a stream from the hub.

        Example:
            await client.resync("orders")

        Raises:
            ProtocolError: An entry fails a check.
        """
        async with self._writing:
            return await self.run(resync(self.session, stream, progress))

    async def verify_state(self, stream: str) -> list[Consistency]:
        """Compare what this client stores about a stream with what the hub serves.

        Example:
            assert all(label.consistent for label in await client.verify_state("orders"))

        Raises:
            NetworkError: The hub cannot be reached.
        """
        return await self.run(verify_state(self.session, stream))

    async def connect(self) -> Pin:
        """Ask the hub for its identity, and pin it if ``trust`` allows it.

        Example:
            print((await client.connect()).identity.hub_id.hex())

        Raises:
            PinError: The hub is unknown and not trusted, or is not the pinned one.
        """
        return await self.run(self.session.connect())
