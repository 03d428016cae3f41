"""The server drive recorder: events, checkpoints, replay and verdicts, as a client makes them (SDR lines).

from veen.recorder import Feed, RecorderHandler, RecorderMiddleware

Names are loaded when they are asked for: an application that only logs needs nothing of the rest.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from veen.recorder.feed.feed import Feed, Stats
    from veen.recorder.inputs.asgi import RecorderMiddleware
    from veen.recorder.inputs.logging_handler import RecorderHandler

#: Where each public name is written.
_HOMES: Final = {
    "Feed": "feed.feed",
    "RecorderHandler": "inputs.logging_handler",
    "RecorderMiddleware": "inputs.asgi",
    "Stats": "feed.feed",
}

__all__ = ["Feed", "RecorderHandler", "RecorderMiddleware", "Stats"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of its module
    """Load a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"veen.recorder.{_HOMES[name]}"), name)
