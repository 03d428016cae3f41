"""Running suites: every step runs, whether others fail or not, and everything is cleaned up.

``SUITES`` lists the suites by name.
"""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from veen.client.errors import ClientError
from veen.client.transport.http import HttpHub
from veen.core.errors import VeenError
from veen.selftest.context import STATUS, Context, Hubs
from veen.selftest.errors import StepFailedError
from veen.selftest.servers import VEEN, terminable, undisturbed
from veen.selftest.step import Needs, Step
from veen.selftest.suites import (
    authority,
    durability,
    fuzz,
    laws,
    messages,
    observability,
    operations,
    query,
    recorder,
    rpc_and_crdt,
    wallet,
)


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a run."""

    seed: int = 1
    # An existing hub; without it, hubs are started for the run.
    hub_url: str = ""
    # The command that starts hubs for the run.
    hub_command: Sequence[str] = VEEN


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step."""

    name: str
    ok: bool
    seconds: float
    detail: str
    skipped: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "detail": self.detail,
            "skipped": self.skipped,
        }


@dataclass(slots=True)
class Report:
    """The outcome of a suite."""

    suite: str
    seed: int
    steps: list[Outcome] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        """The names of the steps that failed."""
        return [item.name for item in self.steps if not item.ok]

    @property
    def ok(self) -> bool:
        """Whether something was checked, and none of it failed."""
        return not self.failed and any(not item.skipped for item in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "ok": self.ok,
            "suite": self.suite,
            "seed": self.seed,
            "steps": [item.to_json() for item in self.steps],
        }


def run(suite: str, steps: Sequence[Step], setup: Setup, on_outcome: Callable[[Outcome], None]) -> Report:
    """Run steps in order; ``on_outcome`` is called after each."""
    report = Report(suite, setup.seed)
    # First of all: if the hub cannot be reached, nothing is run.
    facts: dict[str, Any] = _ask(setup.hub_url) if setup.hub_url else {}
    with terminable(), _scratch() as scratch:
        hubs = Hubs(scratch, setup.hub_command)
        try:
            for item in steps:
                reason = why_not(item, facts) if setup.hub_url else ""
                if reason:
                    outcome = Outcome(item.name, ok=True, seconds=0.0, detail=reason, skipped=True)
                else:
                    # Seeded by name: a step does the same alone as among others.
                    chance = Random(f"{setup.seed}/{item.name}")  # noqa: S311 - reproducible, not secret
                    outcome = _try(item, Context(scratch, chance, hubs, item.needs, setup.hub_url))
                report.steps.append(outcome)
                on_outcome(outcome)
        finally:
            with undisturbed():
                hubs.close()
    return report


def _ask(url: str) -> dict[str, Any]:
    hub = HttpHub(url)
    try:
        facts: dict[str, Any] = hub.answer(STATUS)
        return facts
    finally:
        hub.close()


def why_not(item: Step, facts: dict[str, Any]) -> str:
    """Return why a step cannot run at an existing hub; empty if it can."""
    if item.own:
        return item.own
    rotates = any(profile["epoch_sec"] for profile in facts["profiles"])
    match item.needs:
        case Needs.OPEN if facts["require_cap"]:
            return "this hub requires capability tokens, and the selftest has none"
        case Needs.OPEN if rotates:
            return "the labels of this hub rotate, so it accepts messages for known streams only"
        case Needs.OPEN if facts["pow_difficulty"]:
            return "this hub requires proof of work"
        case Needs.GUARDED | Needs.ROTATING:
            return "this hub does not know the issuer and the stream of the selftest"
    return ""


def _try(item: Step, context: Context) -> Outcome:
    start = time.monotonic()
    try:
        detail = item.run(context)
        context.hubs.check_alive()
    except (StepFailedError, ClientError) as error:
        ok, detail = False, str(error)
    except VeenError as error:
        ok, detail = False, f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - any error fails the step, and the others continue
        ok, detail = False, f"{type(error).__name__}: {error}"
    else:
        ok = True
    finally:
        context.close()
    with contextlib.suppress(StepFailedError):
        context.hubs.check_alive()
    return Outcome(item.name, ok, time.monotonic() - start, detail)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Create a directory for everything that a run writes; remove it at the end."""
    scratch = Path(tempfile.mkdtemp(prefix="veen-selftest-"))
    try:
        yield scratch
    finally:
        with undisturbed():
            shutil.rmtree(scratch, ignore_errors=True)


_PARTS: Final[Mapping[str, tuple[Step, ...]]] = {
    "core": (*messages.STEPS, *authority.STEPS, *durability.STEPS, *observability.STEPS, *rpc_and_crdt.STEPS),
    "props": laws.STEPS,
    "fuzz": fuzz.STEPS,
    "wallet": wallet.STEPS,
    "recorder": recorder.STEPS,
    "plus-plus": (*operations.STEPS, *wallet.STEPS),
}
# ``all`` is all of them; a step of two suites runs once. Queries need Spark, which is an extra and takes
# longer to start than many suites to run, so ``all`` does not include their suite.
SUITES: Final[Mapping[str, tuple[Step, ...]]] = {
    **_PARTS,
    "query": query.STEPS,
    "all": tuple(dict.fromkeys(step for steps in _PARTS.values() for step in steps)),
}


def step_names(suite: str) -> list[str]:
    """Return the names of the steps of a suite."""
    return [step.name for step in SUITES[suite]]


_NAMES: Final = [*step_names("all"), *step_names("query")]
assert len(set(_NAMES)) == len(_NAMES), "every step has a name of its own"
