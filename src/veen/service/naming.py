"""What a service is called."""

from collections.abc import Collection

from veen.hub.http.addressing import Names, parse_host
from veen.hub.machine import machine_names
from veen.hub.server import StartError


def served_names(hosts: Collection[str]) -> Names:
    """Return the names that were given, or else those of the machine."""
    found = set()
    for host in hosts:
        name = parse_host(host)
        if name is None:
            raise StartError(f"--host is a name without a port, for example logs.example, not {host!r}")
        found.add(name)
    return Names(
        hosts=frozenset(found) or machine_names(), advice="give it to the service at its start, --host NAME"
    )
