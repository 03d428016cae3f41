"""Which stream and epoch a label belongs to, and what follows from not knowing (C-31 to C-33)."""

import pytest

from tests import builders
from tests.admission.memory_hub import (
    EPOCH_SEC,
    NOW,
    RESERVED,
    ROUTING,
    Hub,
    epoch_at,
    label_of,
    policy,
    record,
)
from tests.builders import cap_token, stream
from tests.expect import refused
from veen.core.data_dir.store_records import StreamEpoch
from veen.core.errors import Code, Detail
from veen.core.limits import EPOCH_PROBE, Limits
from veen.core.objects import labels
from veen.core.types import Label

EPOCH = epoch_at(NOW)
#: With a skew of one epoch: how far the last label of the search is away.
REACH = 1 + EPOCH_PROBE


def hub_with(*streams: str, epoch_sec: int = EPOCH_SEC) -> Hub:
    """Return a hub that knows a token for these streams."""
    hub = Hub(policy=policy(epoch_sec=epoch_sec))
    hub.view.authorize(cap_token(streams=streams), NOW)
    return hub


def sent(
    label: Label, *streams: str, client_seq: int = 1, prev_ack: int = 0
) -> tuple[Hub, StreamEpoch | None]:
    """Submit a message with a token for these streams; return the hub and what it found out."""
    hub = hub_with(*streams)
    found = hub.take(
        record(label, client_seq=client_seq, prev_ack=prev_ack, auth_ref=cap_token(streams=streams).auth_ref)
    )
    return hub, found.binding


# --- with a token -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "b", "c"])
@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_a_label_of_any_stream_of_the_token_in_the_window_is_found(name: str, ahead: int) -> None:
    hub, found = sent(label_of(name, ahead=ahead), "a", "b", "c")
    assert found == StreamEpoch(stream(name), EPOCH + ahead)
    assert hub.view.bindings == {label_of(name, ahead=ahead): found}


@pytest.mark.parametrize("ahead", [-REACH, -2, 2, REACH])
def test_a_label_around_the_window_is_in_scope_and_out_of_time(ahead: int) -> None:
    with refused(Detail.EPOCH, field="label", code=Code.TIME) as caught:
        sent(label_of("a", ahead=ahead), "a")
    assert caught.value.fields == {"field": "label", "expected": EPOCH, "actual": EPOCH + ahead}


@pytest.mark.parametrize("ahead", [-REACH, -2, 2, REACH])
def test_a_label_out_of_time_shows_every_other_mistake_first(ahead: int) -> None:
    with refused(Detail.CLIENT_SEQ):
        sent(label_of("a", ahead=ahead), "a", client_seq=2)
    with refused(Detail.PREV_ACK):
        sent(label_of("a", ahead=ahead), "a", prev_ack=1)


@pytest.mark.parametrize(
    "label",
    [
        label_of("b"),
        label_of("a", ahead=-REACH - 1),
        label_of("a", ahead=REACH + 1),
        labels.label(builders.routing_key("other hub"), stream("a"), EPOCH),
        builders.some_label(),
    ],
    ids=["other stream", "long ago", "far ahead", "other hub", "no stream"],
)
def test_a_label_that_is_not_found_is_out_of_scope(label: Label) -> None:
    with refused(Detail.AUTH_REF, field="label", code=Code.AUTH):
        sent(label, "a")


def test_a_known_label_is_looked_up_and_its_stream_must_be_the_token_s() -> None:
    long_ago = label_of("a", ahead=-1_000)
    hub = hub_with("a")
    hub.view.authorize(cap_token(streams=("b",)), NOW)
    hub.view.bindings[long_ago] = StreamEpoch(stream("a"), EPOCH - 1_000)
    with refused(Detail.EPOCH) as caught:
        hub.judge(record(long_ago, auth_ref=cap_token(streams=("a",)).auth_ref))
    assert caught.value.fields["actual"] == EPOCH - 1_000
    with refused(Detail.AUTH_REF, field="label"):
        hub.judge(record(long_ago, auth_ref=cap_token(streams=("b",)).auth_ref))


def test_what_is_known_is_not_found_out_again() -> None:
    hub, found = sent(label_of("a"), "a")
    assert found is not None
    auth_ref = cap_token(streams=("a",)).auth_ref
    assert hub.take(record(label_of("a"), client_seq=2, auth_ref=auth_ref)).binding is None


def test_the_window_follows_the_time_assigned_to_the_message() -> None:
    label = label_of("a")
    auth_ref = cap_token(streams=("a",)).auth_ref
    first, last = EPOCH * EPOCH_SEC - EPOCH_SEC, (EPOCH + 2) * EPOCH_SEC - 1
    hub = hub_with("a")
    for hub_ts in (first, last):
        assert hub.judge(record(label, auth_ref=auth_ref), hub_ts).hub_ts == hub_ts
    for hub_ts in (first - 1, last + 1):
        with refused(Detail.EPOCH):
            hub.judge(record(label, auth_ref=auth_ref), hub_ts)


@pytest.mark.parametrize(("skew", "tolerance"), [(0, 0), (59, 0), (60, 1), (119, 1), (180, 3)])
def test_the_tolerance_is_in_whole_epochs(skew: int, tolerance: int) -> None:
    hub = hub_with("a").under(policy(limits=Limits(max_epoch_skew_sec=skew)))
    auth_ref = cap_token(streams=("a",)).auth_ref
    for ahead in (-tolerance, tolerance):
        hub.judge(record(label_of("a", ahead=ahead), auth_ref=auth_ref))
    for ahead in (-tolerance - 1, tolerance + 1):
        with refused(Detail.EPOCH):
            hub.judge(record(label_of("a", ahead=ahead), auth_ref=auth_ref))


def test_the_search_ends_at_epoch_0() -> None:
    hub = hub_with("a")
    hub.view.auths.clear()  # the token counts from its first use
    auth_ref = cap_token(streams=("a",)).auth_ref
    admitted = hub.judge(record(labels.label(ROUTING, stream("a"), 0), auth_ref=auth_ref), 0)
    assert admitted.binding == StreamEpoch(stream("a"), 0)
    with refused(Detail.EPOCH):
        hub.judge(record(labels.label(ROUTING, stream("a"), REACH), auth_ref=auth_ref), 0)
    with refused(Detail.AUTH_REF):
        hub.judge(record(labels.label(ROUTING, stream("a"), REACH + 1), auth_ref=auth_ref), 0)


def test_without_rotation_a_token_reaches_epoch_0_alone_at_any_time() -> None:
    hub = hub_with("a", epoch_sec=0)
    auth_ref = cap_token(streams=("a",)).auth_ref
    for hub_ts in (NOW, NOW + 3_600):
        admitted = hub.judge(record(labels.label(ROUTING, stream("a"), 0), auth_ref=auth_ref), hub_ts)
        assert admitted.binding == StreamEpoch(stream("a"), 0)
    for epoch in (1, EPOCH):
        with refused(Detail.AUTH_REF, field="label"):
            hub.judge(record(labels.label(ROUTING, stream("a"), epoch), auth_ref=auth_ref))


def test_a_token_of_as_many_streams_as_a_token_may_have_reaches_all() -> None:
    names = tuple(f"stream {number}" for number in range(256))
    hub = hub_with(*names)
    auth_ref = cap_token(streams=names).auth_ref
    for name in (names[0], names[128], names[255]):
        assert hub.judge(record(label_of(name), auth_ref=auth_ref)).binding == StreamEpoch(
            stream(name), EPOCH
        )


# --- without a token ----------------------------------------------------------------------------------------


def test_listed_streams_are_open_to_all() -> None:
    hub = Hub(policy=policy(require_cap=False, streams=("a", "b")))
    admitted = hub.take(record(label_of("b")))
    assert admitted.binding == StreamEpoch(stream("b"), EPOCH)
    assert admitted.bucket is None
    with refused(Detail.EPOCH, code=Code.TIME) as caught:
        hub.judge(record(label_of("b", ahead=2)))
    assert caught.value.fields == {"field": "label", "expected": EPOCH, "actual": EPOCH + 2}


@pytest.mark.parametrize("label", [label_of("c"), label_of("a", ahead=REACH + 1), builders.some_label()])
def test_with_rotation_an_unknown_label_can_not_be_shown_to_be_in_time(label: Label) -> None:
    hub = Hub(policy=policy(require_cap=False, streams=("a", "b")))
    with refused(Detail.EPOCH, code=Code.TIME) as caught:
        hub.judge(record(label))
    assert caught.value.fields == {"field": "label", "expected": EPOCH}


def test_without_rotation_any_label_is_welcome() -> None:
    hub = Hub(policy=policy(require_cap=False, epoch_sec=0))
    for label in (builders.some_label(), label_of("a"), Label(bytes(32))):
        assert hub.judge(record(label)).binding is None


def test_a_label_that_a_token_has_shown_is_open_without_one() -> None:
    hub = hub_with("a")
    hub.take(record(label_of("a"), auth_ref=cap_token(streams=("a",)).auth_ref))
    open_hub = hub.under(policy(require_cap=False))
    assert open_hub.judge(record(label_of("a"), client="other")).binding is None


# --- labels of the hub itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("label", RESERVED)
@pytest.mark.parametrize("epoch_sec", [0, EPOCH_SEC])
def test_reserved_labels_are_closed_to_everybody(label: Label, epoch_sec: int) -> None:
    hub = hub_with("a").under(policy(require_cap=False, epoch_sec=epoch_sec))
    for auth_ref in (None, cap_token(streams=("a",)).auth_ref):
        with refused(Detail.AUTH_REF, field="label", code=Code.AUTH) as caught:
            hub.judge(record(label, auth_ref=auth_ref))
        assert "reserved" in caught.value.message
