"""Generate ``veen.errors`` and the snapshot of all public signatures from the public names.

Usage: python -m tools.public_api [--check]
"""

import argparse
import ast
import importlib
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import veen
from tools.ruff import formatted
from veen.core.errors import VeenError

_ROOT = Path(__file__).resolve().parents[1]
ERRORS = _ROOT / "src" / "veen" / "errors.py"
SIGNATURES = _ROOT / "tests" / "public" / "signatures.txt"
PACKAGES = (
    "veen",
    "veen.client",
    "veen.core",
    "veen.errors",
    "veen.overlays",
    "veen.pipeline",
    "veen.recorder",
    "veen.testing",
)

_ERRORS_HEAD = '''"""Every error of VEEN in one module. Written by ``python -m tools.public_api``.

try:
    client.send("orders", {"item": "tea"})
except veen.errors.NetworkError:
    ...  # the hub cannot be reached; retry later
except veen.errors.VeenError as error:
    print(error)

All of them are a ``VeenError``; each package draws the tree of its errors on top of its ``errors`` module.
Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from veen.stdx.lazy_exports import lazy_exports
'''


def error_classes() -> set[type[VeenError]]:
    """Return every error class of every package; private ones do not leave their module."""
    for module in pkgutil.walk_packages(veen.__path__, "veen."):
        if not module.name.endswith("__main__") and module.name != "veen.errors":
            importlib.import_module(module.name)
    classes = (cls for cls in _subclasses(VeenError) if cls.__module__.startswith("veen."))
    return {cls for cls in classes if not cls.__name__.startswith("_")}


def _subclasses(cls: type[VeenError]) -> Iterator[type[VeenError]]:
    yield cls
    for subclass in cls.__subclasses__():
        yield from _subclasses(subclass)


def errors_module() -> str:
    """Return the source of ``veen.errors``."""
    names_of: dict[str, list[str]] = {}
    for cls in sorted(error_classes(), key=lambda cls: cls.__name__):
        names_of.setdefault(cls.__module__.removeprefix("veen."), []).append(cls.__name__)
    lines = [_ERRORS_HEAD, "if TYPE_CHECKING:"]
    lines += [
        f"    from veen.{module} import {', '.join(names)}" for module, names in sorted(names_of.items())
    ]
    listed = sorted(name for names in names_of.values() for name in names)
    lines += ["", "__all__ = [", *(f'    "{name}",' for name in listed), "]", ""]
    lines += [
        "if not TYPE_CHECKING:",
        "    __getattr__, __dir__ = lazy_exports(",
        "        __name__,",
        "        {",
    ]
    for module, names in sorted(names_of.items()):
        quoted = ", ".join(f'"{name}"' for name in names)
        lines.append(f'            "{module}": ({quoted},),')
    lines += ["        },", '        root="veen",', "    )", ""]
    return formatted("\n".join(lines), ERRORS)


def signatures() -> str:
    """Return every public name with its signature, one per line."""
    lines: list[str] = []
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            lines += lines_of(f"{package}.{name}", getattr(module, name))
    return "\n".join(lines) + "\n"


def lines_of(name: str, item: object) -> Iterator[str]:
    """Yield the lines of a public name: its signature, and those of its members."""
    if isinstance(item, ModuleType):
        yield f"{name}: module"
    elif isinstance(item, type) and issubclass(item, VeenError) and not name.startswith("veen.errors."):
        yield f"{name}: see veen.errors"
    elif isinstance(item, type):
        tree = _definition(item)
        assert isinstance(tree, ast.ClassDef)
        yield f"{name}: {_marks(tree)}class({', '.join(map(ast.unparse, tree.bases))})"
        for member in tree.body:
            yield from _member(name, member)
    elif isinstance(item, FunctionType):
        tree = _definition(item)
        assert isinstance(tree, ast.FunctionDef)
        yield f"{name}{_signature(tree)}"
    else:
        yield f"{name}: {type(item).__name__}"


def _definition(item: type | FunctionType) -> ast.stmt:
    return ast.parse(textwrap.dedent(inspect.getsource(item))).body[0]


def _member(name: str, member: ast.stmt) -> Iterator[str]:
    match member:
        case ast.AnnAssign(target=ast.Name(id=field)) if not field.startswith("_"):
            default = "" if member.value is None else f" = {ast.unparse(member.value)}"
            yield f"{name}.{field}: {ast.unparse(member.annotation)}{default}"
        case ast.Assign(targets=[ast.Name(id=field)]) if not field.startswith("_"):
            yield f"{name}.{field} = {ast.unparse(member.value)}"
        case ast.FunctionDef(name="__init__"):
            yield f"{name}.__init__{_signature(member)}"
        case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_public(member.name):
            kind = "async " if isinstance(member, ast.AsyncFunctionDef) else ""
            yield f"{name}.{member.name}: {_marks(member)}{kind}{_signature(member)}"


def _is_public(name: str) -> bool:
    """Return whether programs call a method, directly or by an operator or a statement."""
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def _marks(item: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return "".join(f"@{ast.unparse(mark)} " for mark in item.decorator_list)


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returns = "" if function.returns is None else f" -> {ast.unparse(function.returns)}"
    return f"({ast.unparse(function.args)}){returns}"


def main() -> int:
    """Write both files, or report which one is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = 0
    for path, content in ((ERRORS, errors_module), (SIGNATURES, signatures)):
        text = content()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"{path.relative_to(_ROOT)} is out of date; run: python -m tools.public_api")
        else:
            path.write_text(text, encoding="utf-8")
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main())
