"""Rows 10 to 18, rule by rule: at each bound and one beyond it."""

from dataclasses import replace

import pytest

from tests.admission.memory_hub import LIMITS, NOW, Hub, label_of, policy, record, trusting
from tests.builders import cap_token, rate, verify_key
from tests.expect import refused
from veen.core.data_dir.store_records import AuthRecord, ClientCursor
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.limits import Limits
from veen.core.objects.capability import Bucket, CapToken, Rate
from veen.core.objects.control_record import RevocationRecord, Target, TrustRecord

TOKEN = cap_token()
OPEN = policy(require_cap=False, streams=("stream",))


def hub_with(token: CapToken, issued_at: int = NOW) -> Hub:
    hub = Hub()
    hub.view.authorize(token, issued_at)
    return hub


def open_hub() -> Hub:
    return Hub(policy=OPEN)


# --- 10 and 11: is there a token, and does it count ---------------------------------------------------------


def test_where_tokens_are_required_a_message_without_one_is_refused_with_what_to_run() -> None:
    with refused(Detail.CAP_MISSING, field="auth_ref", code=Code.CAP) as caught:
        Hub().judge(record())
    assert "veen cap issue" in caught.value.message
    assert "veen cap authorize" in caught.value.message
    open_hub().judge(record())


def test_a_token_that_is_named_is_checked_also_where_none_is_required() -> None:
    hub = open_hub()
    with refused(Detail.CAP_MISSING, field="auth_ref") as caught:
        hub.judge(record(auth_ref=TOKEN.auth_ref))
    assert "veen cap authorize" in caught.value.message
    hub.view.authorize(TOKEN, NOW)
    hub.judge(record(auth_ref=TOKEN.auth_ref))
    with refused(Detail.AUTH_REF, field="client_id"):
        hub.judge(record(client="other", auth_ref=TOKEN.auth_ref))


def test_a_renewed_token_is_another_one() -> None:
    hub = hub_with(TOKEN)
    renewed = cap_token(links=2)
    with refused(Detail.CAP_MISSING):
        hub.judge(record(auth_ref=renewed.auth_ref))


def test_a_token_stops_to_count_when_its_issuer_does() -> None:
    hub = hub_with(TOKEN)
    hub.take(record(auth_ref=TOKEN.auth_ref))
    added = trusting().after([TrustRecord(issuer_pk=verify_key("issuer"), trusted=True)])
    removed = added.after([TrustRecord(issuer_pk=verify_key("issuer"), trusted=False)])
    following = record(client_seq=2, auth_ref=TOKEN.auth_ref)
    replace(hub, authority=added).judge(following)
    with refused(Detail.CAP_INVALID, field="issuer_pk", code=Code.CAP):
        replace(hub, authority=removed).judge(following)


# --- 12b: revoked -------------------------------------------------------------------------------------------


def test_a_revocation_is_judged_at_the_time_of_the_message() -> None:
    gone = RevocationRecord(
        target_kind=Target.CLIENT_ID.value, target=verify_key("client"), ts=NOW + 5, ttl=5
    )
    hub = replace(open_hub(), authority=trusting().after([gone]))
    for hub_ts in (NOW + 4, NOW + 10):
        hub.judge(record(), hub_ts)
    for hub_ts in (NOW + 5, NOW + 9):
        with refused(Detail.REVOKED, field="client_id", code=Code.AUTH):
            hub.judge(record(), hub_ts)


# --- 12c: the lifetime of a client --------------------------------------------------------------------------


def test_a_client_may_send_so_many_messages_to_a_label() -> None:
    hub = open_hub().under(policy(require_cap=False, streams=("stream", "other"), max_client_msgs=2))
    for seq in (1, 2):
        hub.take(record(client_seq=seq))
    for seq in (1, 2, 3, 4):  # whatever it says: this row comes before those on its number
        with refused(Detail.CLIENT_LIFETIME, field="client_seq", code=Code.CAP) as caught:
            hub.judge(record(client_seq=seq))
        assert caught.value.fields == {"field": "client_seq", "actual": 2, "max_allowed": 2}
    hub.judge(record(label_of("other")))
    hub.judge(record(client="new"))


def test_a_client_may_be_used_for_so_long_in_all_labels_together() -> None:
    hub = open_hub().under(policy(require_cap=False, streams=("stream", "other"), max_client_lifetime_sec=10))
    hub.take(record())
    hub.judge(record(client_seq=2), NOW + 10)
    for late in (record(client_seq=2), record(label_of("other"))):
        with refused(Detail.CLIENT_LIFETIME, field="client_id", code=Code.CAP) as caught:
            hub.judge(late, NOW + 11)
        assert caught.value.fields == {"field": "client_id", "actual": 11, "max_allowed": 10}
    hub.judge(record(client="new"), NOW + 11)


# --- 13: ttl ------------------------------------------------------------------------------------------------


def test_a_token_counts_from_its_authorization_and_its_last_second_counts() -> None:
    hub = hub_with(cap_token(ttl=30), NOW - 30)
    message = record(auth_ref=cap_token(ttl=30).auth_ref)
    hub.take(message)
    following = record(client_seq=2, auth_ref=cap_token(ttl=30).auth_ref)
    hub.judge(following)
    with refused(Detail.CAP_TTL, code=Code.TIME) as caught:
        hub.judge(following, NOW + 1)
    assert caught.value.fields == {"expected": NOW, "actual": NOW + 1}


def test_a_token_that_no_record_names_counts_from_its_first_accepted_message() -> None:
    token = cap_token(ttl=9)
    hub = Hub()
    hub.view.tokens[token.auth_ref] = token  # known, but not from the authorize log
    hub.take(record(auth_ref=token.auth_ref))
    assert hub.view.auth(token.auth_ref) == AuthRecord(NOW, 0, Bucket(19_999, NOW))
    following = record(client_seq=2, auth_ref=token.auth_ref)
    hub.judge(following, NOW + 9)
    with refused(Detail.CAP_TTL) as caught:
        hub.judge(following, NOW + 10)
    assert caught.value.fields == {"expected": NOW + 9, "actual": NOW + 10}


def test_authorizing_a_token_after_its_first_use_does_not_make_it_younger() -> None:
    token = cap_token(ttl=9)
    hub = Hub()
    hub.view.tokens[token.auth_ref] = token
    hub.take(record(auth_ref=token.auth_ref))
    hub.view.authorize(token, NOW + 5)
    with refused(Detail.CAP_TTL):
        hub.judge(record(client_seq=2, auth_ref=token.auth_ref), NOW + 10)


def test_a_ttl_of_zero_is_one_second() -> None:
    hub = hub_with(cap_token(ttl=0))
    hub.judge(record(auth_ref=cap_token(ttl=0).auth_ref))
    with refused(Detail.CAP_TTL):
        hub.judge(record(auth_ref=cap_token(ttl=0).auth_ref), NOW + 1)


# --- 14: rate -----------------------------------------------------------------------------------------------


NONE_LEFT = Detail.CAP_RATE


def spend(hub: Hub, token: CapToken, times: list[int]) -> list[int | Detail]:
    """Send messages at these times; return what each left in the bucket, or why it was refused."""
    left: list[int | Detail] = []
    for hub_ts in times:
        seq = hub.view.client(label_of(), verify_key()).client_seq + 1
        message = record(client_seq=seq, auth_ref=token.auth_ref)
        try:
            bucket = hub.take(message, hub_ts).bucket
        except ProtocolError as error:
            left.append(error.detail)
        else:
            assert bucket is not None
            assert bucket.last_ts == hub_ts
            left.append(bucket.tokens)
    return left


def test_the_bucket_in_exact_numbers() -> None:
    token = cap_token(rate=rate(per_sec=2, burst=3))
    times = [NOW, NOW, NOW, NOW, NOW + 1, NOW + 1, NOW + 1, NOW + 2, NOW + 9, NOW + 9]
    assert spend(hub_with(token), token, times) == [2, 1, 0, NONE_LEFT, 1, 0, NONE_LEFT, 1, 2, 1]


@pytest.mark.parametrize(
    ("asked", "first", "after_a_second"),
    [
        (None, 3, 3),
        (Rate(per_sec=100, burst=100), 3, 3),
        (Rate(per_sec=1, burst=100), 3, 3),
        (rate(9, 2), 1, 1),
    ],
)
def test_the_registry_clamps_the_rate_of_a_token(asked: Rate | None, first: int, after_a_second: int) -> None:
    limits = Limits(max_cap_rate_per_sec=2, max_cap_rate_burst=4)
    token = cap_token(rate=asked)
    hub = hub_with(token).under(policy(limits=limits))
    assert spend(hub, token, [NOW, NOW + 1]) == [first, after_a_second]


def test_the_refill_is_clamped_too() -> None:
    limits = Limits(max_cap_rate_per_sec=2, max_cap_rate_burst=4)
    token = cap_token(rate=Rate(per_sec=100, burst=100))
    hub = hub_with(token).under(policy(limits=limits))
    assert spend(hub, token, [NOW, NOW, NOW, NOW, NOW, NOW + 1]) == [3, 2, 1, 0, NONE_LEFT, 1]


def test_a_bucket_spans_the_labels_of_its_token() -> None:
    token = cap_token(streams=("a", "b"), rate=rate(per_sec=0, burst=2))
    hub = hub_with(token)
    for name in ("a", "b"):
        hub.take(record(label_of(name), auth_ref=token.auth_ref))
    for name in ("a", "b"):
        with refused(Detail.CAP_RATE) as caught:
            hub.judge(record(label_of(name), client_seq=2, auth_ref=token.auth_ref), NOW + 60)
        assert caught.value.fields == {"max_allowed": 0}


def test_a_message_that_a_later_row_refuses_costs_nothing() -> None:
    token = cap_token(rate=rate(per_sec=0, burst=1))
    hub = hub_with(token)
    for wrong, detail in (
        (record(client_seq=2, auth_ref=token.auth_ref), Detail.CLIENT_SEQ),
        (record(prev_ack=1, auth_ref=token.auth_ref), Detail.PREV_ACK),
        (record(label_of(ahead=2), auth_ref=token.auth_ref), Detail.EPOCH),
    ):
        with refused(detail):
            hub.take(wrong)
    hub.take(record(auth_ref=token.auth_ref))
    with refused(Detail.CAP_RATE):
        hub.take(record(client_seq=2, auth_ref=token.auth_ref))


# --- 15: prev_ack -------------------------------------------------------------------------------------------


def test_prev_ack_is_at_most_the_head_of_the_label_whoever_wrote_it() -> None:
    hub = open_hub()
    with refused(Detail.PREV_ACK, field="prev_ack", code=Code.SEQ) as caught:
        hub.judge(record(prev_ack=1))
    assert caught.value.fields == {"field": "prev_ack", "actual": 1, "max_allowed": 0}
    for seq in (1, 2, 3):
        hub.take(record(client="other", client_seq=seq))
    for ack in (0, 1, 3):
        hub.judge(record(prev_ack=ack))
    with refused(Detail.PREV_ACK) as caught:
        hub.judge(record(prev_ack=4))
    assert caught.value.fields == {"field": "prev_ack", "actual": 4, "max_allowed": 3}


def test_prev_ack_of_a_client_never_goes_back() -> None:
    hub = open_hub()
    for seq in (1, 2, 3):
        hub.take(record(client="other", client_seq=seq))
    hub.take(record(prev_ack=2))
    for ack in (2, 3, 4):
        hub.judge(record(client_seq=2, prev_ack=ack))
    with refused(Detail.PREV_ACK, field="prev_ack", code=Code.SEQ) as caught:
        hub.judge(record(client_seq=2, prev_ack=1))
    assert caught.value.fields == {"field": "prev_ack", "actual": 1, "expected": 2}
    hub.judge(record(client="third", prev_ack=0))


def test_prev_ack_is_counted_by_label() -> None:
    hub = Hub(policy=policy(require_cap=False, streams=("a", "b")))
    hub.take(record(label_of("a")))
    hub.take(record(label_of("a"), client_seq=2, prev_ack=1))
    hub.judge(record(label_of("b"), prev_ack=0))
    with refused(Detail.PREV_ACK):
        hub.judge(record(label_of("b"), prev_ack=1))


# --- 16 and 17: client_seq ----------------------------------------------------------------------------------


def test_the_first_number_is_1() -> None:
    open_hub().judge(record(client_seq=1))
    for seq in (0, 2, 2**64 - 1):
        with refused(Detail.CLIENT_SEQ, field="client_seq", code=Code.SEQ) as caught:
            open_hub().judge(record(client_seq=seq))
        assert caught.value.fields == {"field": "client_seq", "expected": 1, "actual": seq}


def test_zero_is_never_a_duplicate() -> None:
    hub = open_hub()
    for seq in (1, 2):
        hub.take(record(client_seq=seq))
    with refused(Detail.CLIENT_SEQ) as caught:
        hub.judge(record(client_seq=0))
    assert caught.value.fields == {"field": "client_seq", "expected": 3, "actual": 0}


def test_a_retry_learns_where_its_message_is() -> None:
    hub = open_hub()
    hub.take(record(client="other"))
    for seq in (1, 2):
        hub.take(record(client_seq=seq))
    for seq in (1, 2):
        with refused(Detail.DUPLICATE, field="client_seq", code=Code.SEQ) as caught:
            hub.judge(record(client_seq=seq))
        assert caught.value.fields == {
            "field": "client_seq",
            "expected": 3,
            "actual": seq,
            "stream_seq": seq + 1,
        }


def test_another_message_of_a_used_number_learns_no_place() -> None:
    hub = open_hub()
    for seq in (1, 2):
        hub.take(record(client_seq=seq))
    for seq in (1, 2):
        with refused(Detail.DUPLICATE, field="client_seq") as caught:
            hub.judge(record(client_seq=seq, content=b"changed"))
        assert caught.value.fields == {"field": "client_seq", "expected": 3, "actual": seq}


def test_a_retry_of_the_newest_message_passes_prev_ack() -> None:
    hub = open_hub()
    hub.take(record(client="other"))
    hub.take(record(prev_ack=1))
    with refused(Detail.DUPLICATE) as caught:
        hub.judge(record(prev_ack=1))
    assert caught.value.fields["stream_seq"] == 2


def test_numbers_are_counted_by_label_and_client() -> None:
    hub = Hub(policy=policy(require_cap=False, streams=("a", "b")))
    hub.take(record(label_of("a")))
    hub.judge(record(label_of("a"), client="other"))
    hub.judge(record(label_of("b")))
    hub.judge(record(label_of("a", ahead=1)))
    hub.judge(record(label_of("a"), client_seq=2))


# --- what is decided ----------------------------------------------------------------------------------------


def test_what_is_admitted_says_all_that_the_log_needs() -> None:
    hub = hub_with(TOKEN, NOW - 5)
    message = record(auth_ref=TOKEN.auth_ref)
    admitted = hub.take(message, NOW + 3)
    assert admitted.record is message
    assert admitted.hub_ts == NOW + 3
    assert admitted.bucket == Bucket(LIMITS.max_cap_rate_burst - 1, NOW + 3)
    assert hub.view.client(message.label, verify_key()) == ClientCursor(1, 0)
    assert hub.view.auth(TOKEN.auth_ref) == AuthRecord(NOW - 5, 1, admitted.bucket)


def test_deciding_changes_nothing() -> None:
    hub = hub_with(TOKEN)
    message = record(auth_ref=TOKEN.auth_ref)
    assert hub.judge(message) == hub.judge(message)
    assert hub.view == hub_with(TOKEN).view
