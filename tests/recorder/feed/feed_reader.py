"""What tests of feeds share: reading back what was recorded."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veen.client.client import Client

STREAM = "record/app/test"


def recorded(place: Path, hub: str, stream: str = STREAM) -> list[dict[str, Any]]:
    """Return the bodies of all events of a stream, in their order; each is signed by its principal."""
    with Client.open(place, hub, rotation=None) as client:
        found = list(client.read(stream))
    for message in found:
        assert isinstance(message.body, dict)
        assert message.body["principal_id"] == message.msg.client_id.hex()
    return [message.body for message in found]  # type: ignore[misc] # asserted above


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a condition; fail if it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)
