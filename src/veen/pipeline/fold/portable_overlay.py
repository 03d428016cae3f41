"""Pickle an overlay for executors: by its parameters, and one from a user's file with its code."""

import importlib.util
import sys
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from veen.core.crypto.hash import sha256
from veen.overlays.overlay import Overlay


class Portable:
    """An overlay that can be pickled, and unpickled where its module may be missing."""

    def __init__(self, overlay: Overlay, *, is_known: bool | None = None) -> None:
        self.overlay = overlay
        # Whether its classes can be imported by name, on executors as well.
        self.is_known = _is_importable(type(overlay).__module__) if is_known is None else is_known

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the overlay; as code and parameters if its module cannot be imported elsewhere."""
        cls = type(self.overlay)
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file is None or self.is_known:
            return _portable, (self.overlay, self.is_known)
        values = {item.name: getattr(self.overlay, item.name) for item in fields(self.overlay)}
        return _again, (cls.__module__, Path(file).read_bytes(), cls.__qualname__, values)


def _is_importable(name: str) -> bool:
    """Return whether a module can be found by name, rather than only being in ``sys.modules``."""
    top = name.partition(".")[0]
    return any(
        finder.find_spec(top, None) is not None for finder in sys.meta_path if hasattr(finder, "find_spec")
    )


def _again(module: str, code: bytes, name: str, values: dict[str, Any]) -> Portable:
    return Portable(getattr(_module(module, code), name)(**values), is_known=False)


def _portable(overlay: Overlay, is_known: bool) -> Portable:  # noqa: FBT001 - as pickle calls it
    return Portable(overlay, is_known=is_known)


@lru_cache(maxsize=8)
def _module(name: str, code: bytes) -> ModuleType:
    """Create a module from its code; changed code gets another module."""
    spec = importlib.util.spec_from_loader(f"{name}_{sha256(code).hex()[:16]}", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    exec(compile(code, f"{name}.py", "exec"), module.__dict__)  # noqa: S102 - the user's own overlay
    return module
