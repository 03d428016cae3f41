"""The hub's own libraries are an extra: a client does without them, and is told if it needs one."""

import importlib
from typing import Any

from veen.cli.errors import UsageError


def needing_hub(module: str) -> Any:  # noqa: ANN401 - a module; what is in it is checked where it is written
    """Import a module that needs the extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing: pip install 'veen[hub]'") from None
