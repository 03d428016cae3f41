"""The session of a client with one hub: keys, pinned hub, state and lock, which the operations share."""

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
# How often to try to acquire the lock.
_LOCK_SEC: Final = 0.02


@dataclass(slots=True, kw_only=True)
class Session(Asker):
    """One client and one hub. Clock and randomness are injected, so that tests can replay everything."""

    home: ClientHome
    secrets: Secrets
    passphrase: bytes | None = field(repr=False)
    hub_name: str
    clock: Callable[[], int]
    trust: Trust = Trust.LOCAL
    expected_hub: HubId | None = None
    # None: keys are rotated only on request.
    rotation: Rotation | None = DEFAULT_ROTATION
    limits: Limits = DEFAULT_LIMITS
    pin: Pin | None = None
    profiles: tuple[Profile, ...] = ()
    # Bits of proof of work that the hub requires for a submit.
    pow_difficulty: int = 0
    # The state while an operation holds the lock; the operation saves it.
    locked_state: State | None = None

    @property
    def identity(self) -> IdentityCard:
        """The identity card of this client."""
        return self.secrets.card(self.clock())

    @property
    def client_id(self) -> VerifyKey:
        """The key that currently signs messages."""
        return self.secrets.client.signing_key.public_key

    # --- the identity of the hub ----------------------------------------------------------------------------

    async def connect(self) -> Pin:
        """Return the pin of the hub; the first time, request its identity and check whether to trust it."""
        if self.pin is None:
            await self.reconnect()
        assert self.pin is not None
        return self.pin

    async def reconnect(self) -> None:
        """Request the hub's identity again: its keys may have changed."""
        facts = read_facts(await with_retry(STATUS, self.retry, self.random))
        if self.locked_state is not None:
            pin = self._accept(self.locked_state, facts)
        else:
            pin = await self.update(lambda state: self._accept(state, facts))
        # Assigned together, without awaiting: other tasks, or an interrupt, see all of it or nothing.
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
        """Check a signature of the hub; if no key fits, once more with its current keys."""
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
        """Return the lock of the client directory, for ``async with`` in an operation."""
        return _DirectoryLock(self)

    async def acquire(self) -> FileLock:
        """Acquire the lock of the client directory. No thread is blocked between two attempts."""
        hold = self.home.holding()
        try:
            while not await Blocking(hold.acquire):
                await Sleep(_LOCK_SEC)
        except BaseException:
            hold.close()  # the cancelled work may have acquired it
            raise
        return hold

    async def update(self, change: Callable[[State], T]) -> T:
        """Change the stored state under the lock; return what ``change`` returns."""
        async with self.lock():
            return await Blocking(lambda: self.home.change(change))

    # --- profiles and labels --------------------------------------------------------------------------------

    def profile(self, wanted: ProfileId | None = None) -> Profile:
        """Return the profile to write with: by default the hub's first one."""
        if wanted is None:
            return self.profiles[0]
        profile = next((item for item in self.profiles if item.profile_id == wanted), None)
        if profile is None:
            raise ProtocolError(
                Detail.PROFILE, f"the hub does not serve profile {wanted.hex()}", field="profile_id"
            )
        return profile

    def pad_block(self, profile_id: ProfileId) -> int:
        """Return the padding block of a profile."""
        return self.profile(profile_id).pad_block

    def label(self, stream: StreamId, epoch: int) -> Label:
        """Return the label of a stream in an epoch at this hub."""
        assert self.pin is not None
        return labels.label(self.pin.identity.routing_key, stream, epoch)

    def label_state(self, state: State, stream: str, epoch: int) -> tuple[Label, LabelState]:
        """Return a label and its state, which is added if it is new; the caller may change it."""
        assert self.pin is not None
        stream_id = labels.stream_id(stream)
        label = self.label(stream_id, epoch)
        label_state = state.labels.get(label)
        if label_state is None:
            label_state = LabelState(self.pin.identity.hub_id, stream_id, epoch, stream)
            state.labels[label] = label_state
        return label, label_state


class _DirectoryLock:
    """The lock for ``async with``. The release awaits nothing, so that operations can be closed anywhere."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def __aenter__(self) -> None:
        self._lock = await self._session.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._session.locked_state = None
        self._lock.close()


class AsyncDriver(Protocol):
    """A session, and a driver of its operations on an event loop, such as ``AsyncClient``."""

    @property
    def session(self) -> Session:
        """Whose keys, and which hub."""

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation."""


class Driver(Protocol):
    """A session, and a blocking driver of its operations, such as ``Client``.

    Folds, snapshots and RPC servers need only this part of a client, so that clients can use them.
    """

    @property
    def session(self) -> Session:
        """Whose keys, and which hub."""

    def run(self, operation: Operation[T]) -> T:
        """Run an operation."""
