"""The address of a hub: an http(s) URL, or a directory as a path or ``file://`` URI.

Whether a hub runs in the directory is determined by ``veen.client.transport.resolve``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from veen.stdx.loopback import is_loopback

_URL_SCHEMES: Final = ("http://", "https://")
_FILE_SCHEME: Final = "file://"


def is_http_url(text: str) -> bool:
    """Return whether a text is an http(s) URL rather than a path."""
    return text.startswith(_URL_SCHEMES)


def check_http_url(url: str) -> None:
    """Reject a URL that cannot be requested over HTTP.

    Raises:
        ValueError: A part of the URL is invalid; the text says which.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is invalid
    except ValueError as error:
        raise ValueError(f"{url} is not a URL: {error}") from None
    if not parts.hostname:
        raise ValueError(f"{url} has no host")
    if not parts.path.isascii():
        raise ValueError(f"{url} is not a URL: its path must be percent-encoded")


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A URL or a directory.

    Attributes:
        url: The URL without a trailing slash; empty for a directory.
        path: The directory as it was written; None for a URL.
    """

    url: str = ""
    path: Path | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a URL, a path or a ``file://`` URI; any text is one of them."""
        if is_http_url(text):
            return cls(url=text.rstrip("/"))
        path = unquote(urlsplit(text).path) if text.startswith(_FILE_SCHEME) else text
        return cls(path=Path(path).expanduser())

    @property
    def name(self) -> str:
        """The URL or absolute path: what clients pin, independent of their working directory."""
        return self.url if self.path is None else str(self.path.absolute())

    @property
    def is_loopback(self) -> bool:
        """Whether it is a URL with a loopback host."""
        return is_loopback(urlsplit(self.url).hostname or "")


def check_hub_address(text: str) -> HubAddress:
    """Parse the address of a hub as a user typed it.

    Raises:
        ValueError: It is not a valid http(s) URL, nor a path; the text says why.
    """
    if is_http_url(text):
        check_http_url(text)
    elif "://" in text and not text.startswith(_FILE_SCHEME):
        raise ValueError(f"{text} is neither an http(s) URL nor a data directory")
    return HubAddress.parse(text)
