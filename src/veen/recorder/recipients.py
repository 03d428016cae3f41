"""Who can read what is recorded: those who have the key of the stream, or whom it is sealed to.

A client that has neither seals to itself (``Sending``): what it records is in the log, and nobody else can
read it.
"""

from typing import Final

from veen.client.keystore import Secrets
from veen.client.sending import Options
from veen.core import labels

#: What to do about it, but for ``--to``.
GET_KEY: Final = "an admin gives the key with veen recorder share, and veen reader accept takes it"


def has_readers(secrets: Secrets, options: Options, stream: str) -> bool:
    """Tell whether anybody can read what is sealed for a stream, but for the client that seals it."""
    return options.to is not None or secrets.stream_key(labels.stream_id(stream)) is not None
