"""TLS of servers: version 1.2 or newer, AEAD suites only, no compression (SH0-003)."""

import ssl
from pathlib import Path
from typing import Final

from veen.net.errors import TlsError

# For TLS 1.2; all suites of TLS 1.3 are AEAD.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context of a server; clients may present certificates issued by ``client_ca``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"the certificate {cert} and key {key} cannot be used: {error}") from None
    if client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(f"the certificates of {client_ca} cannot be used: {error}") from None
    return context
