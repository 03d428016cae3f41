"""A hub for admission without files: the log as dictionaries, and the whole pipeline behind one call."""

from dataclasses import dataclass, field, replace

from tests import builders
from veen.admission.authority import Authority
from veen.admission.label_scope import Scopes
from veen.admission.prefilter import PowRules, prefilter
from veen.admission.stages import Admitted, Authentic
from veen.admission.stateful import Policy, admit
from veen.admission.stateless import MessageRules, authenticate, read_request
from veen.core.crypto.hash import sha256, u64be
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.errors import Code, Detail, DetailValue, ProtocolError, Stage
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.capability import CapToken
from veen.core.objects.new_entry import NewEntry
from veen.core.objects.proof_of_work import solve
from veen.core.types import AuthRef, Label, LeafHash, StreamId, VerifyKey
from veen.stdx.lru import LruCache

#: The time of most tests: late in an epoch of a minute, so that what was a moment ago is in it too.
NOW = 1_700_000_030
EPOCH_SEC = 60
#: Small, so that a request at the limit is small.
LIMITS = Limits(max_msg_bytes=2_048, max_body_bytes=1_500, max_epoch_skew_sec=60)
PROFILE = builders.profile(epoch_sec=EPOCH_SEC, pad_block=256)
POW = PowRules(difficulty=4, challenge_key=builders.digest("challenge key"))
ROUTING = builders.routing_key()
RESERVED = (labels.authorize_label(builders.hub_id()), labels.control_label(builders.hub_id()))


@dataclass
class View:
    """The log as admission sees it: a fold over authorized tokens and accepted messages, and nothing else."""

    heads: dict[Label, int] = field(default_factory=dict)
    cursors: dict[tuple[Label, VerifyKey], ClientCursor] = field(default_factory=dict)
    first_seen: dict[VerifyKey, int] = field(default_factory=dict)
    auths: dict[AuthRef, AuthRecord] = field(default_factory=dict)
    tokens: dict[AuthRef, CapToken] = field(default_factory=dict)
    bindings: dict[Label, StreamEpoch] = field(default_factory=dict)
    places: dict[LeafHash, tuple[Label, int]] = field(default_factory=dict)

    def authorize(self, token: CapToken, hub_ts: int) -> None:
        """Add an entry of the authorize log."""
        self.tokens[token.auth_ref] = token
        known = self.auths.get(token.auth_ref)
        issued_at = hub_ts if known is None else known.issued_at
        self.auths[token.auth_ref] = AuthRecord(issued_at, len(self.tokens), known.bucket if known else None)

    def accept(self, admitted: Admitted) -> int:
        """Add a message; return its stream_seq."""
        record, hub_ts = admitted.record, admitted.hub_ts
        assert record.client_id is not None
        seq = self.heads[record.label] = self.heads.get(record.label, 0) + 1
        self.places[record.leaf_hash] = record.label, seq
        self.cursors[record.label, record.client_id] = ClientCursor(record.client_seq, record.prev_ack)
        self.first_seen.setdefault(record.client_id, hub_ts)
        if record.auth_ref is not None:
            known = self.auths.get(record.auth_ref, AuthRecord(hub_ts, 0))
            self.auths[record.auth_ref] = known._replace(bucket=admitted.bucket)
        if admitted.binding is not None:
            self.bindings[record.label] = admitted.binding
        return seq

    def last_seq(self, label: Label) -> int:
        return self.heads.get(label, 0)

    def client(self, label: Label, client_id: VerifyKey) -> ClientCursor:
        return self.cursors.get((label, client_id), ClientCursor())

    def client_since(self, client_id: VerifyKey) -> int | None:
        return self.first_seen.get(client_id)

    def auth(self, auth_ref: AuthRef) -> AuthRecord | None:
        return self.auths.get(auth_ref)

    def token(self, auth_ref: AuthRef) -> CapToken | None:
        return self.tokens.get(auth_ref)

    def binding(self, label: Label) -> StreamEpoch | None:
        return self.bindings.get(label)

    def find(self, leaf_hash: LeafHash) -> tuple[Label, int] | None:
        return self.places.get(leaf_hash)


def scopes(*, rotates: bool = True, streams: tuple[StreamId, ...] = ()) -> Scopes:
    return Scopes(ROUTING, rotates=rotates, new_cache=LruCache, streams=streams, reserved=RESERVED)


def policy(
    *,
    epoch_sec: int = EPOCH_SEC,
    streams: tuple[str, ...] = (),
    limits: Limits = LIMITS,
    require_cap: bool = True,
    is_primary: bool = True,
    max_client_lifetime_sec: int | None = None,
    max_client_msgs: int | None = None,
) -> Policy:
    return Policy(
        limits=limits,
        scopes=scopes(rotates=epoch_sec > 0, streams=tuple(map(builders.stream, streams))),
        epoch_sec=epoch_sec,
        require_cap=require_cap,
        is_primary=is_primary,
        max_client_lifetime_sec=max_client_lifetime_sec,
        max_client_msgs=max_client_msgs,
    )


def trusting(*issuers: str) -> Authority:
    return Authority.of([builders.verify_key(name) for name in issuers])


@dataclass(frozen=True)
class Hub:
    """The configuration of a hub, and its log."""

    policy: Policy = field(default_factory=policy)
    authority: Authority = field(default_factory=lambda: trusting("issuer"))
    rules: MessageRules = field(
        default_factory=lambda: MessageRules(LIMITS, {PROFILE.profile_id: PROFILE.pad_block})
    )
    pow: PowRules | None = POW
    view: View = field(default_factory=View)

    def submit(self, body: bytes, cookie: str | None, now: int = NOW) -> Admitted:
        """Run a request through all rows; nothing is appended."""
        sized = prefilter(body, self.rules.limits, self.pow, cookie, now)
        return self.judge(authenticate(read_request(sized, self.rules)), now)

    def judge(self, record: NewEntry, now: int = NOW) -> Admitted:
        """Run the rows that look at the log."""
        return admit(Authentic(record), self.view, self.policy, self.authority, now)

    def take(self, record: NewEntry, now: int = NOW) -> Admitted:
        """Admit and append a message."""
        admitted = self.judge(record, now)
        self.view.accept(admitted)
        return admitted

    def under(self, policy: Policy) -> "Hub":
        """Return a hub of another policy with the same log."""
        return replace(self, policy=policy)


def epoch_at(hub_ts: int) -> int:
    return labels.epoch_at(hub_ts, EPOCH_SEC)


def label_of(stream: str = "stream", hub_ts: int = NOW, *, ahead: int = 0) -> Label:
    """Return the label of a stream at a time, or some epochs after it."""
    return labels.label(ROUTING, builders.stream(stream), epoch_at(hub_ts) + ahead)


def record(
    label: Label | None = None,
    *,
    client: str = "client",
    client_seq: int = 1,
    prev_ack: int = 0,
    auth_ref: AuthRef | None = None,
    content: bytes = b"content",
) -> NewEntry:
    """Return a message as the later rows see it; its leaf depends on what a real one's depends on."""
    label = label_of() if label is None else label
    client_id = builders.verify_key(client)
    leaf = LeafHash(sha256(label + content + client_id + u64be(client_seq)))
    return NewEntry(label, content, leaf, client_id, client_seq, prev_ack, auth_ref)


def worked(body: bytes, difficulty: int = POW.difficulty) -> str:
    """Return the header VEEN-PoW for a request."""
    cookie = solve(sha256(body), difficulty, range(1 << 20))
    assert cookie is not None
    return cookie.encode().hex()


Refusal = tuple[Code, Stage, Detail, dict[str, DetailValue]]


def refusal(error: ProtocolError) -> Refusal:
    """Return what a program may rely on in a refusal."""
    return error.code, error.stage, error.detail, error.fields
