"""Open a log on the driver: a hub's data directory, an exported set, or a hub's address."""

from collections.abc import Container, Sequence

from veen.client.errors import PinError
from veen.client.hub_address import HubAddress
from veen.client.transport.portable_set import is_portable
from veen.core.objects import labels as naming
from veen.core.types import HubId
from veen.pipeline.errors import LogSourceError
from veen.pipeline.log.log import Log


def open_log(
    place: str,
    hub_id: HubId | None = None,
    streams: Sequence[str] = (),
    epochs: Container[int] | None = None,
) -> Log:
    """Open a log; with ``hub_id``, require that it is that hub's.

    A hub's address requires ``streams``; only ``epochs`` are requested from it, if given.
    """
    log = _open(place, streams, epochs)
    if hub_id is not None and log.hub_id != hub_id:
        log.close()
        raise PinError(f"{place} is the log of hub {log.hub_id.hex()}, not of {hub_id.hex()}")
    return log


def _open(place: str, streams: Sequence[str], epochs: Container[int] | None) -> Log:
    address = HubAddress.parse(place)
    if address.path is None:
        from veen.pipeline.log.remote_hub import HubLog

        return HubLog(address.url, [naming.stream_id(name) for name in streams], epochs)
    path = address.path
    if not path.is_dir():
        raise LogSourceError(f"there is no directory {path}; give a data directory, an exported set or a URL")
    if is_portable(path):
        from veen.pipeline.log.portable_set import SetLog

        return SetLog(path)
    from veen.pipeline.log.data_directory import DirectoryLog

    return DirectoryLog(path)
