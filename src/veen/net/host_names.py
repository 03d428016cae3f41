"""Checks of Host, Origin and Sec-Fetch-Site, so that web pages cannot read or change anything (C-196).

A browser lets any page send requests to any address, also to this machine; it reports that in Origin and in
Sec-Fetch-Site. It lets a page read responses from the page's own name, which the owner of the name can make
resolve to one of our addresses (DNS rebinding). So requests are accepted only under our own names.

``machine_names`` returns the names of the machine; ``served_names`` those of the operator, or else these.
"""

import re
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from threading import Thread
from typing import Final, NamedTuple

from veen.core.errors import Code, Detail, ProtocolError, bad_request
from veen.net.errors import StartError

# Letters, digits and dashes as in DNS, and underscores, as in names of containers.
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")
_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]{1,254})(?::([0-9]{0,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://([^/?#@]+)")
_TARGET: Final = re.compile(r"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_PORTS: Final = {"http": 80, "https": 443}
_LOCALHOST: Final = "localhost"
# Sec-Fetch-Site of requests that no other site has caused: the user did, or a page of the server.
_OWN_SITES: Final = frozenset({"none", "same-origin"})
_MAX_SHOWN: Final = 80


class Authority(NamedTuple):
    """A name or an address, in lower case, and a port, if there is one."""

    name: str
    port: int | None

    @property
    def is_literal(self) -> bool:
        """Whether it is an address: nothing is resolved, so nothing can be rebound."""
        return self.name.startswith("[") or _is_ipv4(self.name)

    def origin(self, scheme: str) -> str:
        """Return the origin of a server at this authority."""
        port = "" if self.port in {None, _PORTS[scheme]} else f":{self.port}"
        return f"{scheme}://{self.name}{port}"


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


def parse_authority(text: str) -> Authority | None:
    """Parse HOST or HOST:PORT; None if it is neither."""
    match = _AUTHORITY.fullmatch(text.lower()) if text.isascii() else None
    if match is None:
        return None
    name, port = match[1], int(match[2]) if match[2] else None
    if port is not None and port > 65535:
        return None
    if name.startswith("["):
        try:
            IPv6Address(name[1:-1])
        except AddressValueError:
            return None
    elif not _NAME.fullmatch(name):
        return None
    return Authority(name, port)


def normal_name(name: str) -> str:
    """Return a name in the form for comparison: in lower case, without the dot of an absolute name."""
    return name.lower().removesuffix(".")


def parse_host(text: str) -> str | None:
    """Parse a name or an address without a port; None if it is neither."""
    authority = parse_authority(text)
    return None if authority is None or ":" in text.rpartition("]")[2] else normal_name(authority.name)


def parse_origin(text: str) -> str | None:
    """Parse SCHEME://HOST or SCHEME://HOST:PORT to its normal form; None if it is neither, as ``null``."""
    match = _ORIGIN.fullmatch(text.lower()) if text.isascii() else None
    authority = None if match is None else parse_authority(match[2])
    return None if match is None or authority is None else authority.origin(match[1])


def split_target(target: str) -> tuple[str | None, str]:
    """Return the authority of a target, None unless it is an absolute URL (as to a proxy), and the path."""
    match = None if target.startswith("/") else _TARGET.fullmatch(target)
    if match is None:
        return None, target
    return match[1], match[2] if match[2].startswith("/") else f"/{match[2]}"


class Head(NamedTuple):
    """What the head of a request says about its destination and its origin."""

    headers: Mapping[str, str]
    # Headers that occur more than once.
    repeated: Collection[str]
    # The authority of its target, if that is an absolute URL.
    authority: str | None
    version: str
    secure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of a server, and the pages that may send it requests."""

    # As ``parse_host`` returns them. Addresses and localhost need not be listed.
    hosts: frozenset[str]
    # As ``parse_origin`` returns them. Pages of the server itself need not be listed.
    origins: frozenset[str] = frozenset()
    # What an operator must do to add a name.
    advice: str

    def check(self, head: Head) -> None:
        """Reject requests for other hosts, or from pages of other sites; the first failing check decides."""
        own = self._require_host(head)
        if head.authority is not None:  # RFC 9112 3.2.2: it overrides Host. Here both must be ours
            own = self._require_ours(head.authority, "the host of the target")
        self._require_origin(head, own)

    def _require_host(self, head: Head) -> Authority | None:
        host = head.headers.get("host")
        if "host" in head.repeated:
            raise bad_request("host", "a request must have one Host header, not several")
        if host is not None:
            return self._require_ours(host, "Host")
        if head.version != "1.0":  # which has no Host
            raise bad_request("host", "a request must have a Host header")
        return None

    def _require_ours(self, text: str, what: str) -> Authority:
        authority = parse_authority(text)
        if authority is None:
            raise bad_request("host", f"{what} must be a name or an address, not {text[:_MAX_SHOWN]!r}")
        name = normal_name(authority.name)
        if not authority.is_literal and name != _LOCALHOST and name not in self.hosts:
            raise _forbidden("host", f"{name} is not one of the names that are served here: {self.advice}")
        return authority

    def _require_origin(self, head: Head, own: Authority | None) -> None:
        """Reject requests of pages, except of our own pages and of those of listed origins.

        For a listed origin Sec-Fetch-Site is ``cross-site`` or ``same-site``, which is correct, so only the
        other requests are checked for it. These include requests without Origin, which pages cause too: by
        links, images and scripts.
        """
        if not {"origin", "sec-fetch-site"}.isdisjoint(head.repeated):
            raise _forbidden("origin", "Origin and Sec-Fetch-Site must not be repeated")
        header = head.headers.get("origin")
        if header is not None:
            origin = parse_origin(header)
            if origin is not None and origin in self.origins:
                return
            if origin is None or own is None or origin != own.origin("https" if head.secure else "http"):
                raise _forbidden("origin", f"pages of {header[:_MAX_SHOWN]!r} may not send requests here")
        if head.headers.get("sec-fetch-site", "none") not in _OWN_SITES:
            raise _forbidden("origin", "pages of other sites may not send requests here")


def _forbidden(field: str, message: str) -> ProtocolError:
    return ProtocolError(Detail.VALUE, message, code=Code.FORBIDDEN, field=field)


# How long a name server may take. If it is too slow, an operator can list the full name.
_WAIT_SEC: Final = 1.0


def machine_names() -> frozenset[str]:
    """Return the host name of this machine, and its full name, if it can be resolved in time."""
    names = [socket.gethostname()]
    lookup = Thread(target=lambda: names.append(socket.getfqdn()), name="veen-full-name", daemon=True)
    lookup.start()
    lookup.join(_WAIT_SEC)
    hosts = (parse_host(name) for name in list(names))
    return frozenset(host for host in hosts if host is not None)


def served_names(hosts: Collection[str]) -> Names:
    """Return the listed names, or else those of the machine."""
    names = set()
    for host in hosts:
        name = parse_host(host)
        if name is None:
            raise StartError(f"--host must be a name without a port, for example logs.example, not {host!r}")
        names.add(name)
    return Names(
        hosts=frozenset(names) or machine_names(), advice="start the service with --host NAME to add it"
    )
