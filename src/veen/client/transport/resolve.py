"""Open the hub at an address: over HTTP, or from files."""

from typing import Final

from veen.client.effects import Hub
from veen.client.hub_address import HubAddress
from veen.client.transport.data_directory import DataDirectory, find_running
from veen.client.transport.http import HttpHub
from veen.client.transport.portable_set import PortableSet, is_portable

DEFAULT_TIMEOUT_SEC: Final = 10.0


def open_hub(address: HubAddress, timeout_sec: float = DEFAULT_TIMEOUT_SEC) -> Hub:
    """Open a hub: at its URL, the one that runs in a directory, or the files there."""
    path = address.path
    if path is None:
        return HttpHub(address.url, timeout_sec)
    if is_portable(path):
        return PortableSet(path)
    running = find_running(path)
    return DataDirectory(path) if running is None else HttpHub(running.url, timeout_sec, running.door)
