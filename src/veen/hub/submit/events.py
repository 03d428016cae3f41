"""Events of the submit path, reported to its hub."""

from collections.abc import Sequence
from typing import Protocol

from veen.hub.submit.submission import Submission


class SubmitEvents(Protocol):
    """The hub as the submit path sees it. Called on the loop."""

    def decided(self, messages: Sequence[Submission]) -> None:
        """Messages were committed or rejected, and their clients answered."""

    def worker_lost(self) -> None:
        """A verifier process ended. Other workers get its messages."""

    def bug(self, error: Exception) -> None:
        """An internal error occurred; its message is answered 503, others are not affected."""

    def fatal(self, error: Exception) -> None:
        """The hub must stop after this error: only a restart can establish what is on disk."""
