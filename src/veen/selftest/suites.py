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
    querying,
    recording,
    walleting,
)
from veen.selftest.steps import Step

_PARTS: Final[Mapping[str, tuple[Step, ...]]] = {
    "core": (*messages.STEPS, *authority.STEPS, *keeping.STEPS, *observing.STEPS, *calling.STEPS),
    "props": props.STEPS,
    "fuzz": fuzzing.STEPS,
    "wallet": walleting.STEPS,
    "recorder": recording.STEPS,
    "plus-plus": (*operating.STEPS, *walleting.STEPS),
}
#: ``all`` is every one of them; a step of two suites is done once. Queries run on Spark, which is an extra
#: and takes longer to start than many suites to run: they have a suite that is not among them.
SUITES: Final[Mapping[str, tuple[Step, ...]]] = {
    **_PARTS,
    "query": querying.STEPS,
    "all": tuple(dict.fromkeys(step for steps in _PARTS.values() for step in steps)),
}


def step_names(suite: str) -> list[str]:
    """Return the names of the steps of a suite."""
    return [step.name for step in SUITES[suite]]


_NAMES: Final = [*step_names("all"), *step_names("query")]
assert len(set(_NAMES)) == len(_NAMES), "every step has a name of its own"
