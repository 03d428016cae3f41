"""The suites, by name."""

from collections.abc import Mapping
from typing import Final

from veen.selftest import (
    authority,
    calling,
    fuzzing,
    keeping,
    messages,
    observing,
    operating,
    props,
    walleting,
)
from veen.selftest.steps import Step

_PARTS: Final[Mapping[str, tuple[Step, ...]]] = {
    "core": (*messages.STEPS, *authority.STEPS, *keeping.STEPS, *observing.STEPS, *calling.STEPS),
    "props": props.STEPS,
    "fuzz": fuzzing.STEPS,
    "wallet": walleting.STEPS,
    "plus-plus": (*operating.STEPS, *walleting.STEPS),
}
#: ``all`` is every one of them; a step of two suites is done once.
SUITES: Final[Mapping[str, tuple[Step, ...]]] = {
    **_PARTS,
    "all": tuple(dict.fromkeys(step for steps in _PARTS.values() for step in steps)),
}


def step_names(suite: str) -> list[str]:
    """Return the names of the steps of a suite."""
    return [step.name for step in SUITES[suite]]


assert len(set(step_names("all"))) == len(step_names("all")), "every step has a name of its own"
