"""What the verifier pool hands on, and how many it says are still to come."""

import asyncio
from collections.abc import Sequence

from tests import builders
from tests.builders import some_label
from tests.hub.submit.silent_events import NoEvents
from veen.admission.prefilter import sized
from veen.admission.stateless import MessageRules
from veen.core.limits import default_limits
from veen.hub.config import Settings
from veen.hub.submit.submission import MessageForm, Submission
from veen.hub.submit.verifier_pool import VerifierPool

LIMITS = default_limits(0)
PROFILE = builders.profile()


def submission(client_seq: int) -> Submission:
    message = builders.msg(builders.context(label=some_label(), client_seq=client_seq))
    body = sized(message.encode(), LIMITS, bare=True)
    made = Submission(MessageForm.MSG, len(body), lambda _: None)
    made.accept(body)
    return made


async def delivered(count: int, *, workers: int) -> list[tuple[int, int]]:
    """Verify messages that come together; return how many were handed on, and how many were then pending.

    No worker is started: the pool then verifies batch by batch itself.
    """
    calls: list[tuple[int, int]] = []
    done = asyncio.Event()

    def deliver(messages: Sequence[Submission], pending: int) -> None:
        assert all(item.record is not None for item in messages)
        calls.append((len(messages), pending))
        if sum(number for number, _ in calls) == count:
            done.set()

    pool = VerifierPool(
        MessageRules(LIMITS, {PROFILE.profile_id: 256}),
        deliver,
        Settings.model_validate({"verify_workers": workers}),
        NoEvents(),
    )
    pool.put([submission(number) for number in range(1, count + 1)])
    await asyncio.wait_for(done.wait(), 30)
    return calls


def test_a_few_messages_are_handed_on_at_once() -> None:
    assert asyncio.run(delivered(2, workers=1)) == [(2, 0)]
    assert asyncio.run(delivered(6, workers=0)) == [(6, 0)]


def test_a_burst_is_announced_and_counted_down() -> None:
    """The sequencer waits for those that it knows of, so that they share a sync."""
    assert asyncio.run(delivered(70, workers=1)) == [(0, 70), (17, 53), (53, 0)]
