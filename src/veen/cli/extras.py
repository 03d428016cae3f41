"""Import of the modules that need the extra ``hub``."""

import importlib
from typing import Any

from veen.cli.errors import UsageError


def needing_hub(module: str) -> Any:  # noqa: ANN401 - a module; what is in it is checked where it is written
    """Import a module; name the extra if a library is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed; install it with: pip install 'veen[hub]'") from None
