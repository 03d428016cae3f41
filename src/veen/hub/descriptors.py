"""File descriptors: connections get what is left when the hub has what it needs (OS-031)."""

import resource
from typing import Final

#: For files kept open, the journal, the index, worker processes, the log and the operator's socket.
RESERVED: Final = 256
_FEWEST: Final = 16


def connections_within(wanted: int) -> int:
    """Return how many connections may be open at once; the limit of the process is raised first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, max(_FEWEST, soft - RESERVED))
