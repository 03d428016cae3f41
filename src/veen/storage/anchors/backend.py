"""The protocol of all backends."""

from dataclasses import dataclass
from typing import Protocol

from veen.core.types import NodeHash


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an anchor binds a root, with the reason. Has the truth value of ``ok``."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        """Return ``ok``."""
        return self.ok


class Backend(Protocol):
    """Publishes roots."""

    name: str

    def publish(self, root: NodeHash, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Publish a root durably and return the anchor_ref; AnchorError if that fails."""

    def verify(self, root: NodeHash, anchor_ref: bytes) -> Verdict:
        """Return whether an anchor_ref binds this root."""

    def close(self) -> None:
        """Release locks and files."""
