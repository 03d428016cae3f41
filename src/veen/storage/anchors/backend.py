"""What all backends have in common."""

from dataclasses import dataclass
from typing import Protocol

from veen.core.types import NodeHash


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an anchor binds a root, and why it does or does not. True or false like a bool."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        """Tell whether it does."""
        return self.ok


class Backend(Protocol):
    """A place where roots are published."""

    name: str

    def publish(self, root: NodeHash, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Publish a root; return the anchor_ref when that cannot be lost any more. AnchorError if not."""

    def verify(self, root: NodeHash, anchor_ref: bytes) -> Verdict:
        """Tell whether an anchor_ref binds this root."""

    def close(self) -> None:
        """Let go of what is held."""
