"""Random histories of a hub: what clients and operators do, and what admission says to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from random import Random
from typing import NamedTuple, Protocol

from tests import builders
from tests.admission.memory_hub import NOW, PROFILE, View, label_of, policy, refusal, trusting
from veen.admission.stages import Admitted, Authentic, LogView
from veen.admission.stateful import Policy, admit
from veen.core.crypto.hash import sha256, u64be
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.errors import DetailValue, ProtocolError
from veen.core.objects.capability import Bucket, CapToken
from veen.core.objects.control_record import ControlRecord, RevocationRecord, Target, TrustRecord
from veen.core.objects.msg import Msg, MsgContext
from veen.core.objects.new_entry import NewEntry
from veen.core.types import LeafHash, Signature

#: Clients and tokens come to their end; after so many steps there are new ones.
GENERATION = 60


@cache
def tokens(generation: int) -> dict[str, CapToken]:
    ann, bob = f"ann {generation}", f"bob {generation}"
    return {
        "good": builders.cap_token(subject=ann, streams=("a", "b"), ttl=300, rate=builders.rate(1, 3)),
        "fast": builders.cap_token(subject=bob, streams=("a", "b", "c"), ttl=2_000),
        "short": builders.cap_token(subject=ann, streams=("a",), ttl=5),
        "stranger": builders.cap_token(issuer="stranger", subject=bob, streams=("a",)),
    }


@dataclass(frozen=True)
class Step:
    """What happens next; numbers relative to the log, so that any list of steps makes sense."""

    kind: str
    seconds: int
    client: str
    token: str
    stream: str
    ahead: int
    number: int
    ack: int
    content: bytes


#: Values of each field, the usual ones more often.
CHOICES: dict[str, Sequence[object]] = {
    "kind": ["message"] * 16 + ["authorize", "trust", "distrust", "revoke"],
    "seconds": [0] * 6 + [1, 3, 61],
    "client": ["ann", "bob"],
    "token": ["own"] * 8 + ["none", "good", "fast", "short", "stranger"],
    "stream": ["a", "a", "a", "b", "c"],
    "ahead": [0] * 12 + [1, -1, 5, 40],
    "number": [1] * 8 + [0, 2, -99],
    "ack": [0] * 6 + [1, -1],
    "content": [b"this", b"that"],
}


def random_steps(count: int, seed: int) -> list[Step]:
    random = Random(seed)
    return [
        Step(**{name: random.choice(values) for name, values in CHOICES.items()})  # type: ignore[arg-type]
        for _ in range(count)
    ]


class Message(NamedTuple):
    record: NewEntry
    hub_ts: int


class Authorize(NamedTuple):
    token: CapToken
    hub_ts: int


class Control(NamedTuple):
    record: ControlRecord


Event = Message | Authorize | Control


class Accepted(NamedTuple):
    """All that an accepted message leaves in the log."""

    stream_seq: int
    hub_ts: int
    binding: StreamEpoch | None
    bucket: Bucket | None


Verdict = Accepted | tuple[str, str, str, dict[str, DetailValue]]


class Log(Protocol):
    """A log that grows."""

    def view(self) -> LogView:
        """Return the log as it is now."""

    def authorize(self, token: CapToken, hub_ts: int) -> None:
        """Append a token."""

    def accept(self, admitted: Admitted) -> int:
        """Append a message; return its stream_seq."""


class Remembered:
    """A log in memory."""

    def __init__(self) -> None:
        self.log = View()

    def view(self) -> View:
        return self.log

    def authorize(self, token: CapToken, hub_ts: int) -> None:
        self.log.authorize(token, hub_ts)

    def accept(self, admitted: Admitted) -> int:
        return self.log.accept(admitted)


def rules() -> Policy:
    """Return a policy in which each row has a chance; its memory of labels is new."""
    return policy(require_cap=False, streams=("a",), max_client_msgs=9, max_client_lifetime_sec=400)


class Judge:
    """Takes events in order, appends what is admitted, and notes the verdicts."""

    def __init__(self, log: Log, policies: Callable[[], Policy]) -> None:
        self.log = log
        self.policies = policies
        self.authority = trusting("issuer")
        self.verdicts: list[Verdict] = []
        self.accepted: list[Admitted] = []

    def take(self, event: Event) -> None:
        match event:
            case Authorize(token, hub_ts):
                if self.log.view().token(token.auth_ref) is None:
                    self.log.authorize(token, hub_ts)
            case Control(change):
                self.authority = self.authority.after([change])
            case Message(message, hub_ts):
                self.verdicts.append(self._decide(message, hub_ts))

    def _decide(self, message: NewEntry, hub_ts: int) -> Verdict:
        try:
            admitted = admit(Authentic(message), self.log.view(), self.policies(), self.authority, hub_ts)
        except ProtocolError as error:
            return refusal(error)
        self.accepted.append(admitted)
        return Accepted(self.log.accept(admitted), hub_ts, admitted.binding, admitted.bucket)


Build = Callable[[MsgContext, bytes], NewEntry]


def quick(context: MsgContext, content: bytes) -> NewEntry:
    """Return a message without any cryptography: the later rows need none."""
    leaf = LeafHash(sha256(context.label + content + context.client_id + u64be(context.client_seq)))
    return NewEntry(
        context.label,
        content,
        leaf,
        context.client_id,
        context.client_seq,
        context.prev_ack,
        context.auth_ref,
    )


def real(context: MsgContext, content: bytes) -> NewEntry:
    """Return a message that a data directory can keep; admission looks at no signature any more."""
    ciphertext = builders.sealed(context, body=content).ciphertext
    return NewEntry.of_msg(
        Msg(
            **{field.name: getattr(context, field.name) for field in fields(context)},
            ct_hash=sha256(ciphertext),
            ciphertext=ciphertext,
            sig=Signature(bytes(64)),
        )
    )


def play(steps: Sequence[Step], build: Build = quick) -> tuple[list[Event], Judge]:
    """Let clients and operators act on a hub in memory; return what they did, and its judge."""
    memory = Remembered()
    judge = Judge(memory, rules)
    events: list[Event] = []
    now = NOW

    def happen(event: Event) -> None:
        events.append(event)
        judge.take(event)

    for nth, step in enumerate(steps):
        now += step.seconds
        generation, age = divmod(nth, GENERATION)
        known = tokens(generation)
        if age == 0:
            happen(Authorize(known["good"], now))
            happen(Authorize(known["fast"], now))
        if step.kind == "message":
            happen(Message(build(_context(step, memory.log, now, generation), step.content), now))
        elif step.kind != "authorize":
            happen(Control(_change(step, now, generation)))
        elif step.token in known:
            happen(Authorize(known[step.token], now))
    return events, judge


def _context(step: Step, log: View, now: int, generation: int) -> MsgContext:
    client = f"{step.client} {generation}"
    own = "good" if step.client == "ann" else "fast"
    token = tokens(generation).get(own if step.token == "own" else step.token)
    label = label_of(step.stream, now, ahead=step.ahead)
    cursor = log.client(label, builders.verify_key(client))
    return builders.context(
        profile_id=PROFILE.profile_id,
        label=label,
        client=client,
        client_seq=max(0, cursor.client_seq + step.number),
        prev_ack=max(0, log.last_seq(label) + step.ack),
        auth_ref=None if token is None else token.auth_ref,
    )


def _change(step: Step, now: int, generation: int) -> ControlRecord:
    if step.kind == "revoke":
        client_id = builders.verify_key(f"{step.client} {generation}")
        return RevocationRecord(
            target_kind=Target.CLIENT_ID.value, target=client_id, ts=now, ttl=step.seconds
        )
    return TrustRecord(issuer_pk=builders.verify_key("stranger"), trusted=step.kind == "trust")
