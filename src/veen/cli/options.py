"""Values of options, parsed from the words of the command line."""

from typing import Annotated, Final

import typer

from veen.cli.errors import UsageError
from veen.core.encoding.hexadecimal import parse_hex32


def hex32(text: str, option: str) -> bytes:
    """Parse an id, hash or key of 32 bytes in hex."""
    try:
        return parse_hex32(text)
    except ValueError:
        raise UsageError(f"{option} takes 64 hex digits, not {text!r}") from None


def hex32_or_none(text: str, option: str) -> bytes | None:
    """Parse an id, hash or key of 32 bytes in hex, if the option has a value."""
    return hex32(text, option) if text else None


JSON_HELP: Final = "Print one JSON document, for scripts."

JsonFlag = Annotated[bool, typer.Option("--json", help=JSON_HELP)]
