"""What commands that show a state share: folding a stream, and loading code of the user's."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from veen.cli.errors import USAGE, CommandError
from veen.cli.printing import note, progress
from veen.client.client import Client
from veen.client.interpreting import Interpretation, interpret
from veen.overlays.overlay import Overlay


def folded(
    opened: Client,
    overlay: Overlay,
    stream: str,
    upto: int | None = None,
    **more: Any,  # noqa: ANN401
) -> Interpretation:
    """Fold a stream, with a bar if it takes long; a person is told if summaries could not be kept."""
    with progress("entries") as advance:
        found = interpret(opened, overlay, stream, upto=upto, progress=advance, **more)
    for text in found.notes:
        note(text)
    if found.provisional:
        note("entries may still come before some of these: the state is provisional")
    return found


def load_module(text: str) -> ModuleType:
    """Load a module of the user's: by its name, or a .py file."""
    try:
        if not text.endswith(".py"):
            return importlib.import_module(text)
        path = Path(text).expanduser()
        spec = importlib.util.spec_from_file_location(f"veen_user_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look for their module there
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever is in it
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CommandError(f"{text} can not be loaded: {what}", USAGE) from None
    return module
