"""What streams of the recorder are called."""

from veen.overlays.recorder_schemas import STREAMS


def record_stream(name: str) -> str:
    """Return the name of a stream of the recorder; raises ValueError for what is none, as the bare prefix."""
    if not name.startswith(STREAMS) or name == STREAMS:
        raise ValueError(f"streams of the recorder begin with {STREAMS} and a name follows: {name!r} is none")
    return name
