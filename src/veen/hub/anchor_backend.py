"""The backend that the configuration names."""

from pathlib import Path

from veen.core import layout
from veen.hub.config import Settings
from veen.storage import RealFilesystem
from veen.storage.anchoring import AnchorError, Backend, FileLedger


def make_backend(settings: Settings, data_dir: Path, owner: str) -> Backend | None:
    """Return it, or None; what the configuration names must be there."""
    match settings.anchor_backend:
        case "file":
            path = settings.anchor_ledger or data_dir / layout.ANCHORS_DIR / layout.LEDGER
            if not path.parent.is_dir():
                raise AnchorError(f"anchor_ledger: there is no directory {path.parent}")
            return FileLedger(RealFilesystem(path.parent), path.name, owner)
        case "rfc3161":
            # Its libraries take a while to load, and few hubs need them.
            from veen.storage.anchoring.rfc3161 import Rfc3161, load_roots  # noqa: PLC0415

            assert settings.anchor_url is not None, "the settings have checked it"
            cert = settings.anchor_tsa_cert
            try:
                roots = None if cert is None else load_roots(cert.read_bytes())
            except OSError as error:
                raise AnchorError(f"anchor_tsa_cert: {cert} can not be read: {error.strerror}") from None
            return Rfc3161(settings.anchor_url, roots)
    return None
