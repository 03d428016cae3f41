"""Public names that a package loads at first use (PEP 562), so that importing the package stays cheap."""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_exports(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that exports names of its modules.

    Type checkers and ``import *`` know nothing of the table: the package imports the same names under
    ``TYPE_CHECKING``, and lists them in ``__all__``.

    Args:
        package: ``__name__`` of the package.
        modules: The names that each module defines; modules are given relative to the package.
    """
    module_of = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def load(name: str) -> Any:  # noqa: ANN401 - of its module
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, names
