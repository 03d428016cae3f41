"""Which hosts are this machine."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Report whether a host, an address or ``localhost``, is reached without leaving this machine."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name may resolve to any address
