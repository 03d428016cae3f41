"""A memory budget shared by all connections: for incoming requests and unsent responses."""


class ByteBudget:
    """A count of bytes with a bound."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used = 0

    @property
    def is_full(self) -> bool:
        """Whether no more should be accepted."""
        return self.used >= self._max_bytes

    def take(self, size: int) -> None:
        """Count bytes that are now in memory."""
        self.used += size

    def give(self, size: int) -> None:
        """Count bytes that are no longer in memory."""
        self.used -= size
        assert self.used >= 0, "what is given was taken"
