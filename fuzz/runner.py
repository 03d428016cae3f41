"""Runs targets for a time, and reports exceptions other than our errors."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from fuzz.mutate import mutate
from veen.core.errors import ProtocolError

# Accepted inputs become seeds, because their neighbours are interesting too; at most this many.
MAX_CORPUS = 256
_SLICE_SEC = 0.1
_SHRINK_TRIES = 2_000

Run = Callable[[bytes], None]
Mutate = Callable[[Random, Sequence[bytes]], bytes]


class Skipped(Exception):  # noqa: N818 - not an error of ours
    """The target rejected an input before its parser saw it."""


@dataclass(frozen=True)
class Target:
    """A parser: ``run`` returns, or raises ProtocolError or Skipped; any other exception is a finding."""

    name: str
    run: Run
    seeds: tuple[bytes, ...]
    mutate: Mutate = mutate


@dataclass(frozen=True)
class Finding:
    """An input that made a target raise an unexpected exception."""

    target: str
    seed: int
    case: int
    data: bytes
    error: str
    trace: str

    def __str__(self) -> str:
        """Describe the exception, and how to reproduce it."""
        return (
            f"FINDING in {self.target} (seed {self.seed}, case {self.case})\n"
            f"{self.trace}"
            f"input ({len(self.data)} bytes): {self.data.hex()}\n"
            f"replay: python -m fuzz --target {self.target} --replay {self.data.hex()}"
        )


def outcome(target: Target, data: bytes) -> BaseException | None:
    """Run one input; return its exception unless it is one of ours."""
    try:
        target.run(data)
    except (ProtocolError, Skipped):
        return None
    except Exception as error:  # noqa: BLE001 - any other exception is what is looked for
        return error
    return None


def accepts(target: Target, data: bytes) -> bool:
    """Return whether the target accepts an input."""
    try:
        target.run(data)
    except Exception:  # noqa: BLE001
        return False
    return True


def shrink(target: Target, data: bytes, error: BaseException) -> bytes:
    """Return a smaller input that fails in the same way, by removing ranges."""
    tries = 0
    size = max(len(data) // 2, 1)
    while size and tries < _SHRINK_TRIES:
        start = 0
        while start < len(data) and tries < _SHRINK_TRIES:
            shorter = data[:start] + data[start + size :]
            tries += 1
            if type(outcome(target, shorter)) is type(error):
                data = shorter
            else:
                start += size
        size //= 2
    return data


@dataclass
class Campaign:
    """One target with one seed: the same inputs in the same order, for any duration."""

    target: Target
    seed: int
    cases: int = 0
    _random: Random = field(init=False)
    _corpus: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        """Check that the target accepts the seeds: otherwise the inputs test nothing."""
        self._random = Random(f"{self.seed} {self.target.name}")  # noqa: S311 - repeatable, not secret
        self._corpus = list(self.target.seeds)

    def check_seeds(self) -> Finding | None:
        """Return a finding if a valid object is rejected."""
        for data in self.target.seeds:
            try:
                self.target.run(data)
            except Exception as error:  # noqa: BLE001
                return self._finding(data, error)
        return None

    def next_input(self) -> bytes:
        """Return the next input."""
        self.cases += 1
        return self.target.mutate(self._random, self._corpus)

    def step(self) -> Finding | None:
        """Run one input."""
        data = self.next_input()
        error = outcome(self.target, data)
        if error is not None:
            return self._finding(shrink(self.target, data, error), error)
        if len(self._corpus) < MAX_CORPUS and accepts(self.target, data):
            self._corpus.append(data)
        return None

    def run_for(self, seconds: float) -> Finding | None:
        """Run until the time is over or there is a finding."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            finding = self.step()
            if finding is not None:
                return finding
        return None

    def _finding(self, data: bytes, error: BaseException) -> Finding:
        trace = "".join(traceback.format_exception(error)[-6:])
        return Finding(self.target.name, self.seed, self.cases, data, repr(error), trace)


def run(
    targets: Sequence[Target], *, seconds: float, seed: int, progress: Callable[[str], None] | None = None
) -> tuple[list[Finding], int]:
    """Run all targets; return at most one finding of each, and the number of cases."""
    campaigns = [Campaign(target, seed) for target in targets]
    findings: dict[str, Finding] = {}
    for campaign in campaigns:
        finding = campaign.check_seeds()
        if finding is not None:
            findings[campaign.target.name] = finding
    start = time.monotonic()
    slice_sec = min(_SLICE_SEC, seconds / len(campaigns))
    while (elapsed := time.monotonic() - start) < seconds:
        running = [campaign for campaign in campaigns if campaign.target.name not in findings]
        if not running:
            break
        for campaign in running:
            finding = campaign.run_for(slice_sec)
            if finding is not None:
                findings[finding.target] = finding
            elapsed = time.monotonic() - start
            if progress is not None:
                cases = sum(each.cases for each in campaigns)
                progress(
                    f"{elapsed:5.0f} s  {cases:9} cases  findings: {len(findings)}  {campaign.target.name}"
                )
            if elapsed >= seconds:
                break
    return list(findings.values()), sum(campaign.cases for campaign in campaigns)
