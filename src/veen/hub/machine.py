"""What the machine is called: how a server is addressed unless somebody says otherwise (C-196)."""

import socket
from threading import Thread
from typing import Final

from veen.hub.http.addressing import parse_host

#: How long a name server may take. Who needs the full name and does not get it in time lists it.
_WAIT_SEC: Final = 1.0


def machine_names() -> frozenset[str]:
    """Return the host name of this machine, and its full name if that can be found out."""
    found = [socket.gethostname()]
    asking = Thread(target=lambda: found.append(socket.getfqdn()), name="veen-full-name", daemon=True)
    asking.start()
    asking.join(_WAIT_SEC)
    names = (parse_host(name) for name in list(found))
    return frozenset(name for name in names if name is not None)
