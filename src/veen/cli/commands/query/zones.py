"""Options about other zones: the hubs that copies come from, and the local names of their streams."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from veen.cli.errors import FailedError, UsageError
from veen.core.data_dir import hub_settings
from veen.core.objects.hub_identity import HubIdentity
from veen.storage.directory import read_identity
from veen.storage.errors import DamagedStoreError
from veen.storage.fs import RealFilesystem

OriginOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--origin",
        help="Hub that copies come from: its data directory or an exported set; may be repeated. Required "
        "for evidence of copies.",
        show_default=False,
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="NAME=NAME",
        help="Stream of another zone, and the stream of its copies here; may be repeated. Default: "
        "export/X=import/X.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """Options about other zones (see ``option_groups``)."""

    origin: OriginOption = None
    map: MapOption = None

    def origins(self) -> dict[bytes, HubIdentity]:
        """Return the identities of the hubs that copies come from, by id."""
        identities = map(_identity, self.origin or ())
        return {bytes(identity.hub_id): identity for identity in identities}

    def names(self) -> dict[str, str]:
        """Return the local names of streams of other zones."""
        local_names: dict[str, str] = {}
        for text in self.map or ():
            name, _, local = text.partition("=")
            if not name or not local or name in local_names:
                raise UsageError(f"--map takes NAME=NAME, each stream once, not {text!r}")
            local_names[name] = local
        return local_names


def _identity(directory: Path) -> HubIdentity:
    with closing(RealFilesystem(directory.expanduser())) as files:
        try:
            public = read_identity(files)
        except DamagedStoreError as error:
            raise FailedError(f"--origin {directory}: {error}", "E.DAMAGED") from None
        except OSError as error:
            raise UsageError(f"--origin {directory} cannot be read: {error.strerror}") from None
    if public is None:
        raise UsageError(f"--origin {directory}: {hub_settings.IDENTITY} is missing")
    return public[0]
