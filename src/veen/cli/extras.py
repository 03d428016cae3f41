"""Extras of the installation: what to do if one is missing."""

import importlib
from typing import Any

from veen.cli.errors import UsageError


def needing_hub(module: str) -> Any:  # noqa: ANN401 - a module; what is in it is checked where it is written
    """Import a module; name the extra if a library is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(error.name, "hub") from None


def missing_extra(library: str | None, extra: str) -> UsageError:
    """Return the error for a library that an extra installs; VEEN itself is installed from a clone."""
    return UsageError(
        f"{library} is not installed: this command needs the extra {extra!r}; install it with: "
        f"pip install 'PATH_OF_THE_CLONE[{extra}]'"
    )
