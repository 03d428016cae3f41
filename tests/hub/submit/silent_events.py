"""The submit path's reports, where none is expected."""

from collections.abc import Sequence

from veen.hub.submit.submission import Submission


class NoEvents:
    """Fails at whatever is reported."""

    def decided(self, messages: Sequence[Submission]) -> None:
        raise AssertionError(messages)

    def worker_lost(self) -> None:
        raise AssertionError

    def bug(self, error: Exception) -> None:
        raise AssertionError from error

    def fatal(self, error: Exception) -> None:
        raise AssertionError from error
