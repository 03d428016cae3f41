"""The bounds of a capability: whose it is, where it reaches, how long, how fast."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import cap_token, rate, routing_key, some_label, stream, verify_key
from tests.expect import refused
from veen.core.errors import Code, Detail, ProtocolError, Stage
from veen.core.limits import DEFAULT_LIMITS, Limits
from veen.core.objects import labels
from veen.core.objects.capability import (
    Bucket,
    Rate,
    candidate_labels,
    effective_rate,
    expires_at,
    verify_issuer,
    verify_subject,
    verify_ttl,
)


def test_only_configured_issuers_are_trusted() -> None:
    verify_issuer(cap_token(), [verify_key("other"), verify_key("issuer")])
    for trusted in ([], [verify_key("other")], [verify_key("client")]):
        with refused(Detail.CAP_INVALID, field="issuer_pk", code=Code.CAP):
            verify_issuer(cap_token(), trusted)


def test_a_token_is_for_its_subject_alone() -> None:
    verify_subject(cap_token(), verify_key("client"))
    for other in ("issuer", "other"):
        with refused(Detail.AUTH_REF, field="client_id", code=Code.AUTH) as caught:
            verify_subject(cap_token(), verify_key(other))
        assert caught.value.stage == Stage.AUTH


# --- where --------------------------------------------------------------------------------------------------


def test_a_token_reaches_the_labels_of_its_streams_in_the_given_epochs() -> None:
    token = cap_token(streams=("a", "b"))
    window = labels.epoch_window(5, 60, 60)
    found = candidate_labels(token.allow.stream_ids, routing_key(), window)
    assert found == {
        labels.label(routing_key(), stream(name), epoch): (stream(name), epoch)
        for name in ("a", "b")
        for epoch in (4, 5, 6)
    }


def test_labels_of_other_streams_epochs_and_hubs_are_out_of_reach() -> None:
    found = candidate_labels(cap_token(streams=("a",)).allow.stream_ids, routing_key(), [5])
    assert labels.label(routing_key(), stream("a"), 5) in found
    for foreign in (
        labels.label(routing_key(), stream("b"), 5),
        labels.label(routing_key(), stream("a"), 4),
        labels.label(routing_key("other"), stream("a"), 5),
        some_label(),
    ):
        assert foreign not in found
    assert candidate_labels(cap_token().allow.stream_ids, routing_key(), []) == {}


def test_without_rotation_a_token_reaches_one_label_per_stream() -> None:
    token = cap_token(streams=("a", "b", "c"))
    assert len(candidate_labels(token.allow.stream_ids, routing_key(), labels.epoch_window(0, 0, 60))) == 3


# --- how long -----------------------------------------------------------------------------------------------


def test_the_last_second_counts_and_the_next_does_not() -> None:
    token = cap_token(ttl=100)
    assert expires_at(token, 1_000) == 1_100
    for hub_ts in (1_000, 1_050, 1_100):
        verify_ttl(token, 1_000, hub_ts)
    with refused(Detail.CAP_TTL, code=Code.TIME) as caught:
        verify_ttl(token, 1_000, 1_101)
    assert caught.value.stage == Stage.AUTH
    assert caught.value.fields == {"expected": 1_100, "actual": 1_101}


def test_a_ttl_of_zero_is_the_second_of_first_use() -> None:
    verify_ttl(cap_token(ttl=0), 1_000, 1_000)
    with refused(Detail.CAP_TTL):
        verify_ttl(cap_token(ttl=0), 1_000, 1_001)


def test_the_longest_ttl_never_ends() -> None:
    forever = cap_token(ttl=2**64 - 1)
    verify_ttl(forever, 2**40, 2**64 - 1)
    assert expires_at(forever, 2**40) == 2**64 - 1, "a number that a response can carry"


# --- how fast -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, (10_000, 20_000)),
        ((5, 10), (5, 10)),
        ((10_000, 20_000), (10_000, 20_000)),
        ((10_001, 20_001), (10_000, 20_000)),
        ((1, 2**64 - 1), (1, 20_000)),
        ((2**64 - 1, 1), (10_000, 1)),
        ((0, 0), (0, 0)),
    ],
)
def test_a_rate_is_clamped_to_the_registry_which_also_stands_in_for_none(
    asked: tuple[int, int] | None, expected: tuple[int, int]
) -> None:
    token = cap_token(rate=None if asked is None else rate(*asked))
    assert effective_rate(token, DEFAULT_LIMITS) == rate(*expected)


def test_another_registry_clamps_elsewhere() -> None:
    limits = Limits(max_cap_rate_per_sec=3, max_cap_rate_burst=4)
    assert effective_rate(cap_token(rate=rate(5, 10)), limits) == rate(3, 4)
    assert effective_rate(cap_token(), limits) == rate(3, 4)


def test_a_bucket_starts_full_and_is_empty_after_its_burst() -> None:
    allowed = rate(per_sec=2, burst=3)
    bucket = Bucket.full(allowed, 100)
    for left in (2, 1, 0):
        bucket = bucket.take(allowed, 100)
        assert bucket.tokens == left
    with refused(Detail.CAP_RATE, code=Code.RATE) as caught:
        bucket.take(allowed, 100)
    assert caught.value.stage == Stage.AUTH


def test_a_bucket_refills_per_second_up_to_its_burst() -> None:
    allowed = rate(per_sec=2, burst=5)
    empty = Bucket(0, 100)
    assert empty.take(allowed, 101) == Bucket(1, 101)
    assert empty.take(allowed, 102) == Bucket(3, 102)
    assert empty.take(allowed, 103) == Bucket(4, 103)
    assert empty.take(allowed, 10**12) == Bucket(4, 10**12)


def test_a_bucket_that_never_refills_or_holds_nothing() -> None:
    once = Bucket.full(rate(0, 1), 100).take(rate(0, 1), 100)
    with refused(Detail.CAP_RATE):
        once.take(rate(0, 1), 2**40)
    with refused(Detail.CAP_RATE):
        Bucket.full(rate(5, 0), 100).take(rate(5, 0), 200)


def test_a_refused_message_costs_nothing() -> None:
    allowed = rate(per_sec=1, burst=1)
    bucket = Bucket.full(allowed, 100).take(allowed, 100)
    for _ in range(3):
        with refused(Detail.CAP_RATE):
            bucket.take(allowed, 100)
    assert bucket.take(allowed, 101) == Bucket(0, 101)


def run(allowed: Rate, requests: list[int]) -> tuple[Bucket, list[int]]:
    """Return the bucket after these requests, and the times of those that were accepted."""
    bucket = Bucket.full(allowed, requests[0])
    accepted = []
    for hub_ts in requests:
        try:
            bucket = bucket.take(allowed, hub_ts)
        except ProtocolError:
            continue
        accepted.append(hub_ts)
    return bucket, accepted


@given(
    st.integers(0, 5),
    st.integers(1, 8),
    st.lists(st.integers(100, 110), min_size=1, max_size=60).map(sorted),
    st.randoms(use_true_random=False),
)
def test_the_state_is_a_function_of_accepted_receipts_in_any_order_within_a_second(
    per_sec: int, burst: int, requests: list[int], random: object
) -> None:
    allowed = rate(per_sec, burst)
    live, accepted = run(allowed, requests)
    # Receipts of several labels, merged by second: inside one second no order is known, and none is needed.
    receipts = [(hub_ts, index % 3) for index, hub_ts in enumerate(accepted)]
    random.shuffle(receipts)  # type: ignore[attr-defined]
    receipts.sort(key=lambda item: item[0])
    replayed, all_again = run(allowed, [hub_ts for hub_ts, _ in receipts])
    assert all_again == accepted
    assert replayed == live


def test_never_more_than_the_burst_and_the_refill_are_accepted_in_any_interval() -> None:
    allowed = rate(per_sec=2, burst=4)
    requests = [100] * 9 + [101] * 9 + [105] * 9 + [106] * 9
    _, accepted = run(allowed, requests)
    for start in range(100, 107):
        for end in range(start, 107):
            inside = [hub_ts for hub_ts in accepted if start <= hub_ts <= end]
            assert len(inside) <= 4 + 2 * (end - start)
    assert len(accepted) == 4 + 2 + 4 + 2


def test_equal_requests_in_one_second_are_interchangeable() -> None:
    allowed = rate(per_sec=1, burst=3)
    states = {run(allowed, [100, *order])[0] for order in permutations([100, 100, 100])}
    assert len(states) == 1


# --- read back ----------------------------------------------------------------------------------------------

rates = st.builds(rate, st.integers(0, 5), st.integers(0, 8))


@given(rates, st.integers(0, 8), st.integers(100, 120), st.integers(0, 8))
def test_spending_at_once_is_taking_one_by_one(allowed: Rate, tokens: int, hub_ts: int, count: int) -> None:
    bucket = before = Bucket(tokens, 100)
    taken = 0
    for _ in range(count):
        try:
            bucket = bucket.take(allowed, hub_ts)
        except ProtocolError:
            break
        taken += 1
    if taken:
        assert before.spend(allowed, hub_ts, taken) == bucket
    if taken < count:  # a log that no hub of ours has written: nothing is left, and nothing is owed
        assert before.spend(allowed, hub_ts, count) == Bucket(0, hub_ts)


def test_spending_nothing_fills_up_to_the_burst() -> None:
    assert Bucket(1, 100).spend(rate(2, 6), 102, 0) == Bucket(5, 102)
    assert Bucket(1, 100).spend(rate(2, 6), 200, 0) == Bucket(6, 200)
    assert Bucket(9, 100).spend(rate(2, 6), 100, 1) == Bucket(5, 100)  # a lower burst counts at once
