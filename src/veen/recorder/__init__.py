"""The server drive recorder on the client side: events, checkpoints, replay and verdicts (SDR lines).

from veen.recorder import Feed, RecorderHandler, RecorderMiddleware

Names are loaded at first use: an application that only logs does not load the rest.
"""

from typing import TYPE_CHECKING

from veen.stdx.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from veen.recorder.errors import (
        BadLineError,
        ManifestError,
        RangeError,
        SpoolFullError,
        StreamNameError,
    )
    from veen.recorder.feed.feed import Feed, Stats
    from veen.recorder.feed.settings import FeedSettings
    from veen.recorder.inputs.asgi import RecorderMiddleware
    from veen.recorder.inputs.logging_handler import RecorderHandler

__all__ = [
    "BadLineError",
    "Feed",
    "FeedSettings",
    "ManifestError",
    "RangeError",
    "RecorderHandler",
    "RecorderMiddleware",
    "SpoolFullError",
    "Stats",
    "StreamNameError",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "errors": (
                "BadLineError",
                "ManifestError",
                "RangeError",
                "SpoolFullError",
                "StreamNameError",
            ),
            "feed.feed": ("Feed", "Stats"),
            "feed.settings": ("FeedSettings",),
            "inputs.asgi": ("RecorderMiddleware",),
            "inputs.logging_handler": ("RecorderHandler",),
        },
    )
