"""What the parts of the submit path report to the hub that they belong to."""

from collections.abc import Sequence
from typing import Protocol

from veen.hub.submit.submission import Submission


class SubmitEvents(Protocol):
    """The hub as the submit path sees it. Called on the loop."""

    def decided(self, messages: Sequence[Submission]) -> None:
        """Messages were committed, or rejected on their way to the log; their clients are answered."""

    def worker_lost(self) -> None:
        """A verifier process ended. Its messages are given to others."""

    def bug(self, error: Exception) -> None:
        """A message met a fault of ours; it is answered 503, and others go on."""

    def fatal(self, error: Exception) -> None:
        """An error that the hub must not survive: the next start finds out what is on disk."""
