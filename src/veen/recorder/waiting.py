"""What waits in the spools of a client: events that the hub does not have yet."""

from itertools import zip_longest
from pathlib import Path
from typing import Any

from veen.recorder.journal import read_progress
from veen.recorder.shipping import JOURNAL, PLACE
from veen.recorder.spool import find_spools, segment_path, segments, whole_frames


def spool_depth(home: Path) -> dict[str, Any] | None:
    """Return how many events and bytes wait in the spools of a client; None if it has none."""
    root = home / PLACE
    if not root.is_dir():
        return None
    done = read_progress(root / JOURNAL).done
    events = size = 0
    for place in find_spools(root):
        last = done.get(place.name, 0)
        there = segments(place)
        for first, after in zip_longest(there, there[1:]):
            try:
                path = segment_path(place, first)
                size += path.stat().st_size
                end = after or max(
                    (item.number + 1 for item in whole_frames(path.read_bytes(), first)), default=first
                )
            except FileNotFoundError:  # the hub has it by now
                continue
            events += max(end - max(first, last + 1), 0)
    return {"events": events, "bytes": size}
