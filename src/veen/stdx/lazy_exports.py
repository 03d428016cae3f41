"""Public names that a package loads at first use (PEP 562), so that importing the package stays cheap."""

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any


def lazy_exports(
    package: str,
    modules: Mapping[str, Iterable[str]],
    *,
    submodules: Collection[str] = (),
    root: str | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that exports names of its modules.

    Type checkers and ``import *`` know nothing of the table: the package imports the same names under
    ``TYPE_CHECKING``, and lists them in ``__all__``.

    Args:
        package: ``__name__`` of the package.
        modules: The names that each module defines; modules are relative to ``root``.
        submodules: Modules of the package that are loaded as attributes.
        root: The package that holds the modules. Default: the package itself.
    """
    module_of = {name: f"{root or package}.{module}" for module, names in modules.items() for name in names}

    def load(name: str) -> Any:  # noqa: ANN401 - of its module
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of, *submodules})

    return load, names
