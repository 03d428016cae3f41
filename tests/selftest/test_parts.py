"""The parts that runs are made of."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import pytest

from veen.client.errors import RejectedError
from veen.core.errors import Code, Detail, ProtocolError
from veen.core.objects.error_envelope import ErrorEnvelope
from veen.selftest.context import Context
from veen.selftest.errors import StepFailedError
from veen.selftest.generate import MUTATIONS, mutate, sample, wire_types
from veen.selftest.runner import Outcome, Setup, run
from veen.selftest.step import Needs, Step, check, equal, poll, refused, rejected, step

if TYPE_CHECKING:
    from pathlib import Path


def _chance(seed: int) -> Random:
    return Random(seed)


def _step(name: str, does: Callable[[Context], str]) -> Step:
    return Step(name, name, Needs.NONE, "", does)


def _raise(error: Exception) -> str:
    raise error


def test_a_failed_step_does_not_stop_the_others() -> None:
    told: list[Outcome] = []
    steps = [
        _step("first", lambda _: "fine"),
        _step("found", lambda _: _raise(StepFailedError("this is wrong"))),
        _step("unforeseen", lambda _: _raise(ZeroDivisionError("by zero"))),
        _step("refused", lambda _: _raise(ProtocolError(Detail.VALUE, "no"))),
        _step("last", lambda _: "fine too"),
    ]
    report = run("some", steps, Setup(), told.append)
    assert report.failed == ["found", "unforeseen", "refused"]
    assert not report.ok
    assert told == report.steps
    assert [item.detail for item in told][:3] == ["fine", "this is wrong", "ZeroDivisionError: by zero"]


def _ignore(_outcome: Outcome) -> None:
    """Keep nothing of an outcome."""


def test_nothing_checked_is_not_ok() -> None:
    assert not run("none", [], Setup(), _ignore).ok


def test_chance_depends_on_seed_and_name_alone() -> None:
    drawn: list[bytes] = []

    def draw(context: Context) -> str:
        drawn.append(context.random.randbytes(8))
        return ""

    run("one", [_step("a", draw), _step("b", draw)], Setup(seed=1), _ignore)
    run("two", [_step("b", draw)], Setup(seed=1), _ignore)
    run("three", [_step("b", draw)], Setup(seed=2), _ignore)
    a, b, alone, other = drawn
    assert b == alone
    assert len({a, b, other}) == 3


def test_what_a_run_writes_is_gone() -> None:
    places: list[Path] = []

    def write(context: Context) -> str:
        places.append(context.scratch)
        (context.scratch / "file").write_text("x")
        raise StepFailedError("failed")

    run("writes", [_step("writes", write)], Setup(), _ignore)
    assert not places[0].exists()


def test_an_interrupted_run_tidies_up() -> None:
    places: list[Path] = []

    def interrupt(context: Context) -> str:
        places.append(context.scratch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("interrupted", [_step("interrupted", interrupt)], Setup(), _ignore)
    assert not places[0].exists()


def test_a_step_is_named_and_described_by_its_function() -> None:
    @step(Needs.ANY, own="because")
    def some_thing(_: Context) -> str:
        """Does something."""
        return ""

    assert (some_thing.name, some_thing.about, some_thing.own) == ("some-thing", "Does something", "because")


def test_checks_fail_when_they_should() -> None:
    check(1, "unused")
    equal(1, 1, "unused")
    with pytest.raises(StepFailedError, match="so"):
        check(0, "so")
    with pytest.raises(StepFailedError, match="number: 1 instead of 2"):
        equal(1, 2, "number")
    with pytest.raises(StepFailedError, match="not within"):
        poll(lambda: False, "never", 0.05)


def test_a_refusal_must_be_the_right_one() -> None:
    def refuse() -> None:
        raise RejectedError(ErrorEnvelope(code="E.SEQ", message="no", detail={"detail_enum": "DUPLICATE"}))

    assert refused(refuse, Code.SEQ, Detail.DUPLICATE).code == "E.SEQ"
    with pytest.raises(StepFailedError, match="another reason"):
        refused(refuse, Code.SIG)
    with pytest.raises(StepFailedError, match="another reason"):
        refused(refuse, Code.SEQ, Detail.PREV_ACK)
    with pytest.raises(StepFailedError, match="must reject with"):
        refused(lambda: None, Code.SEQ)
    with pytest.raises(StepFailedError, match="accepted"):
        rejected(lambda: None, "it")


def test_there_is_a_sample_of_every_wire_type() -> None:
    random = _chance(1)
    types = wire_types()
    assert {cls.SHAPE.name for cls in types} >= {"MSG", "RECEIPT", "CHECKPOINT", "mmr_proof", "cap_token"}
    for cls in types:
        made = {sample(random, cls).encode() for _ in range(20)}
        assert len(made) > 1, cls


def test_damage_is_repeatable_and_always_damage() -> None:
    corpus = [bytes(range(40)), b"\x82\x00\x01", b"\xa0"]
    first = [mutate(_chance(seed), corpus) for seed in range(300)]
    assert first == [mutate(_chance(seed), corpus) for seed in range(300)]
    assert not set(first) & set(corpus)
    for mutation in MUTATIONS:
        assert isinstance(mutation(_chance(1), b"", corpus), bytes)
