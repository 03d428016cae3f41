"""The same messages on the same log at the same times get the same answers (C-67, ADM-033)."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from tests.admission.histories import (
    CHOICES,
    Accepted,
    Authorize,
    Event,
    Judge,
    Message,
    Remembered,
    Step,
    play,
    random_steps,
    rules,
)
from tests.admission.memory_hub import LIMITS, View
from veen.admission.stages import Admitted
from veen.core.data_dir.store_records import ClientCursor
from veen.core.errors import ADMISSION_TABLE, Detail
from veen.core.objects.capability import Rate, effective_rate
from veen.core.objects.new_entry import NewEntry

STEPS = st.lists(
    st.builds(Step, **{name: st.sampled_from(values) for name, values in CHOICES.items()}), max_size=40
)


def judged(events: list[Event], *, fresh: bool) -> tuple[Judge, View]:
    """Judge these events again, with a new memory of labels for each or one for all."""
    memory = Remembered()
    one = rules()
    judge = Judge(memory, rules if fresh else lambda: one)
    for event in events:
        judge.take(event)
    return judge, memory.log


def folded(events: list[Event], accepted: list[Admitted]) -> View:
    """Make the log again from what is in it, without any decision."""
    log = View()
    left = iter(accepted)
    following = next(left, None)
    for event in events:
        match event:
            case Authorize(token, hub_ts) if token.auth_ref not in log.tokens:
                log.authorize(token, hub_ts)
            case Message(record, _) if following is not None and record is following.record:
                log.accept(following)
                following = next(left, None)
            case _:
                pass
    assert following is None
    return log


def check_log(judge: Judge, log: View) -> None:
    """Check what admission promises of any log."""
    by_label: dict[bytes, list[NewEntry]] = defaultdict(list)
    by_token: dict[bytes | None, list[int]] = defaultdict(list)
    for record, hub_ts, _, _ in judge.accepted:
        by_label[record.label].append(record)
        by_token[record.auth_ref].append(hub_ts)
    for records in by_label.values():
        check_numbers(records)
    for auth_ref, token in log.tokens.items():
        check_rate(effective_rate(token, LIMITS), by_token[auth_ref])


def check_numbers(records: list[NewEntry]) -> None:
    cursors: dict[bytes | None, ClientCursor] = defaultdict(ClientCursor)
    for head, record in enumerate(records):
        cursor = cursors[record.client_id]
        assert record.client_seq == cursor.client_seq + 1
        assert cursor.prev_ack <= record.prev_ack <= head
        cursors[record.client_id] = ClientCursor(record.client_seq, record.prev_ack)


def check_rate(rate: Rate, times: list[int]) -> None:
    for nth, start in enumerate(times):
        for count, end in enumerate(times[nth:], start=1):
            assert count <= rate.burst + rate.per_sec * (end - start)


@given(STEPS)
def test_a_history_that_is_judged_again_gets_the_same_verdicts(steps: list[Step]) -> None:
    events, first = play(steps)
    for fresh in (False, True):
        again, log = judged(events, fresh=fresh)
        assert again.verdicts == first.verdicts
        assert again.accepted == first.accepted
        assert log == first.log.view()
        check_log(again, log)
        assert folded(events, again.accepted) == log


@given(STEPS, st.data())
def test_what_was_refused_leaves_no_trace(steps: list[Step], data: st.DataObject) -> None:
    """Without some of the refused messages, the rest get the same verdicts."""
    events, first = play(steps)
    verdicts = iter(first.verdicts)
    kept, expected = [], []
    for event in events:
        if isinstance(event, Message):
            verdict = next(verdicts)
            if not isinstance(verdict, Accepted) and data.draw(st.booleans()):
                continue
            expected.append(verdict)
        kept.append(event)
    again, log = judged(kept, fresh=False)
    assert again.verdicts == expected
    assert log == first.log.view()


def test_histories_reach_every_row_that_needs_a_log() -> None:
    events, first = play(random_steps(3_000, seed=1))
    found = {verdict[2] for verdict in first.verdicts if not isinstance(verdict, Accepted)}
    rows = [row.detail for row in ADMISSION_TABLE]
    assert found == set(rows[rows.index(Detail.CAP_MISSING) :]) - {Detail.NOT_PRIMARY}
    accepted = [verdict for verdict in first.verdicts if isinstance(verdict, Accepted)]
    assert any(verdict.binding for verdict in accepted)
    assert any(verdict.bucket for verdict in accepted)
    assert {verdict.stream_seq for verdict in accepted} > {1, 2, 3}
    again, log = judged(events, fresh=False)
    assert again.verdicts == first.verdicts
    check_log(again, log)
