"""The settings of a query service, passed to its parts unchanged."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

RESULTS_DIR: Final = "results"


def _unix_time() -> int:
    return int(time.time())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The directory, the clock and the limits of a service."""

    state_dir: Path
    concurrency: int = 2
    # Maximum number of waiting queries; more are rejected.
    max_waiting: int = 1000
    # How long running queries may continue when the service stops.
    drain_sec: float = 5.0
    # Delay before a query is retried because the log was unreachable.
    retry_sec: float = 5.0
    clock: Callable[[], int] = _unix_time
    random: Callable[[int], bytes] = os.urandom

    @property
    def results_dir(self) -> Path:
        """The directory of the rows of answers, one directory each."""
        return self.state_dir / RESULTS_DIR


class ServiceEvents(Protocol):
    """Callbacks of a service, called from its own threads."""

    def recorded(self, result_id: str, /) -> None:
        """A query has advanced because an event about it is in the log."""

    def fatal(self, reason: str, /) -> None:
        """The service cannot continue; a restart does."""
