"""Options about other zones: hubs that copies come from, and what their streams are called here."""

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
        help="A hub that copies come from: its data directory, or an exported set. Evidence of copies needs"
        " it; may be repeated.",
        show_default=False,
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="NAME=NAME",
        help="A stream of another zone, and what its copies are called here; may be repeated."
        " export/X needs none: it is import/X.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """What is known of other zones: options, as ``option_groups`` expands them."""

    origin: OriginOption = None
    map: MapOption = None

    def origins(self) -> dict[bytes, HubIdentity]:
        """Return who the hubs are that copies come from, by their ids; their first keys have signed that."""
        found = map(_identity, self.origin or ())
        return {bytes(identity.hub_id): identity for identity in found}

    def names(self) -> dict[str, str]:
        """Return what streams of other zones are called here."""
        found: dict[str, str] = {}
        for text in self.map or ():
            name, _, local = text.partition("=")
            if not name or not local or name in found:
                raise UsageError(f"--map takes NAME=NAME, each stream once, not {text!r}")
            found[name] = local
        return found


def _identity(place: Path) -> HubIdentity:
    with closing(RealFilesystem(place.expanduser())) as files:
        try:
            found = read_identity(files)
        except DamagedStoreError as error:
            raise FailedError(f"--origin {place}: {error}", "E.DAMAGED") from None
        except OSError as error:
            raise UsageError(f"--origin {place} can not be read: {error.strerror}") from None
    if found is None:
        raise UsageError(f"--origin {place}: it has no {hub_settings.IDENTITY}")
    return found[0]
