"""What a run has left out of a log because only some streams were asked for.

It is kept, so that whoever writes a hub's directory again from a lake knows that it is not all of it.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from veen.pipeline.lake import layout
from veen.pipeline.lake.commits import Blob, State, canonical
from veen.pipeline.lake.errors import DamagedLakeError
from veen.pipeline.lake.hub import read_blob
from veen.pipeline.lake.planning import Work
from veen.pipeline.lake.writing import write_durably

#: What it is kept as, beside what is kept of the hub.
NAME: Final = "left/out"


class Left(NamedTuple):
    """Entries of a label that were left out."""

    label: str
    first: int
    last: int


def keep(root: Path, state: State, works: Iterable[Work]) -> list[Blob]:
    """Write what a run leaves out, if that is not what is known; nothing, if nothing ever was left out."""
    found = sorted(Left(work.label.hex(), work.first, work.last) for work in works)
    data = canonical([list(item) for item in found])
    blob = Blob(NAME, len(data), hashlib.sha256(data).hexdigest())
    if state.hub.get(NAME) == blob or (not found and NAME not in state.hub):
        return []
    path = root / layout.HUB / blob.sha256
    if not path.exists():
        write_durably(path, data)
    return [blob]


def left_out(root: Path, state: State) -> list[Left]:
    """Return what was left out when the lake was last written to, and is still not in it."""
    blob = state.hub.get(NAME)
    if blob is None:
        return []
    try:
        found = [Left(*item) for item in json.loads(read_blob(root, blob))]
    except (ValueError, TypeError) as error:
        raise DamagedLakeError(f"what was left out of the lake can not be read: {error}") from None
    upto = {label: fact.upto_seq for label, fact in state.labels.items()}
    return [item for item in found if upto.get(item.label, 0) < item.last]
