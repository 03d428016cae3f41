"""The tree on top of each ``errors.py`` is the tree of its classes."""

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

import veen
from tests.paths import ROOT
from veen.core.errors import VeenError

_BRANCH = re.compile(r"^(?P<indent>[ │]*(?:[├└]── )?)(?P<name>[A-Z]\w*(?:Error|Exception))\b")
_PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "veen").glob("*/errors.py"))


def _drawn(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the classes of a tree, each with the one that it is drawn under."""
    above: list[tuple[int, str]] = []
    for line in docstring.splitlines():
        if (branch := _BRANCH.match(line)) is None:
            continue
        above = [item for item in above if item[0] < branch.end("indent")]
        if above:
            yield branch["name"], above[-1][1]
        above.append((branch.end("indent"), branch["name"]))


def _parent(cls: type, own: dict[str, type]) -> set[str]:
    """Return what a class may be drawn under: a base of its own module, else any of its ancestors."""
    names = {base.__name__ for base in cls.__bases__}
    return names & set(own) or {base.__name__ for base in cls.__mro__[1:]}


def _wrong(module: ModuleType) -> list[str]:
    """Return the classes that a tree leaves out, or draws elsewhere; one class alone needs no tree."""
    drawn = dict(_drawn(inspect.getdoc(module) or ""))
    listed = (getattr(veen.errors, name) for name in veen.errors.__all__)
    own = {cls.__name__: cls for cls in listed if cls.__module__ == module.__name__}
    below = {name: cls for name, cls in own.items() if cls is not VeenError}
    if len(below) == 1 and not drawn:
        return []
    return sorted(name for name, cls in below.items() if drawn.get(name) not in _parent(cls, own))


@pytest.mark.parametrize("package", _PACKAGES)
def test_the_tree_is_drawn_as_it_is(package: str) -> None:
    module = importlib.import_module(f"veen.{package}.errors")
    assert _wrong(module) == []


def test_a_tree_that_is_drawn_wrongly_is_found() -> None:
    drawn = "VeenError\n└── NetError\n├── TlsError   why\n└── RoutingError\n    └── MethodError  ... why\n"
    assert dict(_drawn(drawn)) == {
        "NetError": "VeenError",
        "TlsError": "VeenError",
        "RoutingError": "VeenError",
        "MethodError": "RoutingError",
    }
