"""Whom a request is for, and whether a web page has sent it: no page reads or acts here (C-196).

A browser sends what any page wants to any address, also to this machine. It says so: in Origin, and in
Sec-Fetch-Site. And it lets a page read what comes from the page's own name; the owner of a name can have it
lead to an address of ours (rebinding). So requests are taken under our own names only.

``machine_names`` asks the machine for its own names; ``served_names`` adds those an operator gave.
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

#: Letters, digits and dashes as in DNS, and underscores, which names of containers have.
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")
_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]{1,254})(?::([0-9]{0,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://([^/?#@]+)")
_TARGET: Final = re.compile(r"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_PORTS: Final = {"http": 80, "https": 443}
_LOCALHOST: Final = "localhost"
#: What browsers say of requests that no other site has caused: by hand, or by a page of the server's own.
_OWN_SITES: Final = frozenset({"none", "same-origin"})
_MAX_SHOWN: Final = 80


class Authority(NamedTuple):
    """A name or an address, as it was written but in small letters, and a port if there is one."""

    name: str
    port: int | None

    @property
    def is_literal(self) -> bool:
        """Whether it is an address: there is nothing to resolve, and so nothing to rebind."""
        return self.name.startswith("[") or _is_ipv4(self.name)

    def origin(self, scheme: str) -> str:
        """Return the origin of what is served there."""
        port = "" if self.port in {None, _PORTS[scheme]} else f":{self.port}"
        return f"{scheme}://{self.name}{port}"


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


def parse_authority(text: str) -> Authority | None:
    """Read HOST or HOST:PORT; None if it is neither."""
    found = _AUTHORITY.fullmatch(text.lower()) if text.isascii() else None
    if found is None:
        return None
    name, port = found[1], int(found[2]) if found[2] else None
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
    """Return a name as names are compared: a dot at its end says only that it is the whole name."""
    return name.lower().removesuffix(".")


def parse_host(text: str) -> str | None:
    """Read a name that a server can be called by; None if it is none."""
    found = parse_authority(text)
    return None if found is None or ":" in text.rpartition("]")[2] else normal_name(found.name)


def parse_origin(text: str) -> str | None:
    """Read SCHEME://HOST or SCHEME://HOST:PORT, in its normal form; None if it is neither, as ``null`` is."""
    found = _ORIGIN.fullmatch(text.lower()) if text.isascii() else None
    authority = None if found is None else parse_authority(found[2])
    return None if found is None or authority is None else authority.origin(found[1])


def split_target(target: str) -> tuple[str | None, str]:
    """Return the authority of a target that is a whole URL, as it is to a proxy, and the path of any."""
    found = None if target.startswith("/") else _TARGET.fullmatch(target)
    if found is None:
        return None, target
    return found[1], found[2] if found[2].startswith("/") else f"/{found[2]}"


class Head(NamedTuple):
    """What the head of a request says of where it is going and where it comes from."""

    headers: Mapping[str, str]
    #: Headers that are there more than once.
    repeated: Collection[str]
    #: The authority of its target, if that is a whole URL.
    authority: str | None
    version: str
    secure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a server is called, and which pages may ask it."""

    #: As ``parse_host`` returns them. Addresses and localhost need not be named.
    hosts: frozenset[str]
    #: As ``parse_origin`` returns them. Pages of the server itself need not be named.
    origins: frozenset[str] = frozenset()
    #: What an operator does who wants a name to be one of these.
    advice: str

    def check(self, head: Head) -> None:
        """Reject what is not for us, or is sent by a page of another site; the first failing check wins."""
        own = self._require_host(head)
        if head.authority is not None:  # RFC 9112 3.2.2: it counts in place of Host. Here both must be ours
            own = self._require_ours(head.authority, "the host of the target")
        self._require_origin(head, own)

    def _require_host(self, head: Head) -> Authority | None:
        host = head.headers.get("host")
        if "host" in head.repeated:
            raise bad_request("host", "a request must have one Host header, not several")
        if host is not None:
            return self._require_ours(host, "Host")
        if head.version != "1.0":  # which knows of none
            raise bad_request("host", "a request must have a Host header")
        return None

    def _require_ours(self, text: str, what: str) -> Authority:
        found = parse_authority(text)
        if found is None:
            raise bad_request("host", f"{what} must be a name or an address, not {text[:_MAX_SHOWN]!r}")
        name = normal_name(found.name)
        if not found.is_literal and name != _LOCALHOST and name not in self.hosts:
            raise _forbidden("host", f"{name} is not one of the names that are served here: {self.advice}")
        return found

    def _require_origin(self, head: Head, own: Authority | None) -> None:
        """Refuse what a page has sent, unless it is one of ours or of an origin that was named.

        Of a named origin Sec-Fetch-Site says ``cross-site`` or ``same-site``, and truly so: the operator's
        word counts, and what it says is looked at only of the rest. That includes requests without Origin,
        which pages cause too: by links, images and scripts.
        """
        if not {"origin", "sec-fetch-site"}.isdisjoint(head.repeated):
            raise _forbidden("origin", "Origin and Sec-Fetch-Site must not be repeated")
        given = head.headers.get("origin")
        if given is not None:
            origin = parse_origin(given)
            if origin is not None and origin in self.origins:
                return
            if origin is None or own is None or origin != own.origin("https" if head.secure else "http"):
                raise _forbidden("origin", f"pages of {given[:_MAX_SHOWN]!r} may not send requests here")
        if head.headers.get("sec-fetch-site", "none") not in _OWN_SITES:
            raise _forbidden("origin", "pages of other sites may not send requests here")


def _forbidden(field: str, message: str) -> ProtocolError:
    return ProtocolError(Detail.VALUE, message, code=Code.FORBIDDEN, field=field)


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


def served_names(hosts: Collection[str]) -> Names:
    """Return the names that were given, or else those of the machine."""
    found = set()
    for host in hosts:
        name = parse_host(host)
        if name is None:
            raise StartError(f"--host must be a name without a port, for example logs.example, not {host!r}")
        found.add(name)
    return Names(
        hosts=frozenset(found) or machine_names(), advice="start the service with --host NAME to add it"
    )
