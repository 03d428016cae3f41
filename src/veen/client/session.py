"""A client at work with one hub: whose keys, which hub, how it waits. What the operations share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from veen.client.effects import Blocking, Operation, Sleep
from veen.client.home.directory import ClientHome
from veen.client.home.pins import STATUS, HubFacts, Trust, accept_pin, read_facts
from veen.client.home.state import LabelState, Pin, State
from veen.client.keys.identity_card import IdentityCard
from veen.client.keys.keystore import Secrets
from veen.client.retry import Asker, with_retry
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.objects import labels
from veen.core.profile import Profile
from veen.core.types import HubId, Label, ProfileId, StreamId, VerifyKey
from veen.stdx.file_lock import FileLock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a client key is replaced (KEX1+, C-96).

    Attributes:
        max_age_sec: After this time.
        max_msgs: After this many messages to one label.
    """

    max_age_sec: int = 86_400
    max_msgs: int = 65_536


DEFAULT_ROTATION: Final = Rotation()
#: How often to look whether another has given the lock back.
_LOCK_SEC: Final = 0.02


@dataclass(slots=True, kw_only=True)
class Session(Asker):
    """One client and one hub. Clock and randomness are given, so that everything can be replayed."""

    home: ClientHome
    secrets: Secrets
    passphrase: bytes | None = field(repr=False)
    hub_name: str
    clock: Callable[[], int]
    trust: Trust = Trust.LOCAL
    expected_hub: HubId | None = None
    #: None: keys change only when somebody says so.
    rotation: Rotation | None = DEFAULT_ROTATION
    limits: Limits = DEFAULT_LIMITS
    pin: Pin | None = None
    profiles: tuple[Profile, ...] = ()
    #: Bits of proof of work that the hub wants for a submit.
    pow_difficulty: int = 0
    #: The state while an operation holds the lock; it saves it.
    locked_state: State | None = None

    @property
    def identity(self) -> IdentityCard:
        """The card of this client."""
        return self.secrets.card(self.clock())

    @property
    def client_id(self) -> VerifyKey:
        """The key that signs messages at present."""
        return self.secrets.client.signing_key.public_key

    # --- who the hub is -------------------------------------------------------------------------------------

    async def connect(self) -> Pin:
        """Return the pin of the hub; at the first time, ask it who it is and decide whether to believe it."""
        if self.pin is None:
            await self.reconnect()
        assert self.pin is not None
        return self.pin

    async def reconnect(self) -> None:
        """Ask the hub who it is now: its keys may have changed."""
        facts = read_facts(await with_retry(STATUS, self.retry, self.random))
        if self.locked_state is not None:
            pin = self._accept(self.locked_state, facts)
        else:
            pin = await self.update(lambda state: self._accept(state, facts))
        # At once: an operation that is interrupted leaves all of it or nothing, also to other tasks.
        self.pin, self.profiles, self.pow_difficulty = pin, facts.profiles, facts.pow_difficulty

    def _accept(self, state: State, facts: HubFacts) -> Pin:
        return accept_pin(
            state,
            facts,
            self.hub_name,
            trust=self.trust,
            now=self.clock(),
            expected=self.expected_hub,
        )

    async def check_signed(self, check: Callable[[Pin], None]) -> Pin:
        """Check what the hub has signed; if no key fits, once more with the keys that it has now."""
        pin = await self.connect()
        try:
            check(pin)
        except ProtocolError as error:
            if error.detail not in (Detail.SIG_INVALID, Detail.KEY_INACTIVE):
                raise
            await self.reconnect()
            if self.pin is None or self.pin.identity == pin.identity:
                raise
            check(self.pin)
            pin = self.pin
        return pin

    # --- state ----------------------------------------------------------------------------------------------

    def lock(self) -> "_DirectoryLock":
        """Return the lock of the client's directory, for an ``async with`` of an operation."""
        return _DirectoryLock(self)

    async def acquire(self) -> FileLock:
        """Take the lock of the client's directory. Between two attempts the thread is free."""
        hold = self.home.holding()
        try:
            while not await Blocking(hold.acquire):
                await Sleep(_LOCK_SEC)
        except BaseException:
            hold.close()  # it may have been taken by work whose outcome nobody received
            raise
        return hold

    async def update(self, change: Callable[[State], T]) -> T:
        """Change the newest state, alone; returns what the change returns."""
        async with self.lock():
            return await Blocking(lambda: self.home.change(change))

    # --- names ----------------------------------------------------------------------------------------------

    def profile(self, wanted: ProfileId | None = None) -> Profile:
        """Return the profile to write with: the hub's first one, or the one that was asked for."""
        if wanted is None:
            return self.profiles[0]
        found = next((item for item in self.profiles if item.profile_id == wanted), None)
        if found is None:
            raise ProtocolError(
                Detail.PROFILE, f"the hub does not serve profile {wanted.hex()}", field="profile_id"
            )
        return found

    def pad_block(self, profile_id: ProfileId) -> int:
        """Return the padding of a message's profile."""
        return self.profile(profile_id).pad_block

    def label(self, stream: StreamId, epoch: int) -> Label:
        """Return the label of a stream in an epoch at this hub."""
        assert self.pin is not None
        return labels.label(self.pin.identity.routing_key, stream, epoch)

    def label_state(self, state: State, stream: str, epoch: int) -> tuple[Label, LabelState]:
        """Return what is known of a label, in a state that may be changed."""
        assert self.pin is not None
        stream_id = labels.stream_id(stream)
        label = self.label(stream_id, epoch)
        found = state.labels.get(label)
        if found is None:
            found = LabelState(self.pin.identity.hub_id, stream_id, epoch, stream)
            state.labels[label] = found
        return label, found


class _DirectoryLock:
    """Held in an ``async with``. Releasing it awaits nothing, so that an operation can be closed anywhere."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def __aenter__(self) -> None:
        self._lock = await self._session.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._session.locked_state = None
        self._lock.close()


class AsyncDriver(Protocol):
    """A session, and what runs its operations on a loop. ``AsyncClient`` is one."""

    @property
    def session(self) -> Session:
        """Whose keys, and which hub."""

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation."""


class Driver(Protocol):
    """A session, and what runs its operations to their end; it blocks. ``Client`` is one.

    Folds, snapshots and RPC servers need no more of a client than this, so the client can be built upon them.
    """

    @property
    def session(self) -> Session:
        """Whose keys, and which hub."""

    def run(self, operation: Operation[T]) -> T:
        """Run an operation."""
