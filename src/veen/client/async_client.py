"""``AsyncClient``: the client for asyncio. Operations are those of ``Client``; only the waiting differs."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from veen.client.client import NO_OPTIONS, Opening, fetch_attachment, open_session
from veen.client.effects import Blocking, Effect, Operation, Sleep
from veen.client.errors import ClientStateError, DivergenceError
from veen.client.home.state import Pin
from veen.client.hub_address import HubAddress
from veen.client.read import FOLLOW_SEC, READ_ALL, Message, ReadOptions, make_reader
from veen.client.resync import Consistency, Progress, Resynced, resync, verify_state
from veen.client.send import BATCH, Draft, Sender, SendOptions, Sent, rotate
from veen.client.session import Session
from veen.client.tokens import Authorized, authorize, cap_status
from veen.client.transport.async_http import AsyncHttpHub, ThreadedHub, open_async_hub
from veen.client.transport.resolve import DEFAULT_TIMEOUT_SEC
from veen.core.api.tooling import CapStatusResponse
from veen.core.encoding.cbor import Value
from veen.core.objects.capability import CapToken

if TYPE_CHECKING:
    from veen.client.rpc.call import CallOptions

T = TypeVar("T")


class AsyncClient:
    """A client and one hub, for asyncio. Tasks may share it; what they send goes one after the other."""

    def __init__(self, session: Session, hub: AsyncHttpHub | ThreadedHub) -> None:
        self.session = session
        self.hub = hub
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, home: str | Path, hub: str, **options: Unpack[Opening]) -> Self:
        """Open a client directory for work with a hub: a URL, a data directory or an exported set."""
        timeout_sec = options.pop("timeout_sec", DEFAULT_TIMEOUT_SEC)
        session = await asyncio.to_thread(open_session, home, hub, **options)
        return cls(session, await open_async_hub(HubAddress.parse(hub), timeout_sec))

    async def __aenter__(self) -> Self:
        """Use it in an ``async with`` statement, and it is closed."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self.hub.close()

    async def run(self, steps: Operation[T]) -> T:
        """Run an operation; evidence against the hub is kept in a file."""
        try:
            return await self._drive(steps)
        except DivergenceError as error:
            error.path = await asyncio.to_thread(self.session.home.keep_fraud, error.fraud)
            raise
        finally:
            steps.close()

    async def _drive(self, steps: Operation[T]) -> T:
        outcome: Any = None
        failure: Exception | None = None
        while True:
            try:
                effect = steps.throw(failure) if failure is not None else steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = failure = None
            try:
                outcome = await self._perform(effect)
            except Exception as error:  # noqa: BLE001 - the operation decides
                failure = error

    async def _perform(self, effect: Effect) -> Any:  # noqa: ANN401 - by the effect
        match effect:
            case Sleep(seconds):
                return await asyncio.sleep(seconds)
            case Blocking(work):
                return await _finished(work)
        return await self.hub.answer(effect)

    # --- writing --------------------------------------------------------------------------------------------

    async def send(
        self,
        stream: str,
        body: Value,
        *,
        attachments: Sequence[Path | bytes] = (),
        draft: Draft | None = None,
        options: SendOptions = NO_OPTIONS,
    ) -> Sent:
        """Send a message; returns when the hub has it on disk and its receipt was checked."""
        made = draft or Draft(body, attachments=tuple(attachments))
        async with self._writing:
            return (await self.run(Sender(self.session, stream, options).send([made])))[0]

    async def send_many(
        self,
        stream: str,
        drafts: Iterable[Draft] | AsyncIterable[Draft],
        *,
        options: SendOptions = NO_OPTIONS,
    ) -> AsyncIterator[Sent]:
        """Send messages in order, many in one request; yields them as they are taken."""
        waiting: list[Draft] = []
        async for draft in _each(drafts):
            waiting.append(draft)
            if len(waiting) == BATCH:
                done = await self._send_batch(stream, waiting, options)
                waiting = waiting[len(done) :]
                for sent in done:
                    yield sent
        while waiting:
            done = await self._send_batch(stream, waiting, options)
            waiting = waiting[len(done) :]
            for sent in done:
                yield sent

    async def _send_batch(self, stream: str, drafts: list[Draft], options: SendOptions) -> list[Sent]:
        async with self._writing:
            return await self.run(Sender(self.session, stream, options).send(drafts))

    async def call(
        self, stream: str, method: str, args: Value, options: "CallOptions | None" = None
    ) -> Value:
        """Call a method of whoever serves the stream; its error is raised as RpcError."""
        from veen.client.rpc.call import call  # noqa: PLC0415 - for those who call

        return await self.run(call(self.session, stream, method, args, options))

    async def authorize(self, token: CapToken) -> Authorized:
        """Make a capability token known to the hub, and keep it."""
        return await self.run(authorize(self.session, token))

    async def flush(self, stream: str) -> int:
        """Send again what was not answered, as the next send would; returns how many messages that were."""
        async with self._writing:
            return await self.run(Sender(self.session, stream, NO_OPTIONS).flush())

    async def cap_status(self, token: CapToken) -> CapStatusResponse:
        """Ask what the hub thinks of a token."""
        return await self.run(cap_status(self.session, token))

    async def rotate(self) -> None:
        """Take a new client key."""

        def work() -> None:
            with self.session.home.hold():
                rotate(self.session)

        async with self._writing:
            await asyncio.to_thread(work)

    # --- reading --------------------------------------------------------------------------------------------

    async def stream(
        self, stream: str, *, follow: bool = False, options: ReadOptions = READ_ALL
    ) -> AsyncIterator[Message]:
        """Yield the entries of a stream, each checked; with ``follow``, for ever."""
        reader = make_reader(self.session, stream, options)
        while not reader.at_end or (follow and not reader.is_full):
            for message in await self.run(reader.fetch(FOLLOW_SEC if follow else 0)):
                yield message

    async def attachment(self, message: Message, index: int) -> bytes:
        """Fetch an attachment of a message, check and open it."""
        if not 0 <= index < len(message.attachments):
            raise ClientStateError(f"the message has {len(message.attachments)} attachments, counted from 0")
        return message.open_attachment(index, await self.run(fetch_attachment(message, index)))

    async def resync(self, stream: str, progress: Progress | None = None) -> list[Resynced]:
        """Make what is known of a stream again from the hub."""
        async with self._writing:
            return await self.run(resync(self.session, stream, progress))

    async def verify_state(self, stream: str) -> list[Consistency]:
        """Compare what is known of a stream with what the hub serves."""
        return await self.run(verify_state(self.session, stream))

    async def connect(self) -> Pin:
        """Ask the hub who it is, and pin it if that was allowed."""
        return await self.run(self.session.connect())


async def _each(drafts: Iterable[Draft] | AsyncIterable[Draft]) -> AsyncIterator[Draft]:
    if isinstance(drafts, AsyncIterable):
        async for draft in drafts:
            yield draft
    else:
        for draft in drafts:
            yield draft


async def _finished(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - by the work
    """Have work done in a thread. Who is cancelled waits for its end: the lock is held for its files."""
    done = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        done.exception()  # nobody else asks
        raise
