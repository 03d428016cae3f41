"""Capability tokens as a fold sees them: pinned inputs, each with the time at which its hub took it."""

from typing import NamedTuple

from veen.core import capability
from veen.core.captoken import CapToken


class Known(NamedTuple):
    """A token, and the time of the record that made it known (C-46)."""

    token: CapToken
    issued_at: int

    @property
    def expires_at(self) -> int:
        """The last second in which it counts."""
        return capability.expires_at(self.token, self.issued_at)
