"""``Client``: a client and one hub, for programs. ``veen.client.async_client`` has the same for asyncio.

with Client.open("alice", hub="http://127.0.0.1:37411") as client:
    client.send("core/main", {"text": "hello"})
    for message in client.stream("core/main"):
        print(message.stream_seq, message.body)
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypedDict, TypeVar, Unpack

from veen.client.effects import GetAttachment, Hub, Operation, run
from veen.client.errors import ClientStateError, DivergenceError
from veen.client.home.directory import AskPassphrase, ClientHome
from veen.client.home.pins import Trust
from veen.client.home.state import Pin
from veen.client.hub_address import HubAddress
from veen.client.keys.keystore import ask_nobody
from veen.client.read import READ_ALL, Message, ReadOptions, read_stream
from veen.client.resync import Consistency, Progress, Resynced, resync, verify_state
from veen.client.retry import Retry
from veen.client.send import BATCH, Draft, Sender, SendOptions, Sent, rotate
from veen.client.session import DEFAULT_ROTATION, Rotation, Session
from veen.client.tokens import Authorized, authorize, cap_status
from veen.client.transport.resolve import DEFAULT_TIMEOUT_SEC, open_hub
from veen.core.api.tooling import CapStatusResponse
from veen.core.encoding.cbor import Value
from veen.core.objects.capability import CapToken
from veen.core.types import HubId, RandomBytes

if TYPE_CHECKING:
    from veen.client.rpc.call import CallOptions

T = TypeVar("T")

NO_OPTIONS: Final = SendOptions()


class Opening(TypedDict, total=False):
    """How a client is opened; what is left out has a default that works."""

    #: For one answer of the hub.
    timeout_sec: float
    #: Asked if the keystore has one.
    passphrase: AskPassphrase
    #: Whether a hub that was never seen is believed.
    trust: Trust
    #: The hub that is meant, by its id.
    hub_id: HubId | None
    retry: Retry
    #: When the client key is changed by itself; None: never.
    rotation: Rotation | None
    clock: Callable[[], int]
    random: RandomBytes


def open_session(home: str | Path, hub: str, **options: Unpack[Opening]) -> Session:
    """Open the directory of a client for work with a hub."""
    random = options.get("random", os.urandom)
    place = ClientHome(Path(home).expanduser(), random)
    secrets, words = place.load_secrets(options.get("passphrase", ask_nobody))
    return Session(
        home=place,
        secrets=secrets,
        passphrase=words,
        hub_name=HubAddress.parse(hub).name,
        clock=options.get("clock", _now),
        random=random,
        retry=options.get("retry", Retry()),
        trust=options.get("trust", Trust.LOCAL),
        expected_hub=options.get("hub_id"),
        rotation=options.get("rotation", DEFAULT_ROTATION),
    )


def _now() -> int:
    return int(time.time())


def batched(drafts: Iterable[Draft]) -> Iterator[list[Draft]]:
    """Yield as many as one request may hold."""
    each = iter(drafts)
    while batch := list(islice(each, BATCH)):
        yield batch


class Client:
    """A client and one hub; blocking. One thread at a time."""

    def __init__(self, session: Session, hub: Hub) -> None:
        self.session = session
        self.hub = hub

    @classmethod
    def open(cls, home: str | Path, hub: str, **options: Unpack[Opening]) -> Self:
        """Open a client directory for work with a hub: a URL, a data directory or an exported set."""
        timeout_sec = options.pop("timeout_sec", DEFAULT_TIMEOUT_SEC)
        return cls(open_session(home, hub, **options), open_hub(HubAddress.parse(hub), timeout_sec))

    def __enter__(self) -> Self:
        """Use it in a ``with`` statement, and it is closed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self.hub.close()

    def run(self, steps: Operation[T]) -> T:
        """Run an operation; evidence against the hub is kept in a file."""
        try:
            return run(steps, self.hub)
        except DivergenceError as error:
            error.path = self.session.home.keep_fraud(error.fraud)
            raise

    # --- writing --------------------------------------------------------------------------------------------

    def send(
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
        return self.run(Sender(self.session, stream, options).send([made]))[0]

    def send_many(
        self, stream: str, drafts: Iterable[Draft], *, options: SendOptions = NO_OPTIONS
    ) -> Iterator[Sent]:
        """Send messages in order, many in one request; yields them as they are taken."""
        for batch in batched(drafts):
            while batch:
                done = self.run(Sender(self.session, stream, options).send(batch))
                yield from done
                batch = batch[len(done) :]  # noqa: PLW2901 - what is left of it

    def call(self, stream: str, method: str, args: Value, options: "CallOptions | None" = None) -> Value:
        """Call a method of whoever serves the stream; its error is raised as RpcError."""
        from veen.client.rpc.call import call  # noqa: PLC0415 - for those who call

        return self.run(call(self.session, stream, method, args, options))

    def authorize(self, token: CapToken) -> Authorized:
        """Make a capability token known to the hub, and keep it."""
        return self.run(authorize(self.session, token))

    def flush(self, stream: str) -> int:
        """Send again what was not answered, as the next send would; returns how many messages that were."""
        return self.run(Sender(self.session, stream, NO_OPTIONS).flush())

    def cap_status(self, token: CapToken) -> CapStatusResponse:
        """Ask what the hub thinks of a token."""
        return self.run(cap_status(self.session, token))

    def rotate(self) -> None:
        """Take a new client key."""
        with self.session.home.hold():
            rotate(self.session)

    # --- reading --------------------------------------------------------------------------------------------

    def stream(
        self, stream: str, *, follow: bool = False, options: ReadOptions = READ_ALL
    ) -> Iterator[Message]:
        """Yield the entries of a stream, each checked; with ``follow``, for ever.

        With ``resume`` an entry is delivered at least once: after a crash, those of the last page again.
        """
        return read_stream(self, stream, follow=follow, options=options)

    def attachment(self, message: Message, index: int) -> bytes:
        """Fetch an attachment of a message, check and open it."""
        if not 0 <= index < len(message.attachments):
            raise ClientStateError(f"the message has {len(message.attachments)} attachments, counted from 0")
        sealed = self.run(fetch_attachment(message, index))
        return message.open_attachment(index, sealed)

    def resync(self, stream: str, progress: Progress | None = None) -> list[Resynced]:
        """Make what is known of a stream again from the hub."""
        return self.run(resync(self.session, stream, progress))

    def verify_state(self, stream: str) -> list[Consistency]:
        """Compare what is known of a stream with what the hub serves."""
        return self.run(verify_state(self.session, stream))

    def connect(self) -> Pin:
        """Ask the hub who it is, and pin it if that was allowed."""
        return self.run(self.session.connect())


def fetch_attachment(message: Message, index: int) -> Operation[bytes]:
    """Fetch a sealed attachment."""
    sealed: bytes = yield GetAttachment(message.attachments[index].coid)
    return sealed
