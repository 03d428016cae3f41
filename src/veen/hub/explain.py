"""Why a message was accepted, or would be: the decision recomputed from the files of a data directory alone.

Admission is a function of the message, the log before it, the configuration and the assigned time, so any
process that has the files can recompute its verdicts.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from veen.admission.authority import Authority
from veen.admission.prefilter import sized
from veen.admission.stages import Authentic, LogView
from veen.admission.stateful import Policy, admit
from veen.admission.stateless import MessageRules, authenticate, read_msg
from veen.core.api.data_plane import SubmitRequest
from veen.core.data_dir.hub_settings import HubSettings
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.errors import ADMISSION_TABLE, Detail, ErrorRow, ProtocolError
from veen.core.objects import labels
from veen.core.objects.capability import Bucket, CapToken, expires_at
from veen.core.objects.control_record import ControlRecord, decode_control
from veen.core.objects.hub_identity import HubIdentity
from veen.core.objects.msg import Msg
from veen.core.objects.new_entry import NewEntry
from veen.core.types import AuthRef, Label, LeafHash, VerifyKey
from veen.hub.config import Settings
from veen.hub.policy import policy_of
from veen.storage import Reader
from veen.storage.journal.rate_buckets import Buckets
from veen.storage.write.writer import frozen

_BLOCK = 512
# Rows that the files cannot decide.
_ELSEWHERE = {
    Detail.PREFILTER_REJECT: "not stored: the proof of work is sent beside the message",
    Detail.ATT_ROOT: "not checked by a hub: only holders of the plaintext know the attachments",
}
_NEEDS_TOKEN = {Detail.CAP_INVALID, Detail.CAP_TTL, Detail.CAP_RATE}


@dataclass(frozen=True, slots=True)
class Explained:
    """A verdict, row by row."""

    accepted: bool
    hub_ts: int
    # Each row of the table with "passed", "failed: reason", "not reached" or why it does not apply.
    rows: tuple[tuple[ErrorRow, str], ...]
    # The inputs of the decision.
    facts: dict[str, str | int]
    error: ProtocolError | None = None


class PastView:
    """The log as it was immediately before one of its entries."""

    def __init__(self, reader: Reader, label: Label, seq: int, hub_ts: int) -> None:
        self._reader = reader
        self._label = label
        self._seq = seq
        self._hub_ts = hub_ts

    def last_seq(self, label: Label) -> int:
        """Return the last entry; in the label of the entry, the one before it."""
        return self._seq - 1 if label == self._label else self._reader.last_seq(label)

    def client(self, label: Label, client_id: VerifyKey) -> ClientCursor:
        """Return the client's cursor after its last message before the entry."""
        for msg in self._backwards(label):
            if msg.client_id == client_id:
                return ClientCursor(msg.client_seq, msg.prev_ack)
        return ClientCursor()

    def _backwards(self, label: Label) -> Iterator[Msg]:
        end = self.last_seq(label)
        while end > 0:
            start = max(1, end - _BLOCK + 1)
            block = [place.entry.msg() for place in self._reader.entries(label, start, end)]
            yield from reversed(block)
            end = start - 1

    def client_since(self, client_id: VerifyKey) -> int | None:
        """Return when the client was first seen, if that was before the entry."""
        since = self._reader.client_since(client_id)
        return since if since is not None and since < self._hub_ts else None

    def auth(self, auth_ref: AuthRef) -> AuthRecord | None:
        """Return the state of the token; its rate bucket is recomputed from all of its uses."""
        known = self._reader.auth(auth_ref)
        token = self._reader.token(auth_ref)
        if known is None or token is None:
            return known
        uses = sorted(self._uses(auth_ref, token))
        folded = Buckets(self._reader.store, lambda _: token, lambda _: None)
        bucket: Bucket | None = None
        for hub_ts in uses:
            bucket = folded.after(auth_ref, hub_ts)
        return AuthRecord(known.issued_at, known.authorize_seq, bucket)

    def _uses(self, auth_ref: AuthRef, token: CapToken) -> Iterator[int]:
        """Yield the times of earlier messages with a token; of the same second, only those of the label."""
        for label in self._reader.labels():
            stream = self._reader.binding(label)
            if stream is None or stream.stream_id not in token.allow.stream_ids:
                continue
            last = self.last_seq(label)
            for place in self._reader.entries(label, 1, last) if last else ():
                hub_ts = place.entry.receipt.hub_ts
                before = hub_ts < self._hub_ts or label == self._label
                if before and place.entry.msg().auth_ref == auth_ref:
                    yield hub_ts

    def token(self, auth_ref: AuthRef) -> CapToken | None:
        return self._reader.token(auth_ref)

    def binding(self, label: Label) -> StreamEpoch | None:
        """Return the stream and epoch of a label, which never change."""
        return self._reader.binding(label)

    def find(self, leaf_hash: LeafHash) -> tuple[Label, int] | None:
        """Return the position of a message, if it was in the log before the entry."""
        place = self._reader.find(leaf_hash)
        return None if place is None or place == (self._label, self._seq) else place


class PresentView:
    """The log as it is: the state in which a message sent now would be decided."""

    def __init__(self, reader: Reader) -> None:
        self.client = reader.client
        self.client_since = reader.client_since
        self.auth = reader.auth
        self.token = reader.token
        self.binding = reader.binding
        self.find = reader.find
        self._reader = reader

    def last_seq(self, label: Label) -> int:
        """Return the newest entry; reject a label of a fork's parent, as a writer does."""
        if self._reader.is_frozen(label):
            raise frozen()
        return self._reader.last_seq(label)


class Explainer:
    """Recomputes decisions of admission, in a directory that need not have a running hub."""

    def __init__(
        self, reader: Reader, identity: HubIdentity, hub_settings: HubSettings, settings: Settings
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._policy_at = partial(policy_of, identity, hub_settings, settings, reader)
        pads = {profile.profile_id: profile.pad_block for profile in hub_settings.profiles}
        self._pads = pads

    def entry(self, label: Label, seq: int) -> Explained:
        """Explain an entry of the log, as of its position and time."""
        entry = self._reader.entry(label, seq)
        hub_ts = entry.receipt.hub_ts
        view = PastView(self._reader, label, seq, hub_ts)
        orders = self._orders(hub_ts)
        earlier_orders = len(self._orders(hub_ts - 1))
        explained = self._decide(entry.msg_bytes, view, hub_ts, self._authority(orders))
        # Some or all of the control records of the same second may be later than the entry.
        while not explained.accepted and len(orders) > earlier_orders:
            orders.pop()
            explained = self._decide(entry.msg_bytes, view, hub_ts, self._authority(orders))
        return explained

    def message(self, data: bytes, hub_ts: int) -> Explained:
        """Explain how a message sent now would be decided: a MSG, or a request to submit one."""
        with suppress(ProtocolError):  # otherwise it is the message itself, or malformed
            data = SubmitRequest.decode(data, self._policy_at(hub_ts).limits).msg.encode()
        return self._decide(data, PresentView(self._reader), hub_ts, self._authority(self._orders(hub_ts)))

    def _orders(self, hub_ts: int) -> list[ControlRecord]:
        """Return the control records up to a time."""
        control = labels.control_label(self._reader.store.hub_id)
        last = self._reader.last_seq(control)
        places = self._reader.entries(control, 1, last) if last else iter(())
        entries = (place.entry for place in places)
        return [decode_control(entry.msg_bytes) for entry in entries if entry.receipt.hub_ts <= hub_ts]

    def _authority(self, orders: Iterable[ControlRecord]) -> Authority:
        before = Authority.of(self._settings.issuers, trust_all=self._settings.trust_all_issuers)
        return before.after(orders)

    def _decide(self, data: bytes, view: LogView, hub_ts: int, authority: Authority) -> Explained:
        record: Authentic | None = None
        error: ProtocolError | None = None
        policy = self._policy_at(hub_ts)
        try:
            msg = read_msg(sized(data, policy.limits, bare=True), MessageRules(policy.limits, self._pads))
            record = authenticate(msg)
            admit(record, view, policy, authority, hub_ts)
        except ProtocolError as rejection:
            error = rejection
        facts = {} if record is None else _facts(record, view, policy)
        return Explained(error is None, hub_ts, tuple(_rows(error, record)), facts, error)


def _facts(record: NewEntry, view: LogView, policy: Policy) -> dict[str, str | int]:
    assert record.client_id is not None
    cursor = view.client(record.label, record.client_id)
    facts: dict[str, str | int] = {
        "label": record.label.hex(),
        "msg_id": record.leaf_hash.hex(),
        "client_id": record.client_id.hex(),
        "client_seq": record.client_seq,
        "client_seq before": cursor.client_seq,
    }
    with suppress(ProtocolError):  # a label of a fork's parent accepts no entries
        facts["head before"] = view.last_seq(record.label)
    facts["require_cap"] = "yes" if policy.require_cap else "no"
    stream = view.binding(record.label)
    if stream is not None:
        facts |= {"stream_id": stream.stream_id.hex(), "epoch": stream.epoch}
    if record.auth_ref is not None:
        facts["auth_ref"] = record.auth_ref.hex()
        token, known = view.token(record.auth_ref), view.auth(record.auth_ref)
        if token is not None and known is not None:
            facts |= {
                "issuer_pk": token.issuer_pk.hex(),
                "expires_at": expires_at(token, known.issued_at),
            }
            facts["rate left"] = "all" if known.bucket is None else known.bucket.tokens
    return facts


def _rows(error: ProtocolError | None, record: NewEntry | None) -> Iterator[tuple[ErrorRow, str]]:
    reached = True
    for row in ADMISSION_TABLE:
        if error is not None and row.detail is error.detail:
            yield row, f"failed: {error.message}"
            reached = False
        elif not reached:
            yield row, "not reached"
        elif row.detail in _ELSEWHERE:
            yield row, _ELSEWHERE[row.detail]
        elif row.detail in _NEEDS_TOKEN and (record is None or record.auth_ref is None):
            yield row, "no token"
        else:
            yield row, "passed"
