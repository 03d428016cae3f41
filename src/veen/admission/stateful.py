"""Rows 10 to 18: checks of a message against the log before it, one at a time and in order (C-15).

Everything here is a function of the message, the log before it, the configuration and the assigned
hub_ts, so any decision can be reproduced from files (``veen hub explain``).
"""

from dataclasses import dataclass

from veen.admission.authority import Authority
from veen.admission.label_scope import Scopes
from veen.admission.stages import Admitted, Authentic, LogView
from veen.core.data_dir.store_records import AuthRecord, ClientCursor, StreamEpoch
from veen.core.errors import Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.objects import labels
from veen.core.objects.capability import Bucket, CapToken, effective_rate, verify_subject, verify_ttl
from veen.core.objects.new_entry import NewEntry
from veen.core.types import Label, VerifyKey
from veen.stdx.grammar import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The part of the configuration that these rows depend on; fixed while the hub runs."""

    limits: Limits
    scopes: Scopes
    epoch_sec: int
    require_cap: bool
    # A replica accepts entries from its primary only (AUTH1).
    is_primary: bool = True
    max_client_lifetime_sec: int | None = None
    max_client_msgs: int | None = None

    def epoch_window(self, hub_ts: int) -> range:
        """Return the epochs whose labels are open at a time (C-33)."""
        now = labels.epoch_at(hub_ts, self.epoch_sec)
        return labels.epoch_window(now, self.epoch_sec, self.limits.max_epoch_skew_sec)


def admit(record: Authentic, view: LogView, policy: Policy, authority: Authority, hub_ts: int) -> Admitted:
    """Decide on a message; raise the error of the first row that fails."""
    assert record.client_id is not None, "a message has a client"
    known = view.binding(record.label)
    # 10 CAP_MISSING
    token = _token(record, view, policy)
    if token is not None:
        # 11 CAP_INVALID: signatures were checked when the token was authorized; trust may have ended since.
        authority.verify_issuer(token)
        # 12 AUTH_REF: subject, then scope
        verify_subject(token, record.client_id)
    window = policy.epoch_window(hub_ts)
    stream = policy.scopes.resolve(record.label, token, known, window)
    head = _head(record.label, view)
    # 12a NOT_PRIMARY
    if not policy.is_primary:
        raise ProtocolError(Detail.NOT_PRIMARY, "this hub is a replica; submit to the primary", field="label")
    # 12b REVOKED
    authority.verify_not_revoked(record.client_id, token, hub_ts)
    cursor = view.client(record.label, record.client_id)
    # 12c CLIENT_LIFETIME
    _check_count(cursor, policy)
    _check_age(record.client_id, view, policy, hub_ts)
    bucket = None
    if token is not None:
        assert record.auth_ref is not None
        seen = view.auth(record.auth_ref)
        # 13 CAP_TTL
        verify_ttl(token, hub_ts if seen is None else seen.issued_at, hub_ts)
        # 14 CAP_RATE
        bucket = _take(token, seen, policy.limits, hub_ts)
    # 15 PREV_ACK
    _check_prev_ack(record, cursor, head, view)
    # 16 DUPLICATE, 17 CLIENT_SEQ
    _check_client_seq(record, cursor, view)
    # 18 EPOCH
    _check_epoch(stream, window, policy, hub_ts)
    return Admitted(record, hub_ts, stream if known is None else None, bucket)


def _token(record: NewEntry, view: LogView, policy: Policy) -> CapToken | None:
    if record.auth_ref is None:
        if policy.require_cap:
            raise ProtocolError(
                Detail.CAP_MISSING,
                "this hub requires a capability token: ask its operator for one, "
                "or issue and authorize one with 'veen cap issue' and 'veen cap authorize'",
                field="auth_ref",
            )
        return None
    token = view.token(record.auth_ref)
    if token is None:
        raise ProtocolError(
            Detail.CAP_MISSING,
            "this hub does not know the token of the message; send it with 'veen cap authorize' first",
            field="auth_ref",
        )
    return token


def _head(label: Label, view: LogView) -> int:
    try:
        return view.last_seq(label)
    except ProtocolError as error:  # a fork does not add to the log of its parent (C-95)
        raise ProtocolError(Detail.AUTH_REF, error.message, field="label") from None


def _check_age(client_id: VerifyKey, view: LogView, policy: Policy, hub_ts: int) -> None:
    limit = policy.max_client_lifetime_sec
    since = None if limit is None else view.client_since(client_id)
    if limit is not None and since is not None and hub_ts - since > limit:
        raise ProtocolError(
            Detail.CLIENT_LIFETIME,
            f"client_id was first used {hub_ts - since} s ago; create a new one",
            field="client_id",
            actual=hub_ts - since,
            max_allowed=limit,
        )


def _check_count(cursor: ClientCursor, policy: Policy) -> None:
    limit = policy.max_client_msgs
    if limit is not None and cursor.client_seq >= limit:
        raise ProtocolError(
            Detail.CLIENT_LIFETIME,
            f"client_id has sent {counted(cursor.client_seq, 'message')} to this label; create a new one",
            field="client_seq",
            actual=cursor.client_seq,
            max_allowed=limit,
        )


def _take(token: CapToken, seen: AuthRecord | None, limits: Limits, hub_ts: int) -> Bucket:
    rate = effective_rate(token, limits)
    bucket = seen.bucket if seen is not None else None
    return (bucket or Bucket.full(rate, hub_ts)).take(rate, hub_ts)


def _check_prev_ack(record: NewEntry, cursor: ClientCursor, head: int, view: LogView) -> None:
    if record.prev_ack > head:
        raise ProtocolError(
            Detail.PREV_ACK,
            f"prev_ack {record.prev_ack} is beyond the head of the label, {head}",
            field="prev_ack",
            actual=record.prev_ack,
            max_allowed=head,
        )
    if record.prev_ack < cursor.prev_ack:
        error = ProtocolError(
            Detail.PREV_ACK,
            f"prev_ack went back from {cursor.prev_ack} to {record.prev_ack}",
            field="prev_ack",
            actual=record.prev_ack,
            expected=cursor.prev_ack,
        )
        error.fields.update(_position(record, view))
        raise error


def _position(record: NewEntry, view: LogView) -> dict[str, int]:
    """Return the position of a rejected message that is in the log: a retry learns of its success (C-63)."""
    entry = view.find(record.leaf_hash)
    return {"stream_seq": entry[1]} if entry is not None and entry[0] == record.label else {}


def _check_client_seq(record: NewEntry, cursor: ClientCursor, view: LogView) -> None:
    due = cursor.client_seq + 1
    if record.client_seq == due:
        return
    if 1 <= record.client_seq < due:
        # Numbers are used without gaps, so this one was.
        position = _position(record, view)
        used = f"client_seq {record.client_seq} was used for another message"
        error = ProtocolError(
            Detail.DUPLICATE,
            f"the message is already in the log, as entry {position['stream_seq']}" if position else used,
            field="client_seq",
            expected=due,
            actual=record.client_seq,
        )
        error.fields.update(position)
        raise error
    raise ProtocolError(
        Detail.CLIENT_SEQ,
        f"client_seq {record.client_seq} is not the next one, which is {due}",
        field="client_seq",
        expected=due,
        actual=record.client_seq,
    )


def _check_epoch(stream: StreamEpoch | None, window: range, policy: Policy, hub_ts: int) -> None:
    if stream is None and not policy.epoch_sec:
        return  # no rotation, no token: any label is accepted (C-31)
    if stream is not None and stream.epoch in window:
        return
    now = labels.epoch_at(hub_ts, policy.epoch_sec)
    if stream is None:
        raise ProtocolError(
            Detail.EPOCH,
            "this hub knows no stream and epoch with this label; use a token for its stream",
            field="label",
            expected=now,
        )
    raise ProtocolError(
        Detail.EPOCH,
        f"the label is of epoch {stream.epoch}, and it is epoch {now}",
        field="label",
        expected=now,
        actual=stream.epoch,
    )
