"""A budget of memory that all connections share: requests on their way in, answers not yet sent."""


class ByteBudget:
    """A count of bytes with a bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0

    @property
    def is_full(self) -> bool:
        """Whether no more should be accepted."""
        return self.used >= self._most

    def take(self, size: int) -> None:
        """Count bytes that are held."""
        self.used += size

    def give(self, size: int) -> None:
        """Count bytes that are held no longer."""
        self.used -= size
        assert self.used >= 0, "what is given was taken"
